"""The division of agents into shards: few links between shards, equally many agents in each.

Three ways are known: METIS where `pymetis` is installed (extra `scale`), reverse Cuthill–McKee
from SciPy, and blocks of the agents' own numbers, which suit rings, rows and grids. The one that
cuts the fewest arcs is taken. Graphs by a rule keep their numbers. Every process finds the same
partition.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import optional
from hushgrad.graphs import Graph, RuleGraph
from hushgrad.simulate.stacked.shards import metis

type Ints = NDArray[np.int64]

_FEW = 0.02  # of the arcs: where so few are cut, no other partition is looked for
_UNEVEN = 1.02  # agents of METIS' largest part over the mean: padding costs every shard


@dataclass(frozen=True)
class Partition:
    """The agents of every shard: blocks of an order of the agents, or of their own numbers."""

    bounds: Ints  # (shards + 1,) places in the order where the blocks begin
    order: Ints | None = None  # (agents,) agents by place; None: by their numbers
    place: Ints | None = None  # (agents,) the way back

    @property
    def n_shards(self) -> int:
        return len(self.bounds) - 1

    def agents(self, shard: int) -> Ints:
        """The numbers of a shard's agents, ascending."""
        places = np.arange(self.bounds[shard], self.bounds[shard + 1])
        return places if self.order is None else np.sort(self.order[places])

    def shards(self, agents: Ints) -> Ints:
        """The shard of each of these agents."""
        places = agents if self.place is None else self.place[agents]
        return np.searchsorted(self.bounds, places, side="right") - 1


def blocks(n_agents: int, n_shards: int) -> Partition:
    """Blocks of the agents' numbers.

    >>> blocks(5, 2).agents(1).tolist()
    [2, 3, 4]
    """
    return Partition(np.arange(n_shards + 1) * n_agents // n_shards)


def partition(graph: Graph, n_shards: int, method: str | None = None) -> Partition:
    """The partition by a method ("blocks", "metis", "rcm"); None: the one that cuts least."""
    if method is not None:
        return _METHODS[method](graph, n_shards)
    natural = blocks(graph.n_agents, n_shards)
    if isinstance(graph, RuleGraph):  # its numbers follow its shape, and nobody looks at the whole
        return natural
    if cut_arcs(graph, natural) <= _FEW * graph.n_arcs:
        return natural
    better = "metis" if importlib.util.find_spec("pymetis") else "rcm"
    other = _METHODS[better](graph, n_shards)
    return min((natural, other), key=lambda found: cut_arcs(graph, found))


def cut_arcs(graph: Graph, found: Partition) -> int:
    """The number of arcs that lead from one shard to another."""
    shard = found.shards(np.arange(graph.n_agents))
    return int(np.count_nonzero(shard[graph.senders] != shard[graph.receivers]))


def _natural(graph: Graph, n_shards: int) -> Partition:
    return blocks(graph.n_agents, n_shards)


def _rcm(graph: Graph, n_shards: int) -> Partition:
    csgraph = optional("scipy.sparse.csgraph", "sim")
    ordered = csgraph.reverse_cuthill_mckee(_both_ways(graph), symmetric_mode=True)
    return _ordered(ordered.astype(np.int64), blocks(graph.n_agents, n_shards).bounds)


def _metis(graph: Graph, n_shards: int) -> Partition:
    links = _both_ways(graph)
    shard = metis.parts(links.indptr, links.indices, n_shards)
    sizes = np.bincount(shard, minlength=n_shards)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    if sizes.max() > _UNEVEN * graph.n_agents / n_shards + 1:  # cut equal blocks of the same order
        bounds = blocks(graph.n_agents, n_shards).bounds
    return _ordered(np.argsort(shard, kind="stable"), bounds)


def _both_ways(graph: Graph) -> Any:
    links = graph.to_scipy()
    return (links + links.T).tocsr() if graph.is_directed else links


def _ordered(order: Ints, bounds: Ints) -> Partition:
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Partition(bounds, order, place)


_METHODS = {"blocks": _natural, "metis": _metis, "rcm": _rcm}
