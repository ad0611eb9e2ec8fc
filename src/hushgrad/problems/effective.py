"""How many rows really carry a sum: rows that dominate the sum stand out from all others.

A row (x, y) weighs w = ‖x‖² in a sum of x xᵀ. The effective rows are

    n_eff = Σ_r w_r / max_r w_r

Equal rows give n_eff = n, and one row that dominates gives 1. The judgement of exposure counts
effective rows before a run. At the start of every stage it asks for each row how much the sums
determine of it (determined.py), which is sharper and needs θ_s. Weights are kept as logarithms,
since squares of numbers overflow.

Of several agents together a row stands out against the rows of all of them: `least_effective`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.problems.row_places import row_places

type Floats = NDArray[np.float64]

_MOST = 700.0  # e^700 is a float, and more rows than anybody has
_SINGLE = 0.97  # of a direction: one row or its copies; others blur it by 18 % of its length
_MAY_BE_SINGLE = 0.9  # among the agent's own rows; others lower the leverage and move the mean
_ROUNDING = 1e-12  # of the largest value of a column: the mean of a constant column
_COPIES = 0.2  # of a row's length: rows so near are one row to whoever knows their mean within 10 %
_ROWS_PER_VALUE = 2  # a column with as many rows for each value, on average, is a category
_CELLS_PER_NUMBER = 10  # an integer program took a minute for 4 times as many cells as numbers
FEWEST_IN_CELL = 5  # as pooled tables have it
_MOST_WORK = 10**9  # multiplications to compare agents two by two


class RowWeights(NamedTuple):
    """The weights w_r of an agent's rows."""

    effective: float  # Σ w / max w; 0: no row weighs anything, or a weight is not a number
    log_largest: float  # ln max w

    @classmethod
    def of(cls, logs: Floats) -> RowWeights:
        """Of ln w_r (n,)."""
        largest = float(np.max(logs, initial=-np.inf))
        if not math.isfinite(largest):
            return cls(0.0, -math.inf)
        return cls(float(np.exp(logs - largest).sum()), largest)


def least_effective(every: Sequence[RowWeights], honest: int) -> float:
    """The fewest effective rows that some `honest` of the agents have together.

    The longest row is at some agent i, and the others are those with the smallest sums Σ w.

    >>> long, short = RowWeights(2.0, math.log(9.0)), RowWeights(6.0, 0.0)
    >>> round(least_effective([long, short, short], 2), 3)  # (2 · 9 + 6) / 9
    2.667
    """
    if any(weights.effective == 0 for weights in every):
        return 0.0
    totals = np.array([w.log_largest + math.log(w.effective) for w in every])
    smallest = np.argsort(totals, kind="stable")[:honest]

    def together(i: int, own: RowWeights) -> float:
        others = totals[[j for j in smallest if j != i][: honest - 1]]
        return own.effective + float(np.exp(np.minimum(others - own.log_largest, _MOST)).sum())

    return min(together(i, own) for i, own in enumerate(every))


def effective_lengths(data: Any) -> RowWeights | None:
    """An agent's rows by ‖x_r‖² alone; None if the data are no rows.

    >>> row = {"weight": np.ones(3), "y": np.ones(3), "penalty": 0}
    >>> effective_lengths(row | {"X": np.array([[1.0], [1.0], [2.0]])}).effective
    1.5
    """
    places = row_places(data)
    if places is None:
        return None
    return RowWeights.of(_log_lengths(np.asarray(data["X" if "X" in data else "M"])[places]))


def effective_alone(data: Any, *, is_judged: bool) -> float | None:
    """An agent's own rows, by length, and by directions unless each stage is judged row by row
    (problems/determined.py); None if the data are no rows.
    """
    lengths = effective_lengths(data)
    if lengths is None or is_judged:
        return None if lengths is None else lengths.effective
    return min(lengths.effective, effective_in_directions([data]))


def effective_in_directions(every: Sequence[Any], honest: int = 1) -> float:
    """The effective rows of the direction v that one row has nearly for itself, Σ (xᵀv)² / max.

    Some `honest` of the agents have these rows together. In a direction that a single row has, XᵀX
    has the row as it is: vᵀXᵀX = (xᵀv) x. Somebody who knows the categories knows v: a column, or a
    difference of columns. The best v of row r tells its leverage, x_rᵀ(XᵀX)⁻¹x_r, whose odds count
    more if the row is long. Up to four rows that are nearly the same count as one. 1, too, where
    rows are fewer than 2 d, d with a constant column, and where XᵀX and Xᵀy tell how many rows each
    combination of categories has. ∞: no row has 97 % of a direction, or the data are no rows.

    Of many agents each is judged with those that hide least of its rows, among the ones with the
    fewest rows; combinations of categories with the fewest rows alone.

    >>> X = np.column_stack([np.arange(9.0), np.arange(9) == 3])
    >>> data = {"X": X, "weight": np.ones(9), "y": np.ones(9), "penalty": 0}
    >>> round(effective_in_directions([data]), 9)
    1.0
    """
    places = [row_places(data) for data in every]
    tables = [
        np.asarray(data["X"], np.float64)[where]
        for data, where in zip(every, places, strict=True)
        if where is not None and "X" in data
    ]
    if not tables or len(tables) < len(every):
        return math.inf
    targets = [
        np.broadcast_to(np.asarray(data["y"]), data["X"].shape[:1])[where]
        for data, where in zip(every, places, strict=True)
    ]
    by_size = sorted(range(len(tables)), key=lambda j: len(tables[j]))
    fewest = {
        frozenset([i, *[j for j in by_size[:honest] if j != i][: honest - 1]])
        for i in range(len(tables))
    }
    for found in fewest:
        rows = np.concatenate([tables[j] for j in found])
        if _tells_rows(rows, np.concatenate([targets[j] for j in found])):
            return 1.0
    centred = _centred(tables)
    scaled = [np.column_stack([x, np.ones(len(x))]) for x in _in_parts_of_the_largest(centred)]
    sums = _Sums.of(centred, scaled)
    compared = max(1, _MOST_WORK // (scaled[0].shape[1] ** 3 * len(tables)))
    usual = min(sums.usual([j]) for j in range(len(tables)))
    least = math.inf
    for i, own in enumerate(scaled):
        alone = _with_copies(own, _leverages(own, sums.grams[i]))
        single = own[_of_long_rows(sums.squares_of(i, [i]) / usual, alone) > _MAY_BE_SINGLE]
        if not len(single):
            continue
        others = [j for j in by_size if j != i and honest > 1]
        first = sorted(
            others[:compared], key=lambda j: -float(_leverages(single, sums.gram([i, j])).max())
        )
        component = [i, *[*first, *others[compared:]][: honest - 1]]
        leverages = _leverages(own, sums.gram(component))
        if leverages.max() > _SINGLE / FEWEST_IN_CELL:  # others may have copies of the row
            rows = np.concatenate([scaled[j] for j in component])
            leverages = _with_copies(rows, _leverages(rows, sums.gram(component)))[: len(own)]
        lengths = sums.squares_of(i, component) / sums.usual(component)
        largest = float(_of_long_rows(lengths, leverages).max())
        if largest > _SINGLE:
            least = min(least, 1 / largest)
    return least


class _Sums(NamedTuple):
    """Sums over the rows of each agent, from a common middle."""

    rows: Sequence[Floats]  # x (n, d) of each
    counts: Floats  # (agents,)
    totals: Floats  # Σ x (agents, d)
    squares: Floats  # Σ ‖x‖² (agents,)
    grams: Floats  # Σ xxᵀ (agents, d + 1, d + 1) of the scaled rows (x, 1)

    @classmethod
    def of(cls, rows: Sequence[Floats], scaled: Sequence[Floats]) -> _Sums:
        return cls(
            rows,
            np.array([float(len(x)) for x in rows]),
            np.array([x.sum(axis=0) for x in rows]),
            np.array([(x**2).sum() for x in rows]),
            np.array([table.T @ table for table in scaled]),
        )

    def gram(self, agents: Sequence[int]) -> Floats:
        return self.grams[agents].sum(axis=0)

    def mean(self, agents: Sequence[int]) -> Floats:
        return self.totals[agents].sum(axis=0) / max(1.0, float(self.counts[agents].sum()))

    def usual(self, agents: Sequence[int]) -> float:
        """The mean ‖x‖² about their mean; 1 if these agents' rows are all the same."""
        n, mean = max(1.0, float(self.counts[agents].sum())), self.mean(agents)
        return max(0.0, float(self.squares[agents].sum() / n - mean @ mean)) or 1.0

    def squares_of(self, agent: int, agents: Sequence[int]) -> Floats:
        """‖x‖² of one agent's rows, about the mean of several."""
        return ((self.rows[agent] - self.mean(agents)) ** 2).sum(axis=1)


def _centred(tables: Sequence[Floats]) -> list[Floats]:
    """Rows x from the mean of all; a constant column is 0, whatever its rounding."""
    every = np.concatenate(tables)
    middle, noise = every.mean(axis=0), _ROUNDING * np.abs(every).max(axis=0, initial=0.0)
    away = [table - middle for table in tables]
    return [np.where(np.abs(x) > noise, x, 0.0) for x in away]


def _in_parts_of_the_largest(centred: Sequence[Floats]) -> list[Floats]:
    """Centred rows with the largest value of each column as its unit.

    Other units would decide which rows are near each other: a column of years, or a rare value in
    standard deviations, makes all its rows alike.
    """
    largest = np.max([np.abs(x).max(axis=0, initial=0.0) for x in centred], axis=0)
    return [x / np.where(largest > 0, largest, 1.0) for x in centred]


def effective_in_columns(X: Floats, y: Floats) -> float:
    """`effective_in_directions` of the rows (X, y) of a fit, (n, d) and (n,).

    Rows are long or short in columns that have their largest value as unit: in standard deviations
    a rare value would make its rows the longest by far.

    >>> X = np.column_stack([np.arange(9.0), np.arange(9) == 3])
    >>> round(effective_in_columns(X, np.arange(9.0)), 9)
    1.0
    """
    (Z,) = _in_parts_of_the_largest(_centred([X]))
    return effective_in_directions([{"X": Z, "y": y, "weight": 1.0, "penalty": 0.0}])


def _tells_rows(X: Floats, y: Floats) -> bool:
    """Whether Σ xxᵀ and Σ xy of these rows (n, d) tell rows, whatever their directions.

    Of fewer than 2 (d + 1) rows it tells much more than a rotation hides: whole numbers, or one
    column to somebody who knows the others.
    """
    n, d = X.shape
    numbers, with_y = d * (d + 3) // 2, np.column_stack([X, y])  # a measured y is no category
    return n < 2 * (d + 1) or has_small_cells(X, numbers) or has_small_cells(with_y, numbers)


def has_small_cells(table: Floats, numbers: int, times: float = 1.0) -> bool:
    """Whether all columns are categories with few combinations, some of which few rows have.

    The sums are linear in the number of rows in each combination. These are whole numbers, so an
    integer program finds them where the combinations are not many times the numbers of the sums. A
    linear program does where the combinations that occur are at most half of the numbers: XᵀX of
    the columns of two factors is their table.
    """
    values: list[int] = []
    for column in table.T:
        values.append(len(np.unique(column)))
        if values[-1] * _ROWS_PER_VALUE > len(table):
            return False
    counts = np.unique(table, axis=0, return_counts=True)[1]
    is_few = math.prod(values) <= _CELLS_PER_NUMBER * numbers or len(counts) <= numbers / 2
    return is_few and bool((counts * times < FEWEST_IN_CELL).any())


def _with_copies(rows: Floats, leverages: Floats) -> Floats:
    """The leverages (n,) of rows (x, 1), each with those of rows that are nearly the same.

    Many copies are a cell of a table, not a row.
    """
    found = leverages.copy()
    some = np.flatnonzero(leverages > _SINGLE / FEWEST_IN_CELL)  # at most 5 d rows
    X = rows[some, :-1]
    lengths = (X**2).sum(axis=1)
    squares = lengths[:, None] + lengths - 2 * X @ X.T
    near = squares <= (_COPIES**2 + 1e-12) * lengths[:, None]
    is_few = near.sum(axis=1) < FEWEST_IN_CELL
    found[some[is_few]] = (near @ leverages[some])[is_few]
    return np.minimum(found, 1.0)


def _of_long_rows(lengths: Floats, leverages: Floats) -> Floats:
    """h s / (h s + 1 − h) of leverages h: the other rows blur a row of √s times the usual length
    less, in parts of its own length.
    """
    odds = leverages * np.maximum(1.0, lengths)
    return odds / np.maximum(odds + 1 - leverages, 1e-300)


def copies(table: Floats) -> Floats:
    """(n,) how often each row stands in a table (n, d); 1 for rows of a cell, no single ones."""
    every = np.ascontiguousarray(table) + 0.0  # no negative zero, whose bytes differ
    whole = every.view(np.dtype((np.void, every.shape[1] * every.itemsize))).ravel()
    _, place, counts = np.unique(whole, return_inverse=True, return_counts=True)
    return np.where(counts < FEWEST_IN_CELL, counts, 1)[place].astype(np.float64)


def of_copies(p: Floats, g: Floats) -> Floats:
    """The eigenvalues p of a row (problems/determined.py) that stands g times in the data: those of
    the mean of its copies.
    """
    return np.minimum(g * p, 1.0)


def _leverages(X: Floats, gram: Any) -> Floats:
    """xᵀ G⁺ x of rows (n, d)."""
    return np.einsum("ri,ij,rj->r", X, np.linalg.pinv(gram, rcond=1e-10, hermitian=True), X)


def _log_lengths(X: Floats) -> Floats:
    """ln ‖x_r‖² of rows (n, d)."""
    unit = float(np.abs(X).max(initial=0.0)) or 1.0
    with np.errstate(divide="ignore"):  # a row of zeros weighs nothing
        return np.log(((X / unit) ** 2).sum(axis=1)) + 2 * math.log(unit)
