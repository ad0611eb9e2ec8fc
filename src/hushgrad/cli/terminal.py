"""The way every command speaks: results on stdout, errors and warnings on stderr.

cli/__init__.py wraps each command in `handled`.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import typer

from hushgrad.console import say, told
from hushgrad.errors import HushgradError, RiskWarning


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
