"""`hushgrad cite`: BibTeX of the methods that a study used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrad.cli.options import Format, OutputFormat
from hushgrad.cli.terminal import collecting_risks, print_json

EPILOG = """
[bold]Examples[/bold]

hushgrad cite study.toml >> paper.bib

hushgrad cite --all
"""


def cite(
    study: Annotated[
        Path | None,
        typer.Argument(metavar="STUDY", help="A study; without it, the entry of hushgrad itself."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every method that hushgrad has, and hushgrad itself.")
    ] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Print BibTeX for the methods that a study uses."""
    from hushgrad.citations import bibtex, entries

    if everything:
        keys = list(entries())
    elif study is None:
        keys = ["hushgrad"]
    else:
        from hushgrad.studies import load_study

        with collecting_risks(quiet=True):
            keys = load_study(study).citations()
    if output is Format.JSON:
        print_json({"entries": [{"key": key, "bibtex": bibtex([key])} for key in keys]})
    else:
        typer.echo(bibtex(keys), nl=False)
