"""The sums of one site: counts and moments of its rows, then loss, gradient and Hessian at a point.

The sums are in pooled-standardised coordinates: z = (x − centre)/scale with the pooled means and
standard deviations, and for the linear kinds y' = (y − y_centre)/y_scale too. `Coordinates` leads
back to the user's units.

Sums are limbs (`sums.py`): every row's part becomes whole numbers before it is added, by the
arithmetic of `arithmetic.py`. So a row has the same part at every site. Two things are no sums over
rows, and become limbs as a whole: Cox's likelihood, whose strata are the sites, and the scores of
sites by which standard errors are clustered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hushgrad.fitting import arithmetic, cox, families
from hushgrad.fitting.model import Model
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.sums import WIDE, Vector, is_near, narrow

TOTALS = ("weight", "weighted", "sum", "square", "exposure", "saturated", "constant")
_AT_ONCE = 2**16  # numbers of a temporary array: they fit into a cache


def totals(model: Model, rows: Rows) -> Vector:
    """The limbs of sums over the rows: TOTALS, then Σx of every column, then Σx²."""
    w, y = rows.weights, rows.y
    plain = np.array([
        w,
        y if model.weights is None else w * y,
        y,
        np.zeros_like(y),
        w * arithmetic.exp(rows.offset),
        w * families.saturated(model.kind, y),
        families.log_constants(model.kind, y, w),
    ])  # fmt: skip
    limbs = WIDE.add(plain)
    limbs[:, TOTALS.index("square")] += _squares(y)
    return np.concatenate([limbs, _moments(rows.X)], axis=1).ravel()


def moments(X: Vector) -> Vector:
    """The limbs of Σx of every column of X (n, columns), then Σx²."""
    return _moments(X).ravel()


def _moments(X: Vector) -> Vector:
    return np.concatenate([WIDE.add(X.T), _squares(X.T)], axis=1)


def _squares(x: Vector) -> Vector:
    """The limbs of Σx², from exact squares: means may be far larger than spreads."""
    whole, rest = arithmetic.square(x)
    return WIDE.add(whole) + WIDE.add(rest)


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

    def raw(self, gamma: Vector) -> Vector:
        """The coefficients in the user's units, with the same bits at every site."""
        slopes = gamma[-len(self.scale) :] * (self.y_scale / self.scale)
        if not self.has_intercept:
            return slopes
        constant = self.y_centre + self.y_scale * float(gamma[0])
        return np.array([constant - arithmetic.dot(self.centre, slopes), *slopes])

    def back(self) -> Vector:
        """T (p, p): coefficients in the user's units are a constant and T γ."""
        slopes = self.y_scale / self.scale
        if not self.has_intercept:
            return np.diag(slopes)
        T = np.diag([self.y_scale, *slopes])
        T[0, 1:] = -self.centre * slopes
        return T


class SiteSums:
    """One site's rows in standardised coordinates."""

    def __init__(
        self,
        model: Model,
        rows: Rows,
        at: Coordinates,
        n_rows: int,
        watch: Callable[[float], None] | None = None,
    ):
        """`n_rows`: of all sites."""
        self.Z = at.design(rows.X)  # (n, p)
        self._columns = np.ascontiguousarray(self.Z.T)  # (p, n)
        self._n_rows, self._watch = n_rows, watch
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

    def at(
        self, gamma: Vector, exponent: int, *, bounding: bool = False, null: float | None = None
    ) -> tuple[int, Vector]:
        """How many rows are too far, and the limbs of f, g (p,) and the upper triangle of H.

        exponent    sums are about 2^exponent
        bounding    a bound of H in place of H
        null        the linear predictor of a constant alone: its loss is the last number
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # far steps
            if self._risk is not None:
                f, g, H = cox.partial_likelihood(self._risk, self.Z, self.Z @ gamma)
                last = [] if null is None else [0.0]
                whole = [[f], g, H[np.triu_indices(len(g))], last]
                return self._whole(np.concatenate(whole), exponent)
            ends, slope, curvature = self._row_losses(gamma, null, bounding=bounding)

            def parts(some: slice) -> Iterator[Vector]:
                yield ends[0][None, some]
                yield slope[some] * self._columns[:, some]
                yield from self._triangle(curvature, some)
                yield from (end[None, some] for end in ends[1:])

            return self._add(parts, exponent)

    def _row_losses(
        self, gamma: Vector, null: float | None, *, bounding: bool
    ) -> tuple[list[Vector], Vector, Vector]:
        """The rows' losses at γ and, with `null`, of a constant; their slopes and curvatures."""
        eta = arithmetic.predictor(self._columns, gamma) + self.offset
        rows = self._losses(eta, self.y)
        self._curvature = self.weights * (rows.bound if bounding else rows.curvature)
        ends = [self.weights * rows.loss]
        if null is not None:
            constant = np.full(len(self.y), null) + self.offset
            ends.append(self.weights * self._losses(constant, self.y).loss)
        return ends, self.weights * rows.slope, self._curvature

    def _triangle(self, factor: Vector, some: slice) -> Iterator[Vector]:
        """Some rows' parts of the upper triangle of Σ factor · z zᵀ, row by row of it."""
        Z, c = self._columns[:, some], factor[some]
        return ((c * column) * Z[a:] for a, column in enumerate(Z))

    def _add(self, parts: Callable[[slice], Iterator[Vector]], exponent: int) -> tuple[int, Vector]:
        """How many rows are too far, and the limbs of all sums; `parts` gives those of some rows,
        each (numbers, rows).
        """
        places, far = narrow(exponent), 0
        limbs: list[Vector] = []
        at_once = max(1, _AT_ONCE // len(self._columns))
        for start in range(0, max(1, len(self.y)), at_once):  # a fold may have no row
            every = list(parts(slice(start, start + at_once)))
            near = [is_near(part, exponent, self._n_rows) for part in every]
            far += int(np.count_nonzero(~np.all(near, axis=0)))
            if not far:
                limbs.append(np.concatenate([places.add(part) for part in every], axis=1))
        return far, np.zeros(0) if far else np.sum(limbs, axis=0).ravel()

    def _whole(self, values: Vector, exponent: int) -> tuple[int, Vector]:
        """As `_add`, of numbers that are no sums over rows."""
        is_far = not is_near(values[:, None], exponent, self._n_rows).all()
        return int(is_far), np.zeros(0) if is_far else narrow(exponent).add(values[:, None]).ravel()

    def first_order(
        self, gamma: Vector, exponent: int, *, null: float | None = None
    ) -> tuple[int, Vector]:
        """As `at`, with the diagonal of H (p,) in place of H; `product` is then of this point."""
        with np.errstate(over="ignore", invalid="ignore"):  # far steps
            ends, slope, curvature = self._row_losses(gamma, null, bounding=False)

            def parts(some: slice) -> Iterator[Vector]:
                Z = self._columns[:, some]
                yield ends[0][None, some]
                yield slope[some] * Z
                yield (curvature[some] * Z) * Z
                yield from (end[None, some] for end in ends[1:])

            return self._add(parts, exponent)

    def product(self, v: Vector, exponent: int) -> tuple[int, Vector]:
        """As `at`: H v (p,) at the last point."""
        assert self._curvature is not None
        factor = self._curvature * arithmetic.predictor(self._columns, v)
        return self._add(lambda some: iter([factor[some] * self._columns[:, some]]), exponent)

    def loss(self, gamma: Vector, exponent: int) -> tuple[int, Vector]:
        """As `at`: f alone."""
        with np.errstate(over="ignore", invalid="ignore"):
            ends, _, _ = self._row_losses(gamma, None, bounding=False)
            return self._add(lambda some: iter([ends[0][None, some]]), exponent)

    def weight(self, exponent: int) -> tuple[int, Vector]:
        """As `at`: the sum of the rows' weights."""
        return self._add(lambda some: iter([self.weights[None, some]]), exponent)

    def tell_effective(self) -> None:
        """Tell `watch` the effective rows at the last point; Cox's are not known."""
        if self._watch is not None and self._curvature is not None:
            size = self._curvature * (self.Z**2).sum(axis=1)
            largest = float(size.max(initial=0.0))
            self._watch(float(size.sum()) / largest if largest > 0 else 0.0)

    def meat(self, gamma: Vector, exponent: int, *, by_site: bool) -> tuple[int, Vector]:
        """As `at`: the upper triangle of Σ s sᵀ over the rows' scores s, or of the site's alone."""
        with np.errstate(over="ignore", invalid="ignore"):
            eta = arithmetic.predictor(self._columns, gamma) + self.offset
            slopes = self.weights * self._losses(eta, self.y).slope
            if by_site:
                score = (self.Z * slopes[:, None]).sum(axis=0)
                return self._whole(np.outer(score, score)[np.triu_indices(len(score))], exponent)
            squares = slopes * slopes
            return self._add(lambda some: self._triangle(squares, some), exponent)
