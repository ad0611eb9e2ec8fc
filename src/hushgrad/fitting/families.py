"""The losses of rows: what a row adds to the objective, by its linear predictor η.

    linear      l = ½ (η − y)²
    logistic    l = log(1 + e^η) − y η,     y = 0 or 1
    poisson     l = e^η − y η
    huber       l = ½ r² for |r| ≤ δ, else δ |r| − ½ δ²,     r = η − y

`site_sums.py` adds the rows of a site; Cox's likelihood is no sum over rows and stands in `cox.py`.
A row's numbers have the same bits at every site (`arithmetic.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hushgrad.fitting import arithmetic
from hushgrad.fitting.sums import Vector


@dataclass(frozen=True)
class RowLosses:
    """Each row's loss and its derivatives in η, all (n,)."""

    loss: Vector
    slope: Vector
    curvature: Vector
    bound: Vector  # a curvature whose quadratic lies above the loss, or the curvature itself


def linear(eta: Vector, y: Vector) -> RowLosses:
    ones, r = np.ones_like(eta), eta - y
    return RowLosses(r * r / 2, r, ones, ones)


def logistic(eta: Vector, y: Vector) -> RowLosses:
    signed = np.where(y > 0.5, -eta, eta)
    e = arithmetic.exp(-np.abs(signed))
    wrong = np.where(signed > 0, 1.0, e) / (1 + e)  # the probability of the other outcome
    curvature = e / (1 + e) / (1 + e)
    slope = np.where(y > 0.5, -wrong, wrong)
    loss = np.maximum(signed, 0.0) + arithmetic.log1p(e)
    return RowLosses(loss, slope, curvature, curvature)


def poisson(eta: Vector, y: Vector) -> RowLosses:
    mean = arithmetic.exp(eta)
    return RowLosses(mean - y * eta, mean - y, mean, mean)


def huber(delta: float) -> Callable[[Vector, Vector], RowLosses]:
    def rows(eta: Vector, y: Vector) -> RowLosses:
        r = eta - y
        size = np.abs(r)
        inside = size <= delta
        loss = np.where(inside, r * r / 2, delta * size - delta * delta / 2)
        bound = delta / np.maximum(size, delta)
        slope = np.minimum(np.maximum(r, -delta), delta)
        return RowLosses(loss, slope, inside.astype(np.float64), bound)

    return rows


def third(kind: str, delta: float, *, bounding: bool) -> Callable[[Vector, Vector], Vector]:
    """The derivative in η of the curvature, or of its bound, of each row."""

    def of(eta: Vector, y: Vector) -> Vector:
        if kind == "logistic":
            e = np.exp(-np.abs(eta))
            return np.sign(eta) * e * (e - 1) / (1 + e) ** 3
        if kind == "poisson":
            return np.exp(eta)
        r = eta - y
        if kind == "huber" and bounding:
            return np.where(np.abs(r) > delta, -delta * np.sign(r) / np.fmax(r * r, delta**2), 0.0)
        return np.zeros_like(eta)  # Huber's own curvature has steps alone

    return of


def saturated(kind: str, y: Vector) -> Vector:
    """Each row's least possible loss, (n,): the deviance is twice the loss above it."""
    if kind != "poisson":
        return np.zeros_like(y)
    return y - y * arithmetic.log(np.where(y > 0, y, 1.0))


def log_constants(kind: str, y: Vector, weights: Vector) -> Vector:
    """The terms of the log-likelihood beside minus the loss, of each row."""
    if kind == "poisson":
        return -weights * arithmetic.log_factorial(y)
    return arithmetic.log(weights) / 2 if kind == "linear" else np.zeros_like(y)
