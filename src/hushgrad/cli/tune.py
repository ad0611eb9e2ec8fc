"""`hushgrad tune`: the best stepsize of every algorithm of a study."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from hushgrad.cli.options import Format, OutDirectory, StudyFile, StudyOptions, Trials
from hushgrad.cli.terminal import collecting_risks, print_json
from hushgrad.console import FAILED, note
from hushgrad.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from hushgrad.simulate.tuned import Tuning

EPILOG = """
[bold]Examples[/bold]

hushgrad tune study.toml

hushgrad tune study.toml --stepsizes 0.001:1:40 --target 1e-8

hushgrad tune study.toml --by bytes --out results

Exit code 1 means that no cell of any algorithm stayed finite; the results are printed even so.
"""


class By(enum.StrEnum):
    """The quantity that is to be least."""

    ITERATIONS = "iterations"
    ROUNDS = "rounds"
    BYTES = "bytes"
    GRADIENTS = "gradients"
    ERROR = "error"


def tune(
    study: StudyFile,
    options: StudyOptions,
    trials: Trials = None,
    stepsizes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Instead of the study's: 0.01,0.02,0.04, or 0.001:1:25 for 25 numbers from 0.001 "
            "to 1, equally far apart as powers.",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(metavar="E", help="Instead of the study's: the error that is to be reached."),
    ] = None,
    by: Annotated[
        By | None, typer.Option(help="Instead of the study's: what the best stepsize has least of.")
    ] = None,
    out: OutDirectory = None,
) -> None:
    """Find the best stepsize of every algorithm of a study.

    All stepsizes and trials of an algorithm run as one batch. [tune] in the study may have
    stepsizes, a grid of other parameters, target and by; without it, 31 stepsizes from 0.01/L to
    10/L are tried. --out writes tuning.json, tuning.tex and two pictures: the cost to the target
    and the error at the end, against the stepsize.
    """
    given = {
        "stepsizes": None if stepsizes is None else _numbers(stepsizes),
        "target": target,
        "by": None if by is None else by.value,
    }
    with collecting_risks(quiet=options.quiet):
        chosen = options.load(study).with_run(
            iterations=options.iterations, trials=trials, seed=options.seed
        )
        found = chosen.tune(
            options.progress, **{key: value for key, value in given.items() if value is not None}
        )
    written = [] if out is None else _write(found, out)
    if options.output is Format.JSON:
        print_json({"study": str(study), "row": options.row, **found.document()})
    else:
        typer.echo(str(found))
    if not options.quiet:
        for path in written:
            note(f"written: {path}")
    if all(algorithm is None for algorithm in found.best.values()):
        raise typer.Exit(FAILED)


def _numbers(text: str) -> list[float]:
    import numpy as np

    try:
        if ":" not in text:
            return [float(part) for part in text.split(",") if part.strip()]
        low, high, count = text.split(":")
        if not (0 < float(low) < float(high) and int(count) > 1):
            raise ValueError
        return [float(v) for v in np.geomspace(float(low), float(high), int(count))]
    except ValueError:
        raise InputError(
            f"stepsizes are numbers, as in 0.01,0.02, or low:high:count, as in 0.001:1:25, but "
            f"--stepsizes is '{text}'."
        ) from None


def _write(found: Tuning, out: Path) -> list[Path]:
    from hushgrad.files.atomic import output_directory, write_file

    into = output_directory(out)
    written = [
        write_file(into / "tuning.json", found.to_json()),
        write_file(into / "tuning.tex", found.latex()),
    ]
    cost = "iterations" if found.by == "error" else found.by
    for name in (cost, "error"):
        path = into / f"tuning-{name}.png"
        found.plot(path, y=name)
        written.append(path)
    return written
