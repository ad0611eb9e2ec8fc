"""`hushgrad ledger`: the runs of an agent, in a file that shows every later change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.options import Format, OutputFormat
from hushgrad.cli.terminal import print_json
from hushgrad.console import FAILED, console, note
from hushgrad.errors import InputError, LedgerError

if TYPE_CHECKING:
    from hushgrad.network.state.ledger import LedgerFile, LedgerLine

HELP = "The ledger of runs: one line per run and change of status, each with the digest before it."
EPILOG = """
[bold]Examples[/bold]

hushgrad ledger show agent.toml

hushgrad ledger verify /var/lib/hushgrad/ledger --head 5f0c…

hushgrad ledger new /var/lib/hushgrad/ledger
"""
COMMANDS = ("show", "verify", "new")

Place = Annotated[
    Path,
    typer.Argument(metavar="AGENT|LEDGER", help="An agent's file (*.toml), or a ledger itself."),
]


def show(place: Place, output: OutputFormat = Format.TEXT) -> None:
    """Print the lines of a ledger: when which run began and ended, and what it spent."""
    documents: list[dict[str, Any]] = []
    for ledger in _ledgers(place):
        lines = ledger.lines()
        documents.append({"ledger": str(ledger.path), "lines": [line.to_json() for line in lines]})
        if output is Format.TEXT:
            _print(ledger, lines)
    if output is Format.JSON:
        print_json(documents)


def verify(
    place: Place,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST",
            help="A digest that was noted before, from a log or a page: it must be in the ledger.",
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Check that nobody changed, moved or took out a line. Exit code 1: somebody did."""
    documents: list[dict[str, Any]] = []
    for ledger in _ledgers(place):
        try:
            lines = ledger.lines(is_sealed=ledger.has_secret)
            digests = [line.digest for line in lines]
            if head is not None and not any(digest.startswith(head) for digest in digests):
                raise LedgerError(
                    f"'{ledger.path}' has {len(lines)} lines, and none has the digest {head}: its "
                    "end is lost, or it is another ledger. Restore the newest copy."
                )
            seals = "" if ledger.has_secret else " (seals not checked: the secret is not here)"
            said = f"{len(lines)} lines, whole{seals}; the last has the digest {digests[-1]}"
            found = {"ok": True, "text": said, "head": digests[-1]}
        except LedgerError as error:
            found = {"ok": False, "text": str(error), "head": None}
        documents.append({"ledger": str(ledger.path), **found})
        if output is Format.TEXT:
            mark = "✓" if found["ok"] else "✗"
            console().print(f"{mark} {ledger.path}: {found['text']}", soft_wrap=True, markup=False)
    if output is Format.JSON:
        print_json(documents)
    if not all(document["ok"] for document in documents):
        raise typer.Exit(FAILED)


def new(
    place: Annotated[Path, typer.Argument(metavar="FILE", help="Where the ledger begins.")],
    output: OutputFormat = Format.TEXT,
) -> None:
    """Begin a ledger for a policy, and print the lines that name it there."""
    from hushgrad.network.state.ledger import LedgerFile

    ledger = LedgerFile(place)
    with ledger.locked():
        first = ledger.create()
    if output is Format.JSON:
        print_json({"ledger": str(place.resolve()), "ledger_start": first.digest})
        return
    note(f"began {place}. These lines belong into [policy] of policy.toml:")
    typer.echo(f'ledger = "{place.resolve()}"\nledger_start = "{first.digest}"')


def _ledgers(place: Path) -> list[LedgerFile]:
    from hushgrad.network.state.ledger import LedgerFile, ledger_of

    if place.suffix != ".toml":
        found = [LedgerFile(place)]
    else:
        from hushgrad.network.config.file import load_config
        from hushgrad.network.ledgers import governing

        config = load_config(place)
        named = [p.ledger_file for p in governing(config) if p.ledger_file is not None]
        found = [ledger_of(config.key), *named]
    there = [ledger for ledger in found if ledger.exists]
    if not there:
        raise InputError(f"there is no ledger at '{found[0].path}': no run has begun yet.")
    return there


def _print(ledger: LedgerFile, lines: list[LedgerLine]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title=str(ledger.path), title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("line", "time (UTC)", "run", "agent", "status", "μ", "data", "digest"):
        table.add_column(heading, no_wrap=True)
    for line in lines:
        facts = line.facts
        table.add_row(
            str(line.number + 1), f"{line.time:%Y-%m-%d %H:%M:%S}", line.run or "",
            facts.get("agent", ""), line.status, _mu(facts.get("mu")),
            str(facts.get("data", ""))[:8], line.digest[:16],
        )  # fmt: skip
    console().print(table)


def _mu(value: Any) -> str:
    return "" if value is None else f"{float(value):.3g}"
