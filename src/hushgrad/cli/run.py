"""`hushgrad run`: a study file, or one row of its sweep."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.options import Resume, RunOptions, StudyFile
from hushgrad.cli.terminal import collecting_risks
from hushgrad.console import FAILED, note, say
from hushgrad.errors import AgentError

if TYPE_CHECKING:
    from hushgrad.cli.report import Files
    from hushgrad.simulate.result import Comparison, Run
    from hushgrad.studies import Study, SweepRow, Unfinished

EPILOG = """
[bold]Examples[/bold]

hushgrad run study.toml

hushgrad run study.toml --out results --formats pdf,csv

hushgrad run study.toml --trials 5 --iterations 100 --format json

hushgrad run sweep.toml --row 7 --save runs

hushgrad run study.toml --trials 1 --engine processes

Exit code 1 means that every trial of every algorithm diverged; the results are printed even so.
"""


class Engine(enum.StrEnum):
    """The ways to run the agents."""

    STACKED = "stacked"
    AGENTS = "agents"
    PROCESSES = "processes"


def run(
    study: StudyFile,
    options: RunOptions,
    resume: Resume = False,
    accept_exposure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Instead of the study's: accept a weakness by its name, such as sums. May be "
            "repeated.",
        ),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option(
            help="Instead of the study's: all agents at once (stacked), each alone in this "
            "program (agents), or each a process of its own, over TLS (processes)."
        ),
    ] = None,
) -> None:
    """Run a study: every algorithm in it, side by side.

    The whole file is checked before anything runs. A study with a sweep runs every combination
    of its values and writes the results to sweep.csv; --row runs one combination alone, with the
    same numbers.

    Ctrl-C keeps what is done; --resume continues it to the same result.

    --engine processes runs one trial as a network of processes on this machine, with keys,
    certificates and an agent.toml for each, and also tells how far they are from the simulator.
    """
    from hushgrad.cli import report
    from hushgrad.files.atomic import write_file
    from hushgrad.studies import Unfinished

    name = options.name(study)
    with collecting_risks(quiet=options.quiet) as risks:
        chosen = options.load(study).with_run(
            iterations=options.iterations,
            trials=options.trials,
            seed=options.seed,
            engine=None if engine is Engine.PROCESSES else engine,
            accept_exposure=accept_exposure or None,
        )
        files = report.files_for(chosen, options, name)
        if chosen.is_swept:
            if files.directory is None:
                files.directory = chosen.source.directory / f"{chosen.name}-results"
            if options.formats is None and "formats" not in chosen.tables.get("output", {}):
                files.formats = ()  # a picture for every row is for those who ask
        keep = Unfinished(chosen)
        with _lock(keep, engine) as lock:
            if not resume:
                keep.clear()
            elif keep.is_empty:
                note("there is nothing to resume of this study: it starts from the beginning.")
            try:
                records = _run(chosen, files, keep, lock, quiet=options.quiet)
            except (KeyboardInterrupt, AgentError) as end:
                if isinstance(end, AgentError):
                    say("error", str(end), "bold red")
                note(
                    f"finished runs ({keep.n_done}) and the state of the one under way are kept. "
                    "The same command with --resume continues."
                )
                if isinstance(end, AgentError):
                    raise typer.Exit(FAILED) from None
                raise
            keep.clear()
    if options.row is not None and files.directory is not None:
        text = chosen.to_toml(files.directory)
        files.written.append(write_file(files.directory / f"{name}.toml", text))
    report.present(
        records,
        options,
        title=name,
        document={"study": str(study), "row": options.row, "warnings": risks},
        files=files,
    )


def _lock(keep: Unfinished, engine: Engine | None) -> AbstractContextManager[int | None]:
    """The lock of a study's processes: one network of them at a time."""
    if engine is not Engine.PROCESSES:
        return nullcontext()
    from hushgrad.network.local.processes import only_one

    return only_one(keep.lock_file())


def _run(
    study: Study, files: Files, keep: Unfinished, lock: int | None, *, quiet: bool
) -> list[dict[str, Any]]:
    """Run a study on its engine; with a lock, as processes that inherit it."""
    from hushgrad.cli.report import records_of

    if lock is not None:
        from hushgrad.cli.live import live_table
        from hushgrad.studies.processes import run_processes

        with live_table(quiet=quiet) as watch:
            runs = run_processes(study, keep, lock=lock, watch=watch)
    elif study.is_swept:
        return _run_sweep(study, files, keep, quiet=quiet)
    else:
        runs = study.run(False if quiet else None, keep)
    files.write(runs.runs)
    _tell_facts(runs.runs, quiet=quiet)
    return records_of(runs)


def _tell_facts(runs: Sequence[Run], *, quiet: bool) -> None:
    """Say which stepsizes "auto" stood for, and what the sums of stages reveal, once each."""
    for run in runs:
        chosen = run.config.get("auto")
        if chosen is not None and not quiet:
            note(f"{run.label}: {chosen['summary']}.")
    from hushgrad.theory.revealed import Revealed

    told = (Revealed.from_json(run.revealed) for run in runs if run.revealed is not None)
    for count in dict.fromkeys(told):
        if not quiet:
            note(f"{count.summary}.")


def _run_sweep(
    study: Study, files: Files, keep: Unfinished, *, quiet: bool
) -> list[dict[str, Any]]:
    """Run all rows; sweep.csv has the finished ones, even if a later one fails or is stopped."""
    from hushgrad.cli.report import records_of
    from hushgrad.files.atomic import output_directory
    from hushgrad.studies import Table

    records: list[dict[str, Any]] = []

    def write(row: SweepRow, runs: Comparison) -> None:
        records.extend({"row": row.row, **row.settings, **r} for r in records_of(runs))
        files.write(runs.runs, sub=f"row-{row.row}")
        _tell_facts(runs.runs, quiet=quiet)

    try:
        study.run_sweep(progress=False if quiet else None, each=write, keep=keep)
    finally:
        if records and files.directory is not None:
            path = output_directory(files.directory) / "sweep.csv"
            files.written.append(Table(tuple(records)).write_csv(path))
    return records
