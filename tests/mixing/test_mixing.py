"""Weights equal dense formulas, η equals a dense norm, and Assumption 1 is checked in full."""

import re

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from hushgrad import graphs
from hushgrad.errors import GraphError, MixingError
from hushgrad.mixing import Kind, Network
from hushgrad.mixing.network import MOST_SVD_AGENTS

ARCS = [(0, 1), (1, 2), (2, 0), (0, 2)]  # (sender, receiver)
DIRECTED = graphs.from_edges(ARCS, is_directed=True)
ALL = (Kind.DOUBLY, Kind.SYMMETRIC, Kind.ROW, Kind.COLUMN)
UNDIRECTED_RULES = ("metropolis", "lazy_metropolis", "max_degree")


def adjacency(graph):
    """A[i, j] = 1 if j sends to i, from networkx, whose matrix has the sender first."""
    theirs = graph.to_networkx()
    return nx.to_numpy_array(theirs, nodelist=range(graph.n_agents)).T


def dense_metropolis(graph):
    A = adjacency(graph)
    degree = A.sum(axis=1)
    W = np.zeros_like(A)
    for i in range(len(A)):
        for j in range(len(A)):
            if A[i, j]:
                W[i, j] = 1 / (1 + max(degree[i], degree[j]))
    return W + np.diag(1 - W.sum(axis=1))


DENSE = {
    "metropolis": dense_metropolis,
    "lazy_metropolis": lambda graph: (np.eye(graph.n_agents) + dense_metropolis(graph)) / 2,
    "max_degree": lambda graph: (
        np.eye(graph.n_agents)
        - (np.diag(adjacency(graph).sum(axis=1)) - adjacency(graph))
        / (1 + adjacency(graph).sum(axis=1).max())
    ),
    "uniform_row": lambda graph: (
        (A := adjacency(graph) + np.eye(graph.n_agents)) / A.sum(axis=1, keepdims=True)
    ),
    "uniform_column": lambda graph: (
        (A := adjacency(graph) + np.eye(graph.n_agents)) / A.sum(axis=0, keepdims=True)
    ),
}

IRREGULAR = graphs.from_edges([(0, 1), (0, 2), (0, 3), (3, 4), (1, 2)])


@st.composite
def connected_graphs(draw, is_directed=False):
    """A random tree (or a ring, if directed) with random further links."""
    n = draw(st.integers(1 + is_directed, 12))
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    extra = {(a, b) for a, b in draw(st.lists(pair, max_size=30)) if a != b}
    if is_directed:
        edges = extra | {(i, (i + 1) % n) for i in range(n)}
    else:
        tree = {(draw(st.integers(0, i - 1)), i) for i in range(1, n)}
        edges = {(min(edge), max(edge)) for edge in extra} | tree
    return graphs.from_edges(sorted(edges), n_agents=n, is_directed=is_directed)


@given(graph=connected_graphs(), rule=st.sampled_from(UNDIRECTED_RULES))
def test_undirected_rules_match_a_dense_formula_and_are_symmetric(graph, rule):
    network = Network(graph, mixing=rule)
    W = network.matrix()
    np.testing.assert_allclose(W, DENSE[rule](graph), rtol=0, atol=1e-15)
    np.testing.assert_allclose(W.sum(axis=0), 1, rtol=0, atol=1e-14)
    np.testing.assert_allclose(W.sum(axis=1), 1, rtol=0, atol=1e-14)
    assert (W == W.T).all()
    assert network.kinds == ALL
    assert network.eta < 1


@given(graph=connected_graphs(is_directed=True))
def test_uniform_rules_match_a_dense_formula_on_directed_graphs(graph):
    network = Network(graph)
    R, C = network.matrix("row"), network.matrix("column")
    np.testing.assert_allclose(R, DENSE["uniform_row"](graph), rtol=0, atol=1e-15)
    np.testing.assert_allclose(C, DENSE["uniform_column"](graph), rtol=0, atol=1e-15)
    np.testing.assert_allclose(R.sum(axis=1), 1, rtol=0, atol=1e-14)
    np.testing.assert_allclose(C.sum(axis=0), 1, rtol=0, atol=1e-14)
    pattern = adjacency(graph) + np.eye(graph.n_agents) > 0
    assert ((R > 0) == pattern).all()
    assert ((C > 0) == pattern).all()


@pytest.mark.parametrize("rule", DENSE)
def test_every_rule_works_on_an_undirected_irregular_graph(rule):
    W = Network(IRREGULAR, mixing=rule).matrix()
    np.testing.assert_allclose(W, DENSE[rule](IRREGULAR), rtol=0, atol=1e-15)


def test_the_first_index_receives():
    # Agent 0 hears only 2; agent 2 hears 0 and 1.
    network = Network(nx.DiGraph(ARCS))
    third = 1 / 3
    expected = [[0.5, 0, 0.5], [0.5, 0.5, 0], [third, third, third]]
    np.testing.assert_allclose(network.matrix("row"), expected, atol=1e-16)
    expected = [[third, 0, 0.5], [third, 0.5, 0], [third, 0.5, 0.5]]
    np.testing.assert_allclose(network.matrix("column"), expected, atol=1e-16)


def test_weights_are_aligned_with_the_arcs_and_read_only():
    network = Network(DIRECTED)
    weights = network.weights("column")
    R = network.matrix("column")
    assert weights.links.tolist() == R[DIRECTED.receivers, DIRECTED.senders].tolist()
    assert weights.own.tolist() == np.diag(R).tolist()
    for array in (weights.own, weights.links):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_defaults_are_metropolis_or_both_uniform_rules():
    assert Network(graphs.ring(4)).mixing == "metropolis"
    assert Network(DIRECTED).mixing == "uniform_row, uniform_column"
    assert Network(DIRECTED).kinds == (Kind.ROW, Kind.COLUMN)
    assert (Network(DIRECTED).matrix() == Network(DIRECTED).matrix("row")).all()


def test_a_doubly_stochastic_rule_serves_every_kind():
    network = Network(graphs.paper())
    assert network.kinds == ALL
    assert network.is_symmetric
    for kind in ALL:
        assert network.weights(kind) is network.weights("doubly")


def test_uniform_rules_are_doubly_stochastic_where_all_degrees_are_equal():
    exponential = Network(graphs.exponential(11))
    assert exponential.kinds == (Kind.DOUBLY, Kind.ROW, Kind.COLUMN)
    assert Network(graphs.exponential(2)).is_symmetric
    assert Network(graphs.ring(6), mixing="uniform_row").kinds == ALL
    assert Network(IRREGULAR, mixing="uniform_row").kinds == (Kind.ROW,)
    assert Network(IRREGULAR, mixing="uniform_column").kinds == (Kind.COLUMN,)


def test_any_form_of_the_graph_gives_the_same_network():
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    expected = Network(graphs.from_edges(edges)).matrix()
    for graph in (edges, np.array(edges), nx.from_edgelist(edges)):
        assert (Network(graph).matrix() == expected).all()


@pytest.mark.parametrize(
    "convert", [np.array, list, scipy.sparse.csr_array, scipy.sparse.coo_matrix]
)
def test_a_matrix_of_either_form_is_kept_to_the_bit(convert):
    W = dense_metropolis(IRREGULAR)
    given_matrix = convert(W)
    network = Network(IRREGULAR, mixing=given_matrix)
    assert (network.matrix() == W).all()
    assert network.kinds == ALL
    assert network.mixing == "matrix"
    after = given_matrix.toarray() if hasattr(given_matrix, "toarray") else np.array(given_matrix)
    assert (after == W).all()


def test_repeated_entries_of_a_sparse_matrix_are_added_in_a_copy():
    columns, values, starts = [1, 0, 0, 1, 0], [0.5, 0.25, 0.25, 0.5, 0.5], [0, 3, 5]
    W = scipy.sparse.csr_array((values, columns, starts), shape=(2, 2))
    for form in (W, W.tocoo()):
        assert Network([(0, 1)], mixing=form).matrix().tolist() == [[0.5, 0.5], [0.5, 0.5]]
        assert form.nnz == 5
    assert W.indices.tolist() == columns


def test_a_matrix_is_classified_by_its_sums():
    R = DENSE["uniform_row"](DIRECTED)
    assert Network(DIRECTED, mixing=R).kinds == (Kind.ROW,)
    assert Network(DIRECTED, mixing=DENSE["uniform_column"](DIRECTED)).kinds == (Kind.COLUMN,)
    lopsided = (
        0.5 * np.eye(5) + 0.3 * np.roll(np.eye(5), 1, axis=0) + 0.2 * np.roll(np.eye(5), -1, axis=0)
    )
    network = Network(graphs.ring(5), mixing=lopsided)
    assert network.kinds == (Kind.DOUBLY, Kind.ROW, Kind.COLUMN)
    assert not network.is_symmetric


def test_a_mapping_gives_each_role_its_own_matrix():
    R, C = DENSE["uniform_row"](DIRECTED), DENSE["uniform_column"](DIRECTED)
    R = (np.eye(3) + R) / 2
    network = Network(DIRECTED, mixing={"column": "uniform_column", "row": R})
    assert network.mixing == "row matrix, uniform_column"
    assert (network.matrix("row") == R).all()
    np.testing.assert_allclose(network.matrix("column"), C, atol=1e-16)
    both = Network(IRREGULAR, mixing={"row": "uniform_row", "column": "metropolis"})
    assert both.kinds == ALL
    np.testing.assert_allclose(both.matrix("row"), DENSE["uniform_row"](IRREGULAR), atol=1e-16)
    np.testing.assert_allclose(both.matrix("column"), dense_metropolis(IRREGULAR), atol=1e-16)


def test_one_agent_mixes_with_itself():
    network = Network(graphs.ring(1))
    assert network.matrix().tolist() == [[1.0]]
    assert (network.eta, network.smallest_eigenvalue, network.kinds) == (0.0, 1.0, ALL)


def test_sums_hold_for_a_hub_of_a_hundred_thousand_neighbours():
    for rule in DENSE:
        Network(graphs.star(100_000), mixing=rule)


@pytest.mark.parametrize(
    "graph",
    [
        graphs.paper(),
        graphs.ring(400),  # from this graph on, Lanczos computes η
        graphs.complete(400),
        graphs.star(400),
        graphs.random_regular(400, 4, seed=1),
        graphs.exponential(400),
        # A complete bipartite graph: the smallest eigenvalue, near -1, decides.
        graphs.from_edges([(i, 200 + j) for i in range(200) for j in range(200)]),
    ],
)
def test_eta_and_the_smallest_eigenvalue_agree_with_dense_algebra(graph):
    assert graph.n_agents == 5 or graph.n_agents > MOST_SVD_AGENTS
    network = Network(graph)
    W = network.matrix("doubly")
    expected = np.linalg.norm(W - np.ones_like(W) / len(W), 2)
    assert network.eta == pytest.approx(expected, abs=1e-10)
    if network.is_symmetric:
        assert network.smallest_eigenvalue == pytest.approx(np.linalg.eigvalsh(W)[0], abs=1e-10)


def test_eta_of_a_long_ring_is_right_relative_to_its_distance_from_one():
    n = 5000
    gap = 2 / 3 * (1 - np.cos(2 * np.pi / n))
    assert 1 - Network(graphs.ring(n)).eta == pytest.approx(gap, rel=1e-6)


def test_eta_of_a_ring_that_is_too_long_is_refused_with_its_bound(monkeypatch):
    monkeypatch.setattr("hushgrad.mixing.spectrum.MOST_LANCZOS_STEPS", 100)
    with pytest.raises(MixingError, match=r"did not settle in 100 .* at least 0.99.* mixes faster"):
        _ = Network(graphs.ring(5000)).eta


def test_eta_needs_a_doubly_stochastic_matrix():
    with pytest.raises(
        MixingError, match=r"eta .* doubly stochastic W, but .* column \d sums to .*Push"
    ):
        _ = Network(DIRECTED).eta
    with pytest.raises(
        MixingError, match=r"symmetric W, but .* W\[\d, \d\] and W.* not both positive"
    ):
        _ = Network(graphs.exponential(11)).smallest_eigenvalue


def test_large_networks_have_no_dense_matrix():
    network = Network(graphs.ring(20_001))
    with pytest.raises(
        MixingError, match=r"at most 20000 agents, but there are 20001. Use .*weights"
    ):
        network.matrix()
    assert network.weights("row").own.shape == (20_001,)


def changed(i, j, value):
    W = dense_metropolis(IRREGULAR)
    W[i, j] = value
    return W


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (changed(1, 2, np.nan), r"finite, but W\[1, 2\] = nan"),
        (changed(1, 2, np.inf), r"finite, but W\[1, 2\] = inf"),
        (changed(2, 1, -0.5), r"not negative, but W\[2, 1\] = -0.5"),
        (changed(4, 4, 0.0), r"positive weight for itself, but W\[4, 4\] = 0. Use \(I \+ W\)/2"),
        (changed(4, 1, 0.1), r"needs an arc j -> i, but W\[4, 1\] = 0.1"),
        (changed(4, 3, 0.0), r"needs w_ij > 0, but W\[4, 3\] = 0"),
        (
            changed(4, 3, 0.4333),
            r"sum to 1, but column 3 sums to 1.1 and row 4 sums to 1.1. Divide",
        ),
        (changed(0, 0, 0.25 + 1e-9), r"column 0 sums to 1.000000001"),
        (np.eye(4), r"has shape \(5, 5\), but its shape is \(4, 4\)"),
        (scipy.sparse.eye_array(4), r"has shape \(5, 5\), but its shape is \(4, 4\)"),
        (np.ones((5, 5), dtype=complex), r"real matrix .* complex128"),
        ([[1, 2], [3]], r"but got a list"),
        (object(), r"but got a object"),
        (
            "metropolitan",
            r"no rule 'metropolitan'. The rules are metropolis, lazy_metropolis, max_",
        ),
        ({}, r"keys 'row' and 'column', but its keys are \[\]"),
        ({"doubly": "metropolis"}, r"its keys are \['doubly'\]"),
        ({"row": "uniform_column"}, r"whose rows sum to 1, but row \d sums to .* \"uniform_row\""),
        ({"column": "uniform_row"}, r"whose columns sum to 1, but column \d sums to"),
    ],
)
def test_each_clause_of_assumption_1_is_checked_with_its_place(matrix, message):
    with pytest.raises(MixingError, match=message):
        Network(IRREGULAR, mixing=matrix)


def test_sums_may_be_off_by_rounding_and_no_more():
    assert Network(IRREGULAR, mixing=changed(0, 0, 0.25 + 5e-13)).kinds == ALL
    with pytest.raises(MixingError, match=r"column 0 sums to 1.00000000001"):
        Network(IRREGULAR, mixing=changed(0, 0, 0.25 + 1e-11))


def test_a_transposed_matrix_is_refused_on_an_asymmetric_graph():
    with pytest.raises(MixingError, match=r"needs an arc j -> i, but W\[0, 1\]"):
        Network(DIRECTED, mixing=DENSE["uniform_row"](DIRECTED).T)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            graphs.from_edges([(0, 1), (2, 3)]),
            r"connected graph, .* no path between agents 0 and 2",
        ),
        (graphs.from_edges([(1, 2)]), r"agent 0 has no link \(agents are numbered from 0\)"),
        (nx.DiGraph([(0, 1)]), r"agent 0 has no arc to or no arc from"),
        (nx.DiGraph([(0, 1), (1, 0), (1, 2), (2, 3), (3, 2)]), r"strongly .* agents 0 and 2"),
    ],
)
def test_a_disconnected_graph_is_refused_with_the_agents(graph, message):
    with pytest.raises(MixingError, match=message):
        Network(graph)


@pytest.mark.parametrize("rule", UNDIRECTED_RULES)
def test_rules_for_undirected_graphs_refuse_directed_ones(rule):
    with pytest.raises(
        MixingError, match=rf"'{rule}' needs an undirected graph, .* 4 .*uniform_row"
    ):
        Network(DIRECTED, mixing=rule)


def test_a_missing_kind_of_matrix_is_refused_with_the_reason_and_the_way_out():
    network = Network(IRREGULAR, mixing="uniform_row")
    message = (
        r'no doubly stochastic matrix, but with mixing uniform_row column \d sums .*"metropolis"'
    )
    with pytest.raises(MixingError, match=message):
        network.weights("doubly")
    with pytest.raises(
        MixingError, match=r"no column-stochastic matrix.* \"column\": \"uniform_column\""
    ):
        network.matrix("column")
    with pytest.raises(
        MixingError, match=r"one of doubly, symmetric, row, column, but kind = 'rows'"
    ):
        network.weights("rows")
    assert re.fullmatch(r"column \d sums to [\d.]+", network.shortfall(Kind.DOUBLY))
    assert network.shortfall(Kind.ROW) is None
    with pytest.raises(MixingError, match=r"column \d sums to .*PushPull"):
        Network(DIRECTED).weights("doubly")


def test_a_value_that_is_no_graph_is_refused():
    with pytest.raises(GraphError, match="needs pairs, but got 5"):
        Network(5)


def test_a_network_prints_its_size_and_kinds():
    assert repr(Network(DIRECTED)) == (
        "Network(3 agents, 4 arcs, mixing uniform_row, uniform_column: row, column)"
    )


@pytest.mark.parametrize("m", [2, 3, 7, 49, 120])
def test_the_weights_of_a_complete_graph_are_equal_to_the_bit(m):
    weights = Network(graphs.complete(m)).weights(Kind.DOUBLY)
    assert set(weights.own.tolist()) == set(weights.links.tolist()) == {1 / m}
