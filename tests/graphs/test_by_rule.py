"""Graphs by a rule: the links of some agents without the others, equal to the graph built whole."""

import networkx as nx
import numpy as np
import pytest

from hushgrad import graphs
from hushgrad.errors import GraphError
from hushgrad.graphs import addressed, by_rule
from hushgrad.graphs.graph import graph_of_arcs
from hushgrad.mixing import Network

BUILDERS = {
    "ring": lambda: graphs.ring(300),
    "path": lambda: graphs.path(300),
    "grid": lambda: graphs.grid(14, 15),
    "torus": lambda: graphs.torus(20, 13),
    "geometric": lambda: graphs.geometric(400, 0.12, seed=1),
    "erdos_renyi": lambda: graphs.erdos_renyi(333, 0.03, seed=2, addressed=True),
    "regular": lambda: graphs.random_regular(300, 5, addressed=True),
    "cycle": lambda: graphs.random_regular(300, 2, addressed=True),
}


@pytest.fixture(params=BUILDERS)
def both(request, monkeypatch):
    """A graph by its rule, in many small blocks, and the same graph as arrays."""
    for module in (by_rule, addressed):
        monkeypatch.setattr(module, "BLOCK", 64)
    monkeypatch.setattr(addressed, "PAIRED", 50)
    graph = BUILDERS[request.param]()
    senders, receivers = (np.array(ends) for ends in BUILDERS[request.param]().arcs)
    return graph, graph_of_arcs(graph.n_agents, senders, receivers, is_directed=False)


def test_a_rule_gives_the_arcs_degrees_and_numbers_of_the_whole_graph(both):
    graph, plain = both
    rng = np.random.default_rng(0)
    some = rng.integers(graph.n_agents, size=40)
    for found, expected in zip(graph.arcs_into(some), plain.arcs_into(some), strict=True):
        assert np.array_equal(found, expected)
    assert np.array_equal(graph.degrees(some), plain.degrees(some))
    assert graph.largest_degree == plain.largest_degree
    links = plain.links[rng.integers(plain.n_links, size=40)]
    assert np.array_equal(graph.link_numbers(*links.T), plain.link_numbers(*links.T))
    assert graph.n_arcs == plain.n_arcs
    assert graph.is_connected
    assert plain.is_connected
    assert "arcs" not in vars(graph)  # and nothing of it was built whole


def test_a_rule_is_the_same_in_both_directions_and_over_two_hops(both):
    graph, plain = both
    back = np.sort(plain.senders * plain.n_agents + plain.receivers)
    assert np.array_equal(back, plain.receivers * plain.n_agents + plain.senders)
    far, whole = graph.two_hop(), plain.two_hop()
    assert np.array_equal(far.senders, whole.senders)
    assert np.array_equal(far.receivers, whole.receivers)


@pytest.mark.parametrize("rule", ["metropolis", "lazy_metropolis", "max_degree"])
def test_rows_of_weights_are_those_of_the_whole_matrix_to_the_bit(both, rule):
    graph, plain = both
    some = np.random.default_rng(1).permutation(graph.n_agents)[:50]
    found = Network(graph, rule).weights_into("doubly", some)
    expected = Network(plain, rule).weights_into("doubly", some)
    assert np.array_equal(found.own, expected.own)
    assert np.array_equal(found.links, expected.links)
    assert Network(graph, rule).kinds == Network(plain, rule).kinds
    assert "arcs" not in vars(graph)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 2), (2, 5), (5, 1), (3, 4), (7, 6)])
def test_a_torus_is_the_grid_of_networkx_with_its_ends_joined(shape):
    expected = nx.grid_2d_graph(*shape, periodic=True)
    expected.remove_edges_from(list(nx.selfloop_edges(expected)))
    pairs = {tuple(sorted(a * shape[1] + b for a, b in edge)) for edge in expected.edges}
    graph = graphs.torus(*shape)
    assert set(map(tuple, graph.links.tolist())) == pairs
    assert graph.n_links == len(pairs)


@pytest.mark.parametrize(("n", "degree"), [(20, 4), (21, 4), (30, 3), (50, 6), (1000, 5)])
def test_addressed_regular_graphs_are_regular_and_simple(n, degree):
    for seed in range(5):
        graph = graphs.random_regular(n, degree, seed=seed, addressed=True)
        assert (graph.in_degree == degree).all()
        assert graph.is_connected
        assert not graph.components.any()


def test_addressed_links_are_drawn_equally_often():
    n, p, times = 30, 0.4, 200
    counts = np.zeros((n, n))
    for seed in range(times):
        graph = graphs.erdos_renyi(n, p, seed=seed, addressed=True)
        counts[graph.receivers, graph.senders] += 1
    off = counts[~np.eye(n, dtype=bool)] / times
    assert abs(off.mean() - p) < 0.01
    assert np.abs(off - p).max() < 5 * np.sqrt(p * (1 - p) / times)


def test_geometric_links_are_those_within_the_radius():
    graph = graphs.geometric(200, 0.2, seed=3)
    # π r² of the square, less what lies outside of it: 8 r³ / 3 − r⁴ / 2 at its edges
    inside = np.pi * 0.2**2 - 8 * 0.2**3 / 3 + 0.2**4 / 2
    assert graph.in_degree.mean() == pytest.approx(199 * inside, rel=0.1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: graphs.geometric(50, 0.0), "radius above 0"),
        (lambda: graphs.geometric(500, 0.01), "disconnected graphs of 500 agents"),
        (lambda: graphs.erdos_renyi(500, 1e-3, addressed=True), "disconnected graphs"),
        (lambda: graphs.torus(2**20, 2**20), "torus needs at most"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(build, message):
    with pytest.raises(GraphError, match=message):
        build()
