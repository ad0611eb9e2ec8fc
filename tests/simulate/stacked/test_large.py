"""Runs of many numbers, whose gradients XLA multiplies in batches: as the agents one by one."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.simulate.stacked import constants
from hushgrad.simulate.stacked.constants import Plan
from support.tables import some

AGENTS, DIM = 110, 20


def large(algorithm, dim=DIM, **settings):
    directed = "W" not in algorithm.needs
    graph = (
        hg.graphs.exponential(AGENTS) if directed else hg.graphs.small_world(AGENTS, 4, 0.1, seed=1)
    )
    problem = hg.problems.estimation(n_agents=AGENTS, s=4, d=dim)
    return hg.run(algorithm, problem, hg.Network(graph), **settings).x


@pytest.fixture
def batched(monkeypatch):
    """One entry for every gradient that a program gives XLA in a batch."""
    found, real = [], Plan.is_small.fget

    def noted(plan):
        found.append(real(plan))
        return found[-1]

    monkeypatch.setattr(Plan, "is_small", property(noted))
    return found


@pytest.mark.parametrize(
    "method",
    some(
        [
            hg.AB(stepsize=hg.stepsizes.constant(0.01)),
            hg.PDGNDS(stepsize=hg.stepsizes.constant(0.01)),
        ]
    ),
    ids=["weighed by both ends", "weighed by senders"],
)
def test_a_large_run_is_that_of_the_agents_one_by_one(method, batched):
    got = large(method, iterations=6)
    assert batched
    assert not any(batched)
    expected = large(method, iterations=6, engine="agents")
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.optimised
def test_sampling_more_often_changes_no_bit_of_a_large_run():
    method = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.01))
    every = [large(method, iterations=30, record_every=n) for n in (1, 7, 30)]
    for other in every[1:]:
        np.testing.assert_array_equal(other, every[0])


@pytest.mark.optimised
@pytest.mark.parametrize(
    "method",
    [
        hg.PDGNDS(stepsize=hg.stepsizes.constant(0.01)),
        hg.PDGDS(stepsize=hg.stepsizes.diminishing(scale=0.03)),
    ],
    ids=["NDS", "DS"],
)
def test_iterations_in_pairs_are_iterations_one_by_one_to_the_bit(method, monkeypatch):
    monkeypatch.setattr(constants, "_LARGE", 1)
    dim = DIM + 1  # of programs that no other test has compiled
    every = [large(method, dim, iterations=31, record_every=n) for n in (1, 2, 7, 31)]
    for other in every[1:]:
        np.testing.assert_array_equal(other, every[0])
    expected = large(method, dim, iterations=31, engine="agents")
    np.testing.assert_allclose(every[0], expected, rtol=0, atol=1e-12 * np.abs(expected).max())
