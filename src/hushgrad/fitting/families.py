"""The losses of rows: what a row adds to the objective, by its linear predictor η.

    linear      l = ½ (η − y)²
    logistic    l = log(1 + e^η) − y η,     y = 0 or 1
    poisson     l = e^η − y η
    huber       l = ½ r² for |r| ≤ δ, else δ |r| − ½ δ²,     r = η − y

`site_sums.py` adds the rows of a site; Cox's likelihood is no sum over rows and stands in `cox.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hushgrad.fitting.sums import Vector


@dataclass(frozen=True)
class RowLosses:
    """Each row's loss and its derivatives in η, all (n,)."""

    loss: Vector
    slope: Vector
    curvature: Vector
    bound: Vector  # a curvature whose quadratic lies above the loss, or the curvature itself


def linear(eta: Vector, y: Vector) -> RowLosses:
    ones = np.ones_like(eta)
    return RowLosses((eta - y) ** 2 / 2, eta - y, ones, ones)


def logistic(eta: Vector, y: Vector) -> RowLosses:
    signed = np.where(y > 0.5, -eta, eta)
    wrong = np.exp(-np.logaddexp(0.0, -signed))  # the probability of the other outcome
    curvature = wrong * np.exp(-np.logaddexp(0.0, signed))
    slope = np.where(y > 0.5, -wrong, wrong)
    return RowLosses(np.logaddexp(0.0, signed), slope, curvature, curvature)


def poisson(eta: Vector, y: Vector) -> RowLosses:
    mean = np.exp(eta)
    return RowLosses(mean - y * eta, mean - y, mean, mean)


def huber(delta: float) -> Callable[[Vector, Vector], RowLosses]:
    def rows(eta: Vector, y: Vector) -> RowLosses:
        r = eta - y
        size = np.abs(r)
        inside = size <= delta
        loss = np.where(inside, r**2 / 2, delta * size - delta**2 / 2)
        bound = delta / np.maximum(size, delta)
        return RowLosses(loss, np.clip(r, -delta, delta), inside.astype(np.float64), bound)

    return rows


def saturated(kind: str, y: Vector) -> Vector:
    """Each row's least possible loss, (n,): the deviance is twice the loss above it."""
    if kind != "poisson":
        return np.zeros_like(y)
    return y - y * np.log(np.where(y > 0, y, 1.0))


def log_constant(kind: str, y: Vector, weights: Vector) -> float:
    """What the log-likelihood has besides minus the loss, of all rows."""
    if kind == "poisson":
        return -math.fsum(w * math.lgamma(v + 1) for w, v in zip(weights, y, strict=True))
    return float(np.log(weights).sum() / 2) if kind == "linear" else 0.0
