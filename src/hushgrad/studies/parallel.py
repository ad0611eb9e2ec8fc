"""Rows of a sweep side by side: on processes of this machine, or on an executor of the user's.

`Study.run_sweep` gives its rows to an executor here; `hg.sweep` and `hushgrad run --jobs` start the
processes. A row has the same numbers wherever it runs, but for `seconds`.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from hushgrad.errors import InputError, StudyError
from hushgrad.simulate.progress import Progress
from hushgrad.simulate.result import Comparison
from hushgrad.studies.sweep import SweepRow
from hushgrad.studies.unfinished import Unfinished


@contextmanager
def worker_processes(jobs: int) -> Generator[Executor | None]:
    """Processes that run rows; None for one job, which needs none."""
    if jobs < 1:
        raise InputError(f"a sweep needs jobs ≥ 1, but jobs = {jobs}. Use jobs=1.")
    if jobs == 1:
        yield None
        return
    # spawn: a process with JAX's threads must not be forked
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_start_worker)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def finished_rows(
    rows: Sequence[SweepRow],
    work: Sequence[int],
    executor: Executor,
    keep: Unfinished | None,
    bar: Progress,
) -> Iterator[tuple[SweepRow, Comparison]]:
    """The rows in their order, each as soon as it and all before it are done.

    work   the trial-iterations of each row, for the bar
    """
    futures = [executor.submit(_run_row, row, keep) for row in rows]
    for amount, future in zip(work, futures, strict=True):
        future.add_done_callback(lambda _, amount=amount: bar.tick(amount))
    try:
        for row, future in zip(rows, futures, strict=True):
            runs, told = future.result()
            for category, message in told:
                warnings.warn(message, category, stacklevel=2)
            yield row, runs
    except BrokenExecutor:
        raise StudyError(
            "a process of the sweep ended before its row was done: it was killed, or memory ran "
            "out. Use fewer jobs. Where `hushgrad run` ran the sweep, --resume goes on with the "
            "rows that are missing."
        ) from None
    finally:
        for future in futures:
            future.cancel()


def _run_row(
    row: SweepRow, keep: Unfinished | None
) -> tuple[Comparison, list[tuple[type[Warning], str]]]:
    """A row's runs, without the objects that cannot travel between processes, and its warnings."""
    with _interrupts.heard(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runs = row.study.run(False, keep, f"row{row.row}")
    bare = (replace(run, algorithm=None, problem=None, network=None) for run in runs)
    told = dict.fromkeys((warning.category, str(warning.message)) for warning in caught)
    return Comparison(tuple(bare)), list(told)


class _Interrupts:
    """Ctrl-C in a worker process: the row under way leaves its state, and no other row begins.

    A terminal sends Ctrl-C to all processes, and an executor hands out rows ahead of time.
    """

    def __init__(self) -> None:
        self._has_come = self._is_heard = False

    def install(self) -> None:
        signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: Any) -> None:
        self._has_come = True
        if self._is_heard:
            raise KeyboardInterrupt

    @contextmanager
    def heard(self) -> Generator[None]:
        if self._has_come:
            raise KeyboardInterrupt
        self._is_heard = True
        try:
            yield
        finally:
            self._is_heard = False


_interrupts = _Interrupts()


def _start_worker() -> None:
    _interrupts.install()
