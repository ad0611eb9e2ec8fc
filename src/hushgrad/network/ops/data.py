"""What an agent's own rows look like: a part of `hushgrad doctor`.

Rows that cannot be right, or that say nothing about the model, are legal: other agents may have the
rest. The doctor names them before anything of them is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import HushgradError
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.objective.columns import read_columns
from hushgrad.network.objective.objectives import Objective, ObjectiveSpec

HUGE = 1e15  # float64 has 16 digits: beside such a number sums keep nothing of the other rows
_SHOWN = 5  # columns that a line names
_CLASSES = ("logistic",)

type Matrix = NDArray[np.float64]


def data_line(config: AgentConfig, objective: Objective | None) -> tuple[bool | None, str] | None:
    """Whether the rows look right, and what does not; None if the agent has no rows."""
    rows = _rows(config, objective)
    if rows is None:
        return None
    X, y, names, outcome, has_classes = rows
    huge = list(_huge(np.column_stack([X, y]), [*names, outcome]))
    odd = list(_odd(X, y, names, outcome, has_classes=has_classes))
    if huge or odd:
        return False if huge else None, "; ".join(huge + odd)
    return True, f"{len(y)} rows; no column is constant, and no number is huge"


def _rows(
    config: AgentConfig, objective: Objective | None
) -> tuple[Matrix, Matrix, Sequence[str], str, bool] | None:
    spec = config.objective
    if not isinstance(spec, ObjectiveSpec):
        rows = None if objective is None else objective.fit_rows
        if rows is None:
            return None
        names = spec.model.names[int(spec.model.has_intercept) :]
        is_binary = spec.model.kind in _CLASSES
        return rows.X, rows.y, names, spec.model.outcome, is_binary
    if spec.file is None or spec.target is None:
        return None
    try:
        block = read_columns(spec.file, [spec.target, *spec.columns], delimiter=spec.delimiter)
    except HushgradError:
        return None  # the check of the objective says why
    X, y = block.values[:, 1:], block.values[:, 0]
    return X, y, spec.columns, spec.target, spec.kind in _CLASSES


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
