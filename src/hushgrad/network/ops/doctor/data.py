"""The look of an agent's own rows: a part of `hushgrad doctor`.

Rows that cannot be right, or that say nothing about the model, are legal: other agents may have the
rest. The doctor names them before anything of them is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import HushgradError
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.objective.columns import read_columns
from hushgrad.network.objective.objectives import Objective, ObjectiveSpec

HUGE = 1e15  # float64 has 16 digits: beside such a number sums keep nothing of the other rows
_SHOWN = 5  # columns that a line names
_CLASSES = ("logistic",)

if TYPE_CHECKING:
    from hushgrad.fitting.plan import Data
    from hushgrad.network.objective.fit_rows import FitSpec

type Matrix = NDArray[np.float64]


def data_line(config: AgentConfig, objective: Objective | None) -> tuple[bool | None, str] | None:
    """Whether the rows look right, and what does not; None if the agent has no rows."""
    every = _rows(config, objective)
    if not every:
        return None
    huge: list[str] = []
    odd: list[str] = []
    for X, y, names, outcome, has_classes in every:  # a plan has several
        huge += _huge(np.column_stack([X, y]), [*names, outcome])
        odd += _odd(X, y, names, outcome, has_classes=has_classes)
    if huge or odd:
        return False if huge else None, "; ".join(dict.fromkeys(huge + odd))
    n = min(len(rows[1]) for rows in every)
    return True, f"{n} rows; no column is constant, and no number is huge"


def _rows(
    config: AgentConfig, objective: Objective | None
) -> list[tuple[Matrix, Matrix, Sequence[str], str, bool]]:
    spec = config.objective
    if not isinstance(spec, ObjectiveSpec):
        data = None if objective is None else objective.fit_rows
        return [] if data is None else list(_of_fits(spec, data))
    if spec.file is None or spec.target is None:
        return []
    try:
        block = read_columns(spec.file, [spec.target, *spec.columns], delimiter=spec.delimiter)
    except HushgradError:
        return []  # the check of the objective says why
    X, y = block.values[:, 1:], block.values[:, 0]
    return [(X, y, spec.columns, spec.target, spec.kind in _CLASSES)]


def _of_fits(
    spec: FitSpec, data: Data
) -> Iterator[tuple[Matrix, Matrix, Sequence[str], str, bool]]:
    """The rows of every fit; pooled tables have no columns that a constant could spoil."""
    from hushgrad.fitting.model import Model
    from hushgrad.fitting.plan import parts_of, stages_of
    from hushgrad.fitting.rows import Rows

    for model, rows in zip(stages_of(spec.model).values(), parts_of(data), strict=True):
        if isinstance(model, Model) and isinstance(rows, Rows):
            own = {name: sorted(set(of)) for name, of in rows.texts.items()}  # not agreed yet
            levels = {**model.levels, **own}
            names = [name for block in model.blocks for name in block.names(levels)]
            yield rows.X, rows.y, names, model.outcome, model.kind in _CLASSES


def _huge(values: Matrix, names: Sequence[str]) -> Iterator[str]:
    for name, column in zip(names, values.T, strict=True):
        row = int(np.argmax(np.abs(column)))
        if abs(column[row]) >= HUGE:
            yield (
                f"column {name!r} has the number {column[row]:.3g} in row {row + 1}, beside which "
                "sums keep no digit of the other rows. Correct the cell, or scale the column"
            )


def _odd(
    X: Matrix, y: Matrix, names: Sequence[str], outcome: str, *, has_classes: bool
) -> Iterator[str]:
    if len(y) == 1:
        yield "there is one row only: whoever learns this agent's sums knows the row"
        return
    if has_classes and len(np.unique(y)) == 1:
        yield (
            f"the outcome {outcome!r} has one class, {y[0]:g}, in all {len(y)} rows: only the "
            "other agents' rows can tell the classes apart"
        )
    constant = [n for n, column in zip(names, X.T, strict=True) if np.ptp(column) == 0]
    if constant:
        more = f" and {len(constant) - _SHOWN} more" if len(constant) > _SHOWN else ""
        yield (
            f"constant columns: {', '.join(map(repr, constant[:_SHOWN]))}{more}. This agent's rows "
            "tell nothing about their coefficients"
        )
