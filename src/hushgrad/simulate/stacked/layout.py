"""The places of links in the simulator's arrays: neighbour slots, agents bucketed by degree.

Segment sums cost twice, sparse matrices three times as much as a few unrolled slots. So agents of
similar degree form a bucket in which everyone has the same number of slots, short ones padded; few
buckets keep compilation quick. Agents stand in one canonical order (bucket by bucket of the
graph's in-degree) throughout a run.

`Simulation` (program.py) lays out its links with it; shards/layout.py builds on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

type Ints = NDArray[np.int64]
type Floats = NDArray[np.float64]
type Buckets = tuple[tuple[int, int, int], ...]  # (first agent, behind the last, width)

UNROLLED = 32  # slots that are written out one by one; wider buckets loop over groups
GROUP = 16  # slots of a group
_WASTE = 1.15  # slots that may be padding before one more bucket pays
_BUCKETS = 6
_DENSE_DEGREE = 16  # from this mean degree on, and …
_DENSE = 0.25  # … on this part of all pairs, a dense product is faster
_DEGREES = 64  # distinct degrees considered as bucket widths


def bucket_widths(degrees: Ints) -> Ints:
    """Ascending widths of buckets: few, and with little padding.

    >>> bucket_widths(np.array([2, 2, 3, 2, 3]))
    array([2, 3])
    """
    return widths_of(*np.unique(degrees, return_counts=True))


def widths_of(values: Ints, counts: Ints) -> Ints:
    """`bucket_widths` of these distinct degrees, each so often."""
    total = max(1, int(np.sum(values * counts)))
    if len(values) > _DEGREES:
        keep = np.unique(np.linspace(0, len(values) - 1, _DEGREES).round().astype(np.int64))
        counts = np.add.reduceat(counts, np.concatenate([[0], keep[:-1] + 1]))
        values = values[keep]
    # best[b][r]: (slots, cuts) with the r smallest values in b buckets
    below = np.concatenate([[0], np.cumsum(counts)])
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] + [(np.inf, ())] * len(values)
    for _ in range(_BUCKETS):
        best = [best[0]] + [
            min(
                (best[low][0] + float(values[high - 1] * (below[high] - below[low])),
                 (*best[low][1], high - 1))
                for low in range(high)
            )
            for high in range(1, len(values) + 1)
        ]  # fmt: skip
        if best[-1][0] <= _WASTE * total:
            break
    return values[list(best[-1][1])]


def in_groups(widths: Ints) -> Ints:
    """Widths that are unrolled, or a whole number of groups."""
    return np.where(widths > UNROLLED, -(-widths // GROUP) * GROUP, widths)


@dataclass(frozen=True)
class Side:
    """One side of the links, receiving or sending: agents in buckets of equal width.

    Slot t of the a-th agent of bucket b is entry offset_b + t · size_b + a of a flat array.
    """

    order: Ints  # (agents,) bucket by bucket: original number
    buckets: Buckets
    arc: Ints  # (slots,) arc of each flat entry, −1 where padding
    n_slots: int

    @staticmethod
    def of(ends: Ints, n_agents: int) -> Side:
        """`ends[e]`: the agent to which arc e belongs here; its slots follow the arcs' order."""
        degree = np.bincount(ends, minlength=n_agents)
        widths = in_groups(bucket_widths(degree))
        bucket = np.searchsorted(widths, degree)
        order = np.argsort(bucket, kind="stable")
        by_end = np.argsort(ends, kind="stable")
        first = np.concatenate([[0], np.cumsum(degree)])
        meta: list[tuple[int, int, int]] = []
        arcs: list[Ints] = [np.empty(0, np.int64)]
        low = 0
        for b, width in enumerate(widths):
            high = low + int(np.count_nonzero(bucket == b))
            agents = order[low:high]
            slot = np.arange(width)[:, None]
            inside = slot < degree[agents][None, :]
            place = np.where(inside, first[agents][None, :] + slot, 0)
            arcs.append(np.where(inside, by_end[place] if len(by_end) else -1, -1).ravel())
            meta.append((low, high, int(width)))
            low = high
        arc = np.concatenate(arcs)
        return Side(order, tuple(meta), arc, len(arc))


@dataclass(frozen=True)
class Layout:
    """The links of one kind, seen from receivers (`into`) and senders (`out`)."""

    into: Side
    out: Side
    position: Ints  # (agents,) canonical position of each agent
    senders: Ints  # (arcs,)
    receivers: Ints  # (arcs,)
    n_out: int  # rows of an out-slot array: out.n_slots, plus a zero row where only receivers pad
    flat: Ints  # (arcs,) row of each arc in an out-slot array
    tables: dict[str, Any] = field(repr=False)  # arrays that the compiled code reads

    @staticmethod
    def of(senders: Ints, receivers: Ints, n_agents: int, order: Ints | None = None) -> Layout:
        """Arcs j → i without self loops; `order` is the canonical order, by default the receivers'
        buckets.
        """
        into, out = Side.of(receivers, n_agents), Side.of(senders, n_agents)
        if order is None:
            order = into.order
        position = np.empty(n_agents, np.int64)
        position[order] = np.arange(n_agents)
        flat = np.empty(len(senders), np.int64)
        real = out.arc >= 0
        flat[out.arc[real]] = np.flatnonzero(real)
        padded_in, padded_out = bool((into.arc < 0).any()), not real.all()
        is_dense = len(senders) >= _DENSE_DEGREE * n_agents and len(senders) >= _DENSE * n_agents**2
        n_out = out.n_slots + int((padded_in or is_dense) and not padded_out)
        zero_row = int(np.argmin(real)) if padded_out else out.n_slots
        source = np.concatenate([_owners(out), np.zeros(n_out - out.n_slots, np.int64)])
        arc = np.where(into.arc < 0, 0, into.arc)
        none = into.arc < 0
        tables = {
            "neighbour": np.where(none, 0, position[senders[arc]] if len(arc) else 0).astype(
                np.int32
            ),
            "entry": np.where(none, zero_row, flat[arc] if len(arc) else 0).astype(np.int32),
            "source": position[source].astype(np.int32),
            "slot": _slot_numbers(senders, receivers, out, flat, n_out),
            "own_slot": _own_slots(senders, receivers, n_agents)[order],
            "width": (np.bincount(senders, minlength=n_agents)[order] + 1).astype(np.uint32),
            "real": _row_mask(flat, n_out) if n_out > len(senders) else None,
            "dense": _square_table(senders, receivers, position, flat, zero_row)
            if is_dense
            else None,
            "from_into": _turn(into.order, position),
            "from_out": _turn(out.order, position),
        }
        return Layout(into, out, position, senders, receivers, n_out, flat, tables)

    def receiving(self, weights: Floats) -> Floats:
        """(arcs,) weights as a flat array (in-slots,), zero where padding."""
        arc = self.into.arc
        return np.where(arc >= 0, weights[arc] if len(weights) else 0.0, 0.0)

    def sending(self, values: Any) -> Any:
        """(arcs, …) values as rows (out-slots, …), zero where padding."""
        rows = np.zeros((self.n_out, *values.shape[1:]), values.dtype)
        rows[self.flat] = values
        return rows


def _owners(side: Side) -> Ints:
    """(slots,) original number of the agent that each flat entry belongs to."""
    owners = [np.tile(side.order[low:high], width) for low, high, width in side.buckets]
    return np.concatenate([np.empty(0, np.int64), *owners])


def _slot_numbers(
    senders: Ints, receivers: Ints, out: Side, flat: Ints, n_out: int
) -> NDArray[np.uint32]:
    """Draw address of each out-slot: the receiver's rank among the sender's receivers, itself
    included.
    """
    rank = np.zeros(n_out, np.uint32)
    row = np.zeros(out.n_slots, np.int64)
    for low, high, width in out.buckets:
        start = _offset(out, low)
        row[start : start + width * (high - low)] = np.repeat(np.arange(width), high - low)
    # a sender's slots follow its receivers' numbers; itself comes before the larger ones
    rank[flat] = (row[flat] + (receivers > senders)).astype(np.uint32)
    return rank


def _offset(side: Side, first_agent: int) -> int:
    return sum(width * (high - low) for low, high, width in side.buckets if high <= first_agent)


def _own_slots(senders: Ints, receivers: Ints, n_agents: int) -> NDArray[np.uint32]:
    return np.bincount(senders[receivers < senders], minlength=n_agents).astype(np.uint32)


def _row_mask(flat: Ints, n_out: int) -> Floats:
    mask = np.zeros(n_out)
    mask[flat] = 1.0
    return mask


def _square_table(
    senders: Ints, receivers: Ints, position: Ints, flat: Ints, zero_row: int
) -> NDArray[np.int32]:
    """(agents, agents) row of each link in an out-slot array, [receiver, sender]."""
    table = np.full((len(position), len(position)), zero_row, np.int32)
    table[position[receivers], position[senders]] = flat
    return table


def _turn(order: Ints, position: Ints) -> NDArray[np.int32] | None:
    """Index that brings an array in bucket order into canonical order; None where they agree."""
    there = position[order]
    if np.array_equal(there, np.arange(len(order))):
        return None
    back = np.empty(len(order), np.int32)
    back[there] = np.arange(len(order), dtype=np.int32)
    return back
