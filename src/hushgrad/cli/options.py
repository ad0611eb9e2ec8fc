"""The options that commands share, and commands that take a group of them as one argument.

Every command of this package takes its common options from here.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

if TYPE_CHECKING:
    from hushgrad.studies import Study


class Format(enum.StrEnum):
    """The form of printed results."""

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

StudyFile = Annotated[
    Path, typer.Argument(metavar="STUDY", help="The study, a TOML file (see 'hushgrad new').")
]


@dataclass(frozen=True)
class StudyOptions:
    """The options of `run`, `compare` and `audit`: which study, how long, how loud."""

    output: OutputFormat = Format.TEXT
    row: Row = None
    iterations: Iterations = None
    seed: Seed = None
    quiet: Quiet = False

    @property
    def progress(self) -> bool | None:
        """None: a bar where stderr is a terminal."""
        return False if self.quiet else None

    def load(self, path: Path) -> Study:
        """The study of a file, or the one that a row of its sweep makes of it."""
        from hushgrad.studies import load_study
        from hushgrad.studies.sweep import row_of

        study = load_study(path)
        return study if self.row is None else row_of(study.sweep(), self.row).study

    def name(self, path: Path) -> str:
        """The name of the files that are written for the study."""
        return path.stem if self.row is None else f"{path.stem}-row{self.row}"


@dataclass(frozen=True)
class RunOptions(StudyOptions):
    """The options of `run` and `compare`, with trials and with files to write."""

    trials: Trials = None
    out: OutDirectory = None
    formats: FileFormats = None
    save: SaveDirectory = None


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its parameter `options`, if it has one."""
    signature = inspect.signature(command, eval_str=True)
    group: Any = getattr(signature.parameters.get("options"), "annotation", None)
    if not is_dataclass(group):
        return command
    hints = get_type_hints(group, include_extras=True)
    options = {f.name: (hints[f.name], f.default) for f in fields(group)}

    @functools.wraps(command)
    def taking_each(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in options}
        command(options=cast("Any", group)(**chosen), **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name != "options":
            parameters.append(parameter.replace(kind=keyword))
            continue
        for option, (annotation, default) in options.items():
            one = inspect.Parameter(option, keyword, default=default, annotation=annotation)
            parameters.append(one)
    cast("Any", taking_each).__signature__ = signature.replace(parameters=parameters)
    return taking_each


Supervised = Annotated[
    bool,
    typer.Option(
        "--supervised",
        help="For a program that starts agents: progress as JSON lines on stdout, and stop when "
        "stdin ends.",
    ),
]
ListenFd = Annotated[
    int | None, typer.Option(min=3, metavar="FD", help="Listen on this inherited socket.")
]
