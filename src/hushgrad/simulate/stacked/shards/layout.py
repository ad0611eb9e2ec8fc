"""The links of a shard as tables of the compiled code: its own agents, and guests of other shards.

A guest is an agent of another shard that own agents send to. The shard adds up the messages of its
own agents to each guest. This sum travels, one row for each guest, whatever a step sends. The
guest's shard adds the row to the messages of its own agents. So a shard needs no draw and no vector
of other shards' agents, and of their weights only those for messages from its own agents.

Every shard has the same shapes: buckets have the size that the fullest shard needs, and agents
that only fill a bucket have no links. Agents that get rows from other shards have buckets of their
own, behind the others. An out-slot array has a row for every link from an own agent, and a row of
zeros.

A shard looks at the links of its own agents and of its guests, never at the whole graph.

`ShardedSimulation` (simulation.py) lays out each shard with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.graphs import Graph
from hushgrad.simulate.stacked.layout import Buckets, in_groups, widths_of
from hushgrad.simulate.stacked.shards.halo import Halo
from hushgrad.simulate.stacked.shards.mesh import Shards
from hushgrad.simulate.stacked.shards.partition import Partition

type Ints = NDArray[np.int64]
type Bools = NDArray[np.bool_]
type Places = NDArray[np.int32]  # numbers of arcs are many, so they are kept short


@dataclass(frozen=True)
class LocalLinks:
    """The links of one kind that touch the agents of a shard.

    Its arcs are those from own agents. Their receivers, `targets`, are own agents and guests.
    """

    shard: int
    own: Ints  # (agents,) numbers, ascending
    targets: Ints  # (targets,) numbers of own agents and guests, ascending
    is_own: Bools  # (targets,)
    is_sent: Bools  # which of graph.arcs_into(targets) are the arcs
    senders: Places  # (arcs,) receiver by receiver: places in `own`
    receivers: Places  # (arcs,) places in `targets`
    guests: Mapping[int, Ints]  # by other shard: its agents that own agents send to, numbers
    # by other shard: own agents that it sends to, as places in `own`, and its arcs to each
    hearers: Mapping[int, tuple[Ints, Ints]]

    @staticmethod
    def of(graph: Graph, partition: Partition, shard: int) -> LocalLinks:
        own = partition.agents(shard)
        sent_to = graph.arcs_from(own)[1]
        to = _by_shard(partition, shard, sent_to, sent_to)
        guests = {q: agents for q, (agents, _) in to.items()}
        targets = np.sort(np.concatenate([own, *guests.values()]))
        is_own = partition.shards(targets) == shard
        senders, receivers = graph.arcs_into(targets)
        receivers = np.searchsorted(targets, receivers).astype(np.int32)
        is_sent = partition.shards(senders) == shard
        is_heard = ~is_sent & is_own[receivers]
        ends = np.searchsorted(own, targets[receivers[is_heard]])
        hearers = _by_shard(partition, shard, senders[is_heard], ends)
        senders = np.searchsorted(own, senders[is_sent]).astype(np.int32)
        receivers = receivers[is_sent]
        return LocalLinks(shard, own, targets, is_own, is_sent, senders, receivers, guests, hearers)

    @cached_property
    def in_degree(self) -> Ints:
        """(targets,) arcs to each."""
        return np.bincount(self.receivers, minlength=len(self.targets))

    @cached_property
    def out_degree(self) -> Ints:
        """(agents,) arcs from each."""
        return np.bincount(self.senders, minlength=len(self.own))

    @cached_property
    def n_heard(self) -> Ints:
        """(agents,) other shards that send to each own agent."""
        found = np.zeros(len(self.own), np.int64)
        for places, _ in self.hearers.values():
            found[places] += 1
        return found

    def most_heard(self, bucket: Ints, n: int) -> Ints:
        """(n,) the largest `n_heard` of the agents in each bucket; only those that hear count."""
        found = np.zeros(n, np.int64)
        hears = self.n_heard > 0
        np.maximum.at(found, bucket[hears], self.n_heard[hears])
        return found

    def counts(self, n_shards: int) -> Ints:
        """(shards,) guests from each other shard."""
        found = np.zeros(n_shards, np.int64)
        for q, agents in self.guests.items():
            found[q] = len(agents)
        return found


def _by_shard(
    partition: Partition, shard: int, agents: Ints, ends: Ints
) -> dict[int, tuple[Ints, Ints]]:
    """The `ends` of arcs whose other ends are `agents`, by the shards of these agents.

    For every shard but the own one: the distinct ends, and how many arcs each has.
    """
    shards = partition.shards(agents)
    others = [q for q in np.unique(shards).tolist() if q != shard]
    return {q: np.unique(ends[shards == q], return_counts=True) for q in others}


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
        return Bucketed(widths, inside.max(1, initial=0))

    def then(self, other: Bucketed) -> Bucketed:
        """The buckets of both, one behind the other."""
        return Bucketed(
            np.concatenate([self.widths, other.widths]), np.concatenate([self.sizes, other.sizes])
        )

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
    def n(self) -> int:
        """The number of buckets."""
        return len(self.sizes)

    @property
    def n_agents(self) -> int:
        return int(self.lows[-1])

    @property
    def n_slots(self) -> int:
        return int(self.offsets[-1])

    def bucket(self, degree: Ints) -> Ints:
        """(agents,) the bucket for each degree, where widths ascend."""
        return np.searchsorted(self.widths, degree)

    def places(self, bucket: Ints) -> Ints:
        """(agents,) the places of a shard's agents, bucket by bucket, in the order of numbers."""
        order = np.argsort(bucket, kind="stable")
        first = np.searchsorted(bucket[order], np.arange(self.n))
        place = np.empty(len(bucket), np.int64)
        place[order] = np.arange(len(bucket)) - first[bucket[order]] + self.lows[bucket[order]]
        return place

    def slots(self, place: Ints, number: Places) -> Ints:
        """The flat entry of slot `number` of the agent at each place."""
        bucket = np.searchsorted(self.lows, place, side="right") - 1
        return self.offsets[bucket] + number * self.sizes[bucket] + place - self.lows[bucket]


@dataclass(frozen=True)
class ShardShapes:
    """The shapes that all shards have in common, for links of one kind."""

    quiet: Bucketed  # own agents that get no row of another shard, by arcs from own agents
    hearing: Bucketed  # the other own agents
    guests: Bucketed
    heard: Bucketed  # own agents in the same buckets, by the rows that they get
    out: Bucketed
    is_turned: bool  # whether senders have another order than receivers
    is_full: bool  # whether every agent has as many links as its bucket of senders is wide
    halo: Halo

    @staticmethod
    def of(
        every: Mapping[int, LocalLinks], shards: Shards, n_places: int | None = None
    ) -> ShardShapes:
        """n_places: the canonical places; None: those of receivers over these links."""
        own = {s: local.in_degree[local.is_own] for s, local in every.items()}
        quiet = Bucketed.of({s: own[s][d.n_heard == 0] for s, d in every.items()}, shards)
        hearing = Bucketed.of({s: own[s][d.n_heard > 0] for s, d in every.items()}, shards)
        into = quiet.then(hearing)
        rows = {s: d.most_heard(hearing.bucket(own[s]), hearing.n) for s, d in every.items()}
        most = shards.together(rows).max(0)
        out = Bucketed.of({s: d.out_degree for s, d in every.items()}, shards)
        if out.n == 1:
            out = replace(out, sizes=np.array([n_places or into.n_agents]))
        full = {s: np.array(np.isin(d.out_degree, out.widths).all()) for s, d in every.items()}
        guests = Bucketed.of({s: d.in_degree[~d.is_own] for s, d in every.items()}, shards)
        halo = Halo.of(shards.together({s: d.counts(shards.n) for s, d in every.items()}))
        if halo.is_plain:
            halo = replace(halo, sizes=(guests.n_agents,))
        return ShardShapes(
            quiet=quiet,
            hearing=hearing,
            guests=guests,
            heard=Bucketed(
                np.concatenate([np.zeros(quiet.n, np.int64), in_groups(most)]), into.sizes
            ),
            out=out,
            is_turned=out.n > 1,
            is_full=bool(shards.together(full).all()),
            halo=halo,
        )

    @cached_property
    def into(self) -> Bucketed:
        """Own agents as receivers."""
        return self.quiet.then(self.hearing)

    @cached_property
    def targets(self) -> Bucketed:
        """Own agents, and behind them guests."""
        return self.into.then(self.guests)

    def target_places(self, local: LocalLinks) -> Ints:
        """(targets,) places of the own agents and guests of a shard."""
        degree, hears = local.in_degree, np.zeros(len(local.targets), np.bool_)
        hears[local.is_own] = local.n_heard > 0
        bucket = np.where(
            hears, self.quiet.n + self.hearing.bucket(degree), self.quiet.bucket(degree)
        )
        guest = self.into.n + self.guests.bucket(degree)
        return self.targets.places(np.where(local.is_own, bucket, guest))


@dataclass(frozen=True)
class OwnPlaces:
    """The canonical places of a shard's own agents: those of receivers over links of the graph."""

    of: Ints  # (own agents,)
    n: int  # places, also those that no agent has

    def rows(self, values: NDArray[Any], fill: Any) -> NDArray[Any]:
        """(own agents, …) values as rows (n, …), with `fill` where there is no agent."""
        rows = np.full((self.n, *values.shape[1:]), fill, values.dtype)
        rows[self.of] = values
        return rows


class ShardLayout:
    """The tables of one shard for links of one kind.

    `places` are the canonical ones; None: receivers have them over these links.
    """

    def __init__(self, local: LocalLinks, shapes: ShardShapes, places: OwnPlaces | None):
        self.local, self.shapes = local, shapes
        target_place = shapes.target_places(local)
        into_place = target_place[local.is_own]
        self.places = places or OwnPlaces(into_place, shapes.into.n_agents)
        self.flat_in = shapes.targets.slots(
            target_place[local.receivers], _ranks(local.receivers, local.in_degree)
        ).astype(np.int32)  # (arcs,) in-slot of each arc
        rank, out_place = np.empty(len(local.senders), np.int32), self.places.of
        order = np.argsort(local.senders, kind="stable")  # receivers ascend for each sender
        rank[order] = _ranks(local.senders[order], local.out_degree)
        if shapes.is_turned:
            out_place = shapes.out.places(shapes.out.bucket(local.out_degree))
        self.flat_out = shapes.out.slots(out_place[local.senders], rank).astype(np.int32)
        self.ends = local.own[local.senders], local.targets[local.receivers]  # (arcs,) numbers
        is_later = self.ends[1] > self.ends[0]
        own_slot = np.bincount(local.senders[~is_later], minlength=len(local.own))
        neighbour = self.places.of[local.senders].astype(np.int32)
        came, is_came = self._came(into_place)
        rows = self.places.rows
        self.tables: dict[str, Any] = {
            "neighbour": self.receiving(neighbour),
            "entry": self.receiving(self.flat_out, shapes.out.n_slots),
            "source": self.sending(neighbour),
            "slot": self.sending((rank + is_later).astype(np.uint32)),
            "real": None if shapes.is_full else self.sending(np.ones(len(rank))),
            "own_slot": rows(own_slot.astype(np.uint32), 0),
            "width": rows((local.out_degree + 1).astype(np.uint32), 1),
            "give": self._given(target_place - shapes.into.n_agents),
            "came": came,
            "is_came": is_came,
            "dense": None,
            "from_into": None if places is None else rows(into_place.astype(np.int32), 0),
            "from_out": rows(out_place.astype(np.int32), 0) if shapes.is_turned else None,
        }

    def receiving(self, values: NDArray[Any], fill: Any = 0) -> NDArray[Any]:
        """(arcs,) values as a flat array of the in-slots of own agents and guests."""
        rows = np.full(self.shapes.targets.n_slots, fill, values.dtype)
        rows[self.flat_in] = values
        return rows

    def sending(self, values: NDArray[Any]) -> NDArray[Any]:
        """(arcs,) values as rows of an out-slot array."""
        rows = np.zeros(self.shapes.out.n_slots + 1, values.dtype)
        rows[self.flat_out] = values
        return rows

    def _given(self, place: Ints) -> Places | None:
        """(rows,) the guests, by place among guests, whose sums go to other shards.

        place: (targets,); the result is None where all sums go in their order.
        """
        halo = self.shapes.halo
        if halo.is_plain:
            return None
        give = np.zeros(halo.n_rows, np.int32)
        for q, agents in self.local.guests.items():
            first = halo.start(self.local.shard, q, is_sending=True)
            give[first : first + len(agents)] = place[np.searchsorted(self.local.targets, agents)]
        return give

    def _came(self, place: Ints) -> tuple[Places, Bools]:
        """The rows of other shards for each own agent, at its place: slots of `heard`.

        The second array tells slots with a row from slots that only fill.
        """
        heard, halo = self.shapes.heard, self.shapes.halo
        came, is_came = np.zeros(heard.n_slots, np.int32), np.zeros(heard.n_slots, np.bool_)
        number = np.zeros(len(place), np.int32)
        for p, (agents, n_arcs) in self.local.hearers.items():
            flat = heard.slots(place[agents], number[agents])
            row = np.arange(len(agents))
            if halo.is_plain:
                row = self.shapes.guests.places(self.shapes.guests.bucket(n_arcs))
            came[flat] = halo.start(p, self.local.shard, is_sending=False) + row
            is_came[flat] = True
            number[agents] += 1
        return came, is_came


def _ranks(owner: Places, degree: Ints) -> Places:
    """The rank of each arc among those of its owner; arcs stand owner by owner."""
    first = np.concatenate([[0], np.cumsum(degree)])
    return np.arange(len(owner), dtype=np.int32) - first.astype(np.int32)[owner]
