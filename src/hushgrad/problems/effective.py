"""How many rows really carry a sum: a few that dominate it stand out from all others.

A row (x, y) weighs w = ℓ''(xᵀθ, y) ‖x‖² in the Hessian of a sum at θ. The effective rows are

    n_eff(θ) = Σ_r w_r / max_r w_r

Equal rows give n_eff = n, and one row that dominates gives 1. ℓ'' is 1 for squares, s(u) s(−u) for
logistic, and for Huber 1 up to delta and 0 beyond. The judgement of exposure counts effective rows:
`effective_lengths` at the start of a run, where nobody can steer θ, and n_eff(θ_s) at the
start of every later stage. Weights are kept as logarithms, since at a long θ all ℓ'' underflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.problems import rows
from hushgrad.problems.row_places import row_places
from hushgrad.problems.rows import RowSum

type Floats = NDArray[np.float64]
type Effective = Callable[[Floats, Any], float]  # θ, an agent's data → n_eff(θ)


def effective_lengths(data: Any) -> float | None:
    """Σ ‖x_r‖² / max ‖x_r‖² over an agent's rows; None if the data are no rows.

    >>> row = {"weight": np.ones(3), "y": np.ones(3), "penalty": 0}
    >>> effective_lengths(row | {"X": np.array([[1.0], [1.0], [2.0]])})
    1.5
    """
    places = row_places(data)
    if places is None:
        return None
    squares = _squared_lengths(np.asarray(data["X" if "X" in data else "M"])[places])
    largest = float(squares.max(initial=0.0))
    return float(squares.sum() / largest) if largest else 0.0


def effective_of(by_rows: RowSum | None) -> Effective | None:
    """n_eff of the loss whose statistic `by_rows` sums; None for a loss that is not built in."""
    log_second = None if by_rows is None else _LOG_SECOND.get(by_rows)
    if log_second is None:
        return None

    def effective(theta: Floats, data: Any) -> float:
        is_held = np.broadcast_to(data["weight"], len(data["X"])) > 0
        X, y = data["X"][is_held], data["y"][is_held]
        with np.errstate(over="ignore", invalid="ignore"):
            second = log_second(X @ theta, y, float(data.get("delta", 0.0)))
            with np.errstate(divide="ignore"):  # a row of zeros weighs nothing
                weights = second + np.log(_squared_lengths(X))
        # 0 where no row weighs anything, or where a weight is not a number
        largest = float(np.max(weights, initial=-np.inf))
        return float(np.exp(weights - largest).sum()) if np.isfinite(largest) else 0.0

    return effective


def _squared_lengths(X: Floats) -> Floats:
    """‖x_r‖² of rows (n, d), up to a common factor."""
    unit = float(np.abs(X).max(initial=0.0)) or 1.0
    return ((X / unit) ** 2).sum(axis=1)


def _squares(t: Floats, y: Floats, delta: float) -> Floats:
    del y, delta
    return np.zeros_like(t)


def _logistic(t: Floats, y: Floats, delta: float) -> Floats:
    del y, delta
    size = np.abs(t)
    return -size - 2 * np.log1p(np.exp(-size))


def _huber(t: Floats, y: Floats, delta: float) -> Floats:
    return np.where(np.abs(t - y) <= delta, 0.0, -np.inf)


_LOG_SECOND: dict[RowSum, Callable[[Floats, Floats, float], Floats]] = {
    rows.squares: _squares,
    rows.logistic: _logistic,
    rows.huber: _huber,
}
