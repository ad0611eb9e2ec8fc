"""Results of runs: the table on stdout, the files in a directory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hushgrad.cli.terminal import FAILED, WIDE, Format, console, note, print_json
from hushgrad.errors import InputError

if TYPE_CHECKING:
    from hushgrad.simulate.result import Run
    from hushgrad.studies import Study

DEFAULT_FORMATS = ("png", "csv", "json")

_CAPTION = (
    "to 1e-6: iterations until the median error is a millionth of its start. "
    "it/s: iterations × trials per second, compilation included."
)
# What summary() gives, and how a table heads and shows it; the rest of its columns are metrics.
_SUMMARY = (
    "trials", "iterations", "median_error", "worst_error", "iterations_to_1e-6", "converged",
    "diverged", "messages_per_link", "rounds_per_iteration", "bytes_per_iteration", "links",
    "extra_links", "seconds",
)  # fmt: skip


@dataclass
class Files:
    """Where a command writes, and what it wrote."""

    directory: Path | None
    formats: Sequence[str]
    save: Path | None
    name: str
    written: list[Path] = field(default_factory=list[Path])

    def write(self, runs: Sequence[Run], sub: str = "") -> None:
        """Export and save runs, perhaps into a directory of their own."""
        if self.directory is not None and self.formats:
            from hushgrad.simulate.export import export

            into = self.directory / sub
            self.written += export(runs, into, self.formats, name=self.name, title=self.name)
        if self.save is not None:
            from hushgrad.simulate.plots import folder

            into = folder(self.save / sub)
            self.written += [run.save(into / f"{slug(run.label)}.npz") for run in runs]


def files_for(
    study: Study | None, out: Path | None, formats: str | None, save: Path | None, name: str
) -> Files:
    """What the options say, or else the study's [output]; wrong formats are found at once."""
    wanted = None if formats is None else [f.strip() for f in formats.split(",") if f.strip()]
    said: Mapping[str, Any] = study.tables.get("output", {}) if study is not None else {}
    chosen = said.get("formats") if wanted is None else wanted
    directory = out
    if study is not None and directory is None and (said or chosen is not None):
        directory = study.source.directory / said.get("directory", f"{study.name}-results")
    elif directory is None and chosen is not None:
        directory = Path()
    if chosen is not None:
        from hushgrad.simulate.export import FORMATS
        from hushgrad.studies.places import suggestion

        for unknown in [f for f in chosen if f not in FORMATS]:
            raise InputError(
                f"--formats has {unknown!r}, which is none.{suggestion(unknown, FORMATS)} "
                f"Allowed: {', '.join(FORMATS)}."
            )
    return Files(directory, DEFAULT_FORMATS if chosen is None else chosen, save, name)


def slug(label: str) -> str:
    """A file name for a label.

    >>> slug("PDG-NDS (square), B=I")
    'PDG-NDS-square-B-I'
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-") or "run"


def records_of(runs: Iterable[Run]) -> list[dict[str, Any]]:
    from hushgrad.studies import record

    return [record(run) for run in runs]


def present(
    records: Sequence[Mapping[str, Any]],
    *,
    title: str,
    output: Format,
    document: Mapping[str, Any],
    files: Files,
    quiet: bool,
) -> None:
    """Print the results, name the files, and fail if nothing came of any trial."""
    if output is Format.JSON:
        print_json({**document, "results": records, "files": [str(path) for path in files.written]})
    else:
        print_table(records, title)
        if files.written and not quiet:
            note(f"wrote {', '.join(str(path) for path in files.written)}")
    if all(record["diverged"] == record["trials"] for record in records):
        raise typer.Exit(FAILED)


def print_table(records: Sequence[Mapping[str, Any]], title: str) -> None:
    """A table for people: what was set, then what came of it."""
    from rich import box
    from rich.table import Table

    columns = list(dict.fromkeys(key for record in records for key in record))
    settings = columns[: columns.index("algorithm")]
    metrics = [c for c in columns if c not in (*settings, "algorithm", *_SUMMARY)]
    has_diverged = any(record["diverged"] for record in records)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in settings:
        table.add_column(name.rpartition("algorithm.")[2], overflow="fold")
    table.add_column("algorithm", style="bold", overflow="fold")
    for name in ("median error", "worst error", *metrics, "to 1e-6", "converged"):
        table.add_column(name, justify="right")
    if has_diverged:
        table.add_column("diverged", justify="right", style="red")
    for name in ("msgs per link", "rounds", "bytes per it", "it/s"):
        table.add_column(name, justify="right")
    for r in records:
        table.add_row(
            *(str(r[name]) for name in settings),
            r["algorithm"],
            *(_error(r[name]) for name in ("median_error", "worst_error", *metrics)),
            "–" if r["iterations_to_1e-6"] is None else str(r["iterations_to_1e-6"]),
            f"{r['converged']}/{r['trials']}",
            *([str(r["diverged"])] if has_diverged else []),
            f"{r['messages_per_link']:g}",
            str(r["rounds_per_iteration"]),
            f"{r['bytes_per_iteration']:g}",
            _rate(r["iterations"] * r["trials"] / max(r["seconds"], 1e-9)),
        )
    out = console()
    out.print(table)
    out.print(_CAPTION, style="dim", soft_wrap=out.width == WIDE)


def _error(value: float) -> str:
    return f"{value:.1e}"


def _rate(value: float) -> str:
    """Three digits at most.

    >>> _rate(123456.0)
    '123k'
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
