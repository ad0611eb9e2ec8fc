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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from hushgrad.fitting import arithmetic, cox, families
from hushgrad.fitting.determined import (
    DIAGONAL,
    ONE,
    PRODUCT,
    TRIANGLE,
    VECTOR,
    Places,
    PooledNumbers,
    SecretRows,
    SumsOfRows,
    ToldRows,
    Weighed,
)
from hushgrad.fitting.model import Model
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.sums import WIDE, Vector, is_near, narrow

TOTALS = ("weight", "weighted", "sum", "square", "exposure", "saturated", "constant")
_SCORES = "scores"  # squares of them, in a sandwich
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
        told: ToldRows | None = None,
        places: Places | None = None,
    ):
        """A site's rows, or some of them.

        n_rows    of all sites
        told      what is told of the rows; these are those at `places` of its rows
        """
        self.Z = at.design(rows.X)  # (n, p)
        self._columns = np.ascontiguousarray(self.Z.T)  # (p, n)
        self._n_rows, self._places = n_rows, places
        self._curvature: Vector | None = None  # (n,) of the rows at the last point
        self._gamma = np.zeros(self.Z.shape[1])  # the last point
        self.weights = rows.weights
        self.offset = rows.offset
        is_linear = model.kind in ("linear", "ridge", "huber")
        self.y = (rows.y - at.y_centre) / at.y_scale if is_linear else rows.y
        self._risk = cox.risk(rows.y, rows.event, model.ties) if model.kind == "cox" else None
        self._kind, self._delta = model.kind, (model.delta or 1.0) / at.y_scale
        is_measured = model.kind in ("poisson", "huber")
        self.told = told or ToldRows(SecretRows(self.Z, self.y, is_measured))
        if told is None:
            self.told.add(2 * self.Z.shape[1] + 2 * is_measured, self._moments)
        self._losses = {
            "linear": families.linear,
            "ridge": families.linear,
            "logistic": families.logistic,
            "poisson": families.poisson,
            "huber": families.huber(self._delta),
        }.get(model.kind, families.linear)

    def at(
        self, gamma: Vector, exponent: int, *, bounding: bool = False, null: float | None = None
    ) -> tuple[int, Vector]:
        """The number of rows too far out, and the limbs of f, g (p,) and the upper triangle of H.

        exponent    sums are about 2^exponent
        bounding    a bound of H in place of H
        null        the linear predictor of a constant alone: its loss is the last number
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # far steps
            if self._risk is not None:
                f, g, H = cox.partial_likelihood(self._risk, self.Z, self.Z @ gamma)
                last = [] if null is None else [0.0]
                whole = [[f], g, H[np.triu_indices(len(g))], last]
                found = self._whole(np.concatenate(whole), exponent)
                return self._told(found, gamma, ONE, VECTOR, TRIANGLE)
            ends, slope, curvature = self._row_losses(gamma, null, bounding=bounding)

            def parts(some: slice) -> Iterator[Vector]:
                yield ends[0][None, some]
                yield slope[some] * self._columns[:, some]
                yield from self._triangle(curvature, some)
                yield from (end[None, some] for end in ends[1:])

            forms = (ONE, VECTOR, TRIANGLE)
            return self._told(self._add(parts, exponent), gamma, *forms, bounding=bounding)

    def _row_losses(
        self, gamma: Vector, null: float | None, *, bounding: bool
    ) -> tuple[list[Vector], Vector, Vector]:
        """The rows' losses at γ and, with `null`, of a constant; their slopes and curvatures."""
        eta = arithmetic.predictor(self._columns, gamma) + self.offset
        rows = self._losses(eta, self.y)
        self._gamma = gamma
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
        """The number of rows too far out, and the limbs of all sums.

        `parts` gives the limbs of some rows, each (numbers, rows).
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

            return self._told(self._add(parts, exponent), gamma, ONE, VECTOR, DIAGONAL)

    def stand(self, gamma: Vector) -> None:
        """Make γ the last point, for products."""
        self._row_losses(gamma, None, bounding=False)

    def product(self, v: Vector, exponent: int) -> tuple[int, Vector]:
        """As `at`: H v (p,) at the last point."""
        assert self._curvature is not None
        factor = self._curvature * arithmetic.predictor(self._columns, v)
        found = self._add(lambda some: iter([factor[some] * self._columns[:, some]]), exponent)
        return self._told(found, self._gamma, PRODUCT, v=v)

    def loss(self, gamma: Vector, exponent: int) -> tuple[int, Vector]:
        """As `at`: f alone."""
        with np.errstate(over="ignore", invalid="ignore"):
            ends, _, _ = self._row_losses(gamma, None, bounding=False)
            found = self._add(lambda some: iter([ends[0][None, some]]), exponent)
            return self._told(found, gamma, ONE)

    def weight(self, exponent: int) -> tuple[int, Vector]:
        """As `at`: the sum of the rows' weights."""
        return self._add(lambda some: iter([self.weights[None, some]]), exponent)

    def meat(self, gamma: Vector, exponent: int, *, by_site: bool) -> tuple[int, Vector]:
        """As `at`: the upper triangle of Σ s sᵀ over the rows' scores s, or of the site's alone."""
        with np.errstate(over="ignore", invalid="ignore"):
            eta = arithmetic.predictor(self._columns, gamma) + self.offset
            slopes = self.weights * self._losses(eta, self.y).slope
            if by_site:
                score = (self.Z * slopes[:, None]).sum(axis=0)
                return self._whole(np.outer(score, score)[np.triu_indices(len(score))], exponent)
            squares = slopes * slopes
            found = self._add(lambda some: self._triangle(squares, some), exponent)
            return self._told(found, gamma, _SCORES)

    # ---- what the sums tell of single rows (determined.py)

    def _told(
        self,
        found: tuple[int, Vector],
        gamma: Vector,
        *forms: str,
        bounding: bool = False,
        v: Vector | None = None,
    ) -> tuple[int, Vector]:
        """Note the sums that are sent; with rows that are too far, noise is sent in their place."""
        if not found[0]:
            p = len(gamma)
            counts = {ONE: 1, TRIANGLE: p * (p + 1) // 2, _SCORES: p * (p + 1) // 2}
            n_numbers = sum(counts.get(form, p) for form in forms)
            self.told.add(n_numbers, partial(self._numbers, gamma, forms, bounding, v))
        return found

    def _numbers(
        self, gamma: Vector, forms: Sequence[str], bounding: bool, v: Vector | None
    ) -> Sequence[PooledNumbers]:
        if self._risk is not None:
            return [cox.numbers(self._risk, self.Z, gamma)]
        eta, w = self.Z @ gamma + self.offset, self.weights
        rows = self._losses(eta, self.y)
        curved = rows.bound if bounding else rows.curvature
        third = families.third(self._kind, self._delta, bounding=bounding)(eta, self.y)
        none = np.zeros_like(eta)
        by_y = {"poisson": (-eta, none - 1, none)}.get(
            self._kind, (-rows.slope, -rows.curvature, -third)
        )
        slopes = w * w * rows.slope
        weighed = {
            ONE: (w * rows.loss, w * rows.slope, w * by_y[0]),
            VECTOR: (w * rows.slope, w * rows.curvature, w * by_y[1]),
            _SCORES: (
                slopes * rows.slope, 2 * slopes * rows.curvature, 2 * slopes * by_y[1],
            ),
        }  # fmt: skip
        second = (w * curved, w * third, w * by_y[2])
        return [self._sums(form, weighed.get(form, second), gamma, v) for form in forms]

    def _sums(
        self, form: str, weighed: Sequence[Vector], gamma: Vector, v: Vector | None = None
    ) -> SumsOfRows:
        every = self.told.rows.Z
        if self._places is not None:  # the other rows add nothing
            full = np.zeros((len(weighed), len(every)))
            full[:, self._places] = weighed
            weighed = list(full)
        lengths = np.sqrt((every**2).sum(axis=1))
        form = TRIANGLE if form == _SCORES else form
        return SumsOfRows(form, Weighed(*weighed), gamma, lengths, v)

    def _moments(self) -> Sequence[PooledNumbers]:
        """Σz and Σz², and of a measured outcome Σy and Σy²: counts.py pools them."""
        zero = np.zeros(self.Z.shape[1])
        none, one = np.zeros_like(self.y), np.ones_like(self.y)
        found = [self._sums(form, (one, none, none), zero) for form in (VECTOR, DIAGONAL)]
        if self.told.rows.is_measured:
            found += [self._sums(ONE, (none, none, of_y), zero) for of_y in (one, 2 * self.y)]
        return found
