"""A study run by networks of processes, one for each algorithm, one after the other.

`hushgrad run --engine processes` calls `run_processes`.
"""

from __future__ import annotations

import tomllib
from functools import partial

from hushgrad.errors import StudyError
from hushgrad.network.local.processes import Processes, Watch
from hushgrad.simulate.result import Comparison, Run
from hushgrad.simulate.run import run
from hushgrad.studies.study import Study
from hushgrad.studies.unfinished import Unfinished


def run_processes(
    study: Study, keep: Unfinished, *, lock: int, watch: Watch | None = None
) -> Comparison:
    """Run every algorithm of the study; what `keep` has is taken from there, or continued."""
    if study.is_swept:
        raise StudyError(
            f"{study.source.name} is a sweep, and processes run one study at a time. Pick a row "
            "with --row, or use --engine stacked for all."
        )
    built = study.build()
    options = {key: value for key, value in built.options.items() if key != "engine"}
    runs: list[Run] = []
    with study.source.telling(("run",), study.tables["run"]):
        for n, (label, algorithm) in enumerate(built.algorithms.items()):
            name = f"processes-{n}"
            directory = keep.directory / f"{name}.network"
            driver = Processes(
                directory,
                # as one of the agents' files would write it
                tomllib.loads(study.to_toml(directory / "agent-0"))["algorithm"][n],
                lock=lock,
                imports=[study.source.directory],
                watch=watch,
            )
            work = partial(
                run, algorithm, built.problem, built.network,
                label=label, progress=False, driver=driver, **options,
            )  # fmt: skip
            runs.append(keep.done(name) or keep.run(name, work, continues=False))
    return Comparison(tuple(runs))
