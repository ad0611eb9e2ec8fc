"""The driver of a whole network on one machine: one process for each agent, TLS over loopback.

`hushgrad run --engine processes` uses it. The program that starts the agents only watches them:
agents meet, compute and end without it. No agent outlives the program (ops/supervision.py), and the
program starts a killed agent again. If the program itself ends, a new one with the same directory
continues the run.
"""

from __future__ import annotations

import asyncio
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
from hushgrad.files.locks import locked
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.local.outcome import outcome_of
from hushgrad.network.local.setup import (
    check_request,
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
REFRESH = 0.25  # seconds between two updates of the live table
MOST_DEATHS = 10  # kills of an agent without a new round in between; then the run fails
LOG_TAIL = 5  # last lines of an agent's log that a message shows

type Watch = Callable[[Sequence[AgentRow]], None]


@dataclass
class AgentRow:
    """One agent's row in the live table."""

    name: str
    peers: int
    report: Report = field(default_factory=Report)
    starts: int = 0
    pid: int = 0
    rate: float = 0.0  # rounds per second
    _since: tuple[float, int] = (0.0, 0)

    def hear(self, report: Report) -> None:
        """Take a report; the rate is an average over at least a second."""
        now, (then, before) = time.monotonic(), self._since
        if now - then >= 1.0:
            self.rate = (report.round - before) / (now - then) if then else 0.0
            self._since = now, report.round
        self.report = report


class Processes:
    """A driver that runs every agent in a process: `hg.run(…, driver=Processes(…))`.

    directory   holds the keys, files and states; if they exist, the run continues
    algorithm   the table [algorithm] of an agent's file
    lock        the descriptor that `only_one` gave; the processes inherit it
    imports     directories where agents look for the user's modules
    watch       is called with the rows of all agents, several times a second

    The outcome has the additional metric `difference`: the largest difference so far between the
    agents and the simulator with the same seed, relative to the largest estimate.
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
        # all agents share the cores, so one thread of linear algebra in each is best
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._environment = (
            one_thread | os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
        )

    def __call__(self, request: RunRequest) -> Outcome:
        check_request(request)
        make_network(self._directory, request)
        started = time.perf_counter()
        sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(request.network.n_agents)]
        try:
            addresses = [listener.getsockname() for listener in sockets]
            configs = write_configs(self._directory, request, self._algorithm, addresses)
            failure = asyncio.run(self.run_agents(configs, sockets, request.tick))
        finally:
            for listener in sockets:
                listener.close()
        seconds = time.perf_counter() - started
        states = [config.state for config in configs]
        return outcome_of(request, states, failure=failure, seconds=seconds)

    async def run_agents(
        self,
        configs: Sequence[AgentConfig],
        sockets: Sequence[socket.socket],
        tick: Callable[[int], None] = lambda _: None,
    ) -> HushgradError | None:
        """Run all agents to their end; returns the first failure.

        Each agent listens on its socket. `tick` is told iterations that all agents have done.
        """
        rows = [AgentRow(config.name, len(config.neighbours)) for config in configs]
        failure: HushgradError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._update(rows, tick))
                agents = [
                    group.create_task(self._agent(row, config, listener.fileno()))
                    for row, config, listener in zip(rows, configs, sockets, strict=True)
                ]
                await asyncio.wait(agents)
                watching.cancel()
        except* (AgentError, DivergedError) as failed:
            failure = next(e for e in failed.exceptions if isinstance(e, HushgradError))
        return failure

    async def _update(self, rows: Sequence[AgentRow], tick: Callable[[int], None]) -> None:
        done = 0
        while True:
            if self._watch is not None:
                self._watch(rows)
            least = min(row.report.iteration for row in rows)
            tick(max(0, least - done))
            done = max(done, least)
            await asyncio.sleep(REFRESH)

    async def _agent(self, row: AgentRow, config: AgentConfig, listening: int) -> None:
        """Run one agent until it ends; start it again after a kill, unless it makes no progress."""
        deaths, before = 0, -1
        while True:
            row.starts += 1
            code = await self._start(row, config, listening)
            if code >= 0:
                break
            position = read_position(config.state)
            reached = -1 if position is None or position.round is None else position.round
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
        if result is not None and result.status in (Status.PEER_ENDED, Status.PEER_LOST):
            await asyncio.sleep(GRACE)  # the agent with which the end began says more
        if result is None or result.is_done:
            raise _failure(config, f"ended with code {code}")
        raise _failure(config, f"ended: {result.summary}")

    async def _start(self, row: AgentRow, config: AgentConfig, listening: int) -> int:
        """Run one process to its end; returns its exit code, −n if signal n killed it."""
        file = config_file(config)
        with log_file(config).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                # -P: no imports from the present directory
                sys.executable, "-P", "-m", "hushgrad", "agent", str(file),
                "--supervised", "--listen-fd", str(listening),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                pass_fds=[listening, self._lock], env=self._environment,
                start_new_session=True,  # Ctrl-C ends this program, not the agents
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
    """Ask a process to end after its present round; kill it if it does not."""
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
    """Hold the lock of a network, so that no other program runs the same network.

    The processes inherit the lock. So the next program waits until the last process has ended.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path, GRACE + 2.0) as lock:
        if lock is None:
            raise AgentError(
                f"this study runs already, in another program: '{path}' is locked. Wait for that "
                "program, or end it."
            )
        yield lock
