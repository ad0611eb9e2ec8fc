"""What stays out of memory: a NumPy agent imports neither JAX nor scikit-learn nor SciPy."""

import subprocess
import sys

HEAVY = "heavy = {'jax', 'sklearn', 'scipy', 'networkx', 'matplotlib'} & set(sys.modules)\n"


def run(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import sys\n" + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_importing_problems_imports_nothing_heavy():
    run("import hushgrad.problems\n" + HEAVY + "assert not heavy, heavy")


def test_built_in_problems_run_in_numpy_alone():
    run(
        "import numpy as np\n"
        "from hushgrad.problems import estimation, rendezvous, ridge, logistic, huber\n"
        "X, y = [[[1.0, 0.5]], [[0.0, 1.0], [2.0, -1.0]]], [[1], [0, 1]]\n"
        "for p in (estimation(), estimation(trials=2), rendezvous(), ridge(X, y), logistic(X, y),\n"
        "          huber(X, y)):\n"
        "    t = None if p.n_trials is None else 1\n"
        "    assert p.local_gradient(1, t)(np.zeros(2)).shape == (2,)\n"
        "    p.local_value(0, t)(np.zeros(2)), p.value(np.zeros(2), t)\n"
        "    p.gradient_sum(np.zeros(2), t), p.solution(), p.smoothness(), p.strong_convexity()\n"
        + HEAVY
        + "assert not heavy, heavy"
    )


def test_a_custom_problem_with_a_numpy_gradient_runs_in_numpy_alone():
    run(
        "import numpy as np\n"
        "from hushgrad.problems import Problem\n"
        "p = Problem(lambda t, a: ((t - a) ** 2).sum(), np.eye(3),\n"
        "            gradient=lambda t, a: 2 * (t - a))\n"
        "assert p.dim == 3 and p.local_gradient(0)(np.zeros(3))[0] == -2\n"
        "assert p.value(np.zeros(3)) == 3\n" + HEAVY + "assert not heavy, heavy"
    )


def test_without_jax_autodiff_names_the_extra():
    run(
        "sys.modules['jax'] = None\n"
        "import numpy as np\n"
        "from hushgrad.errors import MissingExtra\n"
        "from hushgrad.problems import Problem\n"
        "try:\n"
        "    Problem(lambda t, a: ((t - a) ** 2).sum(), np.eye(3))\n"
        "except MissingExtra as error:\n"
        "    assert 'hushgrad[sim]' in str(error)\n"
        "else:\n"
        "    raise SystemExit('no error')\n"
    )
