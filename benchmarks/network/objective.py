"""The objective of the benchmark's agents, which has their clock: an agent asks once a round."""

from __future__ import annotations

import statistics
import time
from typing import Any


class Clock:
    """Wall and processor time from the start of round `warm` to that of the last round."""

    def __init__(self, warm: int = 0):
        self._left, self._began, self._cpu = warm, list[float](), list[float]()

    def tick(self) -> None:
        """A round begins."""
        if self._left:
            self._left -= 1
        else:
            self._began.append(time.perf_counter())
            self._cpu.append(time.process_time())

    def spent(self) -> dict[str, float]:
        """Seconds of a round: of the wall clock (mean and median) and of processors (mean)."""
        rounds = len(self._began) - 1
        return {
            "wall": (self._began[-1] - self._began[0]) / rounds,
            # of two at once: neighbours that began apart answer each other by turns early and late
            "median": statistics.median(
                (b - a) / 2 for a, b in zip(self._began, self._began[2:], strict=False)
            ),
            "cpu": (self._cpu[-1] - self._cpu[0]) / rounds,
        }


CLOCK = Clock()  # of this process; member.py sets it


def gradient(theta: Any, data: Any) -> Any:
    """∇ of ½‖θ − p‖², as cheap as there is one."""
    CLOCK.tick()
    return theta - data["p"]
