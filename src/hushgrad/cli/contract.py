"""`hushgrad contract`: what all sites of a fit must declare alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrad.cli.options import Format, OutputFormat
from hushgrad.cli.terminal import print_json
from hushgrad.console import FAILED, console

EPILOG = """
[bold]Examples[/bold]

hushgrad contract model.toml

hushgrad contract ours/model.toml theirs/model.toml

Exit code 1 means that two contracts differ.
"""


def contract(
    file: Annotated[Path, typer.Argument(metavar="MODEL", help="A model, a TOML file.")],
    other: Annotated[
        Path | None,
        typer.Argument(metavar="OTHER", help="Another site's model, to compare with."),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Print the contract of a model and its digest, or the first field in which two differ."""
    from hushgrad.fitting import contract as contract_of
    from hushgrad.fitting import contract_digest, first_difference, load_model
    from hushgrad.fitting.contracts import contract_text

    document = contract_of(load_model(file))
    digest = contract_digest(document)
    found = None if other is None else first_difference(document, contract_of(load_model(other)))
    if output is Format.JSON:
        names = ("field", "ours", "theirs")
        difference = None if found is None else dict(zip(names, found, strict=True))
        print_json({"contract": document, "digest": digest, "difference": difference})
    elif found is not None:
        field, ours, theirs = found
        text = f"{field} is {ours!r} in {file} and {theirs!r} in {other}"
        console().print(text, soft_wrap=True, markup=False, highlight=False)
    else:
        typer.echo(f"{contract_text(document)}digest {digest}")
    if found is not None:
        raise typer.Exit(FAILED)
