"""The progress bar of a run: on a terminal only, and only for work that takes its time.

Runs, tunings, audits and sweeps show it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

_PATIENCE = 1.0  # seconds before a bar appears unasked


class Progress:
    """Counts work done from any thread and shows it."""

    def __init__(self, wish: bool | Callable[[int, int], None] | None, title: str, total: int):
        self._wish, self._title, self._total = wish, title, total
        self._done = 0
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tick(self, work: int) -> None:
        """`work` more trial-iterations are done."""
        with self._lock:
            self._done = min(self._total, self._done + work)
            if callable(self._wish):
                self._wish(self._done, self._total)
            elif self._wish or (self._wish is None and self._is_due()):
                self._show()

    def _is_due(self) -> bool:
        return sys.stderr.isatty() and time.monotonic() - self._started > _PATIENCE

    def _show(self) -> None:
        if self._bar is None:
            from rich import progress as rich
            from rich.console import Console

            self._bar = rich.Progress(
                rich.TextColumn("{task.description}"),
                rich.BarColumn(),
                rich.TaskProgressColumn(),
                rich.TextColumn("{task.fields[rate]}"),
                rich.TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._title, total=self._total, rate="")
            self._bar.start()
        rate = self._done / max(1e-9, time.monotonic() - self._started)
        self._bar.update(self._task, completed=self._done, rate=f"{_short(rate)} it/s")


def _short(number: float) -> str:
    """1234567 → 1.2M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
