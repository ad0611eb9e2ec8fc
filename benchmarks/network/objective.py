"""The objective of the benchmark's agents, and the clock of a process.

An agent asks for one gradient a round, so the gradient ticks the clock. member.py uses both.
"""

from __future__ import annotations

import statistics
import time
from typing import Any


class Clock:
    """Wall and processor time from the start of round `warm` to the start of the last round."""

    def __init__(self, warm: int = 0):
        self._left, self._began, self._cpu = warm, list[float](), list[float]()

    def tick(self) -> None:
        """Mark the start of a round."""
        if self._left:
            self._left -= 1
        else:
            self._began.append(time.perf_counter())
            self._cpu.append(time.process_time())

    def spent(self) -> dict[str, float]:
        """Seconds of a round: wall time (mean and median) and processor time (mean)."""
        rounds = len(self._began) - 1
        return {
            "wall": (self._began[-1] - self._began[0]) / rounds,
            # over pairs of rounds: agents that start apart answer early and late by turns
            "median": statistics.median(
                (b - a) / 2 for a, b in zip(self._began, self._began[2:], strict=False)
            ),
            "cpu": (self._cpu[-1] - self._cpu[0]) / rounds,
        }


CLOCK = Clock()  # the clock of this process; member.py sets it


def gradient(theta: Any, data: Any) -> Any:
    """The gradient of ½‖θ − p‖², a very cheap objective."""
    CLOCK.tick()
    return theta - data["p"]
