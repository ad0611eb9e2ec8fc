"""The exchange of rows between shards: one `ppermute` per colour of the shards' graph.

In a round every shard sends to at most one other and receives from at most one. Where most shards
are neighbours, one `all_to_all` takes the place of all rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from hushgrad.exchange import Array
from hushgrad.simulate.stacked.constants import take
from hushgrad.simulate.stacked.shards.mesh import AXIS

type Ints = NDArray[np.int64]
type Pairs = tuple[tuple[int, int], ...]  # (sending, receiving) shard

_ALIGNED = 8  # rows of a round are a multiple of it among three shards or more


@dataclass(frozen=True)
class Halo:
    """The rounds of an exchange, and the rows that every shard sends in each."""

    n_shards: int
    rounds: tuple[Pairs, ...]  # one of all pairs where `is_dense`
    sizes: tuple[int, ...]  # rows of a round, or of one pair where `is_dense`
    is_dense: bool

    @staticmethod
    def of(counts: Ints) -> Halo:
        """counts[p, q]: rows that shard p has for shard q."""
        n = len(counts)
        rounds = _coloured(counts)
        largest = [max(int(counts[p, q]) for p, q in pairs) for pairs in rounds]
        sizes = tuple(-(-size // _ALIGNED) * _ALIGNED for size in largest)
        if n > 2 and len(rounds) >= n - 1:
            every = tuple(pair for pairs in rounds for pair in pairs)
            return Halo(n, (every,), (max(sizes),), True)
        return Halo(n, rounds, sizes, False)

    @property
    def n_rows(self) -> int:
        """Rows that a shard sends, and gets."""
        return self.n_shards * self.sizes[0] if self.is_dense else sum(self.sizes)

    @property
    def is_plain(self) -> bool:
        """Whether a shard sends the sums of all its guests in their order: there is only one other
        shard.
        """
        return self.n_shards == 2

    def start(self, sender: int, receiver: int, *, is_sending: bool) -> int:
        """The first row of a pair, in what the sender gives or in what the receiver gets."""
        if self.is_dense:
            return self.sizes[0] * (receiver if is_sending else sender)
        number = next(r for r, pairs in enumerate(self.rounds) if (sender, receiver) in pairs)
        return sum(self.sizes[:number])

    def exchange(self, sums: Array, given: Array | None) -> Array:
        """The rows (n_rows, …) that come from other shards.

        `given` holds the places of the rows that this shard sends. None: it sends all `sums` in
        their order.
        """
        if given is None:
            return lax.ppermute(sums, AXIS, self.rounds[0])
        if self.is_dense:
            return lax.all_to_all(take(sums, given), AXIS, 0, 0, tiled=True)
        came: list[Array] = []
        low = 0
        for pairs, size in zip(self.rounds, self.sizes, strict=True):
            came.append(lax.ppermute(take(sums, given[low : low + size]), AXIS, pairs))
            low += size
        return came[0] if len(came) == 1 else jnp.concatenate(came)


def _coloured(counts: Ints) -> tuple[Pairs, ...]:
    """Pairs of shards in rounds in which each sends once and receives once, large pairs first."""
    pairs = [(int(p), int(q)) for p, q in np.argwhere(counts)]
    pairs.sort(key=lambda pair: (-counts[pair], pair))
    rounds: list[list[tuple[int, int]]] = []
    senders: list[set[int]] = []
    receivers: list[set[int]] = []
    for p, q in pairs:
        free = (r for r in range(len(rounds)) if p not in senders[r] and q not in receivers[r])
        number = next(free, len(rounds))
        if number == len(rounds):
            rounds.append([])
            senders.append(set())
            receivers.append(set())
        rounds[number].append((p, q))
        senders[number].add(p)
        receivers[number].add(q)
    return tuple(tuple(sorted(found)) for found in rounds)
