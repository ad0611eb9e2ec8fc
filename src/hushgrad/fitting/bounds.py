"""The largest part of one row in the sums of a fit, by the ranges that the model declares.

A row's part in an average is a vector of whole numbers, the limbs of its numbers (`sums.py`). Its
norm ‖Δ‖ divided by the size of masks is μ of the average (docs/guarantee.md). Ranges are part of
the contract, and pooled means, standard deviations and γ are public. So the bound is public too,
and the same at every site. In the coordinates z of the fit, with η within [low, high] for all rows
within the ranges, r = η − y, and weights up to w:

    linear      f ≤ w r²/2        |g| ≤ w |r| |z|       |H| ≤ w |z||z'|
    huber       f ≤ w δ|r|        |g| ≤ w δ |z|         |H| ≤ w |z||z'|
    logistic    f ≤ w (|η| + log 2)    |g| ≤ w |z|      |H| ≤ w |z||z'|/4
    poisson     f ≤ w (e^η + y|η|)     |g| ≤ w max(e^η, y) |z|    |H| ≤ w e^η |z||z'|

A product H v has the entries |H v| ≤ w h |zᵀv| |z|, with h the largest curvature. A term has the
range of its parts' product. Of pooled tables a row adds 1 to one cell of every table, and its
values to the moments.

Cox's likelihood and standard errors by site are no sums over rows: they have no bound. Agreed
levels count sites, which a row that moves may change. In cross-validation the fold of a row is told
by its place, so a row that moves changes the folds of others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hushgrad.fitting.model import CV, Model
from hushgrad.fitting.pooled_tables import PooledTables
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.site_sums import Coordinates
from hushgrad.fitting.sums import WIDE, Vector, most_near, narrow
from hushgrad.fitting.terms import Part

_ROUNDING = 1 + 1e-9  # of the products that make a row's part
_COUNTED = 3.0  # the squares of what a row adds to plain counts: rows, dropped rows, events


def undeclared(model: Model) -> str | None:
    """The reason why a row has no bound, with the way out; None: it has one."""
    if model.kind == "cox":
        return "Cox's likelihood of a site is no sum over rows"
    if model.standard_errors == "site":
        return 'errors by site pool scores of sites, which are no sums over rows; use "sandwich"'
    if model.open_factors:
        return f"the levels of {model.open_factors[0]} tell how many sites have each; declare them"
    if model.penalty == CV:
        return "the fold of a row is told by its place at its site; declare the penalty"
    named = [*model.columns, *(n for n in (model.offset, model.weights) if n is not None)]
    named += [model.outcome] if model.kind != "logistic" else []
    without = [name for name in named if name not in model.ranges and name not in model.factors]
    if without:
        return f"no bound declared: ranges in [model] lacks {', '.join(without)}"
    for part in (part for block in model.blocks for part in block.numeric):
        if part.function and not model.ranges[part.column][0] > 0:
            return f"{part.text} has no bound: ranges.{part.column} in [model] must begin above 0"
    return None


def undeclared_tables(tables: PooledTables) -> str | None:
    """The same of pooled tables."""
    without = [name for name in tables.means if name not in _ranges(tables)]
    if without:
        return f"no bound declared: ranges of the tables lack {', '.join(without)}"
    return None


def _ranges(tables: PooledTables) -> dict[str, Sequence[float]]:
    """The range of every numeric column; no value is beyond the edges of a histogram."""
    edges = {name: (edges[0], edges[-1]) for name, edges in tables.histograms.items()}
    return {**edges, **tables.ranges}


def table_part(tables: PooledTables) -> float | None:
    """The bound of a row's part in the average of pooled tables; None: there is none."""
    if undeclared_tables(tables) is not None:
        return None
    n_tables = len(tables.crossed) + len(tables.histograms)
    limbs = _moments([_size(_ranges(tables)[name]) for name in tables.means])
    return math.sqrt(float((limbs**2).sum()) + n_tables + _COUNTED)


def _moments(sizes: Sequence[float]) -> Vector:
    """The largest limbs of x and x²."""
    plain, squares = np.array(sizes), np.array([size * size for size in sizes])
    whole = WIDE.most(squares * _ROUNDING) + WIDE.most(squares * 2.0**-52)
    return np.concatenate([WIDE.most(plain * _ROUNDING).ravel(), whole.ravel()])


class RowParts:
    """The bound of one fit, average by average; None where there is none."""

    def __init__(self, model: Model, progress: FitProgress | None = None):
        """`progress` is told the bound of every average before its sums are yielded."""
        self.model, self.progress = model, progress or FitProgress()
        self._is_bounded = undeclared(model) is None
        self._at: Coordinates | None = None
        self._exponent, self._n_rows = 0, 1

    def enter(self, at: Coordinates, exponent: int, n_rows: int) -> None:
        """Take the coordinates of Newton's method."""
        self._at, self._exponent, self._n_rows = at, exponent, n_rows

    def counts(self) -> float | None:
        """Of the first average: counts and moments of raw columns."""
        if not self._is_bounded:
            return self._told(None)
        columns = [_size(pair) for pair in self._columns()]
        w, y = _size(self._range(self.model.weights, 1.0)), _size(self._outcome())
        logarithm = abs(math.log(max(y, math.e)))
        poisson, linear = self.model.kind == "poisson", self.model.kind == "linear"
        weights = self._range(self.model.weights, 1.0)
        constant = max(abs(math.log(v)) for v in weights) / 2 if linear else 0.0
        plain = [
            w, w * y, 0.0,
            w * math.exp(self._range(self.model.offset, 0.0)[1]),
            w * y * (1 + logarithm) * poisson,
            max(constant, w * y * logarithm * poisson),
        ]  # fmt: skip
        limbs = [WIDE.most(np.array(plain) * _ROUNDING).ravel(), _moments([y, *columns])]
        return self._told(math.sqrt(float((np.concatenate(limbs) ** 2).sum()) + _COUNTED))

    def newton(self, gamma: Vector, null: float | None) -> float | None:
        """Of (f, g, H) at γ, and of the null loss if it is asked for."""
        if not self._is_bounded:
            return self._told(None)
        loss, slope, curvature = self._losses(*self._reach(gamma))
        z = self._standardised()
        more: list[float] = []
        if null is not None:
            more = [self._losses(null, null)[0]]
        upper = np.outer(z, z)[np.triu_indices(len(z))]
        return self._norm(np.array([loss, *(slope * z), *(curvature * upper), *more]))

    def first_order(self, gamma: Vector, null: float | None) -> float | None:
        """Of f, g and the diagonal of H at γ, and of the null loss if it is asked for."""
        if not self._is_bounded:
            return self._told(None)
        loss, slope, curvature = self._losses(*self._reach(gamma))
        z = self._standardised()
        more = [] if null is None else [self._losses(null, null)[0]]
        return self._norm(np.array([loss, *(slope * z), *(curvature * z * z), *more]))

    def product(self, gamma: Vector, v: Vector, exponent: int) -> float | None:
        """Of H v at γ."""
        if not self._is_bounded:
            return self._told(None)
        curvature = self._losses(*self._reach(gamma))[2]
        along = max(abs(end) for end in self._reach(v))
        return self._norm(curvature * along * self._standardised(), exponent)

    def sandwich(self, gamma: Vector) -> float | None:
        """Of the rows' part of the middle of a sandwich."""
        if not self._is_bounded:
            return self._told(None)
        slope, z = self._losses(*self._reach(gamma))[1], self._standardised()
        return self._norm(
            slope * slope * np.outer(z, z)[np.triu_indices(len(z))], 2 * self._exponent
        )

    def _norm(self, sizes: Vector, exponent: int | None = None) -> float | None:
        exponent = self._exponent if exponent is None else exponent
        # a larger part is not sent: the average then has noise in place of the site's sums
        near = np.minimum(sizes * _ROUNDING, most_near(exponent, self._n_rows))
        limbs = narrow(exponent).most(near)
        return self._told(math.sqrt(float((limbs**2).sum()) + 1))  # and it may count as far

    def far(self) -> float | None:
        """Of an average in which a site has sent noise, since one of its rows was too far.

        The noise tells which site has the row.
        """
        return self._told(math.inf if self._is_bounded else None)

    def _told(self, norm: float | None) -> float | None:
        self.progress.note_part(norm)
        return norm

    # ---- sizes

    def _range(self, name: str | None, without: float) -> Sequence[float]:
        return (without, without) if name is None else self.model.ranges[name]

    def _outcome(self) -> Sequence[float]:
        return (
            (0.0, 1.0) if self.model.kind == "logistic" else self.model.ranges[self.model.outcome]
        )

    def _columns(self) -> list[Sequence[float]]:
        found: list[Sequence[float]] = []
        for block in self.model.blocks:
            low, high = 1.0, 1.0
            for part in block.numeric:
                ends = _within(part, self.model.ranges[part.column])
                corners = [a * b for a in (low, high) for b in ends]
                low, high = min(corners), max(corners)
            if block.factors:  # the product, or 0
                low, high = min(0.0, low), max(0.0, high)
            found += [(low, high)] * block.width(self.model.levels)
        return found

    def _ends(self) -> tuple[Vector, Vector]:
        """The least and the largest z of every coefficient, (p,)."""
        assert self._at is not None
        low, high = np.array(self._columns(), np.float64).T
        ends = [(end - self._at.centre) / self._at.scale for end in (low, high)]
        one = [1.0] if self._at.has_intercept else []
        return np.array([*one, *ends[0]]), np.array([*one, *ends[1]])

    def _standardised(self) -> Vector:
        low, high = self._ends()
        return np.maximum(np.abs(low), np.abs(high))

    def _reach(self, gamma: Vector) -> tuple[float, float]:
        """The least and the largest zᵀγ."""
        low, high = (gamma * end for end in self._ends())
        return float(np.minimum(low, high).sum()), float(np.maximum(low, high).sum())

    def _losses(self, least: float, most: float) -> tuple[float, float, float]:
        """The largest loss, slope and curvature of a row whose zᵀγ lies between these numbers."""
        assert self._at is not None
        offset = self._range(self.model.offset, 0.0)
        least, most = least + offset[0], most + offset[1]
        size = max(abs(least), abs(most))
        w = _size(self._range(self.model.weights, 1.0))
        if self.model.kind == "logistic":
            return w * (size + math.log(2)), w, w / 4
        if self.model.kind == "poisson":
            y, mean = self._outcome()[1], math.exp(min(most, 700.0))
            return w * (mean + y * size), w * max(mean, y), w * mean
        y_low, y_high = ((v - self._at.y_centre) / self._at.y_scale for v in self._outcome())
        r = max(abs(least - y_high), abs(most - y_low))
        if self.model.kind == "huber":
            delta = min(r, (self.model.delta or 1.0) / self._at.y_scale)
            return w * delta * r, w * delta, w
        return w * r * r / 2, w * r, w


def _within(part: Part, ends: Sequence[float]) -> Sequence[float]:
    """The range of a column, of its logarithm or of a power."""
    low, high = (math.log(end) if part.function else float(end) for end in ends)
    corners = [low**part.power, high**part.power]
    if part.power % 2 == 0 and low < 0 < high:
        corners.append(0.0)
    return min(corners), max(corners)


def _size(pair: Sequence[float]) -> float:
    return max(abs(pair[0]), abs(pair[1]))
