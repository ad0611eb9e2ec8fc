"""What every command shares: options, errors and warnings on stderr, results on stdout."""

from __future__ import annotations

import enum
import functools
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from hushgrad.console import say, told
from hushgrad.errors import HushgradError, RiskWarning


class Format(enum.StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


OutputFormat = Annotated[
    Format, typer.Option("--format", help="Print a table, or one JSON document.")
]
OutDirectory = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="DIR", help="Write pictures and tables into this directory."
    ),
]
FileFormats = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="What to write, separated by commas: pdf, svg, png, pgfplots, table (LaTeX), mat, "
        "csv, json. Default with --out: png,csv,json.",
    ),
]
SaveDirectory = Annotated[
    Path | None,
    typer.Option(
        "--save", metavar="DIR", help="Save every run as .npz here, for 'hushgrad compare'."
    ),
]
Row = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Run this row of the sweep alone, numbered from 0."),
]
Iterations = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Instead of the study's iterations.")
]
Trials = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Instead of the study's trials.")
]
Seed = Annotated[int | None, typer.Option(min=0, metavar="N", help="Instead of the study's seed.")]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue where the same study was interrupted, bit for bit."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, warnings or notes: the result alone.")
]


def print_json(value: Any) -> None:
    """One strict JSON document on stdout; numbers that JSON lacks become null."""
    from hushgrad.files.strict_json import strict_json

    typer.echo(strict_json(value).rstrip("\n"))


def handled(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are one message and an exit code."""

    @functools.wraps(command)
    def guarded(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except (HushgradError, KeyboardInterrupt) as error:
            raise typer.Exit(told(error)) from None

    return guarded


@contextmanager
def collecting_risks(*, quiet: bool) -> Generator[list[str]]:
    """Show each RiskWarning once on stderr as it comes, and list them.

    What the study's own code prints goes to stderr too: stdout is for the result.
    """
    risks: list[str] = []

    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if not issubclass(category, RiskWarning):
            usual(message, category, *rest)
        elif str(message) not in risks:
            risks.append(str(message))
            if not quiet:
                say("warning", str(message), "bold yellow")

    with warnings.catch_warnings(), redirect_stdout(sys.stderr):
        usual = warnings.showwarning
        warnings.simplefilter("always", RiskWarning)
        warnings.showwarning = show
        yield risks
