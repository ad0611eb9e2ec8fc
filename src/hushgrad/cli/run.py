"""`hushgrad run`: a study file, or one row of its sweep."""

from __future__ import annotations

import enum
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.options import Resume, RunOptions, StudyFile
from hushgrad.cli.terminal import collecting_risks
from hushgrad.console import FAILED, note, say
from hushgrad.errors import AgentError, InputError, StudyError

if TYPE_CHECKING:
    from hushgrad.cli.report import Files
    from hushgrad.simulate.result import Comparison, Run
    from hushgrad.simulate.stacked.shards.job import Job
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

srun hushgrad run study.toml --distributed

mpirun -n 8 hushgrad run study.toml --distributed

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
    checkpoint_every: Annotated[
        float,
        typer.Option(metavar="MINUTES", help="Keep the state for --resume this often."),
    ] = 0.5,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed",
            help="This is one of several processes that divide the agents, started by srun or "
            "mpirun.",
        ),
    ] = False,
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The same without srun and mpirun: where process 0 listens. Needs --processes and "
            "--process.",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --coordinator: how many processes there are."),
    ] = None,
    process: Annotated[
        int | None,
        typer.Option(min=0, metavar="I", help="With --coordinator: which of them this is, from 0."),
    ] = None,
) -> None:
    """Run a study: every algorithm in it, side by side.

    The whole file is checked before anything runs. A study with a sweep runs every combination
    of its values and writes the results to sweep.csv; --row runs one combination alone, with the
    same numbers. --jobs runs several rows at the same time. On a cluster each task of an array runs
    its --rows, and 'hushgrad gather' joins the tables.

    Ctrl-C keeps what is done; --resume continues it to the same result.

    --engine processes runs one trial as a network of processes on this machine, with keys,
    certificates and an agent.toml for each, and also tells how far the result is from the
    simulator's.

    --distributed runs one study on several processes, perhaps of several machines, which divide its
    agents. Process 0 writes the results; a process that dies ends all of them with exit code 7.
    """
    wanted = _Wanted(study, options, resume, rows, jobs, accept_exposure, engine, checkpoint_every)
    if not distributed and (coordinator, processes, process) == (None, None, None):
        _run_study(wanted, None)
        return
    _check_job(wanted, coordinator, processes, process)
    from hushgrad.simulate.stacked.shards.job import joined

    with joined(coordinator, processes, process) as job:
        _run_study(wanted, job)


@dataclass(frozen=True)
class _Wanted:
    """The command's arguments."""

    study: Path
    options: RunOptions
    resume: bool
    rows: str | None
    jobs: int
    accept_exposure: list[str] | None
    engine: Engine | None
    checkpoint_every: float


def _check_job(
    wanted: _Wanted, coordinator: str | None, processes: int | None, process: int | None
) -> None:
    if coordinator is not None:
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise InputError(
                f"--coordinator is HOST:PORT, but it is '{coordinator}'. Try 127.0.0.1:29400."
            )
        if processes is None or process is None:
            absent = "--processes" if processes is None else "--process"
            raise InputError(
                f"--coordinator needs --processes N and --process I, but {absent} is missing."
            )
        if process >= processes:
            raise InputError(
                f"{processes} processes have the numbers 0 to {processes - 1}, but --process is "
                f"{process}."
            )
    elif processes is not None or process is not None:
        raise InputError(
            "--processes and --process are for --coordinator, which is not given. srun and mpirun "
            "number their processes themselves. For a network of processes on this machine write "
            "--engine processes."
        )
    if wanted.jobs > 1 or wanted.rows is not None:
        raise InputError(
            "processes divide the agents of one study, but --jobs and --rows divide the rows of a "
            "sweep. Pick one row by --row."
        )
    if wanted.engine not in (None, Engine.STACKED):
        raise InputError(
            "processes divide the agents of the stacked engine alone, but --engine is "
            f"{wanted.engine}. Leave it out."
        )


def _run_study(wanted: _Wanted, job: Job | None) -> None:
    """Run a study; of several processes the first one alone keeps, writes and speaks."""
    from hushgrad import __version__
    from hushgrad.cli import report
    from hushgrad.files.atomic import write_file
    from hushgrad.studies import Table, Unfinished, load_study
    from hushgrad.studies.sweep import row_of

    study, options, resume, engine = wanted.study, wanted.options, wanted.resume, wanted.engine
    is_first = job is None or job.is_first
    quiet = options.quiet or not is_first
    name = options.name(study)
    with collecting_risks(quiet=quiet) as risks:
        chosen = options.load(study).with_run(
            iterations=options.iterations,
            trials=options.trials,
            seed=options.seed,
            engine=None if engine is Engine.PROCESSES else engine,
            accept_exposure=wanted.accept_exposure or None,
        )
        files = report.files_for(chosen, options, name)
        if chosen.is_swept:
            if files.directory is None:
                files.directory = chosen.source.directory / f"{chosen.name}-results"
            if options.formats is None and "formats" not in chosen.tables.get("output", {}):
                files.formats = ()  # a picture for every row is for those who ask
        numbers = _rows(chosen, options, wanted.rows, wanted.jobs)
        keep = Unfinished(chosen, numbers)
        keep.is_writer = is_first
        if job is not None and chosen.is_swept:
            raise InputError(f"{study} is a sweep. Processes run one row of it: use --row.")
        if job is not None:
            job.check_same(f"{__version__} {resume} {chosen.to_toml()}")
        with _lock(keep, engine, resume=resume, quiet=quiet) as lock:
            if not resume:
                keep.clear()
            elif keep.is_empty and is_first:
                note("there is nothing to resume of this study: it starts from the beginning.")
            if job is not None:
                job.wait("the first process has cleared what is not resumed")
            try:
                if chosen.is_swept and lock is None:
                    records = _run_sweep(chosen, files, keep, numbers, wanted)
                else:
                    extra: dict[str, Any] = {"checkpoint_every": wanted.checkpoint_every}
                    extra |= {} if job is None else {"mesh": "auto"}
                    records = _run(chosen, files, keep, lock, extra, quiet=quiet)
            except (KeyboardInterrupt, AgentError) as end:
                if isinstance(end, AgentError):
                    say("error", str(end), "bold red")
                if not is_first:
                    raise
                note(
                    f"finished runs ({keep.n_done}) and the state of the one under way are kept. "
                    "The same command with --resume continues."
                )
                if isinstance(end, AgentError):
                    raise typer.Exit(FAILED) from None
                raise
            keep.clear()
    if not is_first:
        return
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
    if not keep.is_writer:
        yield None
        return
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
    study: Study,
    files: Files,
    keep: Unfinished,
    lock: int | None,
    extra: dict[str, Any],
    *,
    quiet: bool,
) -> list[dict[str, Any]]:
    """Run a study on its engine; with a lock, as processes that inherit it."""
    from hushgrad.cli.report import records_of

    if lock is not None:
        from hushgrad.cli.live import live_table
        from hushgrad.studies.processes import run_processes

        with live_table(quiet=quiet) as watch:
            runs = run_processes(study, keep, lock=lock, watch=watch)
    else:
        runs = study.run(False if quiet else None, keep, **extra)
    if keep.is_writer:
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
    study: Study,
    files: Files,
    keep: Unfinished,
    rows: Sequence[int] | None,
    wanted: _Wanted,
) -> list[dict[str, Any]]:
    """Run rows; the table has the finished ones, even if a later one fails or is stopped."""
    from hushgrad.cli.report import records_of
    from hushgrad.files.atomic import output_directory
    from hushgrad.studies import Table
    from hushgrad.studies.parallel import worker_processes

    records: list[dict[str, Any]] = []
    quiet = wanted.options.quiet
    part = "" if wanted.rows is None else f"-{wanted.rows.replace(' ', '')}"

    def write(row: SweepRow, runs: Comparison) -> None:
        records.extend({"row": row.row, **row.settings, **r} for r in records_of(runs))
        files.write(runs.runs, sub=f"row-{row.row}")
        _tell_facts(runs.runs, quiet=quiet)

    try:
        with worker_processes(wanted.jobs) as executor:
            watch = False if quiet else None
            study.run_sweep(watch, write, keep, rows=rows, executor=executor)
    finally:
        if records and files.directory is not None:
            path = output_directory(files.directory) / f"sweep{part}.csv"
            files.written.append(Table(tuple(records)).write_csv(path))
    return records
