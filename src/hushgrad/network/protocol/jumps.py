"""Jumps: messages that move much farther than the recent messages of the same neighbour explain.

The method converges, so what a neighbour sends moves less and less, or keeps moving by about as
much as before. For each neighbour and each exchange of an iteration the watch keeps a maximum m of
the changes c = ‖v − v_last‖_∞, which forgets, and the length s of the way so far:

    alarm if c > FACTOR · m + FLOOR · s,     then m ← max(c, FORGETS · m),   s ← s + c.

The term with s keeps rounding errors quiet: s is at least the size of every message before. After
an alarm, m and s take in no more than the bound, so that a jump does not hide the next one. At the
start messages may move farther and farther, with λ = 1/k by powers of ten. So a change is judged
only when the last WARM_UP messages brought no new record. With each stage all masks change, so the
watch begins again. Nothing here changes a message.

The rounds of a deployed agent ask through suspicion.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import SystemRandom
from typing import NamedTuple

import numpy as np

from hushgrad.agent.rounds import Payload
from hushgrad.agent.vectors import Vector, size

# tests/network/protocol/test_jumps.py watches honest runs: no change exceeds FACTOR · m / 3
FACTOR = 128.0  # a row of a Huber loss that leaves its linear part moved a tracker by 26 m
FORGETS = 0.95  # per message: m remembers about twenty
FLOOR = 1e-12  # of s: rounding moves messages by about 1e-16 of their size
WARM_UP = 32  # messages without a record that precede a judgement
MOST = 4096  # entries of a message that are watched


class Jump(NamedTuple):
    """A message that moved farther than expected."""

    sender: int
    size: float  # ‖v − v_last‖_∞
    expected: float  # the bound of the rule


@dataclass(slots=True)
class _Course:
    """The messages of one neighbour in one exchange."""

    last: Vector  # the watched entries; nobody writes into a message
    way: float
    largest: float = 0.0  # of the changes of late: m
    record: float = 0.0  # of all changes
    calm: int = 0  # messages since the record


class JumpWatch:
    """The watch of one agent over the messages of all its neighbours.

    Of messages with more than MOST numbers it watches MOST entries, which nobody else knows.
    """

    def __init__(self) -> None:
        self._courses: dict[tuple[int, int, int], _Course] = {}  # sender, turn, exchange
        self._entries: dict[int, np.ndarray] = {}  # by length of a message
        self._stage = self._k = self._turn = -1

    def look(self, came: Mapping[int, Payload], *, stage: int, k: int) -> list[Jump]:
        """The jumps among the messages of one round of iteration k."""
        if stage != self._stage:
            self._courses.clear()
        self._turn = self._turn + 1 if (stage, k) == (self._stage, self._k) else 0
        self._stage, self._k = stage, k
        jumps: list[Jump] = []
        for sender, payload in came.items():
            for e, vector in enumerate(payload):
                if vector is not None:
                    self._take(sender, e, vector, jumps)
        return jumps

    def _take(self, sender: int, e: int, vector: Vector, jumps: list[Jump]) -> None:
        if len(vector) > MOST:
            vector = vector[self._watched(len(vector))]
        key = sender, self._turn, e
        course = self._courses.get(key)
        if course is None:
            self._courses[key] = _Course(vector, size(vector))
            return
        moved = size(vector - course.last)
        course.last = vector
        most = FACTOR * course.largest + FLOOR * course.way
        if course.calm >= WARM_UP and moved > most:
            jumps.append(Jump(sender, moved, most))
            moved = most
            course.record = max(course.record, most)
        if moved > course.record:
            course.record, course.calm = moved, 0
        elif course.record:
            course.calm += 1
        course.largest = max(moved, FORGETS * course.largest)
        course.way += moved

    def _watched(self, n: int) -> np.ndarray:
        if n not in self._entries:
            # numpy.random would add five megabytes to an agent
            self._entries[n] = np.array(sorted(SystemRandom().sample(range(n), MOST)))
        return self._entries[n]
