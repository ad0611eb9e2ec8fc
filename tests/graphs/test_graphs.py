"""Builders agree with networkx, arcs point from sender to receiver, bad graphs are refused."""

import tracemalloc

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad import graphs
from hushgrad.errors import GraphError, InputError, MissingExtra, optional
from hushgrad.graphs.graph import pairs_at

# A directed graph that differs from its reverse: 0 -> 1 -> 2 -> 0 and 0 -> 2.
ARCS = [(0, 1), (1, 2), (2, 0), (0, 2)]

BUILT = {
    "ring": graphs.ring(7),
    "path": graphs.path(6),
    "star": graphs.star(6),
    "complete": graphs.complete(6),
    "grid": graphs.grid(3, 4),
    "paper": graphs.paper(),
    "exponential": graphs.exponential(11),
    "exponential both ways": graphs.exponential(11, is_directed=False),
    "erdos_renyi": graphs.erdos_renyi(30, 0.2, seed=3),
    "random_regular": graphs.random_regular(20, 3, seed=3),
    "small_world": graphs.small_world(20, 4, 0.3, seed=3),
    "random_directed": graphs.random_directed(12, 2, seed=3),
    "one agent": graphs.ring(1),
}


def arcs(graph: graphs.Graph) -> list[tuple[int, int]]:
    return list(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (graphs.ring(7), nx.cycle_graph(7)),
        (graphs.ring(3), nx.cycle_graph(3)),
        (graphs.ring(2), nx.path_graph(2)),
        (graphs.path(6), nx.path_graph(6)),
        (graphs.star(6), nx.star_graph(5)),
        (graphs.complete(6), nx.complete_graph(6)),
        (graphs.complete(2), nx.complete_graph(2)),
        (graphs.grid(3, 4), nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4))),
        (graphs.paper(), nx.Graph([*nx.cycle_graph(5).edges, (0, 2)])),
        (graphs.small_world(9, 4, 0.0), nx.watts_strogatz_graph(9, 4, 0.0)),
        (graphs.exponential(8, is_directed=False), nx.circulant_graph(8, [1, 2, 4])),
    ],
)
def test_deterministic_builders_have_the_very_edges_of_networkx(ours, theirs):
    assert nx.utils.graphs_equal(ours.to_networkx(), nx.Graph(theirs))


def test_exponential_sends_forward_by_powers_of_two():
    expected = {(i, (i + hop) % 11) for i in range(11) for hop in (1, 2, 4, 8)}
    assert set(arcs(graphs.exponential(11))) == expected
    assert graphs.exponential(11).is_directed


@pytest.mark.parametrize("graph", BUILT.values(), ids=BUILT.keys())
def test_arcs_are_sorted_by_receiver_then_sender_unique_and_read_only(graph):
    pairs = [(i, j) for j, i in arcs(graph)]
    assert pairs == sorted(set(pairs))
    assert all(i != j for i, j in pairs)
    assert graph.senders.dtype == graph.receivers.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        graph.senders[:1] = 0
    with pytest.raises(ValueError, match="read-only"):
        graph.receivers[:1] = 0


@pytest.mark.parametrize("graph", BUILT.values(), ids=BUILT.keys())
def test_degrees_links_and_connectivity_agree_with_networkx(graph):
    theirs = graph.to_networkx()
    assert theirs.is_directed() == graph.is_directed
    assert theirs.number_of_edges() == graph.n_links == len(graph.links)
    if graph.is_directed:
        assert [theirs.in_degree(i) for i in range(graph.n_agents)] == graph.in_degree.tolist()
        assert [theirs.out_degree(i) for i in range(graph.n_agents)] == graph.out_degree.tolist()
        assert nx.is_strongly_connected(theirs)
    else:
        assert [theirs.degree(i) for i in range(graph.n_agents)] == graph.in_degree.tolist()
        assert graph.in_degree.tolist() == graph.out_degree.tolist()
        assert nx.is_connected(theirs)
    assert graph.is_connected


@pytest.mark.parametrize("graph", BUILT.values(), ids=BUILT.keys())
def test_from_edges_gives_a_graph_back_from_its_links(graph):
    again = graphs.from_edges(graph.links, graph.n_agents, graph.is_directed)
    assert arcs(again) == arcs(graph)


def test_links_of_an_undirected_graph_are_sorted_pairs():
    assert graphs.from_edges([(2, 1), (3, 0), (1, 0)]).links.tolist() == [[0, 1], [0, 3], [1, 2]]


def test_a_directed_pair_is_sender_then_receiver():
    graph = graphs.from_edges(ARCS, is_directed=True)
    assert set(arcs(graph)) == set(ARCS)
    assert graph.out_degree.tolist() == [2, 1, 1]
    assert graph.in_degree.tolist() == [1, 1, 2]
    assert {tuple(link) for link in graph.links.tolist()} == set(ARCS)


def test_a_networkx_edge_u_v_means_that_u_sends_to_v():
    graph = graphs.from_networkx(nx.DiGraph(ARCS))
    assert set(arcs(graph)) == set(ARCS)
    assert set(graph.to_networkx().edges) == set(ARCS)


def test_networkx_nodes_are_numbered_in_their_order_and_keep_their_names():
    theirs = nx.DiGraph([("b", "a"), ("a", "c"), ("c", "b")])
    before = nx.DiGraph(theirs)
    graph = graphs.from_networkx(theirs)
    assert graph.names == ("b", "a", "c")
    assert set(arcs(graph)) == {(0, 1), (1, 2), (2, 0)}
    assert nx.utils.graphs_equal(graph.to_networkx(), before)
    assert nx.utils.graphs_equal(theirs, before)
    assert graph.two_hop().names == graph.names


def test_names_that_are_just_the_numbers_are_dropped():
    assert graphs.from_networkx(nx.cycle_graph(4)).names is None
    assert graphs.from_networkx(nx.Graph([(1, 0)])).names == ("1", "0")


def test_one_agent_is_a_legal_graph():
    for graph in (graphs.ring(1), graphs.path(1), graphs.star(1), graphs.complete(1)):
        assert (graph.n_agents, graph.n_links, graph.is_connected) == (1, 0, True)
        assert graph.two_hop().n_links == 0
    assert graphs.from_edges([], n_agents=1).links.shape == (0, 2)
    assert graphs.erdos_renyi(1, 0.0).n_agents == graphs.random_regular(1, 0).n_agents == 1


def test_a_disconnected_graph_can_be_built_and_says_so():
    two = graphs.from_edges([(0, 1), (2, 3)])
    assert not two.is_connected
    assert two.components.tolist() == [0, 0, 1, 1]
    assert not graphs.from_edges([(0, 1)], n_agents=3).is_connected


def test_one_way_connection_is_not_strong_connection():
    # Every agent hears and sends, yet nothing comes back from {2, 3} to {0, 1}.
    one_way = [(0, 1), (1, 0), (1, 2), (2, 3), (3, 2)]
    assert not graphs.from_edges(one_way, is_directed=True).is_connected
    assert graphs.from_edges([*one_way, (3, 0)], is_directed=True).is_connected


@pytest.mark.parametrize("graph", BUILT.values(), ids=BUILT.keys())
def test_two_hop_has_the_pattern_of_the_squared_matrix(graph):
    near = np.eye(graph.n_agents, dtype=int)
    near[graph.receivers, graph.senders] = 1
    rows, columns = np.nonzero(near @ near - np.diag(np.diag(near @ near)))
    two_hop = graph.two_hop()
    assert two_hop.receivers.tolist() == rows.tolist()
    assert two_hop.senders.tolist() == columns.tolist()
    assert two_hop.is_directed == graph.is_directed


def test_two_hop_follows_the_arcs():
    chain = graphs.from_edges([(0, 1), (1, 2), (2, 3)], is_directed=True)
    assert set(arcs(chain.two_hop())) == {(0, 1), (1, 2), (2, 3), (0, 2), (1, 3)}


def test_two_hop_survives_256_common_neighbours():
    fan = [(i, 1 + j) for i in (0, 257) for j in range(256)]
    assert (0, 257) in arcs(graphs.from_edges(fan).two_hop())


@given(n=st.integers(3, 40), seed=st.integers(0, 10**6), data=st.data())
def test_random_regular_graphs_are_regular_simple_and_connected(n, seed, data):
    degree = data.draw(st.integers(2, n - 1).filter(lambda d: n * d % 2 == 0))
    graph = graphs.random_regular(n, degree, seed=seed)
    assert graph.in_degree.tolist() == [degree] * n
    assert len(set(arcs(graph))) == n * degree
    assert nx.is_connected(graph.to_networkx())


@given(n=st.integers(3, 40), p=st.floats(0, 0.6), seed=st.integers(0, 10**6), data=st.data())
def test_small_worlds_keep_the_number_of_links(n, p, seed, data):
    degree = 2 * data.draw(st.integers(min(2, (n - 1) // 2), (n - 1) // 2))
    graph = graphs.small_world(n, degree, p, seed=seed)
    assert graph.n_links == len({frozenset(arc) for arc in arcs(graph)}) == n * degree // 2
    assert graph.in_degree.min() >= degree // 2
    assert nx.is_connected(graph.to_networkx())


@given(n=st.integers(2, 40), seed=st.integers(0, 10**6), data=st.data())
def test_random_directed_graphs_send_to_the_next_and_to_degree_others(n, seed, data):
    degree = data.draw(st.integers(0, n - 2))
    graph = graphs.random_directed(n, degree, seed=seed)
    assert graph.out_degree.tolist() == [degree + 1] * n
    assert {(i, (i + 1) % n) for i in range(n)} <= set(arcs(graph))
    assert nx.is_strongly_connected(graph.to_networkx())


@given(n=st.integers(2, 60), seed=st.integers(0, 10**6))
def test_erdos_renyi_graphs_are_simple_and_connected(n, seed):
    graph = graphs.erdos_renyi(n, 0.5, seed=seed)
    assert len({frozenset(arc) for arc in arcs(graph)}) == graph.n_links
    assert nx.is_connected(graph.to_networkx())


def test_erdos_renyi_with_probability_one_is_complete():
    assert arcs(graphs.erdos_renyi(9, 1.0)) == arcs(graphs.complete(9))


def test_erdos_renyi_links_every_pair_equally_often():
    n, p, draws = 6, 0.7, 2000
    count = np.zeros((n, n))
    for seed in range(draws):
        graph = graphs.erdos_renyi(n, p, seed=seed)
        count[graph.receivers, graph.senders] += 1
    frequency = count[np.triu_indices(n, 1)] / draws
    # Five standard deviations around the common mean, which connectedness lifts a little above p.
    assert np.ptp(frequency) < 10 * np.sqrt(p * (1 - p) / draws)
    assert p - 0.02 < frequency.mean() < p + 0.05


def test_random_regular_graphs_of_six_agents_come_in_both_shapes():
    # The cubic graphs on six vertices are K(3,3), 10 labellings, and the prism, 60 labellings.
    k33 = nx.complete_bipartite_graph(3, 3)
    found = [graphs.random_regular(6, 3, seed=seed).to_networkx() for seed in range(300)]
    share = np.mean([nx.is_isomorphic(graph, k33) for graph in found])
    assert 0.04 < share < 0.35


def test_the_square_root_in_the_list_of_pairs_is_exact_at_every_row():
    high = np.array([1, 2, 3, 10**4, 10**6, 2**30, 2**31 - 1])
    first = high * (high - 1) // 2
    for index, expected in ((first, 0 * high), (first + high - 1, high - 1)):
        low, row = pairs_at(index)
        assert low.tolist() == expected.tolist()
        assert row.tolist() == high.tolist()


RANDOM = {
    "erdos_renyi": lambda seed: graphs.erdos_renyi(40, 0.2, seed=seed),
    "random_regular": lambda seed: graphs.random_regular(40, 4, seed=seed),
    "random cycle": lambda seed: graphs.random_regular(40, 2, seed=seed),
    "small_world": lambda seed: graphs.small_world(40, 4, 0.3, seed=seed),
    "random_directed": lambda seed: graphs.random_directed(40, 3, seed=seed),
}


@pytest.mark.parametrize("build", RANDOM.values(), ids=RANDOM.keys())
def test_the_same_seed_gives_the_same_graph_and_another_seed_another_graph(build):
    assert arcs(build(1)) == arcs(build(1))
    assert arcs(build(1)) != arcs(build(2))


@pytest.mark.parametrize(
    "build",
    [
        lambda n: graphs.random_regular(n, 6),
        lambda n: graphs.erdos_renyi(n, 2e-4),
        lambda n: graphs.small_world(n, 6, 0.1),
        lambda n: graphs.random_directed(n, 5),
    ],
)
def test_a_hundred_thousand_agents_take_little_memory(build):
    tracemalloc.start()
    graph = build(100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Sixteen bytes per arc are the graph itself; a dense bool matrix would take 10 GB.
    assert peak < 100 * graph.n_arcs
    assert graph.is_connected


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: graphs.ring(0),
            r"ring needs .* n_agents from 1 .* n_agents = 0. Pass .*n_agents=5",
        ),
        (lambda: graphs.path(2.5), r"path needs a whole number .* n_agents = 2.5"),
        (lambda: graphs.star(True), r"star needs a whole number .* n_agents = True"),
        (lambda: graphs.complete("5"), r"complete needs a whole number .* n_agents = '5'"),
        (lambda: graphs.grid(3, 0), r"grid needs .* columns from 1 .* columns = 0"),
        (
            lambda: graphs.grid(2**20, 2**20),
            r"grid needs at most .* rows \* columns = 1099511627776",
        ),
        (lambda: graphs.exponential(-1), r"exponential needs .* n_agents = -1"),
        (lambda: graphs.erdos_renyi(5, 1.5), r"probability p from 0 to 1, but p = 1.5"),
        (lambda: graphs.erdos_renyi(5, float("nan")), r"probability p from 0 to 1, but p = nan"),
        (lambda: graphs.erdos_renyi(5, 0.5, seed=-1), r"seed from 0 .* seed = -1"),
        (
            lambda: graphs.erdos_renyi(100, 0.01),
            r"100 disconnected graphs of 100 agents with p = 0.01.* ln\(n\)/n = 0.04605: pass",
        ),
        (lambda: graphs.random_regular(5, 3), r"n_agents \* degree to be even, .* 5 \* 3"),
        (lambda: graphs.random_regular(5, 5), r"degree from 0 to 4, but degree = 5"),
        (lambda: graphs.random_regular(4, 1), r"degree >= 2 to connect 4 agents, but degree = 1"),
        (lambda: graphs.small_world(9, 3, 0.1), r"an even degree.* degree = 3. Pass degree=2"),
        (lambda: graphs.random_directed(5, 4), r"degree from 0 to 3, but degree = 4"),
        (lambda: graphs.random_directed(1, 0), r"n_agents from 2"),
        (
            lambda: graphs.from_edges([(0, 1), (2, 2)]),
            r"edges\[1\] = \(2, 2\) joins one with itself",
        ),
        (
            lambda: graphs.from_edges([(0, 1), (1, 2), (1, 0)]),
            r"edges\[2\] = \(1, 0\) repeats edges\[0\] = \(0, 1\).* is_directed=True",
        ),
        (
            lambda: graphs.from_edges([(0, 1), (0, 1)], is_directed=True),
            r"edges\[1\] = \(0, 1\) repeats edges\[0\]",
        ),
        (
            lambda: graphs.from_edges([(0, 1), (-1, 2)]),
            r"numbered 0 to 2, but edges\[1\] = \(-1, 2\)",
        ),
        (lambda: graphs.from_edges([(-2, -1)]), r"numbered 0 to 0, but edges\[0\] = \(-2, -1\)"),
        (
            lambda: graphs.from_edges([(0, 1), (1, 3)], n_agents=3),
            r"edges\[1\] = \(1, 3\).* larger",
        ),
        (
            lambda: graphs.from_edges([(0, 1), (1, 1.5)]),
            r"needs integers, but edges\[1\] = \(1.0, 1.5\)",
        ),
        (lambda: graphs.from_edges([("a", "b")]), r"edges\[0\] = \('a', 'b'\).* from_networkx"),
        (lambda: graphs.from_edges([(0, 1, 2)]), r"shape \(n, 2\), but got \(1, 3\)"),
        (lambda: graphs.from_edges([(0, 1), (2,)]), r"needs pairs, but got \[\(0, 1\), \(2,\)\]"),
        (lambda: graphs.from_edges(7), r"needs pairs, but got 7"),
        (lambda: graphs.from_edges([]), r"number of agents from no edges. Pass n_agents"),
        (lambda: graphs.from_edges([(0, 10**12)]), r"n_agents from 1 .* n_agents = 1000000000001"),
        (lambda: graphs.from_networkx([(0, 1)]), r"but got a list. Use from_edges"),
        (lambda: graphs.from_networkx(nx.MultiGraph([(0, 1)])), r"got a MultiGraph. Merge"),
        (
            lambda: graphs.from_networkx(nx.Graph([("a", "a")])),
            r"the networkx edge \('a', 'a'\) joins",
        ),
        (lambda: graphs.from_networkx(nx.Graph([(1, "1")])), r"distinct names, but two are '1'"),
        (lambda: graphs.from_networkx(nx.Graph()), r"n_agents = 0"),
    ],
)
def test_a_refusal_names_the_rule_the_value_and_the_way_out(build, message):
    with pytest.raises(GraphError, match=message) as caught:
        build()
    assert isinstance(caught.value, InputError)
    assert isinstance(caught.value, ValueError)


def test_a_small_world_moves_links_even_where_hardly_any_place_is_free():
    lattice = set(arcs(graphs.small_world(20, 18, 0.0)))
    graph = graphs.small_world(20, 18, 1.0)
    assert graph.n_links == 180
    assert set(arcs(graph)) != lattice


def test_a_small_world_moves_the_share_p_of_its_links():
    n, degree, p = 20_000, 6, 0.3
    lattice = graphs.small_world(n, degree, 0.0).links @ [n, 1]
    kept = np.isin(graphs.small_world(n, degree, p).links @ [n, 1], lattice).mean()
    assert kept == pytest.approx(1 - p, abs=5 * np.sqrt(p * (1 - p) / (n * degree / 2)))


def test_a_builder_that_draws_no_connected_graph_raises_with_the_way_out(monkeypatch):
    monkeypatch.setattr("hushgrad.graphs.drawn.ATTEMPTS", 1)
    with pytest.raises(GraphError, match=r"no connected graph of 3000 .* p = 1 .* larger degree"):
        graphs.small_world(3000, 2, 1.0, seed=1)


def test_from_edges_does_not_change_or_keep_the_callers_array():
    edges = np.array([[2, 1], [1, 0]])
    graph = graphs.from_edges(edges)
    assert edges.tolist() == [[2, 1], [1, 0]]
    edges[:] = 0
    assert graph.links.tolist() == [[0, 1], [1, 2]]


def test_a_csv_of_numbers_has_an_optional_header_and_comments(tmp_path):
    file = tmp_path / "net.csv"
    for header in ("", "source,target\n", "Sender, Receiver\n", "\ufeffsource,target\n"):
        file.write_text(f"{header}# comment\n0,1\n\n1, 2\n2,0\n0,2\n", encoding="utf-8")
        assert set(arcs(graphs.from_file(file, is_directed=True))) == set(ARCS)
    file.write_text("0,1\n1,2\n")
    graph = graphs.from_file(str(file))
    assert (graph.is_directed, graph.names, graph.links.tolist()) == (False, None, [[0, 1], [1, 2]])


def test_a_csv_of_names_numbers_them_by_first_appearance(tmp_path):
    file = tmp_path / "net.csv"
    file.write_text("source,target\nlyon,bern\nbern,5\n5,lyon\n")
    graph = graphs.from_file(file, is_directed=True)
    assert graph.names == ("lyon", "bern", "5")
    assert set(arcs(graph)) == {(0, 1), (1, 2), (2, 0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source,target\n0,1\n\n1,1\n", r"net.csv, line 4: 1,1 joins one with itself"),
        ("0,1\n1,2\n1,0\n", r"net.csv, line 3: 1,0 repeats .*net.csv, line 1: 0,1"),
        ("a,b\nb,a\n", r"net.csv, line 2: b,a repeats .*line 1: a,b"),
        ("0,1\n-1,0\n", r"net.csv, line 2: -1,0. Number them from 0"),
        ("0,1\n1,2,0.5\n", r"net.csv, line 2: an edge is two .* '1,2,0.5'"),
        ("0,1\n1,\n", r"net.csv, line 2: an edge is two"),
        ("source,target\n", r"net.csv has no edges"),
    ],
)
def test_errors_in_a_csv_name_file_and_line(tmp_path, text, message):
    file = tmp_path / "net.csv"
    file.write_text(text)
    with pytest.raises(GraphError, match=message):
        graphs.from_file(file)


def test_graphml_keeps_direction_and_names(tmp_path):
    file = tmp_path / "net.graphml"
    nx.write_graphml(nx.DiGraph([("b", "a"), ("a", "c"), ("c", "b"), ("b", "c")]), file)
    graph = graphs.from_file(file)
    assert graph.is_directed
    assert graph.names == ("b", "a", "c")
    assert set(arcs(graph)) == {(0, 1), (1, 2), (2, 0), (0, 2)}
    assert graphs.from_file(file, is_directed=False).links.tolist() == [[0, 1], [0, 2], [1, 2]]
    nx.write_graphml(nx.path_graph(3), file)
    assert not graphs.from_file(file).is_directed
    assert graphs.from_file(file, is_directed=True).n_links == 4


def test_errors_in_graphml_name_the_file(tmp_path):
    file = tmp_path / "net.graphml"
    file.write_text("<graphml")
    with pytest.raises(GraphError, match=r"net.graphml is not a GraphML file"):
        graphs.from_file(file)
    nx.write_graphml(nx.Graph([("a", "a")]), file)
    with pytest.raises(GraphError, match=r"net.graphml: .* edge \('a', 'a'\)"):
        graphs.from_file(file)
    with pytest.raises(
        GraphError, match=r"reads .graphml and .csv, but .*net.gexf ends in '.gexf'"
    ):
        graphs.from_file(tmp_path / "net.gexf")


def test_a_graph_prints_its_size():
    assert repr(graphs.ring(5)) == "Graph(5 agents, 5 links)"
    assert repr(graphs.from_edges(ARCS, is_directed=True)) == "Graph(3 agents, 4 arcs)"


def test_a_missing_extra_says_how_to_install_it():
    with pytest.raises(MissingExtra, match=r"pip install 'hushgrad\[sim\]'") as caught:
        optional("no_such_package.at_all", "sim")
    assert isinstance(caught.value, ImportError)
    assert caught.value.name == "no_such_package.at_all"


def test_a_csv_with_an_unknown_header_a_missing_and_a_binary_file_are_refused(tmp_path):
    file = tmp_path / "net.csv"
    file.write_text("left,right\n0,1\n1,2\n")
    with pytest.raises(GraphError, match=r"line 1: left,right is neither a header nor numbers"):
        graphs.from_file(file)
    file.write_text("from,to\n0,1\n1,2\n")
    assert graphs.from_file(file).n_links == 2
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GraphError, match="UTF-8"):
        graphs.from_file(file)
    with pytest.raises(GraphError, match="there is none"):
        graphs.from_file(tmp_path / "nowhere.graphml")
