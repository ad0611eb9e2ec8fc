"""Every wire message of a run, by (iteration, sender, receiver)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import InputError

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Channel:
    """The messages of one exchange of a step, over all iterations that have it."""

    round: int  # of the iteration, from 0
    exchange: int  # within the round, from 0
    kind: Literal["push", "pull"]
    iterations: Ints  # (n,) ascending
    senders: Ints  # (links,)
    receivers: Ints  # (links,)
    # (links,) where a link's message stands in `values`: a pulled vector is the same on every
    # link
    row: Ints
    values: Floats  # (trials, n, rows, numbers)
    awake: NDArray[np.bool_] | None = (
        None  # (trials, n, links); None: every link in every iteration
    )

    @property
    def n_messages(self) -> int:
        """Messages sent, all trials together."""
        trials, n = self.values.shape[:2]
        return trials * n * len(self.senders) if self.awake is None else int(self.awake.sum())


@dataclass(frozen=True)
class Transcript:
    """What an eavesdropper on every link would have."""

    trials: Ints  # (trials,) their numbers
    channels: tuple[Channel, ...]

    @property
    def n_messages(self) -> int:
        """Vectors and scalars sent, all trials together."""
        return sum(channel.n_messages for channel in self.channels)

    @property
    def links(self) -> set[tuple[int, int]]:
        """(sender, receiver) pairs that carry anything."""
        return {
            (int(j), int(i))
            for channel in self.channels
            for j, i in zip(channel.senders, channel.receivers, strict=True)
        }

    def messages(self, k: int, sender: int, receiver: int, trial: int = 0) -> tuple[Floats, ...]:
        """What went from sender to receiver in iteration k, in the order of rounds and exchanges.

        `trial` counts the rows of this transcript.
        """
        found: list[Floats] = []
        known = False
        for channel in self.channels:
            link = np.flatnonzero((channel.senders == sender) & (channel.receivers == receiver))
            known = known or bool(len(link))
            at = np.flatnonzero(channel.iterations == k)
            if not len(link) or not len(at):
                continue
            if channel.awake is None or channel.awake[trial, at[0], link[0]]:
                found.append(channel.values[trial, at[0], channel.row[link[0]]])
        if not known:
            raise InputError(
                f"messages travel over the links of the run, but none leads from {sender} to "
                f"{receiver}. transcript.links lists them."
            )
        return tuple(found)
