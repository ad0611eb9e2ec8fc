"""The pace of an agent: whether it computes its rounds in the event loop or in a thread.

The deployed agent (deployed.py) times every round with one `Pace`. While rounds are quick, the
agent computes them in the event loop, because a thread would cost more time than a round. After
some slow rounds the agent computes the next rounds in a thread, so that it can send heartbeats
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Any

QUICK = 0.1  # seconds: the longest round that is not slow
SLOW_ROUNDS = 3  # that a thread needs as its reason: a busy machine may delay one or two
FORGIVEN = 1 / 16  # of a slow round, by each quick one: not every round evaluates a gradient


class Pace:
    """The slow rounds of one agent, less the rounds that its quick ones made up for."""

    def __init__(self, heartbeat: float):
        """`heartbeat`: seconds; one round that is longer is reason enough for a thread."""
        self._heartbeat = heartbeat
        self._slow_rounds = 0.0

    @property
    def is_slow(self) -> bool:
        """Whether the agent should compute the next round in a thread."""
        return self._slow_rounds >= SLOW_ROUNDS

    def timed[T](self, work: Callable[..., T], *given: Any) -> T:
        """Compute one round by `work(*given)`, and note its time."""
        started = perf_counter()
        done = work(*given)
        self.note(perf_counter() - started)
        return done

    def note(self, seconds: float) -> None:
        """Take the time of one more round into account."""
        if seconds > self._heartbeat:
            self._slow_rounds = inf
        elif seconds > QUICK:
            self._slow_rounds += 1
        elif self._slow_rounds:
            self._slow_rounds = max(0.0, self._slow_rounds - FORGIVEN)
