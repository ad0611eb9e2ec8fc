"""`hushgrad compare`: algorithms on a study's problem, or runs that were saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.options import RunOptions
from hushgrad.cli.terminal import collecting_risks
from hushgrad.console import note
from hushgrad.errors import InputError

if TYPE_CHECKING:
    from hushgrad.simulate.result import Run
    from hushgrad.studies import Study

EPILOG = """
[bold]Examples[/bold]

hushgrad compare study.toml PDGNDS EXTRA DIGing --out results

hushgrad compare study.toml

hushgrad compare runs/PDG-NDS.npz runs/EXTRA.npz --out results --formats pdf
"""


def compare(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY|RUN",
            help="A study, then the names of algorithms to try on it; or runs saved with --save.",
        ),
    ],
    options: RunOptions,
) -> None:
    """Compare algorithms on one problem, or runs that were saved.

    With a study, its network, problem and run settings are used. An algorithm that the study
    has keeps its parameters there, any other gets its defaults. Without names, every algorithm
    that the network allows is run. --out writes the picture.
    """
    from hushgrad.cli import report

    is_saved = [name.endswith(".npz") for name in what]
    document: dict[str, Any]
    quiet = options.quiet
    with collecting_risks(quiet=quiet) as risks:
        if any(is_saved):
            _check_saved_only(what, options)
            runs = _load(what, quiet=quiet)
            files = report.files_for(None, options, "compare")
            document = {"runs": what}
        else:
            study = _chosen(what, options).with_run(
                iterations=options.iterations, trials=options.trials, seed=options.seed
            )
            files = report.files_for(study, options, f"{study.name}-compare")
            runs = list(study.run(progress=options.progress))
            document = {"study": what[0], "row": options.row}
        files.write(runs)
    report.present(
        report.records_of(runs),
        options,
        title=files.name,
        document=document | {"warnings": risks},
        files=files,
    )


def _check_saved_only(what: Sequence[str], options: RunOptions) -> None:
    other = [f"'{name}'" for name in what if not name.endswith(".npz")]
    names = ("row", "iterations", "trials", "seed", "save")
    other += [f"--{name}" for name in names if getattr(options, name) is not None]
    if other:
        raise InputError(
            f"saved runs are compared as they are, but there is also {other[0]}. "
            "Name .npz files only."
        )


def _chosen(what: Sequence[str], options: RunOptions) -> Study:
    """The study with the algorithms that were named, or with all that its network allows."""
    study = options.load(Path(what[0]))
    if study.is_swept:
        raise InputError(
            f"compare takes one setting, but {what[0]} is a sweep of {len(study.sweep())} rows. "
            "Pick one with --row, or use 'hushgrad run'."
        )
    names = [name for argument in what[1:] for name in argument.split(",") if name]
    return study.with_algorithms(names or _fitting(study, quiet=options.quiet))


def _fitting(study: Study, *, quiet: bool) -> list[str]:
    from hushgrad.algorithms import ALL, Consensus
    from hushgrad.studies.build import build_network

    network = build_network(study.source, study.tables["network"])
    own = [table["name"] for table in study.tables["algorithm"]]
    names: list[str] = []
    for cls in ALL:
        if cls is Consensus and study.tables["problem"].get("kind") != "average":
            continue  # it averages, and solves no other problem
        try:
            cls().check(network)
        except InputError as error:
            if not quiet:
                note(f"{cls.__name__} is left out. {error}")
        else:
            names.append(cls.__name__)
    return list(dict.fromkeys([*own, *names]))


def _load(paths: Sequence[str], *, quiet: bool) -> list[Run]:
    """Saved runs, told apart by their files where their labels are equal."""
    from hushgrad.simulate.result import load_run

    runs = [load_run(path) for path in paths]
    labels = [run.label for run in runs]
    runs = [
        run if labels.count(run.label) == 1 else replace(run, label=f"{run.label} ({_short(path)})")
        for run, path in zip(runs, paths, strict=True)
    ]
    for key in ("problem", "network"):
        told = {str(run.config.get(key)): run.label for run in runs}
        if len(told) > 1 and not quiet:
            note(f"these runs do not have the same {key}: {', '.join(told.values())} differ.")
    return runs


def _short(path: str) -> str:
    return str(Path(path).with_suffix(""))
