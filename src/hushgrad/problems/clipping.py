"""Rows of bounded length, so that no single row stands out of the sums over all rows.

Regressions (regression.py) and deployed agents (network/objective) shorten long rows here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]


def clip_rows(X: Floats, clip: float) -> Floats:
    """X (n, d) with every row of ‖x‖ > clip shortened to that length.

    A row gives the same bits whoever holds it, so every operation is one of IEEE 754, element by
    element, in the order of the columns.

    >>> clip_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    largest = np.abs(X).max(axis=1, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)  # squares of huge numbers would overflow
    squares = np.zeros(len(X))
    for column in X.T:
        squares += (column / unit) ** 2
    with np.errstate(over="ignore"):
        is_long = unit * np.sqrt(squares) > clip
    shorter = (X / unit[:, None]) * (clip / np.sqrt(np.maximum(squares, 1.0)))[:, None]
    return np.where(is_long[:, None], shorter, X)
