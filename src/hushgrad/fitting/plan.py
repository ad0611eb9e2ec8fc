"""A plan: named stages that run one after another over the same links. A stage is a fit or sums.

A model file with `[[stage]]` is a plan, one with `[model]` a single fit. The functions below take
either: simulator and agents call them, whatever was declared.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrad.errors import FitError, ModelError
from hushgrad.fitting.bounds import undeclared, undeclared_tables
from hushgrad.fitting.contracts import contract, contract_digest
from hushgrad.fitting.levels import counts_of
from hushgrad.fitting.lockstep import drive
from hushgrad.fitting.model import Model
from hushgrad.fitting.plan_result import Fitted, PlanResult
from hushgrad.fitting.pooled_sums import TableRows, small_cell, sum_rows, sums_programme
from hushgrad.fitting.pooled_tables import PooledTables
from hushgrad.fitting.programmes import programme
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.rows import Rows, needed, rows_of
from hushgrad.fitting.sums import Vector
from hushgrad.fitting.tables import SiteTable

_TRIED = 20_000  # rows of a site, for `expected_share`
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")  # a part of a file's name


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """Stages by name, in their order; each is a `PooledTables` or a `Model`."""

    stages: Mapping[str, PooledTables | Model]

    def __post_init__(self) -> None:
        if not isinstance(self.stages, Mapping) or not self.stages:
            raise ModelError(f"plan: stages are a table from names to stages, not {self.stages!r}.")
        for name, stage in self.stages.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ModelError(
                    f"plan: the name of a stage has letters, digits, - and _, at most 40, but one "
                    f"is {name!r}."
                )
            if not isinstance(stage, (PooledTables, Model)):
                raise ModelError(f"plan: stage {name} is a hg.PooledTables(…) or a hg.Model(…).")

    def document(self) -> dict[str, Any]:
        """The stages for a contract."""
        return {
            "stages": [
                {"name": name, "stage": "fit" if isinstance(stage, Model) else "sum"}
                | contract(stage)
                for name, stage in self.stages.items()
            ]
        }


type Declared = Model | FitPlan
type Data = Rows | tuple[Rows | TableRows, ...]


def stages_of(declared: Declared) -> dict[str, PooledTables | Model]:
    """The stages of a plan; a single fit has no name."""
    return dict(declared.stages) if isinstance(declared, FitPlan) else {"": declared}


def fits_of(declared: Declared) -> list[Model]:
    """The fits of a plan, or the fit itself."""
    return [stage for stage in stages_of(declared).values() if isinstance(stage, Model)]


def columns_of(declared: Declared) -> list[str]:
    """The columns that all stages read."""
    every = (
        needed(stage) if isinstance(stage, Model) else stage.columns
        for stage in stages_of(declared).values()
    )
    return list(dict.fromkeys(name for names in every for name in names))


def data_of(declared: Declared, table: SiteTable) -> Data:
    """The numbers of one site, by the rules of every stage."""
    if isinstance(declared, Model):
        return rows_of(declared, table)
    return tuple(
        rows_of(stage, table) if isinstance(stage, Model) else sum_rows(stage, table)
        for stage in declared.stages.values()
    )


def parts_of(data: Data) -> tuple[Rows | TableRows, ...]:
    """The numbers of every stage."""
    return data if isinstance(data, tuple) else (data,)


def undeclared_by(declared: Declared) -> str | None:
    """The reason why a row has no bound in all averages together; None: it has one (bounds.py)."""
    for name, stage in stages_of(declared).items():
        reason = undeclared(stage) if isinstance(stage, Model) else undeclared_tables(stage)
        if reason is not None:
            return f"stage {name}: {reason}" if name else reason
    return None


def expected_share(declared: Declared, data: Data, times: float) -> float | None:
    """The largest share of a row that each fit would determine, were it one of these rows alone.

    The pooled fit takes similar steps, which are not known before. None: nothing can be said.

    times    all honest rows over the rows of this site
    """
    shares: list[float] = []
    for model, rows in zip(stages_of(declared).values(), parts_of(data), strict=True):
        if isinstance(model, Model) and isinstance(rows, Rows):
            places = np.linspace(0, rows.n_rows - 1, min(rows.n_rows, _TRIED)).astype(np.intp)
            progress, some = FitProgress(), rows.at(places)
            try:
                drive([programme(model, some, progress)])
            except FitError:  # these rows alone have no fit
                continue
            share = progress.largest_share(times * rows.n_rows / some.n_rows)
            shares += [] if share is None else [share]
    return max(shares, default=None)


def small_cell_of(declared: Declared, data: Data) -> str | None:
    """The first cell of a table, or agreed level, with too few rows of a site, in words."""
    for (name, stage), rows in zip(stages_of(declared).items(), parts_of(data), strict=True):
        if isinstance(stage, PooledTables) and isinstance(rows, TableRows):
            found = small_cell(stage, rows)
            if found is not None:
                return f"{name}: {found} of at least {stage.min_cell} rows"
        if isinstance(stage, Model) and isinstance(rows, Rows):
            for column, level, count in counts_of(rows):
                if count < stage.min_cell:
                    least = f"{count} of at least {stage.min_cell} rows"
                    return f"the agreed level {level!r} of {column!r}: {least}"
    return None


def programme_of(
    declared: Declared, data: Data, progress: FitProgress | None = None
) -> Generator[Vector, Vector, Fitted]:
    """The programme of one site, stage after stage."""
    progress = progress or FitProgress()
    if isinstance(declared, Model):
        assert isinstance(data, Rows)
        return (yield from programme(declared, data, progress))
    digest = contract_digest(contract(declared))
    progress.stages = len(declared.stages)
    found: dict[str, Any] = {}
    for n, ((name, stage), rows) in enumerate(
        zip(declared.stages.items(), parts_of(data), strict=True)
    ):
        progress.stage, progress.name = n + 1, name
        if isinstance(stage, Model):
            assert isinstance(rows, Rows)
            found[name] = yield from programme(stage, rows, progress, digest)
        else:
            assert isinstance(rows, TableRows)
            found[name] = yield from sums_programme(stage, rows, digest, progress)
    return PlanResult(
        declared=declared, results=found, contract=digest, unbounded=undeclared_by(declared)
    )
