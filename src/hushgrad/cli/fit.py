"""`hushgrad fit`: one site of a fit, from its rows to the table of coefficients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrad.cli.options import Format, ListenFd, OutputFormat, Quiet, Supervised

EPILOG = """
[bold]Examples[/bold]

hushgrad contract model.toml

hushgrad doctor agent.toml

hushgrad fit agent.toml

Exit codes: 0 done, 1 failed (the fit has no result, and the reason is named), 2 bad input, 3 a
neighbour was lost or failed, 4 refused (other rows than at the start, sums that differ, a stale
copy), 7 a neighbour ended the fit, 130 stopped by a signal. After 3 and 130 the same command
continues the fit.
"""


def fit(
    file: Annotated[
        Path,
        typer.Argument(metavar="AGENT", help="The agent's file. It names the model and the rows."),
    ],
    output: OutputFormat = Format.TEXT,
    quiet: Quiet = False,
    supervised: Supervised = False,
    listen_fd: ListenFd = None,
) -> None:
    """Fit one regression to the rows of all sites: every site runs this command with its own rows.

    The sites pool masked sums, never rows. The table of coefficients is the one that the pooled
    rows would give. The command prints the table and writes result.json, coefficients.csv and
    page.html beside the state. The page also tells how well the fit describes the rows of this site
    alone. If the model file is a plan, its stages run one after another: each is a fit or a set of
    sums, and has files of its own name.
    """
    from hushgrad.network.ops.command import run_agent

    raise typer.Exit(
        run_agent(
            file,
            is_json=output is Format.JSON,
            quiet=quiet,
            is_supervised=supervised,
            listen_fd=listen_fd,
            is_fit=True,
        )
    )
