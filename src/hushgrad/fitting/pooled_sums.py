"""Pooled tables: from the rows of one site to one vector, and from the pooled vector to tables.

The vector has whole numbers only: rows and cells as they are, Σx and Σx² as limbs. Every site sees
the pooled cells, the small ones too, so a rule on small cells must act before: a site refuses to
start if its own part of a cell is between 1 and `min_cell` − 1. Then every sum over some sites,
which is what any coalition of sites can compute about the others, is 0 or at least `min_cell`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrad.errors import FitError, ProblemError
from hushgrad.fitting.bounds import table_part
from hushgrad.fitting.counts import agree_on, check_size, variance
from hushgrad.fitting.newton import FitStage, pooled
from hushgrad.fitting.pooled_tables import PooledTables, intervals
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.rows import Reader, complete
from hushgrad.fitting.site_sums import moments
from hushgrad.fitting.sums import WIDE, Vector
from hushgrad.fitting.tables import SiteTable


@dataclass(frozen=True, eq=False)
class TableRows:
    """The part of one site in the tables."""

    cells: Vector  # (cells,) whole numbers
    values: Vector  # (n, means) the columns of means
    n_dropped: int

    @property
    def n_rows(self) -> int:
        return len(self.values)

    @property
    def parts(self) -> list[Vector]:
        """All numbers, for a digest."""
        return [self.cells, self.values, np.array([float(self.n_dropped)])]


def sum_rows(declared: PooledTables, table: SiteTable) -> TableRows:
    """The part of a site; an error names the first cell of the file that breaks a rule."""
    keep = complete(declared, declared.columns, table)
    reader = Reader(declared, table, keep)
    numbers = {name: reader.number(name) for name in declared.numeric}
    codes = {
        name: reader.codes(name, declared.factors[name])
        for name in declared.columns
        if name not in numbers
    }
    counts: list[Vector] = []
    for factors in declared.crossed:
        place, size = np.zeros(len(keep)), 1
        for column in factors:
            place = place * len(declared.factors[column]) + codes[column]
            size *= len(declared.factors[column])
        counts.append(np.bincount(place.astype(np.intp), minlength=size).astype(np.float64))
    for column, edges in declared.histograms.items():
        values = numbers[column]
        inside = (values >= edges[0]) & (values <= edges[-1])
        rule = f"the edges reach from {edges[0]:g} to {edges[-1]:g}. Agree on wider edges"
        reader.check(column, values, inside, rule)
        counts.append(np.histogram(values, np.array(edges, np.float64))[0].astype(np.float64))
    means = [numbers[column] for column in declared.means]
    values = np.column_stack(means) if means else np.zeros((len(keep), 0))
    return TableRows(
        np.concatenate(counts) if counts else np.zeros(0), values, table.n_rows - len(keep)
    )


def small_cell(declared: PooledTables, rows: TableRows) -> str | None:
    """The first cell to which the site adds too few rows, in words; None: there is none."""
    least = declared.min_cell
    if rows.n_rows < least:
        return f"all rows together: {rows.n_rows}"
    for (_, cell), count in zip(declared.cells(), rows.cells, strict=True):
        if 0 < count < least:
            return f"{cell}: {int(count)}"
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class TablesResult:
    """The tables of the pooled rows."""

    declared: PooledTables
    n_sites: int
    n_rows: int
    n_dropped: int
    mean: Vector  # (means,)
    deviation: Vector  # (means,) standard deviations with n − 1
    cells: tuple[int, ...]  # in the order of `declared.cells()`
    stages: tuple[FitStage, ...]

    def counts(self, *factors: str) -> Vector:
        """The rows of one table of counts, one axis for each factor."""
        place = 0
        for table in self.declared.crossed:
            shape = tuple(len(self.declared.factors[column]) for column in table)
            if table == factors:
                return np.array(self.cells[place : place + math.prod(shape)]).reshape(shape)
            place += math.prod(shape)
        raise ProblemError(f"there is no table of {factors}. There are {self.declared.crossed}.")

    def histogram(self, column: str) -> Vector:
        """The rows between the edges of a column, (edges − 1,)."""
        place = len(self.cells)
        for name, edges in reversed(list(self.declared.histograms.items())):
            place -= len(edges) - 1
            if name == column:
                return np.array(self.cells[place : place + len(edges) - 1])
        raise ProblemError(f"there is no histogram of {column!r}.")

    @property
    def small_cells(self) -> list[str]:
        """The pooled cells that have rows, but fewer than `min_cell`."""
        least = self.declared.min_cell
        pairs = zip(self.declared.cells(), self.cells, strict=True)
        return [cell for (_, cell), count in pairs if 0 < count < least]

    def table(self) -> str:
        """All tables as text, for a terminal."""
        dropped = f" ({self.n_dropped} dropped)" if self.n_dropped else ""
        lines = [f"{self.n_sites} sites, {self.n_rows} rows{dropped}"]
        for rows in self._tables():
            width = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
            lines.append("")
            for first, *rest in rows:
                cells = (f"  {cell:>{size}}" for cell, size in zip(rest, width[1:], strict=True))
                lines.append(f"{first:{width[0]}}{''.join(cells)}")
        if few := self.small_cells:
            lines += ["", f"fewer than {self.declared.min_cell} rows: {'; '.join(few)}"]
        return "\n".join(lines) + "\n"

    def _tables(self) -> Iterator[list[list[str]]]:
        """Every table as rows of texts, its header first."""
        declared = self.declared
        if declared.means:
            yield [["", "mean", "std. dev."]] + [
                [name + _unit(declared, name), f"{mean:.5g}", f"{deviation:.5g}"]
                for name, mean, deviation in zip(
                    declared.means, self.mean, self.deviation, strict=True
                )
            ]
        for table in declared.crossed:
            counts = self.counts(*table)
            levels = [declared.factors[column] for column in table]
            if len(table) == 1:
                parts = [f"{100 * n / self.n_rows:.1f} %" for n in counts]
                yield [[table[0], "rows", "share"]] + [
                    [level, str(n), part]
                    for level, n, part in zip(levels[0], counts, parts, strict=True)
                ]
            else:
                flat = counts.reshape(-1, counts.shape[-1])
                names = [f"{name}" for name in _products(levels[:-1])]
                yield [[" by ".join(table), *levels[-1]]] + [
                    [name, *map(str, row)] for name, row in zip(names, flat, strict=True)
                ]
        for column, edges in declared.histograms.items():
            yield [[column + _unit(declared, column), "rows"]] + [
                [text, str(n)]
                for text, n in zip(intervals(edges), self.histogram(column), strict=True)
            ]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        declared = self.declared
        return {
            "kind": "sum",
            "n_sites": self.n_sites,
            "n_rows": self.n_rows,
            "n_dropped": self.n_dropped,
            "means": {
                name: {"mean": float(mean), "deviation": float(deviation)}
                for name, mean, deviation in zip(
                    declared.means, self.mean, self.deviation, strict=True
                )
            },
            "tables": [
                {
                    "factors": list(table),
                    "levels": [list(declared.factors[column]) for column in table],
                    "rows": self.counts(*table).tolist(),
                }
                for table in declared.crossed
            ],
            "histograms": {
                name: {"edges": list(edges), "rows": self.histogram(name).tolist()}
                for name, edges in declared.histograms.items()
            },
            "small_cells": self.small_cells,
            "stages": [vars(stage) for stage in self.stages],
        }

    @classmethod
    def from_json(cls, declared: PooledTables, document: Mapping[str, Any]) -> TablesResult:
        """The tables that `to_json` wrote."""
        parts = [table["rows"] for table in document["tables"]]
        parts += [of["rows"] for of in document["histograms"].values()]
        means = [document["means"][name] for name in declared.means]
        return cls(
            declared=declared,
            n_sites=document["n_sites"],
            n_rows=document["n_rows"],
            n_dropped=document["n_dropped"],
            mean=np.array([of["mean"] for of in means]),
            deviation=np.array([of["deviation"] for of in means]),
            cells=tuple(int(n) for part in parts for n in np.array(part).ravel()),
            stages=tuple(FitStage(**stage) for stage in document["stages"]),
        )

    @property
    def numbers_pooled(self) -> int:
        return sum(stage.n_numbers for stage in self.stages)


def sums_csv(document: dict[str, Any]) -> str:
    """The tables of `TablesResult.to_json` as CSV: one line for each number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "cell", "value"])
    writer.writerow(["rows", "", document["n_rows"]])
    writer.writerow(["dropped rows", "", document["n_dropped"]])
    for name, of in document["means"].items():
        writer.writerow(["mean", name, repr(of["mean"])])
        writer.writerow(["standard deviation", name, repr(of["deviation"])])
    for table in document["tables"]:
        counts = np.array(table["rows"]).reshape(-1)
        for name, n in zip(_products(table["levels"]), counts, strict=True):
            writer.writerow([" by ".join(table["factors"]), name, int(n)])
    for name, of in document["histograms"].items():
        for interval, n in zip(intervals(of["edges"]), of["rows"], strict=True):
            writer.writerow([f"histogram of {name}", interval, int(n)])
    return text.getvalue()


def sums_programme(
    declared: PooledTables, rows: TableRows, digest: str, progress: FitProgress
) -> Generator[Vector, Vector, TablesResult]:
    """Pool the tables in one average."""
    check_size(rows.n_rows)
    sums, width = moments(rows.values), rows.values.shape[1]
    plain = np.array([float(rows.n_rows), float(rows.n_dropped), *rows.cells])
    words = agree_on(digest)
    count = progress.add(1 + len(plain) + 2 * width)
    part = table_part(declared)
    progress.note_part(part)
    got = yield from pooled(np.concatenate([words.own, plain, sums]))
    n_sites, got = words.check(got)
    counts, limbs = got[: len(plain)], got[len(plain) :]
    if (counts < plain).any():
        raise FitError(
            "pooled counts include those of this site, but one is smaller: a site has sent a false "
            "count. Ask the sites."
        )
    found, n = WIDE.exact(limbs), int(counts[0])
    first, second = found[:width], found[width:]
    spread = [variance(n, a, b) * n for a, b in zip(first, second, strict=True)]
    return TablesResult(
        declared=declared,
        n_sites=n_sites,
        n_rows=n,
        n_dropped=int(counts[1]),
        mean=np.array([float(a / n) for a in first]),
        deviation=np.array(
            [math.sqrt(max(0.0, float(v))) / math.sqrt(max(1, n - 1)) for v in spread]
        ),
        cells=tuple(int(v) for v in counts[2:]),
        stages=(FitStage("tables", count, row_part=part),),
    )


def _products(levels: Any) -> list[str]:
    names = [""]
    for each in levels:
        names = [f"{name}, {level}".removeprefix(", ") for name in names for level in each]
    return names


def _unit(declared: PooledTables, column: str) -> str:
    return f" ({declared.units[column]})" if column in declared.units else ""
