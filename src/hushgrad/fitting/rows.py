"""The rows of one site as numbers: columns by the rules of a model, factors as columns of 0 and 1.

A cell that breaks a rule is refused here, before anything is pooled. The error names the site, the
row, the column, the cell and the way out.

Every programme of a site (plan.py) begins with such rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ProblemError
from hushgrad.fitting.model import Model
from hushgrad.fitting.pooled_tables import PooledTables
from hushgrad.fitting.sums import MOST, Vector
from hushgrad.fitting.tables import Cells, SiteTable
from hushgrad.schema.places import allowed_names, suggestion

LONGEST_LEVEL = 30  # bytes of UTF-8, of a level that sites agree on


@dataclass(frozen=True, eq=False)
class Rows:
    """The numbers with which one site fits."""

    X: Vector  # (n, columns), factors expanded, without the intercept
    y: Vector  # (n,), Cox: times
    event: Vector  # (n,) 0 or 1; zeros where the model has no events
    offset: Vector  # (n,)
    weights: Vector  # (n,)
    n_dropped: int
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    # of factors whose levels are not agreed yet, each (n,); X has this site's own levels then
    design: Callable[[Mapping[str, Sequence[str]]], Vector] | None = None  # X by levels

    def closed(self, levels: Mapping[str, Sequence[str]]) -> Rows:
        """The rows by agreed levels."""
        assert self.design is not None
        return replace(self, X=self.design(levels), texts={}, design=None)

    def at(self, places: NDArray[np.intp]) -> Rows:
        """The rows at some places."""
        return replace(
            self, X=self.X[places], y=self.y[places], event=self.event[places],
            offset=self.offset[places], weights=self.weights[places],
        )  # fmt: skip

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def parts(self) -> list[Vector]:
        """All numbers, for a digest."""
        every = [self.X, self.y, self.event, self.offset, self.weights]
        texts = ["\0".join(of).encode() for of in self.texts.values()]
        every += [np.frombuffer(text, np.uint8).astype(np.float64) for text in texts]
        return [*every, np.array([float(self.n_dropped)])]


def needed(model: Model) -> list[str]:
    """The columns that a model reads, the outcome first."""
    extra = (model.event, model.offset, model.weights)
    return [model.outcome, *model.columns, *(name for name in extra if name is not None)]


def rows_of(model: Model, table: SiteTable) -> Rows:
    """The rows of a site by the rules of a model; an error names the first cell that breaks one."""
    keep = complete(model, needed(model), table)
    reader = Reader(model, table, keep)
    n = len(keep)
    texts = {name: reader.open_labels(name) for name in model.open_factors}
    own = {name: sorted(set(of)) for name, of in texts.items()}

    def design(levels: Mapping[str, Sequence[str]]) -> Vector:
        return _design(model, reader, {**model.levels, **levels})

    X = design(own)
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
    n_dropped = table.n_rows - n
    return Rows(X, y, event, offset, weights, n_dropped, texts, design if texts else None)


def _design(model: Model, reader: Reader, levels: Mapping[str, Sequence[str]]) -> Vector:
    """X (n, columns): every block of the model's terms."""
    numbers: dict[str, Vector] = {}
    for name in model.columns:
        if name not in model.factors:
            numbers[name] = reader.number(name)
    codes = {n: reader.codes(n, levels[n]) for n in model.columns if n in model.factors}
    for part in (part for block in model.blocks for part in block.numeric):
        if part.function:
            values = numbers[part.column]
            reader.check(part.column, values, values > 0, f"{part.text} needs a number > 0")
    with np.errstate(over="ignore"):
        found = [block.columns(numbers, codes, levels) for block in model.blocks]
    for block, columns in zip(model.blocks, found, strict=True):
        for name, values in zip(block.names(levels), columns.T, strict=True):
            reader.check(name, values, np.abs(values) <= MOST, "terms are below 2⁶⁴ in size")
    return np.concatenate(found, axis=1)


def complete(
    declared: Model | PooledTables, names: Sequence[str], table: SiteTable
) -> NDArray[np.intp]:
    """The rows without a missing value."""
    missing = np.zeros(table.n_rows, bool)
    for name in names:
        gaps = _gaps(table.columns[name], declared.missing_values)
        if declared.missing == "refuse" and gaps.any():
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
class Reader:
    """Columns of a site's table as numbers and codes, by declared rules."""

    model: Model | PooledTables
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

    def open_labels(self, name: str) -> list[str]:
        """The levels of the rows, where the sites have not agreed on them yet."""
        assert isinstance(self.model, Model)
        labels, most = self.labels(name), self.model.most_levels
        for row, label in enumerate(labels):
            if len(label.encode()) > LONGEST_LEVEL or "\0" in label:
                rule = f"an agreed level has up to {LONGEST_LEVEL} bytes. Use shorter texts"
                raise self.refuse(row, name, label, rule)
        if len(set(labels)) > most:
            raise ProblemError(
                f"site {self.table.site}: column {name} has {len(set(labels))} levels, but sites "
                f"agree on at most {most}. Join levels, or agree on a larger most_levels."
            )
        return labels

    def codes(self, name: str, levels: Sequence[str]) -> Vector:
        """The place of each row's level, (n,)."""
        levels = list(levels)
        labels = self.labels(name)
        for row, label in enumerate(labels):
            if label not in levels:
                raise self.refuse(
                    row, name, label,
                    f"this is no declared level.{suggestion(label, levels)} "
                    f"{allowed_names(levels)} Correct it, or agree on more levels",
                )  # fmt: skip
        return np.array([float(levels.index(label)) for label in labels])

    def coded(self, name: str) -> Vector:
        """A column of two codes as 0 and 1."""
        model = self.model
        assert isinstance(model, Model)
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
