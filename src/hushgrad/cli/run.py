"""`hushgrad run`: a study file, or one row of its sweep."""

from __future__ import annotations

import enum
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.options import Resume, RunOptions, StudyFile
from hushgrad.cli.terminal import collecting_risks
from hushgrad.console import FAILED, note, say
from hushgrad.errors import AgentError, InputError, StudyError

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

hushgrad run sweep.toml --jobs 4

hushgrad run sweep.toml --rows 10-19 --out results

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
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Run these rows of the sweep, such as 0,3,10-19, and write them to a part of the "
            "table: 'hushgrad gather' joins the parts.",
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Run this many rows of the sweep at the same time, each in a process of its own.",
        ),
    ] = 1,
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
    same numbers. --jobs runs several rows at the same time. On a cluster each task of an array runs
    its --rows, and 'hushgrad gather' joins the tables.

    Ctrl-C keeps what is done; --resume continues it to the same result.

    --engine processes runs one trial as a network of processes on this machine, with keys,
    certificates and an agent.toml for each, and also tells how far they are from the simulator.
    """
    from hushgrad.cli import report
    from hushgrad.files.atomic import write_file
    from hushgrad.studies import Table, Unfinished, load_study
    from hushgrad.studies.sweep import row_of

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
        numbers = _rows(chosen, options, rows, jobs)
        keep = Unfinished(chosen, numbers)
        with _lock(keep, engine, resume=resume, quiet=options.quiet) as lock:
            if not resume:
                keep.clear()
            elif keep.is_empty:
                note("there is nothing to resume of this study: it starts from the beginning.")
            try:
                if chosen.is_swept and lock is None:
                    part = "" if rows is None else f"-{rows.replace(' ', '')}"
                    records = _run_sweep(
                        chosen, files, keep, numbers, f"sweep{part}.csv", jobs, quiet=options.quiet
                    )
                else:
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
        settings = row_of(load_study(study).sweep(), options.row).settings
        table = Table(tuple({"row": options.row, **settings, **r} for r in records))
        files.written.append(table.write_csv(files.directory / f"sweep-{options.row}.csv"))
    report.present(
        records,
        options,
        title=name,
        document={"study": str(study), "row": options.row, "warnings": risks},
        files=files,
    )


def _rows(study: Study, options: RunOptions, rows: str | None, jobs: int) -> list[int] | None:
    """The numbers of the rows to run, or None for all; InputError where there are none."""
    from hushgrad.studies.sweep import numbers, row_of

    if (rows is not None or jobs > 1) and not study.is_swept:
        option = "--jobs" if rows is None else "--rows"
        why = "--row picks one row" if options.row is not None else "the study has no [sweep]"
        raise InputError(f"{option} is for the rows of a sweep, but {why}. Leave {option} out.")
    chosen = None if rows is None else numbers(rows)
    if chosen is not None:
        row_of(study.sweep(), chosen[-1])
    return chosen


@contextmanager
def _lock(
    keep: Unfinished, engine: Engine | None, *, resume: bool, quiet: bool
) -> Generator[int | None]:
    """Hold the kept part of the study. The descriptor is for a network of processes alone."""
    if engine is Engine.PROCESSES:
        from hushgrad.network.local.processes import only_one

        with only_one(keep.lock_file()) as lock:
            yield lock
        return
    from hushgrad.files.locks import locked

    with locked(keep.lock_file()) as lock:
        if lock is None and resume:
            raise StudyError(
                "this study runs already, in another program, which --resume would disturb. Wait "
                "for that program, or end it."
            )
        if lock is None:
            keep.part()
            if not quiet:
                note("another program runs this study too: this one keeps nothing for --resume.")
        yield None


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
    else:
        runs = study.run(False if quiet else None, keep)
    files.write(runs.runs)
    _tell_revealed(runs.runs, quiet=quiet)
    return records_of(runs)


def _tell_revealed(runs: Sequence[Run], *, quiet: bool) -> None:
    """Say what the sums of stages reveal, once for each count."""
    from hushgrad.theory.revealed import Revealed

    told = (Revealed.from_json(run.revealed) for run in runs if run.revealed is not None)
    for count in dict.fromkeys(told):
        if not quiet:
            note(f"{count.summary}.")


def _run_sweep(
    study: Study,
    files: Files,
    keep: Unfinished,
    rows: Sequence[int] | None,
    table: str,
    jobs: int,
    *,
    quiet: bool,
) -> list[dict[str, Any]]:
    """Run rows; the table has the finished ones, even if a later one fails or is stopped."""
    from hushgrad.cli.report import records_of
    from hushgrad.files.atomic import output_directory
    from hushgrad.studies import Table
    from hushgrad.studies.parallel import worker_processes

    records: list[dict[str, Any]] = []

    def write(row: SweepRow, runs: Comparison) -> None:
        records.extend({"row": row.row, **row.settings, **r} for r in records_of(runs))
        files.write(runs.runs, sub=f"row-{row.row}")
        _tell_revealed(runs.runs, quiet=quiet)

    try:
        with worker_processes(jobs) as executor:
            watch = False if quiet else None
            study.run_sweep(watch, write, keep, rows=rows, executor=executor)
    finally:
        if records and files.directory is not None:
            path = output_directory(files.directory) / table
            files.written.append(Table(tuple(records)).write_csv(path))
    return records
