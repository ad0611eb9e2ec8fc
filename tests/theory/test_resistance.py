"""Effective resistances against known circuits, series and parallel, and the pseudo-inverse."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad.theory.resistance import component, pairs_of, resistances, resistances_from


@pytest.mark.parametrize("m", [2, 3, 7, 20])
def test_known_circuits(m):
    steps = np.abs(np.subtract.outer(np.arange(m), np.arange(m)))
    complete = itertools.combinations(range(m), 2)
    np.testing.assert_allclose(resistances(m, complete), 2 / m * (steps > 0), rtol=1e-12)
    path = [(i, i + 1) for i in range(m - 1)]
    np.testing.assert_allclose(resistances(m, path), steps, rtol=1e-11)
    if m > 2:
        ring = [*path, (0, m - 1)]
        np.testing.assert_allclose(resistances(m, ring), steps * (m - steps) / m, rtol=1e-11)


@given(st.integers(2, 12), st.data())
def test_any_graph_agrees_with_the_pseudo_inverse_per_component(m, data):
    pairs = data.draw(st.lists(st.sampled_from(list(itertools.combinations(range(m), 2)))))
    found = resistances(m, pairs)
    graph = nx.Graph(pairs)
    graph.add_nodes_from(range(m))
    expected = np.full((m, m), math.inf)
    for members in map(sorted, nx.connected_components(graph)):
        L = nx.laplacian_matrix(graph, nodelist=members).toarray().astype(float)
        G = np.linalg.pinv(L + 1 / len(members))  # not singular, whatever rounds
        own = np.diagonal(G)
        expected[np.ix_(members, members)] = own[:, None] + own - 2 * G
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    for i in range(m):
        others = {j: r for j, r in enumerate(found[i]) if j != i and r < math.inf}
        assert resistances_from(i, pairs_of(m, pairs)) == pytest.approx(others)


@given(st.integers(3, 10), st.data())
def test_an_absent_agent_raises_every_resistance(m, data):
    links = data.draw(
        st.sets(st.sampled_from(list(itertools.combinations(range(m), 2))), min_size=m)
    )
    pairs = pairs_of(m, links)
    gone = data.draw(st.integers(1, m - 1))
    before, after = resistances_from(0, pairs), resistances_from(0, pairs, {gone})
    assert gone not in after
    assert all(after[j] >= before[j] * (1 - 1e-9) for j in after)


def test_a_coalition_cuts_a_path():
    path = pairs_of(5, [(i, i + 1) for i in range(4)])
    assert component(0, path, {2}).tolist() == [0, 1]
    assert resistances_from(0, path, {1}) == {}
