"""A graph as arrays of its arcs, and the functions that make one of arcs, links or a circle.

The builders and the doors of this package end here; the rest of hushgrad reads the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import optional

type Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed or undirected graph without self loops, as arrays of its arcs.

    The builders of `hushgrad.graphs` make it. The arcs are unique and sorted by (receiver, sender),
    the order in which every array "per arc" of hushgrad is laid out; an undirected graph has every
    arc in both directions. The arrays are read-only.
    """

    n_agents: int
    senders: Ints  # (n_arcs,) j of every arc j -> i
    receivers: Ints  # (n_arcs,) i of every arc j -> i
    is_directed: bool
    names: tuple[str, ...] | None = None  # (n_agents,) labels the agents had outside

    @property
    def n_arcs(self) -> int:
        return len(self.senders)

    @property
    def n_links(self) -> int:
        """Pairs of an undirected graph, arcs of a directed one."""
        return self.n_arcs if self.is_directed else self.n_arcs // 2

    @property
    def links(self) -> Ints:
        """(n_links, 2) sorted pairs i < j; of a directed graph (sender, receiver).

        `from_edges` makes the same graph of them.
        """
        if self.is_directed:
            return np.stack([self.senders, self.receivers], axis=1)
        once = self.receivers < self.senders
        return np.stack([self.receivers[once], self.senders[once]], axis=1)

    @property
    def in_degree(self) -> Ints:
        """(n_agents,) how many others each agent hears."""
        return np.bincount(self.receivers, minlength=self.n_agents)

    @property
    def out_degree(self) -> Ints:
        """(n_agents,) how many others each agent sends to."""
        return np.bincount(self.senders, minlength=self.n_agents)

    @cached_property
    def components(self) -> NDArray[np.int32]:
        """(n_agents,) the number of each agent's component, strongly connected if directed."""
        csgraph = optional("scipy.sparse.csgraph", "sim")
        return csgraph.connected_components(
            self.to_scipy(), directed=self.is_directed, connection="strong"
        )[1]

    @property
    def is_connected(self) -> bool:
        """Whether every agent reaches every other one along the arcs."""
        if self.n_agents > 1 and not (self.in_degree.all() and self.out_degree.all()):
            return False
        return not self.components.any()

    def arcs_into(self, agents: Ints) -> tuple[Ints, Ints]:
        """Senders and receivers of all arcs into these agents, receiver by receiver.

        The senders of a receiver ascend. A graph that knows its arcs by a rule makes these alone.

        >>> from hushgrad.graphs import path
        >>> [ends.tolist() for ends in path(4).arcs_into(np.array([2, 0]))]
        [[1, 3, 1], [2, 2, 0]]
        """
        arcs = self.arcs_at(agents)
        return self.senders[arcs], self.receivers[arcs]

    def arcs_at(self, agents: Ints) -> Ints:
        """The numbers of the arcs into these agents, receiver by receiver."""
        return rows_of(self._starts_into, agents)

    def arcs_from(self, agents: Ints) -> tuple[Ints, Ints]:
        """Senders and receivers of all arcs from these agents, sender by sender."""
        if not self.is_directed:
            receivers, senders = self.arcs_into(agents)
            return senders, receivers
        starts, order = self._by_sender
        arcs = order[rows_of(starts, agents)]
        return self.senders[arcs], self.receivers[arcs]

    def degrees(self, agents: Ints) -> Ints:
        """The number of others that each of these agents hears."""
        return self.in_degree[agents]

    @property
    def largest_degree(self) -> int:
        """The most others that an agent hears."""
        return int(self.in_degree.max())

    def link_numbers(self, low: Ints, high: Ints) -> Ints:
        """The numbers of these links low < high in `links` of an undirected graph."""
        pairs = self.links
        return np.searchsorted(
            pairs[:, 0] * self.n_agents + pairs[:, 1], low * self.n_agents + high
        )

    @cached_property
    def _starts_into(self) -> Ints:
        """(n_agents + 1,) the first arc into each agent."""
        return np.concatenate([[0], np.cumsum(self.in_degree)])

    @cached_property
    def _by_sender(self) -> tuple[Ints, Ints]:
        """(n_agents + 1,) the first place of each sender in the second array: arcs by sender."""
        starts = np.concatenate([[0], np.cumsum(self.out_degree)])
        return starts, np.argsort(self.senders, kind="stable")

    def two_hop(self) -> Graph:
        """The graph of all pairs at distance one or two, along the arcs: the pattern of W².

        >>> from hushgrad.graphs import path
        >>> path(4).two_hop().links.tolist()
        [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]
        """
        near = self.to_scipy()
        both = (near + near @ near).tocoo()
        apart = both.row != both.col
        receivers, senders = both.row[apart].astype(np.int64), both.col[apart].astype(np.int64)
        return graph_of_arcs(self.n_agents, senders, receivers, self.is_directed, self.names)

    def to_scipy(self, values: NDArray[Any] | None = None) -> Any:
        """A scipy CSR array with ``values`` (n_arcs,) at [receiver, sender]; by default True."""
        sparse = optional("scipy.sparse", "sim")
        starts = np.concatenate([[0], np.cumsum(self.in_degree)])
        data = np.ones(self.n_arcs, dtype=bool) if values is None else values
        return sparse.csr_array((data, self.senders, starts), shape=(self.n_agents,) * 2)

    def to_networkx(self) -> Any:
        """A networkx Graph or DiGraph of the agents' names, or of their numbers."""
        networkx = optional("networkx", "sim")
        graph = networkx.DiGraph() if self.is_directed else networkx.Graph()
        nodes = range(self.n_agents) if self.names is None else self.names
        graph.add_nodes_from(nodes)
        graph.add_edges_from((nodes[a], nodes[b]) for a, b in self.links.tolist())
        return graph

    def __repr__(self) -> str:
        links = "arcs" if self.is_directed else "links"
        return f"Graph({self.n_agents} agents, {self.n_links} {links})"


def rows_of(starts: Ints, which: Ints) -> Ints:
    """The places starts[w] … starts[w + 1] − 1 for every w of `which`, one after the other.

    >>> rows_of(np.array([0, 2, 5]), np.array([1, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    lengths = starts[which + 1] - starts[which]
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts[which] - (ends - lengths), lengths)


def graph_of_arcs(
    n_agents: int,
    senders: Ints,
    receivers: Ints,
    is_directed: bool,
    names: tuple[str, ...] | None = None,
) -> Graph:
    """The graph of these arcs, which are distinct but in any order."""
    keys = receivers * n_agents + senders
    keys.sort()
    receivers, senders = np.divmod(keys, n_agents)
    receivers.flags.writeable = senders.flags.writeable = False
    return Graph(n_agents, senders, receivers, is_directed, names)


def undirected(
    n_agents: int, starts: Ints, ends: Ints, names: tuple[str, ...] | None = None
) -> Graph:
    """The undirected graph of these links, each given once."""
    both = np.concatenate([starts, ends]), np.concatenate([ends, starts])
    return graph_of_arcs(n_agents, *both, is_directed=False, names=names)


def cycle(agents: Ints) -> Graph:
    """The undirected circle of these agents, in their order."""
    n = len(agents)
    n_links = n if n > 2 else n - 1
    return undirected(n, agents[:n_links], np.roll(agents, -1)[:n_links])


def link_keys(n_agents: int, starts: Ints, ends: Ints) -> Ints:
    """One integer per link that is the same in both directions: low * n_agents + high."""
    return np.minimum(starts, ends) * n_agents + np.maximum(starts, ends)


def pairs_at(index: Ints) -> tuple[Ints, Ints]:
    """The pairs low < high at these places of the list (0, 1), (0, 2), (1, 2), (0, 3), …"""
    high = ((1 + np.sqrt(1 + 8.0 * index)) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > index  # the square root may round up to the next row,
    high += high * (high + 1) // 2 <= index  # or down to the one before
    return index - high * (high - 1) // 2, high
