"""True rows of an agent's data, and which of them an estimate of rows has met.

The judge (verdict.py) uses it. A row of a logistic f_i is y_r x_r, of others x_r. A fit leaves the
sign of each row open, so rows are compared up to their signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.problems import Problem

type Floats = NDArray[np.float64]

_PROBLEMS = ("logistic", "huber", "ridge")


def true_rows(problem: Problem, i: int, trial: int | None) -> Floats | None:
    """The rows of agent i (n_i, d), without those that only pad; None where data are no rows."""
    data: Any = problem.agent_data(i, trial)
    if problem.name not in _PROBLEMS or not {"X", "y", "weight"} <= set(data):
        return None
    rows, y = np.asarray(data["X"], np.float64), np.asarray(data["y"], np.float64)
    held = np.asarray(data["weight"]) > 0
    return (rows * y[:, None] if problem.name == "logistic" else rows)[held]


def off(rows: Floats, true: Floats) -> Floats:
    """Relative distances (rows, true rows), each up to a sign."""
    size = np.maximum(np.linalg.norm(true, axis=1), 1e-300)
    same, other = (np.linalg.norm(rows[:, None] + s * true, axis=2) for s in (-1.0, 1.0))
    return np.where(np.isfinite(same), np.minimum(same, other), np.inf) / size


def matched(rows: Floats, true: Floats) -> Floats:
    """The relative error of every true row (n_i,), nearest pairs first, infinite without a pair.

    >>> matched(np.array([[0.0, -2.0], [1.1, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0]])).round(9)
    array([0.1, 0. ])
    """
    distance = off(rows, true)
    errors = np.full(len(true), np.inf)
    for _ in range(min(distance.shape)):
        at, row = np.unravel_index(np.argmin(distance), distance.shape)
        if not np.isfinite(distance[at, row]):
            break
        errors[row] = distance[at, row]
        distance[at], distance[:, row] = np.inf, np.inf
    return errors


def guessed(others: Sequence[Floats], true: Floats) -> Floats:
    """The error of guessing 0, or the best row that another agent has, for every true row."""
    found = np.ones(len(true))
    for rows in others:
        found = np.minimum(found, off(rows, true).min(axis=0, initial=np.inf))
    return found
