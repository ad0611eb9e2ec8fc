"""Iterations that deviations of stepsizes cost: told before a run, counted in runs."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.theory import stall, tight
from hushgrad.theory.auto import resolve
from hushgrad.theory.curvature import local_curvature
from hushgrad.theory.linear import linear_step
from hushgrad.theory.mean_square import mean_square_radius
from hushgrad.theory.proposals import propose
from hushgrad.theory.rates import iterations_to, spectral_radius, stable_range
from hushgrad.theory.tight import expected_iterations
from support.tables import some

NETWORK = hg.Network(hg.graphs.paper())
PROBLEM = hg.problems.estimation(seed=0)
MOST = 1.3
harmonic, geometric = hg.stepsizes.harmonic, hg.stepsizes.geometric


def reached(algorithm, problem, network, tolerance, iterations):
    """The last iteration near which the median error of 20 trials is above the tolerance.

    Medians are over 5 % of the iterations: the last of many that scatter would come late.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hg.errors.RiskWarning)  # the proven bounds are smaller
        run = hg.run(algorithm, problem, network, iterations=iterations, trials=20, record_every=1)
    tolerance *= max(1.0, float(np.linalg.norm(problem.solution())))
    bins = np.floor(np.log(np.maximum(run.iterations, 1)) / np.log(1.05))
    above = [b for b in np.unique(bins) if np.median(run.error[:, bins == b]) > tolerance]
    assert above[-1] < bins[-1], "the run is too short"
    return 1.05 ** (above[-1] + 1)


def check(algorithm, problem, network, tolerance):
    """Check the iterations of a certificate and of the bar by runs; False: ρ alone decides them."""
    algorithm, _ = resolve(algorithm, problem, network)
    expected = expected_iterations(algorithm, problem, network, tolerance).iterations
    free = replace(algorithm.stepsize, deviation=hg.stepsizes.none())
    alone = expected_iterations(replace(algorithm, stepsize=free), problem, network, tolerance)
    if expected < 1.2 * alone.iterations:
        return False
    found = hg.certify(algorithm, problem, network, tolerance=tolerance)
    assert found.iterations == pytest.approx(expected)
    assert not found.is_bound
    assert any(line.about == "deviation" for line in found.lines)
    counted = reached(algorithm, problem, network, tolerance, int(1.5 * expected))
    assert expected / MOST < counted < MOST * expected, (algorithm, network, expected, counted)
    return True


def deviating(build, deviation, problem=PROBLEM, network=NETWORK):
    chosen, _ = resolve(build, problem, network)
    return replace(chosen, stepsize=replace(chosen.stepsize, deviation=deviation))


EACH = {
    "ϱ/k": (harmonic(1.0), 1e-4),
    "ϱ/k²": (harmonic(2.0), 1e-7),
    "geometric": (geometric(0.98), 1e-7),
    "ϱ/k² once": (harmonic(2.0, drawn="once"), 1e-7),
    "geometric once": (geometric(0.98, drawn="once"), 1e-7),
}


@pytest.mark.parametrize("kind", some(EACH))
def test_runs_take_the_iterations_that_deviations_cost(kind):
    """With fresh splits, whose noise feeds the errors back with the gain 0.2."""
    deviation, tolerance = EACH[kind]
    assert check(deviating(hg.PDGNDS(stepsize="auto"), deviation), PROBLEM, NETWORK, tolerance)


@pytest.mark.parametrize("split", ["fresh", "identity"])
def test_the_moments_are_those_of_a_long_run_at_a_fixed_deviation(split):
    """A run of the linear recursion, written out, against the covariance and its gain."""
    rng, (m, d) = np.random.default_rng(0), (5, 2)
    algorithm = hg.PDGNDS(stepsize="auto", split=getattr(hg.splits, split)())
    lam = resolve(algorithm, PROBLEM, NETWORK)[0].stepsize.limit
    W, slopes, H = NETWORK.matrix(), rng.normal(size=(m, d)), local_curvature(PROBLEM).hessians
    step = linear_step(algorithm, H, NETWORK)
    P, gain = stall._of_draws(algorithm, step, NETWORK, slopes, lam)
    assert (gain > 0.1) == (split == "fresh")
    q, K, M = 400, 1500, (np.eye(m) + W) / 2
    x, w, before = np.zeros((3, q, m, d))
    total = np.zeros((m * d, m * d))
    for k in range(K):
        e = lam * (rng.uniform(size=(q, m, 1)) - 0.5) * slopes
        u = rng.uniform(size=(q, m, m)) * (W > 0)
        B = u / u.sum(axis=1, keepdims=True) if split == "fresh" else np.eye(m)
        v = lam * np.einsum("iab,qib->qia", H, x - w) - e + before
        x, w, before = M @ (2 * x - w) - B @ v, x, e
        if k >= K // 3:
            flat = x.reshape(q, m * d)
            total += flat.T @ flat / q / (K - K // 3)
    np.testing.assert_allclose(P, total, rtol=0, atol=0.04 * np.abs(total).max())


@pytest.mark.parametrize("part", [0.95, 0.999])
def test_moments_near_the_limit_of_stability_are_those_of_many_loops(part, monkeypatch):
    """Their feedback has a gain near 1, and is summed as a geometric series."""
    algorithm = hg.PDGNDS(stepsize="auto")
    H = local_curvature(PROBLEM).hessians
    step = linear_step(algorithm, H, NETWORK)
    slopes = np.random.default_rng(0).normal(size=(5, 2))
    low, high = 0.01, 10.0
    for _ in range(40):
        middle = np.sqrt(low * high)
        is_stable = mean_square_radius(algorithm, step, NETWORK, middle) < 1
        low, high = (middle, high) if is_stable else (low, middle)
    found = stall._of_draws(algorithm, step, NETWORK, slopes, part * low)
    monkeypatch.setattr(stall, "MOST_LOOPS", 20_000)
    monkeypatch.setattr(stall, "SETTLED", 1e-9)
    exact = stall._of_draws(algorithm, step, NETWORK, slopes, part * low)
    assert exact.gain < 1
    np.testing.assert_allclose(found.P, exact.P, rtol=0, atol=0.01 * np.abs(exact.P).max())


def test_bar_and_certificate_follow_the_mean_square(monkeypatch):
    """At the λ that is fastest for the mean, runs with fresh splits take longer than the mean."""
    algorithm = hg.PDGNDS(stepsize="auto", form="square")
    H = local_curvature(PROBLEM).hessians
    step = linear_step(algorithm, H, NETWORK)
    lam = stable_range(step, is_precise=False).fastest
    stepsize = hg.stepsizes.constant(lam, hg.stepsizes.none())
    algorithm = hg.PDGNDS(stepsize=stepsize, form="square")
    mean = iterations_to(1e-6, spectral_radius(step, lam).value)
    expected = expected_iterations(algorithm, PROBLEM, NETWORK, 1e-6)
    assert expected.iterations > 1.2 * mean
    certified = hg.certify(algorithm, PROBLEM, NETWORK, tolerance=1e-6)
    assert expected == (certified.iterations, False)
    monkeypatch.setattr(tight, "QUICK", 10)
    assert expected_iterations(algorithm, PROBLEM, NETWORK, 1e-6) == (mean, True)


def test_a_design_tells_the_rounds_that_it_takes():
    proposals = propose(PROBLEM, NETWORK, tolerance=1e-7, rounds=300)
    paper = next(one for one in proposals if one.name.startswith("the paper's"))
    assert not paper.fits
    assert not paper.is_bound
    network = hg.Network(NETWORK.graph, paper.mixing)
    counted = reached(paper.algorithm, PROBLEM, network, 1e-7, int(1.5 * paper.iterations))
    assert paper.iterations / MOST < counted < MOST * paper.iterations


def test_a_state_too_large_for_its_moments_gets_a_bound_that_says_so(monkeypatch):
    algorithm = deviating(hg.PDGNDS(stepsize="auto"), harmonic(1.0))
    exact = hg.certify(algorithm, PROBLEM, NETWORK, tolerance=1e-4)
    monkeypatch.setattr(stall, "has_moments", lambda step: False)
    found = hg.certify(algorithm, PROBLEM, NETWORK, tolerance=1e-4)
    assert found.is_bound
    assert 0.5 * exact.iterations < found.iterations < 1.2 * exact.iterations
    assert "converges, at least " in found.verdict
    assert found.to_json()["iterations_at_least"]


def test_no_deviation_stalls_a_tracker():
    lam = hg.stepsizes.constant(0.02, harmonic(1.0))
    plain = hg.AugDGM(stepsize=hg.stepsizes.constant(0.02))
    same = (
        expected_iterations(a, PROBLEM, NETWORK, 1e-9) for a in (plain, hg.AugDGM(stepsize=lam))
    )
    assert len(set(same)) == 1


# ---- several problems, graphs and methods


def problems(m):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(m, 12, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=(m, 12))
    X_scaled = X * np.exp(0.4 * rng.normal(size=(m, 1, 1)))
    sign = np.where(y + rng.normal(size=y.shape) > 0, 1.0, -1.0)
    return {
        "estimation": hg.problems.estimation(m, seed=1),
        "ridge": hg.problems.ridge(list(X_scaled), list(y)),
        "logistic": hg.problems.logistic(list(X), list(sign), regularisation=0.1),
    }


GRAPHS = {
    "ring": hg.graphs.ring(8),
    "star": hg.graphs.star(6),
    "path": hg.graphs.path(7),
    "complete": hg.graphs.complete(6),
    "random": hg.graphs.erdos_renyi(12, 0.4, seed=1),
    "grid": hg.graphs.grid(3, 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("deviation", ["ϱ/k", "ϱ/k²", "geometric"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_runs_on_many_problems_take_the_iterations_that_fresh_draws_cost(graph, deviation):
    network = hg.Network(GRAPHS[graph])
    fresh, tolerance = EACH[deviation]
    counts = [
        check(deviating(method, fresh, problem, network), problem, network, tolerance)
        for problem in problems(network.n_agents).values()
        for method in (hg.PDGNDS(stepsize="auto"), hg.EXTRA(stepsize="auto"))
    ]
    assert sum(counts) >= 3
