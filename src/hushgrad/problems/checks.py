"""Argument checks that the builders share; each says rule, place, value and way out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ProblemError


def check_count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ProblemError(f"{name} is a positive integer, but it is {value!r}. Use 1 or more.")
    return int(value)


def check_seed(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ProblemError(f"seed is a non-negative integer, but it is {value!r}. Use 0 or more.")
    return int(value)


def check_size(name: str, value: object, *, positive: bool = False) -> float:
    """A finite number, at least 0, or above 0."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    number = float(cast("Any", value)) if is_number else math.nan
    if not math.isfinite(number) or number < 0 or (positive and number == 0):
        rule = "above 0" if positive else "at least 0"
        raise ProblemError(f"{name} is a finite number {rule}, but it is {value!r}. Change it.")
    return number


def check_array(name: str, value: Any, axes: Sequence[str]) -> NDArray[np.float64]:
    """`value` as a float64 array with the named axes."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name} is an array ({', '.join(axes)}), but {error}.") from error
    if array.dtype.kind not in "fiub":
        raise ProblemError(
            f"{name} holds real numbers, but has dtype {array.dtype}. Convert it to float64."
        )
    if array.ndim != len(axes):
        raise ProblemError(
            f"{name} has the axes ({', '.join(axes)}), but its shape is {array.shape}. Reshape it; "
            "pooled data is first divided among the agents, one array for each."
        )
    return array.astype(np.float64)


def check_rows(
    X: Any, y: Any, names: tuple[str, str] = ("X", "y")
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Every agent's matrix (n_i, d) and vector (n_i,), from lists or from arrays (m, n, …)."""
    name_X, name_y = names
    if not (_is_sequence(X) and _is_sequence(y)):
        raise ProblemError(
            f"{name_X} and {name_y} are lists of arrays, one for each agent, or arrays, but they "
            f"are of type {type(X).__name__} and {type(y).__name__}. Divide the rows among agents."
        )
    if len(X) != len(y) or len(X) == 0:
        raise ProblemError(
            f"{name_X} and {name_y} have one entry for each agent, but they have {len(X)} and "
            f"{len(y)}. Give equally many, at least one."
        )
    matrices = [check_array(f"{name_X}[{i}]", part, ("rows", "d")) for i, part in enumerate(X)]
    vectors = [check_array(f"{name_y}[{i}]", part, ("rows",)) for i, part in enumerate(y)]
    for i, (matrix, vector) in enumerate(zip(matrices, vectors, strict=True)):
        if len(matrix) != len(vector):
            raise ProblemError(
                f"Every row of {name_X}[{i}] has one entry in {name_y}[{i}], but there are "
                f"{len(matrix)} rows and {len(vector)} entries (agent {i}). Match them."
            )
        if matrix.shape[1] != matrices[0].shape[1]:
            raise ProblemError(
                f"All agents have the same columns, but {name_X}[{i}] of agent {i} has "
                f"{matrix.shape[1]} and {name_X}[0] has {matrices[0].shape[1]}. Agree on them."
            )
    return matrices, vectors


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) or getattr(value, "ndim", 0) > 0


def pad(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The parts stacked, (m, longest, …), the shorter ones filled with rows of exact zeros."""
    longest = max(len(part) for part in parts)
    out = np.zeros((len(parts), longest, *parts[0].shape[1:]))
    for row, part in zip(out, parts, strict=True):
        row[: len(part)] = part
    return out


def largest_gram_eigenvalue(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest eigenvalue of XᵀX for every X of (m, n, d), from the smaller Gram matrix."""
    transposed = np.swapaxes(X, -1, -2)
    gram = X @ transposed if X.shape[-2] < X.shape[-1] else transposed @ X
    return np.linalg.eigvalsh(gram)[..., -1]


def least_squares(
    rows: NDArray[np.float64], targets: NDArray[np.float64], penalty: NDArray[np.float64]
) -> NDArray[np.float64]:
    """θ (d,) of least ‖rows·θ − targets‖² + Σ penalty_c θ_c², without squaring the
    condition number.
    """
    stacked = np.concatenate([rows, np.diag(np.sqrt(penalty))])
    return np.linalg.lstsq(stacked, np.concatenate([targets, np.zeros(len(penalty))]))[0]
