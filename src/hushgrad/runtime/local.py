"""A whole network of this machine, a process for every agent, over real TLS on loopback.

The program that starts them only looks on: agents meet, compute and end without it. But none
outlives it (supervision.py), and one that is killed is started again. Whatever ends the program,
the same directory continues the run where each agent stood.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import AgentError
from hushgrad.runtime.localfiles import (
    check_order,
    make_network,
    name_of,
    write_configs,
)
from hushgrad.runtime.result import Status, read_result
from hushgrad.runtime.samples import read_samples
from hushgrad.runtime.standing import read_standing
from hushgrad.runtime.supervision import GRACE, Report, decode_report
from hushgrad.simulate.checkpoint import Checkpoint
from hushgrad.simulate.order import Order, Outcome, apply_metric, is_lost, measure
from hushgrad.simulate.run import driver_of

LOOPBACK = "127.0.0.1"
REFRESH = 0.25  # seconds between two looks at the agents
MOST_DEATHS = 10  # in a row, without a round in between, until an agent is given up
LOG_TAIL = 5  # lines of an agent's log in a message

type Floats = NDArray[np.float64]
type Watch = Callable[[Sequence[AgentRow]], None]


@dataclass
class AgentRow:
    """One agent, as a live table shows it."""

    name: str
    peers: int
    report: Report = field(default_factory=Report)
    starts: int = 0
    rate: float = 0.0  # rounds per second
    _since: tuple[float, int] = (0.0, 0)

    def hear(self, report: Report) -> None:
        """Take a report; the rate is over a second or more."""
        now, (then, before) = time.monotonic(), self._since
        if now - then >= 1.0:
            self.rate = (report.round - before) / (now - then) if then else 0.0
            self._since = now, report.round
        self.report = report


class Processes:
    """Drives an order by processes: `hg.run(…, driver=Processes(…))`.

    directory   where keys, files and states are; one that is there already is continued
    algorithm   the table of the algorithm, as an agent's file has it
    lock        what `only_one` gave: processes inherit it
    imports     where agents look for modules of the user's
    watch       sees every agent's row from time to time

    The outcome has one more metric, `difference`: how far agents and simulator have ever been
    apart, relative to the largest estimate, with the same seed.
    """

    def __init__(
        self,
        directory: Path,
        algorithm: Mapping[str, Any],
        *,
        lock: int,
        imports: Sequence[Path] = (),
        watch: Watch | None = None,
    ):
        self._directory, self._algorithm, self._lock = directory, algorithm, lock
        self._watch = watch
        path = [str(p.resolve()) for p in imports] + [os.environ.get("PYTHONPATH", "")]
        # Agents share the cores: threads of their own would only be in each other's way.
        few = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._environment = few | os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}

    def __call__(self, order: Order) -> Outcome:
        check_order(order)
        make_network(self._directory, order)
        started = time.perf_counter()
        sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(order.network.n_agents)]
        try:
            addresses = [ear.getsockname() for ear in sockets]
            files = write_configs(self._directory, order, self._algorithm, addresses)
            diverged = asyncio.run(self._run(order, files, sockets))
        finally:
            for ear in sockets:
                ear.close()
        seconds = time.perf_counter() - started
        return _outcome(order, self._directory, has_diverged=diverged, seconds=seconds)

    async def _run(
        self, order: Order, files: Sequence[Path], sockets: Sequence[socket.socket]
    ) -> bool:
        """Run all agents to their end; whether they diverged."""
        graph = order.network.graph
        rows = [
            AgentRow(name_of(j), len({*graph.senders[graph.receivers == j].tolist(),
                                      *graph.receivers[graph.senders == j].tolist()}))
            for j in range(len(files))
        ]  # fmt: skip
        has_diverged = False
        try:
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(self._look(rows, order.tick))
                agents = [
                    group.create_task(self._agent(row, file, ear.fileno()))
                    for row, file, ear in zip(rows, files, sockets, strict=True)
                ]
                await asyncio.wait(agents)
                looking.cancel()
        except* _DivergedHere:
            has_diverged = True
        except* AgentError as failed:
            raise failed.exceptions[0] from None
        return has_diverged

    async def _look(self, rows: Sequence[AgentRow], tick: Callable[[int], None]) -> None:
        done = 0
        while True:
            if self._watch is not None:
                self._watch(rows)
            least = min(row.report.iteration for row in rows)
            tick(max(0, least - done))
            done = max(done, least)
            await asyncio.sleep(REFRESH)

    async def _agent(self, row: AgentRow, file: Path, listening: int) -> None:
        """Run one agent until it ends; who is killed is started again, unless it gets nowhere."""
        deaths, before = 0, -1
        while True:
            row.starts += 1
            code = await self._start(row, file, listening)
            if code >= 0:
                break
            stands = read_standing(file.parent / "state")
            reached = -1 if stands is None or stands.round is None else stands.round
            deaths = deaths + 1 if reached <= before else 1
            before = reached
            if deaths >= MOST_DEATHS:
                raise _failure(row.name, f"was killed {deaths} times in round {reached}", file)
            await asyncio.sleep(REFRESH * deaths)
        result = read_result(file.parent / "state" / "result") if code else None
        if result is not None and result.status is Status.DIVERGED:
            raise _DivergedHere
        if code:
            said = result.summary if result is not None else f"ended with code {code}"
            raise _failure(row.name, said, file)

    async def _start(self, row: AgentRow, file: Path, listening: int) -> int:
        """One process from its start to its end; its exit code, −n where signal n killed it."""
        with (file.parent / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                # -P: what lies in the present directory is not meant to be imported
                sys.executable, "-P", "-m", "hushgrad", "agent", str(file),
                "--supervised", "--listen-fd", str(listening),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                pass_fds=[listening, self._lock], env=self._environment,
                start_new_session=True,  # Ctrl-C is for the program that looks on
            )  # fmt: skip
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                row.hear(decode_report(line))
            return await process.wait()
        finally:
            if process.returncode is None:
                await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Let a process leave after its present round, or else end it."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(GRACE + 1.0):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class _DivergedHere(Exception):  # noqa: N818  # not an error: it is what came of the run
    """An agent's numbers left the finite ones."""


def _failure(name: str, said: str, file: Path) -> AgentError:
    log = file.parent / "log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL:]
    return AgentError("\n".join([f"{name} {said}. The end of its log, {log}:", *lines]))


@contextmanager
def only_one(path: Path) -> Generator[int]:
    """Hold the lock of a network. Its processes inherit it, so that whoever comes next waits until
    the last of them has gone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + GRACE + 2.0
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:  # it may have been removed before it was locked
                break
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(lock)
                raise AgentError(
                    f"this study runs already, in another program: '{path}' is locked. Wait for "
                    "it, or end it."
                ) from None
            time.sleep(0.05)
        os.close(lock)
    try:
        yield lock
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


# ---- what came of it


def _outcome(order: Order, directory: Path, *, has_diverged: bool, seconds: float) -> Outcome:
    trail = _Trail(order, directory)
    reached = trail.reached
    error, consensus = (np.full((1, reached), np.nan) for _ in range(2))
    metrics = {name: np.full((1, reached), np.nan) for name in order.metrics}
    solution = np.atleast_2d(order.problem.solution())[0]
    diverged = int(order.samples[reached - 1]) if has_diverged else -1
    for n in range(reached):
        x = trail.at(n)[None]
        error[:, n], consensus[:, n] = measure(x, solution)
        for name, metric in order.metrics.items():
            metrics[name][:, n] = apply_metric(name, metric, x, order.problem)
        if is_lost(error[:, n])[0]:
            diverged, reached = int(order.samples[n]), n + 1
            break
    simulated = _simulated(order, trail, reached)
    difference = simulated.metrics["difference"][:, :reached]
    metrics["difference"] = np.full((1, reached), np.nan)
    metrics["difference"][:, : difference.shape[1]] = difference
    return Outcome(
        error=error[:, :reached],
        consensus=consensus[:, :reached],
        x=trail.at(reached - 1)[None],
        metrics={name: values[:, :reached] for name, values in metrics.items()},
        diverged=np.array([diverged]),
        traffic=simulated.traffic,  # the same messages, counted where all are seen
        seconds=seconds,
    )


class _Trail:
    """What all agents held at the samples."""

    def __init__(self, order: Order, directory: Path):
        self._x0 = order.x0[0]
        dim = order.problem.dim
        kept = [
            read_samples(directory / name_of(j) / "state" / "samples", dim)
            for j in range(order.network.n_agents)
        ]
        self._rows = [x for _, x in kept]
        wanted = order.samples[1:]
        # a sample counts up to where every agent has it
        self.reached = 1 + min(
            int(np.argmin(np.append(k == wanted[: len(k)], False))) for k, _ in kept
        )

    def at(self, n: int) -> Floats:
        """(agents, d) at sample n."""
        return self._x0 if n == 0 else np.array([rows[n - 1] for rows in self._rows])


def _simulated(order: Order, trail: _Trail, reached: int) -> Outcome:
    """The same order in the simulator, with the metric `difference` from the agents."""
    apart = largest = 0.0
    sample = -1

    def difference(x: Floats, problem: Any) -> float:
        nonlocal apart, largest, sample
        del problem
        sample += 1
        if sample >= reached:
            return np.nan
        apart = max(apart, float(np.abs(trail.at(sample) - x[0]).max()))
        largest = max(largest, float(np.abs(x).max()))
        return apart / largest if largest else apart

    engine = "stacked" if find_spec("jax") else "agents"
    same = replace(
        order,
        metrics={"difference": difference},
        tick=lambda _: None,
        checkpoint=Checkpoint(None, ""),
    )
    return driver_of(engine)(same)
