"""Neighbour slots hold exactly the links of the graph, whatever its degrees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.simulate.stacked.layout import Layout, bucket_widths
from support import cases, dense
from support.tables import some

GRAPHS = [
    hg.graphs.complete(1),
    hg.graphs.path(2),
    hg.graphs.star(60),  # one hub far wider than what is unrolled
    hg.graphs.complete(40),
    hg.graphs.erdos_renyi(80, 0.1, seed=3),
    hg.graphs.random_directed(30, 3, seed=1),
    hg.graphs.exponential(16),
    hg.graphs.paper(),
]


def sends(graph):
    return {(int(j), int(i)) for j, i in zip(graph.senders, graph.receivers, strict=True)}


@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_slots_are_the_arcs_each_once(graph):
    layout = Layout.of(graph.senders, graph.receivers, graph.n_agents)
    order = layout.into.order
    found = []
    offset = 0
    for low, high, width in layout.into.buckets:
        for t in range(width):
            for a in range(high - low):
                arc = layout.into.arc[offset + t * (high - low) + a]
                if arc >= 0:
                    assert graph.receivers[arc] == order[low + a]
                    neighbour = layout.tables["neighbour"][offset + t * (high - low) + a]
                    assert order[neighbour] == graph.senders[arc]
                    found.append((int(graph.senders[arc]), int(graph.receivers[arc])))
        offset += width * (high - low)
    assert len(found) == graph.n_arcs
    assert set(found) == sends(graph)


@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_draw_slots_count_receivers_and_oneself_in_the_order_of_their_numbers(graph):
    layout = Layout.of(graph.senders, graph.receivers, graph.n_agents)
    for j in range(graph.n_agents):
        receivers = sorted([*graph.receivers[graph.senders == j].tolist(), j])
        own = layout.tables["own_slot"][layout.position[j]]
        assert receivers[own] == j
        for arc in np.flatnonzero(graph.senders == j):
            slot = layout.tables["slot"][layout.flat[arc]]
            assert receivers[slot] == graph.receivers[arc]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=300))
def test_buckets_fit_everyone_and_waste_little(degrees):
    degrees = np.array(degrees)
    widths = bucket_widths(degrees)
    assert (np.diff(widths) > 0).all()
    assert widths[-1] == degrees.max()
    slots = widths[np.searchsorted(widths, degrees)].sum()
    assert (
        slots <= 1.15 * degrees.sum() or len(widths) == 6 or len(widths) == len(np.unique(degrees))
    )


UNEVEN = {60, 80}  # agents of the graphs whose degrees differ most


@pytest.mark.parametrize(
    ("graph", "form"),
    some(
        [
            # two hops of a path or of a complete graph are a complete graph
            pytest.param(graph, form)
            for graph in GRAPHS
            for form in ("lazy", "square")
            if not graph.is_directed and (form == "lazy" or graph.n_agents in UNEVEN)
        ],
        5,
    ),
    ids=repr,
)
def test_any_undirected_graph_runs_like_its_dense_recursion(graph, form):
    q = cases.Quadratics(m=graph.n_agents, d=2, by_hand=True)
    network = hg.Network(graph)
    W = network.matrix()
    coins = dense.Coins(1, 0, graph.n_agents)
    support, reference = {
        "lazy": (W > 0, dense.pdg_nds_lazy),
        "square": (W @ W > 0, dense.pdg_nds_square),
    }[form]
    expected = reference(
        W, q.g, q.x0, 4, lambda k: 0.02 * (1 - coins.rho(k) / (k + 1) ** 2),
        lambda k: coins.B(k, support),
    )  # fmt: skip
    got = hg.run(hg.PDGNDS(form=form), q.problem, network, iterations=4, x0=q.x0, seed=1).x[0]
    np.testing.assert_allclose(got, expected[-1], rtol=0, atol=1e-12)
