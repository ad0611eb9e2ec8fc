"""Agents that know their neighbours' degrees have the weights of the whole network."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.agent.links import two_hop_weights
from hushgrad.agent.weights import Ends, Row, check_two_hop, public_weights, square
from hushgrad.errors import AlgorithmError, MixingError
from support import cases

NETWORKS = st.builds(
    lambda m, seed: hg.graphs.erdos_renyi(m, 0.4, seed=seed), st.integers(3, 12), st.integers(0, 99)
)


def of_agents(graph, mixing, algorithm):
    """The weights that every agent computes for itself."""
    pairs = list(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))
    ends = [Ends(int(i), int(o)) for i, o in zip(graph.in_degree, graph.out_degree, strict=True)]
    most = max(e.into for e in ends)
    return [
        public_weights(
            algorithm, mixing, most, ends[j], {a: ends[a] for a, b in pairs if b == j},
            {b: ends[b] for a, b in pairs if a == j},
        )
        for j in range(graph.n_agents)
    ]  # fmt: skip


def same(graph, locals_, links, own):
    for j, weights in enumerate(locals_):
        assert weights.own == own[j]
    for j, i, w in zip(graph.senders.tolist(), graph.receivers.tolist(), links, strict=True):
        assert locals_[j].out[i] == w
        assert locals_[i].into[j] == w


@given(NETWORKS, st.sampled_from(["metropolis", "lazy_metropolis", "max_degree"]))
def test_weights_from_degrees_are_the_networks_to_the_bit(graph, rule):
    weights = hg.Network(graph, mixing=rule).weights("symmetric")
    every = of_agents(graph, rule, hg.PDGDS())
    same(graph, [each["W"] for each in every], weights.links, weights.own)


def test_weights_of_directed_links_are_the_networks_to_the_bit():
    network = cases.directed()
    every = of_agents(network.graph, "uniform", hg.AB())
    for letter, kind in (("R", "row"), ("C", "column")):
        weights = network.weights(kind)
        same(network.graph, [each[letter] for each in every], weights.links, weights.own)


@settings(max_examples=30)
@given(NETWORKS)
def test_rows_of_neighbours_give_the_columns_of_the_square(graph):
    network = hg.Network(graph)
    W = [each["W"] for each in of_agents(graph, "metropolis", hg.PDGNDS(form="square"))]
    rows = [Row(w.own, w.into, dict.fromkeys(w.into, "")) for w in W]
    columns = [square(j, w, {i: rows[i] for i in w.out}) for j, w in enumerate(W)]
    two_hop = graph.two_hop()
    _, links, own = two_hop_weights(network, two_hop, "symmetric")
    same(two_hop, columns, links, own)
    assert sum(len(c.out) for c in columns) == two_hop.n_arcs
    np.testing.assert_allclose([c.own + sum(c.out.values()) for c in columns], 1, atol=1e-14)


def test_missing_two_hop_links_are_listed_by_name():
    rows = [Row(0.5, {3: 0.25, 4: 0.25}, {3: "carol", 4: "dave"})]
    check_two_hop(hg.PDGNDS(form="square"), [1, 3, 4], [1, 3, 4], rows)
    with pytest.raises(AlgorithmError, match=r"missing to carol \(agent 3\), dave \(agent 4\)"):
        check_two_hop(hg.PDGNDS(form="square"), [1, 3, 4], [1], rows)


def test_a_rule_that_does_not_give_the_matrix_is_refused_and_others_are_named():
    with pytest.raises(
        MixingError, match=r"PDGDS needs W.*metropolis, lazy_metropolis, max_degree"
    ):
        of_agents(cases.directed().graph, "uniform", hg.PDGDS())


def test_a_largest_degree_that_is_exceeded_is_refused():
    with pytest.raises(MixingError, match="max_degree = 2"):
        public_weights(hg.PDGDS(), "max_degree", 2, Ends(3, 3), {1: Ends(1, 1)}, {1: Ends(1, 1)})
