"""How many rows really carry a sum: a few that dominate it stand out from all others.

A row (x, y) weighs w = ‖x‖² in a sum of x xᵀ. The effective rows are

    n_eff = Σ_r w_r / max_r w_r

Equal rows give n_eff = n, and one row that dominates gives 1. The judgement of exposure counts
effective rows before a run. At the start of every stage it asks for each row how much the sums
determine of it (determined.py), which is sharper and needs θ_s. Weights are kept as logarithms,
since squares of numbers overflow.

Of several agents together a row stands out against the rows of all of them: `least_effective`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.problems.row_places import row_places

type Floats = NDArray[np.float64]

_MOST = 700.0  # e^700 is a float, and more rows than anybody has


class RowWeights(NamedTuple):
    """The weights w_r of an agent's rows."""

    effective: float  # Σ w / max w; 0: no row weighs anything, or a weight is not a number
    log_largest: float  # ln max w

    @classmethod
    def of(cls, logs: Floats) -> RowWeights:
        """Of ln w_r (n,)."""
        largest = float(np.max(logs, initial=-np.inf))
        if not math.isfinite(largest):
            return cls(0.0, -math.inf)
        return cls(float(np.exp(logs - largest).sum()), largest)


def least_effective(every: Sequence[RowWeights], honest: int) -> float:
    """The fewest effective rows that some `honest` of the agents have together.

    The longest row is at some agent i, and the others are those with the smallest sums Σ w.

    >>> long, short = RowWeights(2.0, math.log(9.0)), RowWeights(6.0, 0.0)
    >>> round(least_effective([long, short, short], 2), 3)  # (2 · 9 + 6) / 9
    2.667
    """
    if any(weights.effective == 0 for weights in every):
        return 0.0
    totals = np.array([w.log_largest + math.log(w.effective) for w in every])
    smallest = np.argsort(totals, kind="stable")[:honest]

    def together(i: int, own: RowWeights) -> float:
        others = totals[[j for j in smallest if j != i][: honest - 1]]
        return own.effective + float(np.exp(np.minimum(others - own.log_largest, _MOST)).sum())

    return min(together(i, own) for i, own in enumerate(every))


def effective_lengths(data: Any) -> RowWeights | None:
    """An agent's rows by ‖x_r‖² alone; None if the data are no rows.

    >>> row = {"weight": np.ones(3), "y": np.ones(3), "penalty": 0}
    >>> effective_lengths(row | {"X": np.array([[1.0], [1.0], [2.0]])}).effective
    1.5
    """
    places = row_places(data)
    if places is None:
        return None
    return RowWeights.of(_log_lengths(np.asarray(data["X" if "X" in data else "M"])[places]))


def effective_alone(data: Any, *, is_judged: bool) -> float | None:
    """An agent's own rows, by length, and by columns unless each stage is judged row by row
    (problems/determined.py); None if the data are no rows.
    """
    lengths = effective_lengths(data)
    if lengths is None or is_judged:
        return None if lengths is None else lengths.effective
    return min(lengths.effective, effective_in_columns([data]))


def effective_in_columns(every: Sequence[Any], honest: int = 1) -> float:
    """The fewest effective rows of a column in which most rows have the same value.

    Some `honest` of the agents have these rows together. If all rows but one are alike in a column,
    its products with the other columns are those of this one row: XᵀX has the row as it is, for
    everybody who knows that the others are alike. ∞: there is no such column, or the data are no
    rows.

    >>> X = np.column_stack([np.arange(9.0), np.arange(9) == 3])
    >>> data = {"X": X, "weight": np.ones(9), "y": np.ones(9), "penalty": 0}
    >>> effective_in_columns([data])
    1.0
    """
    places = [row_places(data) for data in every]
    tables = [
        np.asarray(data["X"])[where]
        for data, where in zip(every, places, strict=True)
        if where is not None and "X" in data
    ]
    if not tables or len(tables) < len(every):
        return math.inf
    least = math.inf
    for columns in zip(*(table.T for table in tables), strict=True):
        values, counts = np.unique(np.concatenate(columns), return_counts=True)
        if len(values) == 1 or 2 * counts.max() <= counts.sum():
            continue
        squares = [(column - values[counts.argmax()]) ** 2 for column in columns]
        totals = np.array([square.sum() for square in squares])
        for i in np.flatnonzero(totals):
            others = np.sort(np.delete(totals, i))[: honest - 1].sum()
            least = min(least, float((totals[i] + others) / squares[i].max()))
    return least


def _log_lengths(X: Floats) -> Floats:
    """ln ‖x_r‖² of rows (n, d)."""
    unit = float(np.abs(X).max(initial=0.0)) or 1.0
    with np.errstate(divide="ignore"):  # a row of zeros weighs nothing
        return np.log(((X / unit) ** 2).sum(axis=1)) + 2 * math.log(unit)
