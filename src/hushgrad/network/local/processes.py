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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hushgrad.errors import AgentError, DivergedError, HushgradError
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.local.outcome import outcome_of
from hushgrad.network.local.setup import (
    check_order,
    config_file,
    log_file,
    make_network,
    write_configs,
)
from hushgrad.network.ops.result import Status, read_result
from hushgrad.network.ops.supervision import GRACE, Report, decode_report
from hushgrad.network.state.position import read_position
from hushgrad.simulate.request import Outcome, RunRequest

LOOPBACK = "127.0.0.1"
REFRESH = 0.25  # seconds between two looks at the agents
MOST_DEATHS = 10  # in a row, without a round in between, until an agent is given up
LOG_TAIL = 5  # lines of an agent's log in a message

type Watch = Callable[[Sequence[AgentRow]], None]


@dataclass
class AgentRow:
    """One agent, as a live table shows it."""

    name: str
    peers: int
    report: Report = field(default_factory=Report)
    starts: int = 0
    pid: int = 0
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

    def __call__(self, request: RunRequest) -> Outcome:
        check_order(request)
        make_network(self._directory, request)
        started = time.perf_counter()
        sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(request.network.n_agents)]
        try:
            addresses = [ear.getsockname() for ear in sockets]
            configs = write_configs(self._directory, request, self._algorithm, addresses)
            failure = asyncio.run(self._run(request, configs, sockets))
        finally:
            for ear in sockets:
                ear.close()
        seconds = time.perf_counter() - started
        states = [config.state for config in configs]
        return outcome_of(request, states, failure=failure, seconds=seconds)

    async def _run(
        self, request: RunRequest, configs: Sequence[AgentConfig], sockets: Sequence[socket.socket]
    ) -> HushgradError | None:
        """Run all agents to their end; gives what prevented it."""
        rows = [AgentRow(config.name, len(config.neighbours)) for config in configs]
        failure: HushgradError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(self._look(rows, request.tick))
                agents = [
                    group.create_task(self._agent(row, config, ear.fileno()))
                    for row, config, ear in zip(rows, configs, sockets, strict=True)
                ]
                await asyncio.wait(agents)
                looking.cancel()
        except* (AgentError, DivergedError) as failed:
            failure = next(e for e in failed.exceptions if isinstance(e, HushgradError))
        return failure

    async def _look(self, rows: Sequence[AgentRow], tick: Callable[[int], None]) -> None:
        done = 0
        while True:
            if self._watch is not None:
                self._watch(rows)
            least = min(row.report.iteration for row in rows)
            tick(max(0, least - done))
            done = max(done, least)
            await asyncio.sleep(REFRESH)

    async def _agent(self, row: AgentRow, config: AgentConfig, listening: int) -> None:
        """Run one agent until it ends; who is killed is started again, unless it gets nowhere."""
        deaths, before = 0, -1
        while True:
            row.starts += 1
            code = await self._start(row, config, listening)
            if code >= 0:
                break
            stands = read_position(config.state)
            reached = -1 if stands is None or stands.round is None else stands.round
            deaths = deaths + 1 if reached <= before else 1
            before = reached
            if deaths >= MOST_DEATHS:
                raise _failure(config, f"was killed {deaths} times in round {reached}")
            await asyncio.sleep(REFRESH * deaths)
        if not code:
            return
        result = read_result(config.result)
        if result is not None and result.status is Status.DIVERGED:
            raise DivergedError(f"{config.name}: {result.detail}")
        if result is None or result.is_done:
            raise _failure(config, f"ended with code {code}")
        raise _failure(config, f"ended: {result.summary}")

    async def _start(self, row: AgentRow, config: AgentConfig, listening: int) -> int:
        """One process from its start to its end; its exit code, −n where signal n killed it."""
        file = config_file(config)
        with log_file(config).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                # -P: what lies in the present directory is not meant to be imported
                sys.executable, "-P", "-m", "hushgrad", "agent", str(file),
                "--supervised", "--listen-fd", str(listening),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                pass_fds=[listening, self._lock], env=self._environment,
                start_new_session=True,  # Ctrl-C is for the program that looks on
            )  # fmt: skip
        assert process.stdout is not None
        row.pid = process.pid
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


def _failure(config: AgentConfig, said: str) -> AgentError:
    log = log_file(config)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL:]
    return AgentError("\n".join([f"{config.name} {said}. The end of its log, {log}:", *lines]))


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
