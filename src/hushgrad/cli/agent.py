"""`hushgrad agent`: one agent of a network, until its run ends."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.status import shown_vector
from hushgrad.cli.terminal import (
    FAILED,
    Format,
    OutputFormat,
    Quiet,
    console,
    note,
    print_json,
    say,
)
from hushgrad.errors import InputError

if TYPE_CHECKING:
    import asyncio

    from hushgrad.runtime.agent import Agent
    from hushgrad.runtime.config import AgentConfig
    from hushgrad.runtime.result import AgentResult

EPILOG = """
[bold]Examples[/bold]

hushgrad agent agent.toml

hushgrad agent agent.toml --format json 2> agent.log

Exit codes: 0 done or converged, 1 failed or diverged, 2 bad input, 3 a neighbour was lost, 4
refused (a stale copy, a journal that does not repeat itself, masks that do not cancel, a diameter
that is too small), 130 stopped by a signal. After 3 and 130 the same command continues the run.
"""
REFRESH = 4  # times a second that the line is drawn
PATIENCE = 1.0  # seconds without a round after which it is said who is waited for


def agent(
    file: Annotated[Path, typer.Argument(metavar="AGENT", help="The agent's file, a TOML file.")],
    output: OutputFormat = Format.TEXT,
    quiet: Quiet = False,
    supervised: Annotated[
        bool,
        typer.Option(
            "--supervised",
            help="For a program that starts agents: progress as JSON lines on stdout, and stop "
            "when stdin ends.",
        ),
    ] = False,
    listen_fd: Annotated[
        int | None,
        typer.Option(min=3, metavar="FD", help="Listen on this inherited socket."),
    ] = None,
) -> None:
    """Run one agent: it meets its neighbours, computes with them, and writes its result.

    Every round is in the journal before it is sent, so whatever ends the program, the same command
    continues the run where it stood. Ctrl-C and SIGTERM leave after the present round.
    """
    from hushgrad.runtime.agentfile import load_config

    config = load_config(file)
    if quiet:
        config = replace(config, log=replace(config.log, level="error"))
    is_live = not (quiet or supervised) and config.log.format == "text"
    result = _run(config, _inherited(listen_fd), is_live=is_live, is_supervised=supervised)
    files = _write(config, result)
    exit_code = result.exit_code if files else result.exit_code or FAILED
    if supervised:
        raise typer.Exit(exit_code)
    if output is Format.JSON:
        print_json(result.document() | {"files": files})
    else:
        typer.echo(result.summary)
        typer.echo(
            f"{result.iterations} iterations, {result.rounds} rounds, {result.seconds:.1f} s: "
            f"θ = {shown_vector(result.theta.tolist())}"
        )
    if files and not quiet:
        note(f"wrote {' and '.join(files)}.")
    if result.is_resumable:
        note(f"the state is kept in {config.state}. To continue: hushgrad agent {file}")
    elif result.exit_code == FAILED:
        note(f"the state is kept in {config.state}.")
    raise typer.Exit(exit_code)


def _write(config: AgentConfig, result: AgentResult) -> list[str]:
    """Write the result; how the run ended is worth telling even if it cannot be."""
    from hushgrad.runtime.result import write_result

    try:
        return [str(path) for path in write_result(config.result, result)]
    except OSError as error:
        say("error", f"the result '{config.result}' cannot be written: {error}.", "bold red")
        return []


def _inherited(listen_fd: int | None) -> socket.socket | None:
    """A listening socket of the program that started this one."""
    if listen_fd is None:
        return None
    try:
        return socket.socket(fileno=listen_fd)
    except OSError as error:
        raise InputError(
            f"--listen-fd is an inherited socket, but {listen_fd} is none: {error.strerror}. Leave "
            "it out to listen at the address in the file."
        ) from None


def _run(
    config: AgentConfig, listening: socket.socket | None, *, is_live: bool, is_supervised: bool
) -> AgentResult:
    """The agent in an event loop of its own."""
    import asyncio

    from hushgrad.runtime.agent import Agent

    agent = Agent(config, listening=listening)
    return asyncio.run(_watched(agent, is_live=is_live, is_supervised=is_supervised))


async def _watched(agent: Agent, *, is_live: bool, is_supervised: bool) -> AgentResult:
    """Run an agent with its logs, its metrics, its line on the terminal and its signals."""
    import asyncio

    from hushgrad.runtime.logs import start_logging, stop_logging
    from hushgrad.runtime.supervision import supervised

    loop = asyncio.get_running_loop()
    _stop_on_signals(loop, agent)
    with supervised(agent) if is_supervised else _line(agent, is_live=is_live):
        handler = start_logging(agent.config.log)
        server = _serve_metrics(agent, loop)
        try:
            return await agent.run()
        finally:
            if server is not None:
                server.close()
            stop_logging(handler)


def _stop_on_signals(loop: asyncio.AbstractEventLoop, agent: Agent) -> None:
    def leave(number: signal.Signals) -> None:
        # who asks twice means at once
        loop.remove_signal_handler(number)
        agent.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave, number)


def _serve_metrics(agent: Agent, loop: asyncio.AbstractEventLoop) -> Any:
    config = agent.config
    if config.metrics is None:
        return None
    from hushgrad import __version__
    from hushgrad.runtime.metrics import MetricsServer

    about = {"agent": config.name, "run": config.run.id, "version": __version__}
    return MetricsServer(agent.stats, config.metrics, about, loop)


@contextmanager
def _line(agent: Agent, *, is_live: bool) -> Generator[None]:
    """One line that moves on, where stderr is a terminal."""
    screen = console(stderr=True)
    if not (is_live and screen.is_terminal):
        yield
        return
    from rich.live import Live

    # Live takes over sys.stderr, so that log lines go above the line.
    with Live(
        console=screen,
        get_renderable=Progress(agent),
        refresh_per_second=REFRESH,
        transient=True,
        redirect_stdout=False,
    ):
        yield


class Progress:
    """`north  iteration 120 of 20000  round 240  81 rounds/s  peers 1/2  waiting for south`"""

    def __init__(self, agent: Agent):
        self._agent = agent
        self._since, self._rounds, self._rate = time.monotonic(), 0, 0.0

    def __call__(self) -> str:
        config, stats = self._agent.config, self._agent.stats
        now = time.monotonic()
        if now - self._since >= 1.0:
            self._rate = (stats.rounds - self._rounds) / (now - self._since)
            self._since, self._rounds = now, stats.rounds
        connected = sum(stats.connected.values())
        parts = [
            config.name,
            f"iteration {stats.iteration} of {config.run.iterations}",
            f"round {max(stats.round, 0)}",
            f"{self._rate:.0f} rounds/s",
            f"peers {connected}/{len(config.neighbours)}",
        ]
        if now - stats.last_progress > PATIENCE and stats.waiting_for:
            parts.append(f"waiting for {', '.join(stats.waiting_for)}")
        return "  ".join(parts)
