"""Graphs with a fixed shape: rings, rows, stars, grids and their like.

Users call the builders as `hg.graphs.ring` and so on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hushgrad.errors import GraphError
from hushgrad.graphs.by_rule import RuleGraph, by_candidates
from hushgrad.graphs.checks import MOST_AGENTS, check_count
from hushgrad.graphs.graph import Graph, Ints, graph_of_arcs, link_keys, pairs_at, undirected
from hushgrad.graphs.outside import from_edges


def ring(n_agents: int) -> Graph:
    """Agents in a circle, each linked with the next. Two agents share one link, one agent has none.

    >>> ring(5)
    Graph(5 agents, 5 links)
    """
    n = check_count("ring", "n_agents", n_agents, 1)
    n_links = n if n > 2 else n - 1
    return _by_hops(n, lambda i: [(i - 1) % n, (i + 1) % n], f"ring({n})", n_links)


def path(n_agents: int) -> Graph:
    """Agents in a row, each linked with the next."""
    n = check_count("path", "n_agents", n_agents, 1)
    return _by_hops(n, lambda i: [np.where(i, i - 1, n), i + 1], f"path({n})", n - 1)


def star(n_agents: int) -> Graph:
    """Agent 0 linked with every other one."""
    n = check_count("star", "n_agents", n_agents, 1)
    return undirected(n, np.zeros(n - 1, dtype=np.int64), np.arange(1, n))


def complete(n_agents: int) -> Graph:
    """Every agent linked with every other one."""
    n = check_count("complete", "n_agents", n_agents, 1)
    return undirected(n, *pairs_at(np.arange(n * (n - 1) // 2)))


def grid(rows: int, columns: int) -> Graph:
    """Agents on a rectangle, linked with those beside, above and below; agent r * columns + c."""
    r, c, n = _rectangle("grid", rows, columns)

    def near(i: Ints) -> list[Ints]:
        column = i % c
        beside = np.where(column > 0, i - 1, n), np.where(column < c - 1, i + 1, n)
        return [np.where(i >= c, i - c, n), *beside, i + c]

    return _by_hops(n, near, f"grid({r}, {c})", 2 * n - r - c)


def torus(rows: int, columns: int) -> Graph:
    """A grid whose last row and column are linked with the first; agent r * columns + c.

    >>> torus(3, 4)
    Graph(12 agents, 24 links)
    """
    r, c, n = _rectangle("torus", rows, columns)

    def near(i: Ints) -> list[Ints]:
        first = i - i % c  # agent of the same row
        return [(i - c) % n, first + (i - 1) % c, first + (i + 1) % c, (i + c) % n]

    across = [length if length > 2 else length - 1 for length in (r, c)]
    return _by_hops(n, near, f"torus({r}, {c})", across[0] * c + across[1] * r)


def paper() -> Graph:
    """Five agents in a ring with the chord 0-2, for the paper's experiments.

    The drawing of the paper's five-agent graph is not in its source, so this one is ours.
    """
    return from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (0, 2)])


def exponential(n_agents: int, is_directed: bool = True) -> Graph:
    """Agent i sends to the agents i + 1, i + 2, i + 4, i + 8, … (modulo n_agents).

    All in- and out-degrees are equal, so that uniform weights are doubly stochastic although the
    arcs are one-way. ``is_directed=False`` adds the way back to every arc.
    """
    n = check_count("exponential", "n_agents", n_agents, 1)
    hops = 2 ** np.arange((n - 1).bit_length())
    senders = np.repeat(np.arange(n), len(hops))
    receivers = (senders + np.tile(hops, n)) % n
    if is_directed:
        return graph_of_arcs(n, senders, receivers, is_directed=True)
    low, high = np.divmod(np.unique(link_keys(n, senders, receivers)), n)
    return undirected(n, low, high)


def _rectangle(builder: str, rows: int, columns: int) -> tuple[int, int, int]:
    r = check_count(builder, "rows", rows, 1)
    c = check_count(builder, "columns", columns, 1)
    if r * c > MOST_AGENTS:
        raise GraphError(
            f"{builder} needs at most {MOST_AGENTS} agents, but rows * columns = {r * c}. "
            "Pass fewer rows or columns."
        )
    return r, c, r * c


def _by_hops(n: int, near: Callable[[Ints], list[Ints]], text: str, n_links: int) -> Graph:
    """The connected graph in which `near` gives the neighbours of agents; n or more: none."""
    rule = by_candidates(n, lambda agents: np.stack(near(agents), axis=1))
    return RuleGraph(n, rule, text, arcs=2 * n_links, connected=True)
