"""Agents notice a `diameter` that is too small before one of them says that all have converged."""

import asyncio
import random
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.errors import WireError
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.distances import Distances
from hushgrad.network.protocol.mask_tokens import TOKEN, decode_entries, encode_entries
from support import agent_network

M = 8


def gossip(graph, diameter, rng):
    """The distances of all agents after all gossip is delivered, in a random order."""
    m = len(graph)
    agents = [Distances(j, m, diameter) for j in range(m)]
    wires = {(i, j): [agents[i].entries()] for i, j in nx.DiGraph(graph).edges}
    while loaded := [link for link, waiting in wires.items() if waiting]:
        i, j = rng.choice(loaded)
        told = decode_entries(encode_entries(wires[i, j].pop(0)))
        if news := agents[j].learn(told):
            for k in graph[j]:
                if k != i:
                    wires[j, k].append(news)
    return agents


@given(st.integers(2, 9), st.integers(0, 10**6))
def test_every_agent_learns_the_hops_to_every_agent_in_any_order_of_messages(m, seed):
    graph = nx.gnp_random_graph(m, 0.4, seed=seed)
    rng = random.Random(seed)
    diameter = rng.randrange(m)
    for j, agent in enumerate(gossip(graph, diameter, rng)):
        hops = nx.single_source_shortest_path_length(graph, j)
        assert agent.hops == hops
        is_far = len(hops) < m or max(hops.values()) > diameter
        assert (agent.objection() is not None) == is_far


def test_an_agent_that_is_too_far_away_is_named():
    far = gossip(nx.path_graph(4), 2, random.Random(0))[0].objection()
    assert "but agents 3 are farther than 2 from this one, or no links lead to them." in str(far)


@pytest.mark.parametrize(("number", "hops"), [(4, 1), (1, 4), (1, 2**128 - 1), (2**63, 0)])
def test_distances_that_cannot_be_are_refused(number, hops):
    with pytest.raises(WireError, match=f"no agent {number} can be {hops} hops away"):
        Distances(0, 4, 2).learn([(number, number, hops.to_bytes(TOKEN, "little"))])


def test_without_a_tolerance_no_agent_may_tell_a_distance():
    agent = Distances(0, 4, None)
    assert (agent.entries(), agent.most) == ([], 0)
    with pytest.raises(WireError):
        agent.learn([(1, 1, bytes(TOKEN))])


def path(tmp_path, diameter):
    """Agents in a row; only the objective of the last one moves."""
    return agent_network.configs(
        tmp_path, hg.EXTRA(stepsize=hg.stepsizes.constant(0.2)), hg.Network(hg.graphs.path(M)),
        dim=1, iterations=20_000, tls=False, tolerance=1e-4, diameter=diameter, max_wait=5.0,
    )  # fmt: skip


def ends(configs):
    targets = np.zeros(M)
    targets[-1] = 100.0
    agents = agent_network.agents(configs, [lambda x, t=t: x - t for t in targets], tls=False)
    return asyncio.run(agent_network.ends(agents))


@pytest.mark.parametrize("diameter", [1, M - 2], ids=["everyone sees it", "the ends see it"])
def test_a_diameter_that_is_too_small_ends_the_run_everywhere_before_anyone_stops(
    tmp_path, diameter
):
    configs = path(tmp_path, diameter)
    for _ in range(2):  # a second start changes nothing
        results = ends(configs)
        assert any("the diameter in [run] bounds the hops" in r.detail for r in results)
        for result in results:
            assert result.status is Status.REFUSED, result
            told = "ended the run: agents would not stop in the same round (refused)"
            assert told in result.detail or "the diameter in [run]" in result.detail
            # an agent far from both ends goes on until a neighbour tells it
            assert result.rounds <= diameter + 1 + M // 2


@pytest.mark.parametrize("diameter", [None, M - 1, M + 5])
def test_a_diameter_that_is_large_enough_lets_agents_stop_together(tmp_path, diameter):
    results = ends(path(tmp_path, diameter))
    assert {result.status for result in results} == {Status.CONVERGED}
    assert len({result.rounds for result in results}) == 1
    np.testing.assert_allclose([result.theta[0] for result in results], 100 / M, atol=0.1)


def test_agents_that_no_link_joins_are_noticed(tmp_path):
    """Two agents whose files say that there are four."""
    pair = agent_network.configs(
        tmp_path, hg.DGD(), hg.Network(hg.graphs.path(2)), dim=1, iterations=500, tls=False,
        tolerance=1e-4,
    )  # fmt: skip
    configs = [replace(config, run=replace(config.run, n_agents=4)) for config in pair]
    agents = agent_network.agents(configs, [lambda x: x - 1.0] * 2, tls=False)
    for result in asyncio.run(agent_network.ends(agents)):
        assert result.status is Status.REFUSED
        assert "but agents 2, 3 are farther than" in result.detail
