"""Every wire message of a run, by (iteration, sender, receiver).

Both engines write messages into a `Recording` and make the transcript of it at the end; the privacy
lab reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import InputError
from hushgrad.graphs import Graph
from hushgrad.simulate.recording import AWAKE, Recording

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
    # (trials, n, links) which links carried a message; None: all of them in every iteration
    awake: NDArray[np.bool_] | None = None

    @property
    def n_messages(self) -> int:
        """Messages sent, all trials together."""
        trials, n = self.values.shape[:2]
        return trials * n * len(self.senders) if self.awake is None else int(self.awake.sum())


def recorded_channel(
    recording: Recording,
    name: tuple[Any, ...],
    exchange: tuple[int, int, Literal["push", "pull"]],
    over: Graph,
    *,
    by_sender: bool = False,
    span: slice = slice(None),
) -> Channel:
    """The messages that a driver recorded under a name.

    exchange    round, exchange within it, and kind
    over        the graph whose arcs carried them
    by_sender   one row for each sender, not for each arc
    span        the iterations that made this exchange
    """
    values = recording.read(name)[:, span]
    awake = recording.read((*name, AWAKE))[:, span] if recording.has((*name, AWAKE)) else None
    return Channel(
        *exchange,
        iterations=np.arange(int(recording.ended.max()))[span],
        senders=over.senders,
        receivers=over.receivers,
        row=over.senders if by_sender else np.arange(over.n_arcs),
        values=values,
        awake=None if awake is None or awake.all() else awake,
    )


@dataclass(frozen=True)
class Transcript:
    """All messages of a run: what an eavesdropper on every link would have."""

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
        """The messages from sender to receiver in iteration k, by rounds and exchanges.

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
