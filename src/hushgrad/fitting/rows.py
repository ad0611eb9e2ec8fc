"""The rows of one site as numbers: columns by the rules of a model, factors as columns of 0 and 1.

A cell that breaks a rule is refused here, before anything is pooled. The error names the site, the
row, the column, the cell and the way out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ProblemError
from hushgrad.fitting.model import Model
from hushgrad.fitting.sums import MOST, Vector
from hushgrad.fitting.tables import Cells, SiteTable
from hushgrad.schema.places import allowed_names, suggestion


@dataclass(frozen=True, eq=False)
class Rows:
    """What one site fits with."""

    X: Vector  # (n, columns), factors expanded, without the intercept
    y: Vector  # (n,), Cox: times
    event: Vector  # (n,) 0 or 1; zeros where the model has no events
    offset: Vector  # (n,)
    weights: Vector  # (n,)
    n_dropped: int


def needed(model: Model) -> list[str]:
    """The columns that a model reads, the outcome first."""
    extra = (model.event, model.offset, model.weights)
    return [model.outcome, *model.columns, *(name for name in extra if name is not None)]


def rows_of(model: Model, table: SiteTable) -> Rows:
    """The rows of a site by the rules of a model; an error names the first cell that breaks one."""
    keep = _complete(model, table)
    reader = _Reader(model, table, keep)
    n = len(keep)
    parts = [
        reader.number(name)[:, None] if name not in model.factors else reader.levels(name)
        for name in model.columns
    ]
    y = reader.coded(model.outcome) if model.kind == "logistic" else reader.number(model.outcome)
    event = np.zeros(n) if model.event is None else reader.coded(model.event)
    offset = np.zeros(n) if model.offset is None else reader.number(model.offset)
    weights = np.ones(n) if model.weights is None else reader.number(model.weights)
    if model.kind == "poisson":
        reader.check(
            model.outcome, y, (y >= 0) & (y == np.floor(y)), "a count is a whole number ≥ 0"
        )
    if model.kind == "cox":
        reader.check(model.outcome, y, y >= 0, "a time is ≥ 0")
    if model.weights is not None:
        is_weight = (weights >= 1e-9) & (weights <= 1e9)
        reader.check(model.weights, weights, is_weight, "a weight is between 1e-9 and 1e9")
    if model.offset is not None:
        reader.check(
            model.offset, offset, np.abs(offset) < 80, "an offset is a logarithm, below 80"
        )
    return Rows(np.concatenate(parts, axis=1), y, event, offset, weights, table.n_rows - n)


def _complete(model: Model, table: SiteTable) -> NDArray[np.intp]:
    """The rows without a missing value."""
    missing = np.zeros(table.n_rows, bool)
    for name in needed(model):
        gaps = _gaps(table.columns[name], model.missing_values)
        if model.missing == "refuse" and gaps.any():
            raise ProblemError(
                f"{table.place(int(np.argmax(gaps)))}: column {name} is missing. Impute it, leave "
                'the row out, or agree on missing = "drop".'
            )
        missing |= gaps
    keep = np.flatnonzero(~missing)
    if not len(keep):
        raise ProblemError(
            f"site {table.site}: all {len(missing)} rows have a missing value, so no row is left. "
            "Leave the emptiest column out of the model."
        )
    return keep


def _gaps(cells: Cells, missing: Sequence[str]) -> NDArray[np.bool_]:
    if isinstance(cells, np.ndarray):
        return np.isnan(cells)
    return np.array([cell in missing for cell in cells])


@dataclass(frozen=True)
class _Reader:
    model: Model
    table: SiteTable
    keep: NDArray[np.intp]  # (n,) the rows that are kept

    def refuse(self, row: int, name: str, cell: object, rule: str) -> ProblemError:
        place = self.table.place(int(self.keep[row]))
        return ProblemError(f"{place}: column {name} is {cell!r}, but {rule}.")

    def check(self, name: str, values: Vector, ok: NDArray[np.bool_], rule: str) -> None:
        if not ok.all():
            row = int(np.argmin(ok))
            raise self.refuse(row, name, float(values[row]), rule)

    def number(self, name: str) -> Vector:
        cells = self.table.columns[name]
        if isinstance(cells, np.ndarray):
            values = cells[self.keep]
        else:
            values = np.array([self._parse(r, name, cells[n]) for r, n in enumerate(self.keep)])
        small = np.abs(values) <= MOST
        self.check(
            name, values, small,
            "numbers are finite and below 2⁶⁴ in size. Correct it, or agree on another unit",
        )  # fmt: skip
        if name in self.model.ranges:
            low, high = self.model.ranges[name]
            inside = (values >= low) & (values <= high)
            unit = self.model.units.get(name)
            self.check(
                name, values, inside,
                f"its range is {low} to {high}{'' if unit is None else f' {unit}'}. Check the unit "
                "and the header, or agree on another range",
            )  # fmt: skip
        return values

    def _parse(self, row: int, name: str, cell: str) -> float:
        text = cell if self.table.decimal == "." else cell.replace(",", ".")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        is_mixed = self.table.decimal == "," and "." in cell  # a point between thousands, perhaps
        if math.isfinite(value) and "_" not in text and not is_mixed:
            return value
        comma = "," in cell and self.table.decimal == "."
        way_out = 'Read this file with decimal=","' if comma else "Correct it, or declare a factor"
        raise self.refuse(row, name, cell, f"it must be a number. {way_out}")

    def labels(self, name: str) -> list[str]:
        cells = self.table.columns[name]
        if isinstance(cells, np.ndarray):
            return [_label(float(cells[n])) for n in self.keep]
        return [cells[n] for n in self.keep]

    def levels(self, name: str) -> Vector:
        """A factor as columns of 0 and 1, (n, levels − 1)."""
        levels = list(self.model.factors[name])
        labels = self.labels(name)
        for row, label in enumerate(labels):
            if label not in levels:
                raise self.refuse(
                    row, name, label,
                    f"this is no declared level.{suggestion(label, levels)} "
                    f"{allowed_names(levels)} Correct it, or agree on more levels",
                )  # fmt: skip
        return np.array([[float(label == level) for level in levels[1:]] for label in labels])

    def coded(self, name: str) -> Vector:
        """A column of two codes as 0 and 1."""
        model = self.model
        codes = ("0", "1") if model.positive is None else (model.negative, model.positive)
        labels = self.labels(name)
        if model.positive is None:
            labels = [_plain(label.replace(self.table.decimal, ".")) for label in labels]
        for row, label in enumerate(labels):
            if label not in codes:
                rule = (
                    "without codes it must be 0 or 1. Agree on positive = … and negative = …"
                    if model.positive is None
                    else f"the codes are {model.positive!r} (positive) and {model.negative!r}. "
                    "Correct it, or agree on other codes"
                )
                raise self.refuse(row, name, label, rule)
        return np.array([float(label == codes[1]) for label in labels])


def _label(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _plain(text: str) -> str:
    """A number as its shortest text: 1.0 and 1 are the same code."""
    try:
        return _label(float(text))
    except ValueError:
        return text
