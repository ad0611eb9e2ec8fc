"""The methods reach θ*, at the rate and with the precision of the theory."""

import functools

import numpy as np
import pytest

import hushgrad as hg
from support import cases
from support.tables import some

GEOMETRIC = hg.stepsizes.geometric(0.9)


def regression(n=40, d=3, m=5, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n + 3 * i, d)) for i in range(m)]
    theta = rng.normal(size=d)
    return X, [x @ theta + 0.1 * rng.normal(size=len(x)) for x in X]


@functools.cache
def problems():
    X, y = regression()
    return {
        "estimation": hg.problems.estimation(n_agents=5, s=6, d=2, seed=1),
        "ridge": hg.problems.ridge(X, y, regularisation=1.0),
        "logistic": hg.problems.logistic(X, [np.sign(v) for v in y], regularisation=5.0),
    }


# ridge is quadratic as estimation is, and its pooled fit is found below
@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("lazy", "logistic"),
        *[
            pytest.param(form, name, marks=pytest.mark.slow)
            for form in ("lazy", "square")
            for name in ("logistic", "estimation", "ridge")
            if (form, name) != ("lazy", "logistic")
        ],
    ],
)
def test_pdg_nds_with_geometric_deviation_is_exact(name, form):
    problem = problems()[name]
    step = hg.stepsizes.constant(0.2 / problem.smoothness(), GEOMETRIC)
    run = hg.run(
        hg.PDGNDS(stepsize=step, form=form), problem, hg.Network(hg.graphs.paper()), iterations=6000
    )
    assert run.error[0, -1] <= 1e-10 * np.linalg.norm(problem.solution())
    assert run.status == ("converged",)


@pytest.mark.parametrize("name", ["ridge", "logistic"])
def test_agents_that_never_pool_get_the_pooled_fit_of_scikit_learn(name):
    from sklearn.linear_model import LogisticRegression, Ridge

    X, y = regression()
    if name == "ridge":
        pooled = (
            Ridge(alpha=1.0, fit_intercept=False, solver="cholesky")
            .fit(np.vstack(X), np.hstack(y))
            .coef_
        )
    else:
        model = LogisticRegression(
            C=1 / 5.0, fit_intercept=False, solver="newton-cholesky", tol=1e-14
        )
        pooled = model.fit(np.vstack(X), np.sign(np.hstack(y))).coef_[0]
    problem = problems()[name]
    np.testing.assert_allclose(problem.solution(), pooled, rtol=0, atol=1e-8)
    step = hg.stepsizes.constant(0.2 / problem.smoothness(), GEOMETRIC)
    run = hg.run(hg.PDGNDS(stepsize=step), problem, hg.Network(hg.graphs.paper()), iterations=6000)
    assert np.abs(run.x[0] - pooled).max() < 1e-8


def test_pdg_ds_follows_its_one_over_k_rate():
    """From 10³ to 10⁵ iterations the median error falls by 100, within a factor of two."""
    problem = hg.problems.estimation(n_agents=5, s=6, d=2, seed=1)
    run = hg.run(
        hg.PDGDS(),
        problem,
        hg.Network(hg.graphs.paper()),
        iterations=100_000,
        record_every=1000,
        trials=20,
    )
    ratio = run.median_error[1] / run.median_error[-1]
    assert 50 < ratio < 200


@pytest.mark.slow  # test_paper.py sees the stall of Fig. 3
def test_harmonic_deviation_stalls_as_one_over_k_squared_and_geometric_does_not():
    problem = hg.problems.estimation(n_agents=5, s=6, d=2, seed=1)
    network = hg.Network(hg.graphs.paper())
    harmonic = hg.run(
        hg.PDGNDS(stepsize=hg.stepsizes.constant(0.05)), problem, network, iterations=8000,
        record_every=2000, trials=20,
    )  # fmt: skip
    ratio = harmonic.median_error[1] / harmonic.median_error[4]
    assert 8 < ratio < 32  # 4² = 16
    geometric = hg.run(
        hg.PDGNDS(stepsize=hg.stepsizes.constant(0.05, GEOMETRIC)), problem, network,
        iterations=8000, record_every=2000, trials=20,
    )  # fmt: skip
    assert geometric.median_error[1] < 1e-12


@pytest.mark.parametrize(
    "name", some(["EXTRA", "DIGing", "AugDGM", "AsynDGM", "AB", "PushPull", "ADDOPT"], 2)
)
def test_the_baselines_are_exact(name):
    problem = problems()["ridge"]
    algorithm = getattr(hg, name)(stepsize=hg.stepsizes.constant(0.2 / problem.smoothness()))
    run = hg.run(
        algorithm, problem, hg.Network(hg.graphs.paper()), iterations=20_000, record_every=20_000
    )
    assert run.error[0, -1] < 1e-10 * np.linalg.norm(problem.solution())


def test_directed_methods_are_exact_on_a_directed_graph_and_plain_push_of_x_would_not_be():
    q = cases.Quadratics()
    for name in ("AB", "PushPull", "ADDOPT"):
        algorithm = getattr(hg, name)(stepsize=hg.stepsizes.constant(0.05))
        run = hg.run(algorithm, q.problem, cases.directed(), iterations=10_000, record_every=10_000)
        assert run.error[0, -1] < 1e-11


@pytest.mark.optimised
def test_two_step_recursions_drift_by_rounding_and_own_shares_by_subtraction_do_not():
    """Below one ulp of x, rounding loses Δ(λg), and the error grows linearly in k.

    An agent alone subtracts its rounded messages from its vector, so its sums stay exact.
    """
    problem = hg.problems.estimation(n_agents=5, s=6, d=2, seed=1)
    network = hg.Network(hg.graphs.paper())
    algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.05, GEOMETRIC))
    long = hg.run(algorithm, problem, network, iterations=100_000, record_every=10_000)
    early, late = long.error[0, 1], long.error[0, -1]
    assert 1e-13 < 3 * early < late < 1e-9
    both = [
        hg.run(
            algorithm, problem, network, iterations=4000, record_every=4000, engine=engine
        ).error[0, -1]
        for engine in ("stacked", "agents")
    ]
    assert both[1] < 1e-13 < both[0]
