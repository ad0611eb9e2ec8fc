"""The declaration of pooled tables: counts, means, cross tables and histograms of all sites' rows.

A stage `kind = "sum"` of a plan (`plan.py`) has these tables. `pooled_sums.py` pools them in one
average.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from hushgrad.errors import ModelError

MIN_CELL = 5  # rows
_MOST_CELLS = 10_000  # of one stage
_MOST_FACTORS = 3  # of one table


@dataclass(frozen=True, kw_only=True)
class PooledTables:
    """Tables of the pooled rows, declared. The declaration holds no data.

    means            numeric columns: their mean and standard deviation
    counts           factors: the rows of each level
    tables           lists of two or three factors: the rows of each combination of levels
    histograms       {numeric column: edges}: the rows between neighbouring edges
    factors          {column: levels} of the factors
    missing          "refuse" a row with a missing value in one of the columns, or "drop" it
    missing_values   the texts that mean: missing
    ranges, units    as in a model
    min_cell         a site whose own part of a cell is smaller, and not 0, does not start
    """

    means: Sequence[str] = ()
    counts: Sequence[str] = ()
    tables: Sequence[Sequence[str]] = ()
    histograms: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    factors: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    missing: Literal["refuse", "drop"] = "refuse"
    missing_values: Sequence[str] = ("", "NA", "NaN", "nan")
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    units: Mapping[str, str] = field(default_factory=dict[str, str])
    min_cell: int = MIN_CELL

    def __post_init__(self) -> None:
        for name in ("means", "counts", "tables"):
            if isinstance(getattr(self, name), str):
                raise _mistake(name, getattr(self, name), "is a list.")
        if not self.columns:
            raise _mistake("means", (), "and counts, tables, histograms: declare at least one.")
        if self.missing not in ("refuse", "drop"):
            raise _mistake("missing", self.missing, 'is "refuse" or "drop".')
        if not isinstance(self.min_cell, int) or self.min_cell < 1:
            raise _mistake("min_cell", self.min_cell, "is a whole number ≥ 1.")
        for factors in self.crossed:
            self._check_factors(factors)
        for column in self.numeric:
            if column in self.factors:
                raise _mistake("factors", column, "has a column whose numbers are asked for.")
        for column, edges in self.histograms.items():
            if len(edges) < 2 or not all(
                a < b and math.isfinite(a) and math.isfinite(b) for a, b in pairwise(edges)
            ):
                raise _mistake(f"histograms.{column}", edges, "is two or more growing numbers.")
        for name in self.factors:
            if name not in self.columns:
                raise _mistake("factors", name, "is in no table. Leave it out.")
        if self.n_cells > _MOST_CELLS:
            raise _mistake("tables", self.n_cells, f"have at most {_MOST_CELLS} cells in all.")

    def _check_factors(self, factors: Sequence[str]) -> None:
        if isinstance(factors, str) or not 1 <= len(set(factors)) == len(factors) <= _MOST_FACTORS:
            raise _mistake("tables", factors, f"are lists of up to {_MOST_FACTORS} factors.")
        for column in factors:
            levels = self.factors.get(column)
            if levels is None or isinstance(levels, str) or len(set(levels)) < max(2, len(levels)):
                raise _mistake(f"factors.{column}", levels, "is a list of two or more levels.")

    @property
    def crossed(self) -> list[tuple[str, ...]]:
        """The factors of every table of counts."""
        return [*((column,) for column in self.counts), *(tuple(table) for table in self.tables)]

    @property
    def numeric(self) -> list[str]:
        return list(dict.fromkeys([*self.means, *self.histograms]))

    @property
    def columns(self) -> list[str]:
        """All columns that the tables read."""
        factors = [column for table in self.crossed for column in table]
        return list(dict.fromkeys([*self.numeric, *factors]))

    @property
    def n_cells(self) -> int:
        """The cells of all tables and histograms."""
        tables = sum(math.prod(len(self.factors[c]) for c in table) for table in self.crossed)
        return tables + sum(len(edges) - 1 for edges in self.histograms.values())

    def cells(self) -> Iterable[tuple[str, str]]:
        """The table and the name of every cell, in the order of the pooled vector."""
        for table in self.crossed:
            names = [""]
            for column in table:
                names = [
                    f"{name}, {column} {level}".removeprefix(", ")
                    for name in names
                    for level in self.factors[column]
                ]
            yield from ((" by ".join(table), name) for name in names)
        for column, edges in self.histograms.items():
            yield from ((column, f"{column} {text}") for text in intervals(edges))


def intervals(edges: Sequence[float]) -> list[str]:
    """The intervals between edges; the last includes its end.

    >>> intervals([0, 10, 20.5])
    ['[0, 10)', '[10, 20.5]']
    """
    pairs = list(pairwise(edges))
    ends = [")"] * (len(pairs) - 1) + ["]"]
    return [f"[{a:g}, {b:g}{end}" for (a, b), end in zip(pairs, ends, strict=True)]


def _mistake(name: str, value: Any, rule: str) -> ModelError:
    return ModelError(f"sum: {name} {rule} It is {value!r}.")
