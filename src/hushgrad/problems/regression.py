"""Regression on data that the agents do not pool: ridge, logistic, Huber.

Σ_i f_i is the objective on the pooled data, so that θ* is the fit to all of it. Agents with
fewer rows than the longest are padded with zero rows of weight 0, which add exactly nothing, so
that all of them stack into one group. (Where sizes differ by orders of magnitude, a `Problem` with
a list of data wastes less: it groups agents by shape.)
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ProblemError
from hushgrad.problems import datasets, losses
from hushgrad.problems.checks import check_rows, check_size, pad
from hushgrad.problems.clipping import clip_rows
from hushgrad.problems.datasets import DatasetOptions
from hushgrad.problems.losses import RowLoss
from hushgrad.problems.models import Curvature
from hushgrad.problems.problem import Problem


def ridge(
    X: Any = None,
    y: Any = None,
    *,
    regularisation: float = 1.0,
    intercept: bool = False,
    clip: float | None = None,
    dataset: str | None = None,
    **options: Unpack[DatasetOptions],
) -> Problem:
    """f_i(θ) = ½ ‖X_i θ − y_i‖² + (regularisation / 2m) ‖θ‖²; in the sum half of sklearn's Ridge.

    X, y              lists of (n_i, d) and (n_i,), for each agent, or arrays (m, n, d) and (m, n)
    regularisation    scikit-learn's alpha, shared equally by the m agents
    intercept         append a column of ones, which is not penalised; its coefficient comes last
    clip              shorten rows with ‖x‖ > clip to that length, without the intercept: the sums
                      of stages then tell less about any single row
    dataset, options  instead of X and y: a name and the arguments of `hushgrad.problems.dataset`

    >>> fit = ridge([[[1.0], [1.0]], [[1.0]]], [[0.0, 1.0], [2.0]], regularisation=0.0)
    >>> fit.solution().round(9)
    array([1.])
    """
    parts, targets = _rows(X, y, dataset, options)
    return _problem(
        "ridge", losses.SQUARES, _stacked(parts, targets, regularisation, intercept, clip)
    )


def logistic(
    X: Any = None,
    y: Any = None,
    *,
    regularisation: float = 1.0,
    intercept: bool = False,
    clip: float | None = None,
    dataset: str | None = None,
    **options: Unpack[DatasetOptions],
) -> Problem:
    """f_i(θ) = Σ_r log(1 + exp(−y_r x_rᵀθ)) + (regularisation / 2m) ‖θ‖², with labels y_r = ±1.

    Labels are all in {0, 1} or all in {−1, +1}. Σ_i f_i is what scikit-learn's LogisticRegression
    with C = 1/regularisation minimises. The other arguments are those of `ridge`.

    >>> logistic([[[1.0], [1.0]], [[1.0]]], [[0, 1], [1]], regularisation=0.0).solution().round(6)
    array([0.693147])
    """
    parts, labels = _rows(X, y, dataset, options)
    data = _stacked(parts, _signs(labels), regularisation, intercept, clip)
    return _problem("logistic", losses.LOGISTIC, data)


def huber(
    X: Any = None,
    y: Any = None,
    *,
    delta: float = 1.35,
    regularisation: float = 1.0,
    intercept: bool = False,
    clip: float | None = None,
    dataset: str | None = None,
    **options: Unpack[DatasetOptions],
) -> Problem:
    """f_i(θ) = Σ_r h(x_rᵀθ − y_r) + (regularisation / 2m) ‖θ‖² with Huber's h.

    h(r) = r²/2 up to |r| = delta, then linear: ridge that outliers do not spoil. Unlike
    scikit-learn's HuberRegressor, delta is in the units of y: no scale is estimated along. The
    other arguments are those of `ridge`.

    >>> far = huber([[[1.0], [1.0]], [[1.0]]], [[0.0, 0.0], [1e6]], delta=1.0, regularisation=0.0)
    >>> far.solution().round(9)
    array([0.5])
    """
    parts, targets = _rows(X, y, dataset, options)
    data = _stacked(parts, targets, regularisation, intercept, clip)
    data["delta"] = np.full(len(parts), check_size("delta", delta, positive=True))
    return _problem("huber", losses.HUBER, data)


def _problem(name: str, loss: RowLoss, data: dict[str, Any]) -> Problem:
    return Problem(
        loss.value,
        data,
        dim=data["X"].shape[-1],
        gradient=loss.gradient,
        solution=loss.solution,
        smoothness=loss.smoothness,
        strong_convexity=loss.strong_convexity,
        curvature=Curvature(loss.curvature, loss.majorised, loss.rows),
        quadratic=loss is losses.SQUARES,
        name=name,
    )


def _rows(
    X: Any, y: Any, dataset: str | None, options: DatasetOptions
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    if dataset is not None:
        if X is not None or y is not None:
            raise ProblemError(
                f"Data is either X and y or a dataset, but both were given (dataset={dataset!r}). "
                "Leave one out."
            )
        unknown = sorted(options.keys() - DatasetOptions.__annotations__.keys())
        if unknown:
            raise ProblemError(
                f"A dataset takes {', '.join(sorted(DatasetOptions.__annotations__))}, but "
                f"{unknown[0]!r} was given. Remove it."
            )
        return check_rows(*datasets.dataset(dataset, **options))
    if X is None or y is None:
        raise ProblemError(
            f"Data is needed, but {'X' if X is None else 'y'} is missing and no dataset is named. "
            f"Give X and y, or dataset= one of {', '.join(sorted(datasets.NAMES))}."
        )
    if options:
        raise ProblemError(
            f"With X and y there is nothing to divide, but {sorted(options)[0]!r} was given. "
            "Remove it, or name a dataset."
        )
    return check_rows(X, y)


def _stacked(
    parts: list[NDArray[np.float64]],
    targets: list[NDArray[np.float64]],
    regularisation: float,
    intercept: bool,
    clip: float | None,
) -> dict[str, Any]:
    share = check_size("regularisation", regularisation) / len(parts)
    if clip is not None:
        longest = check_size("clip", clip, positive=True)
        parts = [clip_rows(part, longest) for part in parts]
    if intercept:
        parts = [np.column_stack([part, np.ones(len(part))]) for part in parts]
    penalty = np.full((len(parts), parts[0].shape[1]), share)
    if intercept:
        penalty[:, -1] = 0.0
    weight = pad([np.ones(len(part)) for part in parts])
    return {"X": pad(parts), "y": pad(targets), "weight": weight, "penalty": penalty}


def _signs(labels: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    uses_zero = any((part == 0).any() for part in labels)
    allowed = (0.0, 1.0) if uses_zero else (-1.0, 1.0)
    for i, part in enumerate(labels):
        wrong = np.flatnonzero(~np.isin(part, allowed))
        if wrong.size:
            raise ProblemError(
                f"Labels are all in {{0, 1}} or all in {{-1, 1}}, but row {wrong[0]} of agent {i} "
                f"has {part[wrong[0]]:g}{' while others have 0' if uses_zero else ''}. Recode y "
                "(several classes: one against the rest)."
            )
    return [2 * part - 1 for part in labels] if uses_zero else labels
