"""The sums of one site: counts and moments of its rows, then loss, gradient and Hessian at a point.

The sums are in pooled-standardised coordinates: z = (x − centre)/scale with the pooled means and
standard deviations, and for the linear kinds y' = (y − y_centre)/y_scale too. `Coordinates` leads
back to the user's units.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hushgrad.fitting import cox, families
from hushgrad.fitting.model import Model
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.sums import Vector

TOTALS = ("weight", "weighted", "sum", "square", "exposure", "saturated", "constant")


def totals(model: Model, rows: Rows) -> list[Fraction]:
    """Sums over the rows: TOTALS, then Σx of every column, then Σx²."""
    w, y = rows.weights, rows.y
    sum_y, square = moments(y)
    of_columns = [moments(column) for column in rows.X.T]
    return [
        Fraction(math.fsum(w)),
        sum_y if model.weights is None else Fraction(math.fsum(w * y)),
        sum_y,
        square,
        Fraction(math.fsum(w * np.exp(rows.offset))),
        Fraction(math.fsum(w * families.saturated(model.kind, y))),
        Fraction(families.log_constant(model.kind, y, w)),
        *(first for first, _ in of_columns),
        *(second for _, second in of_columns),
    ]


def moments(x: Vector) -> tuple[Fraction, Fraction]:
    """Σx and Σx²: floating-point sums around the median, moved to zero by exact arithmetic."""
    centre = float(np.median(x))
    c, away = Fraction(centre), x - centre
    first, second = Fraction(math.fsum(away)), Fraction(math.fsum(away * away))
    return first + len(x) * c, second + 2 * c * first + len(x) * c * c


@dataclass(frozen=True)
class Coordinates:
    """The standardised coordinates, made of pooled numbers: the same at every site."""

    centre: Vector  # (columns,)
    scale: Vector  # (columns,)
    spread: Vector  # (columns,) pooled standard deviations
    y_centre: float
    y_scale: float
    has_intercept: bool

    def design(self, X: Vector) -> Vector:
        """Z (n, p) of X (n, columns)."""
        Z = (X - self.centre) / self.scale
        return np.column_stack([np.ones(len(Z)), Z]) if self.has_intercept else Z

    def back(self) -> tuple[Vector, Vector]:
        """(shift (p,), T (p, p)): coefficients in the user's units are shift + T γ."""
        slopes = self.y_scale / self.scale
        if not self.has_intercept:
            return np.zeros(len(slopes)), np.diag(slopes)
        T = np.diag([self.y_scale, *slopes])
        T[0, 1:] = -self.centre * slopes
        shift = np.zeros(len(T))
        shift[0] = self.y_centre
        return shift, T


class SiteSums:
    """One site's rows in standardised coordinates."""

    def __init__(
        self,
        model: Model,
        rows: Rows,
        at: Coordinates,
        watch: Callable[[float], None] | None = None,
    ):
        self.Z = at.design(rows.X)  # (n, p)
        self._watch = watch
        self._curvature: Vector | None = None  # (n,) of the rows at the last point
        self.weights = rows.weights
        self.offset = rows.offset
        is_linear = model.kind in ("linear", "ridge", "huber")
        self.y = (rows.y - at.y_centre) / at.y_scale if is_linear else rows.y
        self._risk = cox.risk(rows.y, rows.event, model.ties) if model.kind == "cox" else None
        self._losses = {
            "linear": families.linear,
            "ridge": families.linear,
            "logistic": families.logistic,
            "poisson": families.poisson,
            "huber": families.huber((model.delta or 1.0) / at.y_scale),
        }.get(model.kind, families.linear)

    def at(self, gamma: Vector, *, bounding: bool = False) -> Vector:
        """f, g (p,) and the upper triangle of H in one vector; `bounding`: of a bound of H."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # far steps
            eta = self.Z @ gamma
            if self._risk is not None:
                f, g, H = cox.partial_likelihood(self._risk, self.Z, eta)
                return _joined(f, g, H)
            rows = self._losses(eta + self.offset, self.y)
            curvature = self.weights * (rows.bound if bounding else rows.curvature)
            self._curvature = curvature
            return _joined(
                (self.weights * rows.loss).sum(),
                self.Z.T @ (self.weights * rows.slope),
                (self.Z * curvature[:, None]).T @ self.Z,
            )

    def first_order(self, gamma: Vector) -> Vector:
        """f, g (p,) and the diagonal of H (p,) in one vector; `product` is then of this point."""
        with np.errstate(over="ignore", invalid="ignore"):  # far steps
            rows = self._losses(self.Z @ gamma + self.offset, self.y)
            self._curvature = self.weights * rows.curvature
            loss = (self.weights * rows.loss).sum()
            slopes = self.Z.T @ (self.weights * rows.slope)
            return np.concatenate([[loss], slopes, self._curvature @ self.Z**2])

    def product(self, v: Vector) -> Vector:
        """H v (p,) at the last point."""
        assert self._curvature is not None
        return self.Z.T @ (self._curvature * (self.Z @ v))

    def tell_effective(self) -> None:
        """Tell `watch` the effective rows at the last point; Cox's are not known."""
        if self._watch is not None and self._curvature is not None:
            size = self._curvature * (self.Z**2).sum(axis=1)
            largest = float(size.max())
            self._watch(float(size.sum()) / largest if largest > 0 else 0.0)

    def null_loss(self, constant: float) -> float:
        """The loss of the model that has a constant alone; of Cox's, which has none, 0."""
        if self._risk is not None:
            return 0.0
        eta = np.full(len(self.y), constant) + self.offset
        return float((self.weights * self._losses(eta, self.y).loss).sum())

    def meat(self, gamma: Vector, *, by_site: bool) -> Vector:
        """The upper triangle of Σ s sᵀ over the rows' scores s, or of the site's score alone."""
        slopes = self.weights * self._losses(self.Z @ gamma + self.offset, self.y).slope
        scores = self.Z * slopes[:, None]
        if by_site:
            scores = scores.sum(axis=0, keepdims=True)
        return (scores.T @ scores)[np.triu_indices(scores.shape[1])]


def _joined(f: float, g: Vector, H: Vector) -> Vector:
    return np.concatenate([[f], g, H[np.triu_indices(len(g))]])
