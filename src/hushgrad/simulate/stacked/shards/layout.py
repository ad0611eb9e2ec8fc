"""The links of a shard as tables of the compiled code: its own agents, then ghosts of neighbours.

Every shard has the same shapes: buckets have the size that the fullest shard needs, and agents
that only fill a bucket have no links. A ghost stands for a neighbour of another shard. An out-slot
array has a row for every link from an own agent, a row of zeros, and a row for every link from a
ghost to an own agent. The numbers on the latter are drawn here again: draws have addresses. So
only vectors travel, one row for each ghost.

A shard looks at its own links and at those of its ghosts, never at the whole graph.

`ShardedSimulation` (simulation.py) lays out each shard with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.graphs import Graph
from hushgrad.simulate.stacked.layout import in_groups, widths_of
from hushgrad.simulate.stacked.shards.halo import Halo
from hushgrad.simulate.stacked.shards.mesh import Shards
from hushgrad.simulate.stacked.shards.partition import Partition

type Ints = NDArray[np.int64]
type Places = NDArray[np.int32]  # numbers of arcs are many, so they are kept short
type Buckets = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class LocalLinks:
    """The links of one kind that touch the agents of a shard."""

    shard: int
    own: Ints  # (agents,) numbers, ascending
    senders: Places  # (arcs,) of the arcs into own agents, receiver by receiver
    receivers: Places  # (arcs,) places in `own`
    sent_from: Places  # (sent arcs,) of the arcs from own agents, sender by sender: places in `own`
    sent_to: Places  # (sent arcs,)
    shard_of_sender: Places  # (arcs,)
    given: Mapping[int, Ints]  # by other shard: own agents that it needs, ascending numbers

    @staticmethod
    def of(graph: Graph, partition: Partition, shard: int) -> LocalLinks:
        own = partition.agents(shard)
        senders, receivers = graph.arcs_into(own)
        sent_from, sent_to = graph.arcs_from(own)
        to = partition.shards(sent_to)
        given = {
            int(q): np.unique(sent_from[to == q]) for q in np.unique(to).tolist() if q != shard
        }
        return LocalLinks(
            shard,
            own,
            senders.astype(np.int32),
            np.searchsorted(own, receivers).astype(np.int32),
            np.searchsorted(own, sent_from).astype(np.int32),
            sent_to.astype(np.int32),
            partition.shards(senders).astype(np.int32),
            given,
        )

    @cached_property
    def in_degree(self) -> Ints:
        return np.bincount(self.receivers, minlength=len(self.own))

    @cached_property
    def out_degree(self) -> Ints:
        return np.bincount(self.sent_from, minlength=len(self.own))

    @cached_property
    def is_cut(self) -> NDArray[np.bool_]:
        """(arcs,) whether the sender is a ghost."""
        return self.shard_of_sender != self.shard

    def counts(self, n_shards: int) -> Ints:
        """(shards,) own agents that each other shard needs."""
        found = np.zeros(n_shards, np.int64)
        for q, agents in self.given.items():
            found[q] = len(agents)
        return found


@dataclass(frozen=True)
class Bucketed:
    """Agents in buckets of equal width, of one size in every shard."""

    widths: Ints  # (buckets,)
    sizes: Ints  # (buckets,)

    @staticmethod
    def of(degrees: Mapping[int, Ints], shards: Shards) -> Bucketed:
        """Buckets for the degrees of the agents of every shard."""
        most = shards.together({s: np.array(d.max(initial=0)) for s, d in degrees.items()}).max()
        counts = shards.together(
            {s: np.bincount(d, minlength=int(most) + 1) for s, d in degrees.items()}
        )  # (shards, degrees)
        every = counts.sum(0)
        values = np.flatnonzero(every)
        widths = in_groups(widths_of(values, every[values]))
        bucket = np.searchsorted(widths, np.arange(int(most) + 1))
        inside = np.zeros((len(widths), len(counts)), np.int64)
        for degree in values.tolist():
            inside[bucket[degree]] += counts[:, degree]
        return Bucketed(widths, inside.max(1))

    @cached_property
    def lows(self) -> Ints:
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def offsets(self) -> Ints:
        """The first slot of each bucket, and the number of slots."""
        return np.concatenate([[0], np.cumsum(self.sizes * self.widths)])

    @property
    def meta(self) -> Buckets:
        lows = self.lows.tolist()
        return tuple(zip(lows[:-1], lows[1:], self.widths.tolist(), strict=True))

    @property
    def n_agents(self) -> int:
        return int(self.lows[-1])

    @property
    def n_slots(self) -> int:
        return int(self.offsets[-1])

    def places(self, degree: Ints) -> Ints:
        """(agents,) the places of a shard's agents, bucket by bucket, in the order of numbers."""
        bucket = np.searchsorted(self.widths, degree)
        order = np.argsort(bucket, kind="stable")
        first = np.searchsorted(bucket[order], np.arange(len(self.widths)))
        place = np.empty(len(degree), np.int64)
        place[order] = np.arange(len(degree)) - first[bucket[order]] + self.lows[bucket[order]]
        return place

    def slots(self, place: Ints, number: Places) -> Ints:
        """The flat entry of slot `number` of the agent at each place."""
        bucket = np.searchsorted(self.lows, place, side="right") - 1
        bucket = np.minimum(bucket, len(self.sizes) - 1)
        return self.offsets[bucket] + number * self.sizes[bucket] + place - self.lows[bucket]


@dataclass(frozen=True)
class ShardShapes:
    """The shapes that all shards have in common, for links of one kind."""

    into: Bucketed
    out: Bucketed
    halo: Halo
    n_cut: int  # rows for links from ghosts

    @staticmethod
    def of(every: Mapping[int, LocalLinks], shards: Shards) -> ShardShapes:
        counts = shards.together({s: local.counts(shards.n) for s, local in every.items()})
        cut = shards.together({s: np.array(local.is_cut.sum()) for s, local in every.items()})
        return ShardShapes(
            Bucketed.of({s: local.in_degree for s, local in every.items()}, shards),
            Bucketed.of({s: local.out_degree for s, local in every.items()}, shards),
            Halo.of(counts),
            int(cut.max()),
        )


@dataclass(frozen=True)
class OwnPlaces:
    """The canonical places of a shard's own agents: bucket by bucket of the graph's in-degree."""

    of: Ints  # (own agents,)
    n: int  # places, also those that no agent has

    def rows(self, values: NDArray[Any], fill: Any) -> NDArray[Any]:
        """(own agents, …) values as rows (n, …), with `fill` where there is no agent."""
        rows = np.full((self.n, *values.shape[1:]), fill, values.dtype)
        rows[self.of] = values
        return rows


class ShardLayout:
    """The tables of one shard for links of one kind.

    `is_turned`: whether the buckets of senders and receivers may have another order than the
    canonical one.
    """

    def __init__(
        self,
        graph: Graph,
        local: LocalLinks,
        shapes: ShardShapes,
        places: OwnPlaces,
        *,
        is_turned: bool,
    ):
        self.local, self.shapes, self.places = local, shapes, places
        self.ghosts, ghost = self._ghosts()  # (ghost rows,) numbers; 0 where none
        own = np.searchsorted(local.own, local.senders[~local.is_cut])
        neighbour = np.empty(len(local.senders), np.int32)
        neighbour[local.is_cut] = places.n + ghost
        neighbour[~local.is_cut] = places.of[own]
        into_place = shapes.into.places(local.in_degree)
        out_place = shapes.out.places(local.out_degree)
        self.flat_in = shapes.into.slots(
            into_place[local.receivers], _ranks(local.receivers, local.in_degree)
        ).astype(np.int32)  # (arcs,) in-slot of each arc into own agents
        rank = _ranks(local.sent_from, local.out_degree)
        self.flat_out = shapes.out.slots(out_place[local.sent_from], rank).astype(np.int32)
        # (cut arcs,) rows of the links from ghosts
        self.flat_cut = shapes.out.n_slots + 1 + np.arange(len(ghost))
        self.n_out = shapes.out.n_slots + 1 + shapes.n_cut
        sent = _keys(graph, local.own[local.sent_from], local.sent_to)
        arcs = _keys(graph, local.senders.astype(np.int64), local.own[local.receivers])
        entry = np.empty(len(arcs), np.int32)
        entry[~local.is_cut] = self.flat_out[np.searchsorted(sent, arcs[~local.is_cut])]
        entry[local.is_cut] = self.flat_cut
        slot_out = rank + (local.sent_to > local.own[local.sent_from])
        slot_cut, width = self._drawn_by_ghosts(graph, arcs[local.is_cut])
        own_slot = np.bincount(
            local.sent_from[local.sent_to < local.own[local.sent_from]], minlength=len(local.own)
        )
        self.tables: dict[str, Any] = {
            "neighbour": self.receiving(neighbour),
            "entry": self.receiving(entry, shapes.out.n_slots),
            "source": self.sending(
                places.of[local.sent_from].astype(np.int32),
                neighbour[local.is_cut],
            ),
            "slot": self.sending(slot_out.astype(np.uint32), slot_cut.astype(np.uint32)),
            "real": self.sending(np.ones(len(slot_out)), np.ones(len(slot_cut))),
            "own_slot": places.rows(own_slot.astype(np.uint32), 0),
            "width": np.concatenate(
                [places.rows((local.out_degree + 1).astype(np.uint32), 1), width]
            ),
            "ghosts": self.ghosts.astype(np.uint32),
            "give": self._given(),
            "dense": None,
            "from_into": places.rows(into_place.astype(np.int32), 0) if is_turned else None,
            "from_out": places.rows(out_place.astype(np.int32), 0) if is_turned else None,
        }

    def receiving(self, values: NDArray[Any], fill: Any = 0) -> NDArray[Any]:
        """(arcs,) values of the arcs into own agents as a flat array (in-slots,)."""
        rows = np.full(self.shapes.into.n_slots, fill, values.dtype)
        rows[self.flat_in] = values
        return rows

    def sending(self, own: NDArray[Any], cut: NDArray[Any]) -> NDArray[Any]:
        """Values of the arcs from own agents and from ghosts as rows of an out-slot array."""
        rows = np.zeros(self.n_out, own.dtype)
        rows[self.flat_out] = own
        rows[self.flat_cut] = cut
        return rows

    def _ghosts(self) -> tuple[Ints, Ints]:
        """The numbers of the ghosts by row, and the row of each cut arc's sender."""
        local, halo = self.local, self.shapes.halo
        ghosts = np.zeros(halo.n_rows, np.int64)
        senders = local.senders[local.is_cut]
        shards = local.shard_of_sender[local.is_cut]
        row = np.empty(len(senders), np.int64)
        for p in np.unique(shards).tolist():
            from_p = shards == p
            numbers = np.unique(senders[from_p])
            first = halo.start(p, local.shard, is_sending=False)
            ghosts[first : first + len(numbers)] = numbers
            row[from_p] = first + np.searchsorted(numbers, senders[from_p])
        return ghosts, row

    def _given(self) -> NDArray[np.int32]:
        """(ghost rows,) the places of the own agents whose rows go to other shards."""
        local, halo = self.local, self.shapes.halo
        give = np.zeros(halo.n_rows, np.int32)
        for q, agents in local.given.items():
            first = halo.start(local.shard, q, is_sending=True)
            give[first : first + len(agents)] = self.places.of[np.searchsorted(local.own, agents)]
        return give

    def _drawn_by_ghosts(self, graph: Graph, cut: Ints) -> tuple[Places, NDArray[np.uint32]]:
        """Draw addresses of the cut arcs, and how many slots each ghost row has."""
        numbers = np.unique(self.ghosts)
        senders, receivers = graph.arcs_from(numbers)
        degree = np.bincount(np.searchsorted(numbers, senders), minlength=len(numbers))
        rank = _ranks(np.searchsorted(numbers, senders), degree) + (receivers > senders)
        slots = rank[np.searchsorted(_keys(graph, senders, receivers), cut)]
        width = degree[np.searchsorted(numbers, self.ghosts)] + 1
        return slots, width.astype(np.uint32)


def _ranks(owner: Any, degree: Ints) -> Places:
    """The rank of each arc among those of its owner; arcs stand owner by owner."""
    first = np.concatenate([[0], np.cumsum(degree)])
    return np.arange(len(owner), dtype=np.int32) - first.astype(np.int32)[owner]


def _keys(graph: Graph, senders: Ints, receivers: Any) -> Ints:
    """One integer per arc, which ascends with senders and then with receivers."""
    return senders * graph.n_agents + receivers
