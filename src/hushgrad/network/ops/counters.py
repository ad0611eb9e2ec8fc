"""What an operator may see of a running agent. Nothing here derives from a gradient."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass
class Total:
    """How often, and how long altogether."""

    count: int = 0
    sum: float = 0.0  # seconds

    def add(self, seconds: float) -> None:
        self.count += 1
        self.sum += seconds


def _counts() -> defaultdict[str, int]:
    return defaultdict(int)


@dataclass
class Stats:
    """Counters that the agent keeps as it runs; whoever shows them reads them when asked."""

    round: int = -1  # the last committed
    iteration: int = 0  # completed
    rounds: int = 0  # completed by this process
    duplicates: int = 0
    resent: int = 0
    connected: dict[str, bool] = field(default_factory=dict[str, bool])
    missing: Callable[[], Iterable[str]] = tuple[str, ...]  # names, told when someone asks
    last_progress: float = 0.0  # time.monotonic
    sent: defaultdict[str, int] = field(default_factory=_counts)
    received: defaultdict[str, int] = field(default_factory=_counts)
    rejected: defaultdict[str, int] = field(default_factory=_counts)  # by reason
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
        """Whose messages are not here yet."""
        return tuple(self.missing())
