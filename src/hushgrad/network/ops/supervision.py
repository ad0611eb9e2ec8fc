"""Supervision of an agent by the program that started it (`hushgrad agent --supervised`).

The agent reports on stdout and ends when stdin ends. Stdin is a pipe that nobody writes to. It ends
when the starting program closes it or dies in any way, so no agent outlives that program. If nobody
reads the reports, the agent drops them and goes on. local/processes.py starts agents in this way.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from hushgrad.files.strict_json import parse_json
from hushgrad.network.deployed import Agent
from hushgrad.network.ops.result import EXIT_CODES, Status

STDIN, STDOUT = 0, 1
PERIOD = 0.25  # seconds between reports
MOST_NAMES = 8  # neighbours that a report names, so that a pipe takes a report in one piece
GRACE = 5.0  # seconds to end after the present round; then the process ends at once


@dataclass(frozen=True, kw_only=True)
class Report:
    """The position and the connections of an agent."""

    iteration: int = 0
    round: int = -1
    connected: int = 0
    waiting_for: tuple[str, ...] = ()

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def decode_report(line: bytes) -> Report:
    said = parse_json(line)
    return Report(**said | {"waiting_for": tuple(said["waiting_for"])})


@contextmanager
def supervised(agent: Agent) -> Generator[None]:
    """Report on an agent of this event loop, and stop it when stdin ends."""
    loop = asyncio.get_running_loop()
    os.set_blocking(STDOUT, False)
    threading.Thread(target=_stop_with_stdin, args=(agent, loop), daemon=True).start()
    telling = loop.create_task(_tell(agent))
    try:
        yield
    finally:
        telling.cancel()
        _report(agent)


def _stop_with_stdin(agent: Agent, loop: asyncio.AbstractEventLoop) -> None:
    """Run in a thread, because a gradient may block the event loop for ever."""
    while os.read(STDIN, 1024):
        pass
    with suppress(RuntimeError):  # the loop is closed: the agent has ended
        loop.call_soon_threadsafe(agent.stop)
    time.sleep(GRACE)
    os._exit(EXIT_CODES[Status.STOPPED])


async def _tell(agent: Agent) -> None:
    while True:
        _report(agent)
        await asyncio.sleep(PERIOD)


def _report(agent: Agent) -> None:
    stats = agent.stats
    report = Report(
        iteration=stats.iteration,
        round=stats.round,
        connected=sum(stats.connected.values()),
        waiting_for=tuple(stats.waiting_for[:MOST_NAMES]),
    )
    with suppress(OSError):  # the pipe is full or closed
        os.write(STDOUT, report.encode())
