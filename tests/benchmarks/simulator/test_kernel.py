"""The C kernel that serves as the limit does the same work as the simulator."""

import functools
import itertools
import warnings

import numpy as np
import pytest

import hushgrad as hg
from benchmarks.simulator import limit
from hushgrad.errors import RiskWarning
from hushgrad.problems import losses
from support.tables import combinations, some

ITERATIONS = 20
TOLERANCE = 1e-12


@pytest.fixture(scope="module", autouse=True)
def _needs_a_compiler():
    try:
        limit.compiler()
    except limit.NoCompilerError as error:
        pytest.skip(f"benchmarks/simulator/kernel.c: {error}")


def algorithm(form, scale, power):
    if form == "ds":
        return hg.PDGDS(stepsize=hg.stepsizes.diminishing(scale=scale, power=power))
    return hg.PDGNDS(form=form, stepsize=hg.stepsizes.constant(scale))


def run(form, problem, network, x0, *, scale, power, trials=1):
    """The simulator's estimates; agents one by one need no compiler."""
    engine = "agents" if trials == 1 else "stacked"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RiskWarning)
        return hg.run(
            algorithm(form, scale, power), problem, network,
            iterations=ITERATIONS, trials=trials, seed=5, x0=x0, engine=engine,
        ).x  # fmt: skip


@pytest.fixture
def width(request, monkeypatch):
    """Only this compilation of the kernel; any of them may be the fastest on a machine."""
    monkeypatch.setattr(limit, "WIDTHS", (request.param,))
    return request.param


GRAPHS = {
    "tiny, in registers": hg.graphs.paper(),
    "star, too many colours for registers": hg.graphs.star(6),
    "several blocks, unequal degrees": hg.graphs.erdos_renyi(70, 0.08, seed=2),
}


@functools.cache
def simulated(name, form):
    """The parts of a run, the settings of its stepsize, and the simulator's estimates."""
    network = hg.Network(GRAPHS[name])
    problem = hg.problems.estimation(n_agents=network.n_agents, s=3, d=2, seed=1)
    x0 = np.random.default_rng(0).normal(size=(network.n_agents, 2))
    step = {"scale": 0.05 if form == "ds" else 0.002, "power": int(form == "ds")}
    return (network, problem, x0), step, run(form, problem, network, x0, **step)


def with_widths(names, *columns):
    """Combinations with every compilation."""
    return pytest.mark.parametrize(
        (*names, "width"), combinations(*columns, limit.WIDTHS), indirect=["width"]
    )


@with_widths(["name", "form", "threads"], [*GRAPHS], ["ds", "lazy", "square"], [1, 2])
def test_the_kernel_agrees_with_the_simulator(name, form, threads, width):
    (network, problem, x0), step, ours = simulated(name, form)
    kernel = limit.Limit(network, problem, x0, form=form, seed=5, threads=threads, **step)
    kernel.advance(0, 13)  # an odd number, after which the buffers are swapped
    kernel.advance(13, ITERATIONS - 13)
    assert np.abs(kernel.x - ours).max() <= TOLERANCE * np.abs(ours).max()


# d with every remainder by the vector length, s with and without a remainder by four
@pytest.mark.parametrize(
    ("shape", "width"),
    some(itertools.product([(5, 10), (9, 21), (1, 1), (4, 15)], limit.WIDTHS), 5),
    indirect=["width"],
)
def test_the_kernel_agrees_at_every_shape(shape, width):
    s, d = shape
    network = hg.Network(hg.graphs.small_world(70, 4, 0.2))
    problem = hg.problems.estimation(n_agents=70, s=s, d=d, seed=1)
    x0 = np.random.default_rng(0).normal(size=(70, d))
    kernel = limit.Limit(network, problem, x0, form="ds", seed=5, scale=0.05, power=1)
    kernel.advance(0, ITERATIONS)
    ours = run("ds", problem, network, x0, scale=0.05, power=1)
    assert np.abs(kernel.x - ours).max() <= TOLERANCE * np.abs(ours).max()


@with_widths(["threads"], [1, 2])
def test_trials_in_lanes_agree_with_the_simulator(threads, width):
    network = hg.Network(hg.graphs.paper())
    problem = hg.problems.estimation(n_agents=5, s=3, d=2)
    x0 = np.random.default_rng(0).normal(size=(5, 2))
    kernel = limit.TrialsLimit(
        network, problem, x0, trials=37, seed=5, scale=0.05, power=1, threads=threads
    )
    kernel.advance(0, 13)
    kernel.advance(13, ITERATIONS - 13)
    ours = run("ds", problem, network, x0, scale=0.05, power=1, trials=37)
    assert kernel.x.shape == ours.shape
    assert np.abs(kernel.x - ours).max() <= TOLERANCE * np.abs(ours).max()


@pytest.mark.parametrize(
    ("threads", "width"), some([(2, 4), (1, 8), (1, 4), (2, 8)], 4), indirect=["width"]
)
def test_the_logistic_kernel_agrees_with_the_simulator(threads, width):
    rng = np.random.default_rng(3)
    m, n, d = 6, 30, 21
    X, y = 3 * rng.normal(size=(m, n, d)), np.sign(rng.normal(size=(m, n)))
    data = {"X": X, "y": y, "weight": np.ones((m, n)), "penalty": np.full((m, d), 0.1)}
    problem = hg.Problem(losses.logistic, data, dim=d, gradient=losses.logistic_gradient)
    network, x0 = hg.Network(hg.graphs.ring(m)), rng.normal(size=(m, d))
    kernel = limit.Limit(
        network, problem, x0, form="ds", seed=5, scale=0.01, power=1, threads=threads
    )
    kernel.advance(0, ITERATIONS)
    ours = run("ds", problem, network, x0, scale=0.01, power=1)
    assert np.abs(kernel.x - ours).max() <= TOLERANCE * np.abs(ours).max()


def test_the_fastest_compilation_is_the_limit_and_the_choice_leaves_no_trace(monkeypatch):
    network, x0 = hg.Network(hg.graphs.paper()), np.arange(10.0).reshape(5, 2)
    problem = hg.problems.estimation(n_agents=5, s=3, d=2)
    for fast in limit.WIDTHS:
        seconds = lambda _, width, n, fast=fast: n * (1.0 if width == fast else 1.5)  # noqa: E731  # one line, used here
        monkeypatch.setattr(limit._Kernel, "_seconds", seconds)
        chosen = limit.Limit(network, problem, x0, form="ds", seed=5, scale=0.05, power=1)
        assert chosen.kernel.width == fast
    monkeypatch.undo()
    really = limit.Limit(network, problem, x0, form="ds", seed=5, scale=0.05, power=1)
    np.testing.assert_array_equal(really.x[0], x0)
