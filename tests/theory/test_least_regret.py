"""The stepsize of least regret: rates are those of the linear step, and none loses less."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.theory.least_regret import largest_extra, least_regret, log_rate
from hushgrad.theory.linear import linear_step
from hushgrad.theory.mean_square import mean_square_radius
from hushgrad.theory.rates import spectral_radius

GRAPHS = [hg.graphs.path(9), hg.graphs.star(6), hg.graphs.complete(5), hg.graphs.ring(12)]
METHODS = {False: hg.EXTRA(), True: hg.PDGNDS()}


def setting(graph, *, is_split, seed=0):
    """W, B̄ and L_i of a network, and log r(λ) by eigenvalues."""
    network = hg.Network(graph)
    W = network.matrix()
    L = np.exp(np.random.default_rng(seed).uniform(0, 1.5, size=len(W)))
    B = (W > 0) / (W > 0).sum(0) if is_split else np.eye(len(W))
    step = linear_step(METHODS[is_split], L[:, None, None], network)
    return network, step, W, B, L


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("graph", GRAPHS)
def test_rates_are_spectral_radii(graph, is_split):
    _, step, W, B, L = setting(graph, is_split=is_split)
    for lam in np.geomspace(0.02, 0.4, 5) / L.max():
        expected = np.log(spectral_radius(step, lam).value)
        assert log_rate(W, B, L, lam) == pytest.approx(expected, rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_largest_stepsize_is_where_the_scalar_problem_ceases_to_be_stable(graph, is_split):
    _, step, W, _, L = setting(graph, is_split=is_split)
    largest = least_regret(W, L, is_split=is_split).largest
    assert spectral_radius(step, 0.97 * largest).value < 1
    assert spectral_radius(step, 1.03 * largest).value > 1


@pytest.mark.parametrize("graph", GRAPHS)
def test_no_stepsize_loses_less_on_the_worse_of_two_problems(graph):
    """H_i = L_i, and H_i = diag(L_i, L_i/1000), by spectral radii and a search of their own."""
    network, step, W, _, L = setting(graph, is_split=False)
    flat = linear_step(hg.EXTRA(), L[:, None, None] / 1000, network)
    choice = least_regret(W, L, is_split=False)
    lams = largest_extra(W, L) * np.geomspace(0.01, 0.999, 60)

    def losses(lams):
        steep, gentle = ([-np.log(spectral_radius(s, v).value) for v in lams] for s in (step, flat))
        return np.array([steep, np.minimum(steep, gentle)])

    every = losses(lams)
    worst = (every.max(axis=1, keepdims=True) / every).max(axis=0)
    mine = (every.max(axis=1) / losses([choice.lam])[:, 0]).max()
    assert mine == pytest.approx(choice.regret, rel=0.1)
    assert mine <= 1.15 * worst.min()  # neighbours of the search are 2^(1/4) apart


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["scalar", "lines", "some"])
def test_fresh_splits_are_stable_in_mean_square_with_other_data_too(graph, kind):
    """Lines: rank-one Hessians in random directions. Some: every other agent has no curvature."""
    network, _, W, _, L = setting(graph, is_split=True, seed=1)
    lam, m = least_regret(W, L, is_split=True).lam, len(W)
    v = np.random.default_rng(2).normal(size=(m, 2))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    H = {
        "scalar": L[:, None, None],
        "lines": L[:, None, None] * v[:, :, None] * v[:, None],
        "some": (L * (np.arange(m) % 2))[:, None, None],
    }[kind]
    step = linear_step(hg.PDGNDS(), H, network)
    assert mean_square_radius(hg.PDGNDS(), step, network, lam) < 1
