"""The commands `hushgrad agent` and `hushgrad fit`: they run an agent and write its result.

The package's `__main__` calls it without the parser of all other commands, to save memory.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import time
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from hushgrad.console import FAILED, console, note, say, shown_vector
from hushgrad.errors import InputError
from hushgrad.network.config.file import load_config
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.deployed import Agent
from hushgrad.network.ops.logs import start_logging, stop_logging
from hushgrad.network.ops.result import AgentResult, json_pieces, write_result
from hushgrad.network.ops.supervision import supervised

REFRESH = 4  # times a second that the status line is drawn
PATIENCE = 1.0  # seconds without a round until the status line names the missing neighbours

_SWITCHES = {"--quiet": "quiet", "-q": "quiet", "--supervised": "is_supervised"}


def plain_options(given: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of `run_agent`, from a plain command line.

    None if the line needs the full parser: for help, for abbreviations, or for an error message.

    >>> plain_options(["agent.toml", "--format", "json", "-q"])
    {'file': PosixPath('agent.toml'), 'is_json': True, 'quiet': True}
    """
    options: dict[str, Any] = {}
    left = list(given)
    while left:
        word = left.pop(0)
        if word in _SWITCHES:
            options[_SWITCHES[word]] = True
        elif word == "--format" and left and left[0] in ("text", "json"):
            options["is_json"] = left.pop(0) == "json"
        elif word == "--listen-fd" and left and left[0].isdecimal() and int(left[0]) >= 3:
            options["listen_fd"] = int(left.pop(0))
        elif word.startswith("-") or "file" in options:
            return None
        else:
            options["file"] = Path(word)
    return options if "file" in options else None


def run_agent(
    file: Path,
    *,
    is_json: bool = False,
    quiet: bool = False,
    is_supervised: bool = False,
    listen_fd: int | None = None,
    is_fit: bool = False,
) -> int:
    """Run the agent of a file and print its result; returns the exit code.

    `is_fit`: the file must have [fit].
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the terminal may have no θ
    # an overflow ends the run with a status of its own, so a warning would say it twice
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"hushgrad\.")
    config = load_config(file)
    if is_fit and config.run.model is None:
        raise InputError(
            f"'{file}' has no table [fit]. Write one in place of [objective] and [algorithm], or "
            f"minimise the objective by: hushgrad agent {file}"
        )
    if quiet:
        config = replace(config, log=replace(config.log, level="error"))
    is_live = not (quiet or is_supervised) and config.log.format == "text"
    agent = Agent(config, listening=_inherited(listen_fd))
    gc.freeze()  # modules stay: no collection in the rounds need look at them again
    result = asyncio.run(_watched(agent, is_live=is_live, is_supervised=is_supervised))
    files = _write(config, result, agent)
    exit_code = result.exit_code if files else result.exit_code or FAILED
    if is_supervised:
        return exit_code
    if is_json:
        for piece in json_pieces(result, {"files": files, **_local(agent)}):
            sys.stdout.write(piece)
        sys.stdout.flush()
    else:
        print(result.summary)
        print(_told(result, agent))
    if quiet or config.log.format == "json":
        return exit_code
    if files:
        note(f"wrote {' and '.join(files)}.")
    if result.is_resumable:
        command = "agent" if config.run.model is None else "fit"
        note(f"the state is kept in {config.state}. To continue: hushgrad {command} {file}")
    elif result.exit_code == FAILED:
        note(f"the state is kept in {config.state}.")
    return exit_code


def _write(config: AgentConfig, result: AgentResult, agent: Agent) -> list[str]:
    """Write the result; returns its files, or none if they cannot be written."""
    try:
        files = write_result(config.result, result)
        if agent.fitted is not None:
            from hushgrad.network.ops.fit_page import write_fit_pages

            files += write_fit_pages(config, result, agent.fitted)
        return [str(path) for path in files]
    except OSError as error:
        say("error", f"the result '{config.result}' cannot be written: {error}.", "bold red")
        return []


def _inherited(listen_fd: int | None) -> socket.socket | None:
    """The listening socket that the starting program has passed on."""
    if listen_fd is None:
        return None
    try:
        return socket.socket(fileno=listen_fd)
    except OSError as error:
        raise InputError(
            f"--listen-fd is an inherited socket, but {listen_fd} is none: {error.strerror}. Leave "
            "--listen-fd out to listen at the address in the file."
        ) from None


def _told(result: AgentResult, agent: Agent) -> str:
    """The numbers of a result: θ, or the whole table of a fit."""
    if (fitted := agent.fitted) is not None:
        lines = [f"{result.rounds} rounds, {result.seconds:.1f} s\n", fitted.table()]
        for name, check in fitted.checks.items():
            stage = name.removesuffix(check.site)  # of a plan
            lines += [stage + check.line] + ([f"warning: {check.verdict}"] if check.verdict else [])
        return "\n".join(lines)
    if agent.config.run.model is not None:
        where = f"stage {result.stage} of at most {result.stages}"
        if part := agent.stats.part:
            where = f"stage {part}, average {result.stage} of at most {result.stages}"
        return f"in {where}: there is no table yet"
    return (
        f"{result.iterations} iterations, {result.rounds} rounds, {result.seconds:.1f} s: "
        f"θ = {shown_vector(result.theta.tolist())}"
    )


def _local(agent: Agent) -> dict[str, Any]:
    """The checks of a fit on the rows of this site, which its result file does not hold."""
    fitted = agent.fitted
    if fitted is None:
        return {}
    return {"local": {name: check.to_json() for name, check in fitted.checks.items()}}


async def _watched(agent: Agent, *, is_live: bool, is_supervised: bool) -> AgentResult:
    """Run an agent with its logs, its metrics, its line on the terminal and its signals."""
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
        # a second signal ends the process at once
        loop.remove_signal_handler(number)
        agent.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave, number)


def _serve_metrics(agent: Agent, loop: asyncio.AbstractEventLoop) -> Any:
    config = agent.config
    if config.metrics is None:
        return None
    from hushgrad import __version__
    from hushgrad.network.ops.metrics import MetricsServer

    about = {"agent": config.name, "run": config.run.id, "version": __version__}
    return MetricsServer(agent.stats, config.metrics, about, loop)


@contextmanager
def _line(agent: Agent, *, is_live: bool) -> Generator[None]:
    """Show a status line while the agent runs, if stderr is a terminal."""
    if not (is_live and sys.stderr.isatty()):
        yield
        return
    from rich.live import Live

    screen = console(stderr=True)

    # Live takes over sys.stderr, so that log lines appear above the status line
    with Live(
        console=screen,
        get_renderable=StatusLine(agent),
        refresh_per_second=REFRESH,
        transient=True,
        redirect_stdout=False,
    ):
        yield


class StatusLine:
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
            f"iteration {stats.iteration} of {config.run.iterations}"
            if config.run.model is None
            else f"stage {stats.part or f'{stats.stage} of at most {stats.stages}'}",
            f"round {max(stats.round, 0)}",
            f"{self._rate:.0f} rounds/s",
            f"peers {connected}/{len(config.neighbours)}",
        ]
        if now - stats.last_progress > PATIENCE and stats.waiting_for:
            parts.append(f"waiting for {', '.join(stats.waiting_for)}")
        return "  ".join(parts)
