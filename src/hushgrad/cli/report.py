"""Results of runs: the table on stdout, the files in a directory.

`hushgrad run` and `hushgrad compare` show their runs with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hushgrad.cli.options import Format, RunOptions
from hushgrad.cli.terminal import print_json
from hushgrad.console import FAILED, WIDE, console, note
from hushgrad.errors import InputError

if TYPE_CHECKING:
    from hushgrad.simulate.result import Run
    from hushgrad.studies import Study

DEFAULT_FORMATS = ("png", "csv", "json")

_CAPTION = (
    "to 1e-6: iterations until the median error is a millionth of its start. "
    "it/s: iterations × trials per second, compilation included."
)
_DIFFERENCE = (
    "difference: the largest between the agents' estimates and the simulator's at any sample, "
    "relative to the largest estimate."
)
# The columns of summary(); other columns of a record are metrics.
_SUMMARY = (
    "trials", "iterations", "median_error", "worst_error", "iterations_to_1e-6", "converged",
    "diverged", "messages_per_link", "rounds_per_iteration", "bytes_per_iteration", "links",
    "extra_links", "seconds",
)  # fmt: skip


@dataclass
class Files:
    """The place of a command's files, their formats, and the files that it wrote."""

    directory: Path | None
    formats: Sequence[str]
    save: Path | None
    name: str
    written: list[Path] = field(default_factory=list[Path])

    def write(self, runs: Sequence[Run], sub: str = "") -> None:
        """Export and save runs, perhaps into a directory of their own."""
        if self.directory is not None and self.formats:
            from hushgrad.report.export import export

            into = self.directory / sub
            self.written += export(runs, into, self.formats, name=self.name, title=self.name)
        if self.save is not None:
            from hushgrad.files.atomic import output_directory

            into = output_directory(self.save / sub)
            names = [slug(run.label) for run in runs]
            for i, run in enumerate(runs):
                number = f"-{i}" if names.count(names[i]) > 1 else ""
                self.written.append(run.save(into / f"{names[i]}{number}.npz"))


def files_for(study: Study | None, options: RunOptions, name: str) -> Files:
    """The files that the options ask for, or else the study's [output]; InputError for a format
    that there is not.
    """
    listed = options.formats
    wanted = None if listed is None else [f.strip() for f in listed.split(",") if f.strip()]
    said: Mapping[str, Any] = study.tables.get("output", {}) if study is not None else {}
    chosen = said.get("formats") if wanted is None else wanted
    directory = options.out
    if study is not None and directory is None and (said or chosen is not None):
        directory = study.source.directory / said.get("directory", f"{study.name}-results")
    elif directory is None and chosen is not None:
        directory = Path()
    if chosen is not None:
        from hushgrad.report.export import FORMATS
        from hushgrad.schema.places import suggestion

        for unknown in [f for f in chosen if f not in FORMATS]:
            raise InputError(
                f"--formats has {unknown!r}, which is no format.{suggestion(unknown, FORMATS)} "
                f"Allowed: {', '.join(FORMATS)}."
            )
    return Files(directory, DEFAULT_FORMATS if chosen is None else chosen, options.save, name)


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
    options: RunOptions,
    *,
    title: str,
    document: Mapping[str, Any],
    files: Files,
) -> None:
    """Print the results, name the files, and fail if nothing came of any trial."""
    if options.output is Format.JSON:
        print_json({**document, "results": records, "files": [str(path) for path in files.written]})
    else:
        print_table(records, title)
        for label, extra in {r["algorithm"]: r["extra_links"] for r in records}.items():
            if extra and not options.quiet:
                note(
                    f"{label} also sends between agents two hops apart: {extra // 2} links that "
                    "the graph does not have."
                )
        if files.written and not options.quiet:
            note(f"wrote {', '.join(str(path) for path in files.written)}")
    if all(record["diverged"] == record["trials"] for record in records):
        raise typer.Exit(FAILED)


def print_table(records: Sequence[Mapping[str, Any]], title: str) -> None:
    """A table for people: settings, then results. The table of a sweep leaves out the traffic."""
    from rich import box
    from rich.table import Table
    from rich.text import Text  # labels are the user's, not markup

    names = list(dict.fromkeys(key for record in records for key in record))
    settings = names[: names.index("algorithm")]
    metrics = [name for name in names if name not in (*settings, "algorithm", *_SUMMARY)]
    cells = _cells(metrics, any(r["diverged"] for r in records), with_traffic=not settings)
    table = Table(
        title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True
    )
    for name in settings:
        table.add_column(name.removeprefix("algorithm.").replace(".", ".\n"), overflow="fold")
    table.add_column("algorithm", style="bold", overflow="fold")
    for heading in cells:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for r in records:
        left = [*(str(r[name]) for name in settings), r["algorithm"]]
        table.add_row(*map(Text, left), *(cell(r) for cell in cells.values()))
    out = console()
    out.print(table)
    if "difference" in metrics:
        out.print(_DIFFERENCE, style="dim", soft_wrap=out.width == WIDE)
    if not settings:
        out.print(_CAPTION, style="dim", soft_wrap=out.width == WIDE)


def _cells(
    metrics: Sequence[str], has_diverged: bool, with_traffic: bool
) -> dict[str, Callable[[Mapping[str, Any]], str]]:
    """Headings, narrow enough for 80 columns, and how their cells are written."""

    def last(name: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda r: f"{r[name]:.1e}" if name in r else ""

    cells = {"median\nerror": last("median_error"), "worst\nerror": last("worst_error")}
    cells |= {name: last(name) for name in metrics}
    cells["to\n1e-6"] = lambda r: str(r["iterations_to_1e-6"] or "–")
    cells["converged"] = lambda r: f"{r['converged']}/{r['trials']}"
    if has_diverged:
        cells["diverged"] = lambda r: str(r["diverged"])
    if with_traffic:
        cells["msgs/\nlink"] = lambda r: f"{r['messages_per_link']:g}"
        cells["rounds"] = lambda r: str(r["rounds_per_iteration"])
        cells["bytes/\nit"] = lambda r: f"{r['bytes_per_iteration']:g}"
        cells["it/s"] = lambda r: _rate(r["iterations"] * r["trials"] / max(r["seconds"], 1e-9))
    return cells


def _rate(value: float) -> str:
    """Three digits at most.

    >>> _rate(123456.0)
    '123k'
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
