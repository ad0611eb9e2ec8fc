"""A study: a TOML file with network, problem, algorithms and options, checked before it runs.

Users load one by `hg.load_study`; every command with a STUDY does.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import InputError, StudyError
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.report.curves import summary
from hushgrad.schema.algorithms import algorithm_class, algorithm_classes
from hushgrad.schema.places import Mistakes, Source
from hushgrad.schema.references import is_reference
from hushgrad.schema.toml import to_toml
from hushgrad.simulate.progress import Progress
from hushgrad.simulate.result import Comparison, Run
from hushgrad.simulate.run import run
from hushgrad.simulate.tuned import Tuning
from hushgrad.simulate.tuning import tune
from hushgrad.studies import sweep as sweeps
from hushgrad.studies.build import (
    build_algorithms,
    build_network,
    build_options,
    build_problem,
)
from hushgrad.studies.check import check_tables
from hushgrad.studies.parallel import finished_rows, worker_processes
from hushgrad.studies.sweep import SweepRow, Table
from hushgrad.studies.unfinished import Unfinished

# the options of [run] that a tuning has, too
TUNED_WITH = ("iterations", "trials", "seed", "record_every", "x0", "accept_exposure")

type Watch = bool | Callable[[int, int], None] | None


class Built(NamedTuple):
    """The objects of a concrete study, as `hg.compare` takes them."""

    network: Network
    problem: Problem
    algorithms: dict[str, Algorithm]  # by label
    options: dict[str, Any]  # of hg.run


@dataclass(frozen=True)
class Study:
    """A checked study. `load_study` and `parse_study` make them.

    >>> study = parse_study(
    ...     {
    ...         "network": {"graph": "ring", "n_agents": 5},
    ...         "problem": {"kind": "rendezvous"},
    ...         "algorithm": [{"name": "PDGDS"}],
    ...         "run": {"iterations": 100},
    ...     }
    ... )
    >>> study.build().network
    Network(5 agents, 5 links, mixing metropolis: doubly, symmetric, row, column)
    >>> study.citations()
    ['wang2023decentralized']
    """

    tables: Mapping[str, Any]
    source: Source

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return Path(self.source.name).stem

    @property
    def is_swept(self) -> bool:
        return "sweep" in self.tables

    @property
    def settings(self) -> dict[str, list[Any]]:
        """The settings of the sweep: dotted keys and their values."""
        return sweeps.settings_of(self.source, self.tables["sweep"]) if self.is_swept else {}

    def build(self) -> Built:
        """The objects to run; StudyError if they cannot be built or do not fit together."""
        self._refuse_sweep("build")
        network = build_network(self.source, self.tables["network"])
        problem = build_problem(self.source, self.tables["problem"], network)
        algorithms = build_algorithms(self.source, self.tables["algorithm"])
        for i, algorithm in enumerate(algorithms.values()):
            with self.source.telling(("algorithm", i)):
                algorithm.check(network)
        return Built(network, problem, algorithms, build_options(self.source, self.tables["run"]))

    def run(
        self,
        progress: Watch = None,
        keep: Unfinished | None = None,
        name: str = "run",
        **options: Any,
    ) -> Comparison:
        """Run every algorithm of the study; further options are those of `hg.run`.

        With `keep`, runs that it has are taken from there and others are left there under `name`.
        """
        self._refuse_sweep("run")
        built = self.build()
        options = {"progress": progress, **built.options, **options}
        continues = not options.get("transcript") and options.get("engine") != "agents"
        each = _work(built) // len(built.algorithms)
        runs: list[Run] = []
        with self.source.telling(("run",), self.tables["run"]):
            for n, (label, algorithm) in enumerate(built.algorithms.items()):
                work = partial(run, algorithm, built.problem, built.network, label=label, **options)
                if keep is None:
                    runs.append(work())
                elif (before := keep.done(f"{name}-{n}")) is None:
                    runs.append(keep.run(f"{name}-{n}", work, continues=continues))
                else:
                    runs.append(before)
                    if callable(progress):
                        progress(each, each)
        return Comparison(tuple(runs))

    def tune(self, progress: Watch = None, **options: Any) -> Tuning:
        """The best cell of every algorithm, by [tune] and by options that take its place."""
        self._refuse_sweep("tune")
        built = self.build()
        shared = {key: value for key, value in built.options.items() if key in TUNED_WITH}
        own = {**self.tables.get("tune", {}), **options}
        with self.source.telling(("tune",), own):
            return tune(
                built.algorithms, built.problem, built.network,
                progress=progress, **shared, **own,
            )  # fmt: skip

    def sweep(self) -> list[SweepRow]:
        """The rows of the sweep as concrete studies; a study without a sweep is its own row 0."""
        if not self.is_swept:
            return [SweepRow(0, {}, self)]
        settings = self.settings
        entries = self.tables["algorithm"]
        classes = [
            algorithm_class(self.source, table, ("algorithm", i)) for i, table in enumerate(entries)
        ]
        rows: list[SweepRow] = []
        for number, values in enumerate(sweeps.combinations(settings)):
            tables = sweeps.applied(self.source, self.tables, values, classes)
            told = f"sweep row {number} ({sweeps.describe(values)})"
            source = replace(self.source, row=told, swept=tuple(settings))
            rows.append(SweepRow(number, values, Study(tables, source)))
        return rows

    def run_sweep(
        self,
        progress: Watch = None,
        each: Callable[[SweepRow, Comparison], None] | None = None,
        keep: Unfinished | None = None,
        *,
        rows: Sequence[int] | None = None,
        executor: Executor | None = None,
    ) -> Table:
        """Run every row, after all were built once; `each` sees a row's runs when they are done.

        rows       the numbers of the rows to run; None: all
        executor   runs rows side by side; `each` still sees them in their order
        """
        every = self.sweep()
        chosen = every if rows is None else [sweeps.row_of(every, number) for number in rows]
        work = [_work(row.study.build()) for row in chosen]
        records: list[dict[str, Any]] = []
        with Progress(progress, self.name, sum(work)) as bar:
            if executor is None:
                done = ((row, row.study.run(_adding(bar), keep, f"row{row.row}")) for row in chosen)
            else:
                done = finished_rows(chosen, work, executor, keep, bar)
            for row, runs in done:
                if each is not None:
                    each(row, runs)
                records += [{"row": row.row, **row.settings, **record(run)} for run in runs]
        return Table(tuple(records))

    def with_run(self, **options: Any) -> Study:
        """A study with other options in [run]; those that are None stay."""
        given = {key: value for key, value in options.items() if value is not None}
        for key in [key for key in given if f"run.{key}" in self.settings]:
            raise StudyError(
                f"{self.source.name} sweeps over run.{key}, so that {key} = {given[key]} cannot be "
                "set for all rows. Pick one row, or take it out of [sweep]."
            )
        return self._with(self.source, run={**self.tables["run"], **given}) if given else self

    def with_algorithms(self, names: Sequence[str]) -> Study:
        """A study with these algorithms: as this study has them, or with their defaults."""
        entries: list[dict[str, Any]] = []
        for name in names:
            own = [t for t in self.tables["algorithm"] if name in (t["name"], t.get("label"))]
            entries += own or [{"name": name}]
        # The text no longer shows which algorithm is which, so its line numbers are given up.
        return self._with(replace(self.source, text=""), algorithm=entries)

    def to_toml(self, directory: str | Path | None = None) -> str:
        """The study as a TOML file; for one in another directory, paths in it are led back here."""
        heading = f"{self.source.row} of {self.source.name}" if self.source.row else ""
        tables = copy.deepcopy(dict(self.tables))
        if directory is not None:
            _lead_back(tables, self.source.directory, Path(directory))
        return to_toml(tables, heading)

    def citations(self) -> list[str]:
        """The BibTeX keys of the algorithms' papers, each once."""
        cites = [
            key
            for i, table in enumerate(self.tables["algorithm"])
            for key in getattr(algorithm_class(self.source, table, ("algorithm", i)), "cites", ())
        ]
        return list(dict.fromkeys(cites))

    def _with(self, source: Source, **tables: Any) -> Study:
        changed = Study({**self.tables, **tables}, source)
        changed.check()
        return changed

    def check(self) -> None:
        """StudyError with everything that is wrong with the tables."""
        findings = Mistakes(self.source)
        check_tables(findings, self.tables)
        if not self.is_swept:
            findings.throw()
            return
        if any(keys[0] == "algorithm" for keys, _ in findings.found):
            findings.throw()  # which keys of algorithms can be swept depends on their classes
        for row in self.sweep():
            in_row = Mistakes(row.study.source)
            check_tables(in_row, row.study.tables)
            if in_row.found:
                # A mistake in every row is a mistake in the file.
                (findings if set(in_row.found) & set(findings.found) else in_row).throw()

    def _refuse_sweep(self, action: str) -> None:
        if self.is_swept:
            n = sweeps.n_rows(self.settings)
            raise StudyError(
                f"{self.source.name} is a sweep of {n} rows, which have their own settings. "
                f"Use run_sweep(), or sweep()[0].study.{action}() for row 0."
            )


def load_study(path: str | Path) -> Study:
    """Read and check a study file."""
    path = Path(path)
    source = Source(str(path), path.parent)
    source = source.read(f"`hushgrad new {path.name}` writes an example.")
    return _checked(source, source.tables())


def parse_study(
    study: str | Mapping[str, Any], source: str = "study", directory: str | Path | None = None
) -> Study:
    """Check a study given as TOML text or as tables; `directory` is where its paths start."""
    place = Source(source, Path(directory or "."), study if isinstance(study, str) else "")
    return _checked(place, place.tables() if isinstance(study, str) else copy.deepcopy(dict(study)))


def _checked(source: Source, tables: dict[str, Any]) -> Study:
    study = Study(tables, source)
    study.check()
    return study


def sweep(
    study: Study | str | Path,
    *,
    rows: Sequence[int] | None = None,
    jobs: int = 1,
    executor: Executor | None = None,
    progress: Watch = None,
) -> Table:
    """Run the rows of a study's sweep and give their tidy table.

    study      a study, or the path of its file
    rows       their numbers; None: all
    jobs       processes of this machine that run rows at the same time
    executor   instead of them: any `concurrent.futures.Executor` whose workers can import hushgrad
               (Dask's, mpi4py's); it stays open

    Processes import the caller's program, so a script calls `hg.sweep(…, jobs=2)` below
    `if __name__ == "__main__":`.
    """
    if executor is not None and jobs != 1:
        raise InputError(f"an executor has workers of its own, but jobs = {jobs}. Leave jobs out.")
    study = load_study(study) if isinstance(study, (str, Path)) else study
    with worker_processes(jobs) as processes:
        return study.run_sweep(progress, rows=rows, executor=executor or processes)


def record(run: Run) -> dict[str, Any]:
    """`summary` with the medians of the run's last samples of its own metrics."""
    return summary(run) | {name: float(np.median(v[:, -1])) for name, v in run.metrics.items()}


def _work(built: Built) -> int:
    trials = built.options.get("trials", 1)
    n_trials = trials if isinstance(trials, int) else len(trials)
    return built.options["iterations"] * n_trials * len(built.algorithms)


def _adding(bar: Progress) -> Callable[[int, int], None]:
    """Reports of several runs, each from 0, added up on one bar."""
    before = 0

    def report(done: int, total: int) -> None:
        nonlocal before
        bar.tick(done - before)
        before = 0 if done >= total else done

    return report


def _lead_back(tables: dict[str, Any], start: Path, target: Path) -> None:
    """Rewrite relative paths of a study from `start` for a file in `target`."""

    def led(path: str) -> str:
        return Path(os.path.relpath(start / path, target)).as_posix()

    def led_reference(text: str) -> str:
        file, _, name = text.rpartition(":")
        return f"{led(file)}:{name}" if is_reference(text) and file.endswith(".py") else text

    if "file" in tables["network"]:
        tables["network"]["file"] = led(tables["network"]["file"])
    if "function" in tables["problem"]:
        tables["problem"]["function"] = led_reference(tables["problem"]["function"])
    for entry in tables["algorithm"]:
        if entry["name"] not in algorithm_classes():
            entry["name"] = led_reference(entry["name"])
    metrics = tables["run"].get("metrics", {})
    metrics |= {name: led_reference(text) for name, text in metrics.items()}
    if "directory" in tables.get("output", {}):
        tables["output"]["directory"] = led(tables["output"]["directory"])
