"""`hushgrad agent`: one agent of a network, until its run ends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrad.cli.options import Format, ListenFd, OutputFormat, Quiet, Supervised

EPILOG = """
[bold]Examples[/bold]

hushgrad agent agent.toml

hushgrad agent agent.toml --format json 2> agent.log

Exit codes: 0 done or converged, 1 failed, 2 bad input, 3 a neighbour was lost or failed, 4 refused
(a stale copy, a journal that does not repeat itself, masks that do not cancel, a diameter that is
too small), 5 diverged, 6 all iterations done, but the tolerance was missed, 7 a neighbour ended the
run, 130 stopped by a signal. After 3 and 130 the same command continues the run.
"""


def agent(
    file: Annotated[Path, typer.Argument(metavar="AGENT", help="The agent's file, a TOML file.")],
    output: OutputFormat = Format.TEXT,
    quiet: Quiet = False,
    supervised: Supervised = False,
    listen_fd: ListenFd = None,
) -> None:
    """Run one agent: it meets its neighbours, computes with them, and writes its result.

    Every round is in the journal before it is sent, so whatever ends the program, the same command
    continues the run where it stood. Ctrl-C and SIGTERM leave after the present round.
    """
    from hushgrad.network.ops.command import run_agent

    is_json = output is Format.JSON
    raise typer.Exit(
        run_agent(file, is_json=is_json, quiet=quiet, is_supervised=supervised, listen_fd=listen_fd)
    )
