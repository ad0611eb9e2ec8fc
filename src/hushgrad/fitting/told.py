"""The numbers that a programme is expected to pool, for the judgement of exposure before it starts.

A fit of p coefficients pools counts and the first two moments of its columns, 10 + 2p numbers at
most. Then every Newton step pools the loss, its gradient and its Hessian, p(p + 3)/2 + 1 numbers. A
fit ends when it has converged, so the number of steps is not known before: EXPECTED_STEPS are
expected. While the programme runs, `FitProgress` counts what it really pools.
"""

from __future__ import annotations

from dataclasses import dataclass

from hushgrad.fitting.levels import ENTRY
from hushgrad.fitting.model import CV, Model
from hushgrad.fitting.plan import Declared, fits_of, stages_of
from hushgrad.fitting.pooled_tables import PooledTables

EXPECTED_STEPS = 8  # of a logistic fit of separated rows; most fits need fewer
EXPECTED_PRODUCTS = 20  # H v for each step, where no Hessian is pooled


@dataclass(frozen=True)
class ExpectedNumbers:
    """The numbers that the averages of a programme tell, as far as they are known before."""

    width: int  # the entries of a row: coefficients of the largest fit, or columns of tables
    averages: int
    numbers: int
    is_quadratic: bool  # all fits are linear: their sums fix rows only up to a rotation


def told_by(declared: Declared) -> ExpectedNumbers:
    """The expected count of a model or a plan."""
    stages, fits = list(stages_of(declared).values()), fits_of(declared)
    each = [_tables(stage) if isinstance(stage, PooledTables) else _fit(stage) for stage in stages]
    widths = [len(s.columns) if isinstance(s, PooledTables) else len(s.names) for s in stages]
    return ExpectedNumbers(
        width=max([len(fit.names) for fit in fits] or widths),
        averages=sum(averages for averages, _ in each),
        numbers=sum(numbers for _, numbers in each),
        is_quadratic=bool(fits) and all(fit.kind in ("linear", "ridge") for fit in fits),
    )


def _tables(stage: PooledTables) -> tuple[int, int]:
    return 1, 3 + stage.n_cells + 2 * len(stage.means)


def _fit(model: Model) -> tuple[int, int]:
    """The averages and the numbers of a fit."""
    p = len(model.names)
    steps = 1 if model.kind in ("linear", "ridge") else EXPECTED_STEPS
    texts = ENTRY * model.most_levels * len(model.open_factors)
    each = p * (p + 3) // 2 + 1
    folds = averages = 0
    if not model.pools_hessian:
        averages = steps * EXPECTED_PRODUCTS
        each = 2 + (2 + EXPECTED_PRODUCTS) * p
    if model.penalty == CV:
        k, n = model.folds, len(model.penalties)
        is_ridge = model.kind == "ridge"
        folds = k * (each + 1) + n if is_ridge else k * n * (steps * each + 1) + k + n
        averages = 2 if is_ridge else steps + 2
    return steps + averages + bool(texts), texts + folds + 10 + 2 * p + steps * each
