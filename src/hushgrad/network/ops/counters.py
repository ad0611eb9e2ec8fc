"""The counters of a running agent, for operators. No counter derives from its gradients.

The agent and its hub count; metrics (metrics.py), reports (supervision.py) and the status line
(command.py) read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass
class Total:
    """A count of events, and the time that they took altogether."""

    count: int = 0
    sum: float = 0.0  # seconds

    def add(self, seconds: float) -> None:
        self.count += 1
        self.sum += seconds


def _counts() -> defaultdict[str, int]:
    return defaultdict(int)


@dataclass
class Stats:
    """The counters of one agent."""

    round: int = -1  # the last round in the journal
    iteration: int = 0  # iterations completed
    stage: int = 0  # the present one, from 1 on
    stages: int = 0  # of the run; 0: it has none
    part: str = ""  # of a plan: its stage, in words; the stages above are then averages
    rounds: int = 0  # rounds completed by this process
    duplicates: int = 0
    resent: int = 0
    connected: dict[str, bool] = field(default_factory=dict[str, bool])
    missing: Callable[[], Iterable[str]] = tuple[str, ...]  # names of the peers that are waited for
    last_progress: float = 0.0  # time.monotonic
    sent: defaultdict[str, int] = field(default_factory=_counts)
    received: defaultdict[str, int] = field(default_factory=_counts)
    rejected: defaultdict[str, int] = field(default_factory=_counts)  # by reason
    jumps: defaultdict[str, int] = field(default_factory=_counts)  # by peer
    reconnects: defaultdict[tuple[str, str], int] = field(
        default_factory=lambda: defaultdict[tuple[str, str], int](int)
    )  # by peer and reason
    round_seconds: Total = field(default_factory=Total)
    commit_seconds: Total = field(default_factory=Total)
    wait_seconds: defaultdict[str, Total] = field(
        default_factory=lambda: defaultdict[str, Total](Total)
    )  # by peer

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The names of the peers whose messages are not here yet."""
        return tuple(self.missing())
