"""Columns of numbers from an agent's data file: CSV, Parquet or NPZ.

objectives.py reads the data of regressions and positions here. The reader keeps only the named
columns, in one block of float64. If a cell is empty, not a number or not finite, the error names
the file, the line and the column.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ProblemError, optional
from hushgrad.schema.places import allowed_names, suggestion

MOST_NAMES = 20  # columns of a file that a message lists


@dataclass(frozen=True, eq=False)
class Block:
    """Named columns side by side, then columns of ones."""

    values: NDArray[np.float64]  # (rows, width)
    labels: tuple[str, ...]  # (width without the ones,)
    place: Callable[[int], str]  # row → its file and line, for messages


def read_columns(path: Path, names: Sequence[str], *, ones: int = 0, delimiter: str = ",") -> Block:
    """The columns `names` of a file in this order, followed by `ones` columns of ones."""
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ProblemError(
            f"data is read from .csv, .parquet or .npz files, but '{path}' ends in "
            f"{path.suffix or 'nothing'!r}. Convert it, or write a function of your own."
        )
    try:
        block = reader(path, names, ones, delimiter)
    except FileNotFoundError:
        raise ProblemError(f"there is no data file at '{path}'. Correct the path.") from None
    except (OSError, UnicodeDecodeError, csv.Error, BadZipFile, EOFError) as error:
        raise ProblemError(f"'{path}' cannot be read: {error}.") from error
    if not len(block.values):
        raise ProblemError(f"'{path}' has no rows. Every agent needs at least one row.")
    _check_finite(block)
    return block


def _read_csv(path: Path, names: Sequence[str], ones: int, delimiter: str) -> Block:
    values, lines = array("d"), array("q")
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter=delimiter, strict=True)
        header = [name.strip() for name in next(rows, [])]
        picked = [_column(path, header, name) for name in names]
        filler = [1.0] * ones
        for row in rows:
            if not row:
                continue
            try:
                values.extend([float(row[n]) for n in picked])
            except (ValueError, IndexError):
                raise _bad_cell(f"{path}:{rows.line_num}", row, header, picked) from None
            values.extend(filler)
            lines.append(rows.line_num)
    block = np.frombuffer(values, np.float64).reshape(len(lines), len(names) + ones)
    return Block(block, tuple(names), lambda row: f"{path}:{lines[row]}")


def _column(path: Path, header: list[str], name: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    if name in header:
        raise ProblemError(f"{path}:1: the column {name!r} is there twice. Rename one.")
    one = " The header is one cell: set delimiter to the character between cells." * (
        len(header) == 1
    )
    raise ProblemError(
        f"{path}:1: there is no column {name!r}.{suggestion(name, header)}{one} {_some(header)}"
    )


def _some(names: Sequence[str]) -> str:
    more = [f"… ({len(names)} in all)"] if len(names) > MOST_NAMES else []
    return allowed_names([*names[:MOST_NAMES], *more])


def _bad_cell(place: str, row: list[str], header: list[str], picked: list[int]) -> ProblemError:
    for n in picked:
        if n >= len(row):
            return ProblemError(
                f"{place}: the row has {len(row)} cells and the header {len(header)}. Correct "
                "the row."
            )
        try:
            float(row[n])
        except ValueError:
            return _not_a_number(place, header[n], row[n])
    raise AssertionError(place)  # the caller has found a cell that is no number


def _not_a_number(place: str, column: str, cell: object) -> ProblemError:
    said = "empty" if cell in ("", None) else f"{cell!r}, which is no finite number"
    return ProblemError(
        f"{place}: column {column} is {said}. Impute it, or leave the row out: every cell counts."
    )


def _check_finite(block: Block) -> None:
    finite = np.isfinite(block.values)
    if not finite.all():
        row, column = (int(n) for n in np.argwhere(~finite)[0])
        cell = float(block.values[row, column])
        raise _not_a_number(block.place(row), block.labels[column], cell)


def _read_parquet(path: Path, names: Sequence[str], ones: int, delimiter: str) -> Block:
    del delimiter
    arrow, parquet = optional("pyarrow", "parquet"), optional("pyarrow.parquet", "parquet")
    try:
        with parquet.ParquetFile(path) as file:
            header = list(file.schema_arrow.names)
            for name in names:
                _column(path, header, name)
            values = np.ones((file.metadata.num_rows, len(names) + ones))
            _fill(values, names, file.iter_batches(columns=list(dict.fromkeys(names))), path)
    except arrow.ArrowException as error:
        raise ProblemError(f"'{path}' cannot be read as Parquet: {error}.") from error
    return Block(values, tuple(names), lambda row: f"{path}, row {row + 1}")


def _fill(
    values: NDArray[np.float64], names: Sequence[str], batches: Iterator[Any], path: Path
) -> None:
    first = 0
    for batch in batches:
        for n, name in enumerate(names):
            column = batch.column(name)
            if column.null_count:
                row = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                raise _not_a_number(f"{path}, row {row + 1}", name, None)
            numbers = column.to_numpy(zero_copy_only=False)
            _check_kind(f"{path}: column {name}", numbers)
            values[first : first + len(numbers), n] = numbers
        first += batch.num_rows


def _check_kind(place: str, numbers: NDArray[Any]) -> None:
    if numbers.dtype.kind not in "fiub":
        raise ProblemError(
            f"{place} holds values of type {numbers.dtype}, and not numbers. Convert them."
        )


def _read_npz(path: Path, names: Sequence[str], ones: int, delimiter: str) -> Block:
    """Columns of an NPZ: an array (rows,) is one column, an array (rows, n) is n columns."""
    del delimiter
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            for name in names:
                _column(path, list(file.files), name)
            parts = [_matrix(path, name, file[name]) for name in names]
    except ValueError as error:
        if isinstance(error, ProblemError):
            raise
        raise ProblemError(f"'{path}' cannot be read as NPZ: {error}.") from error
    rows = {len(part) for part in parts}
    if len(rows) > 1:
        sizes = ", ".join(f"{name} {len(part)}" for name, part in zip(names, parts, strict=True))
        raise ProblemError(f"'{path}': the arrays have unequal numbers of rows: {sizes}.")
    labels = tuple(
        name if part.shape[1] == 1 else f"{name}[:, {n}]"
        for name, part in zip(names, parts, strict=True)
        for n in range(part.shape[1])
    )
    values = np.ones((rows.pop(), len(labels) + ones))
    np.concatenate(parts, axis=1, out=values[:, : len(labels)])
    return Block(values, labels, lambda row: f"{path}, row {row}")


def _matrix(path: Path, name: str, values: NDArray[Any]) -> NDArray[Any]:
    _check_kind(f"{path}: array {name}", values)
    if values.ndim not in (1, 2):
        raise ProblemError(
            f"'{path}': the array {name} is a column (rows,) or a matrix (rows, columns), but its "
            f"shape is {values.shape}. Reshape it."
        )
    return values.reshape(len(values), math.prod(values.shape[1:]))


def signs(block: Block) -> NDArray[np.float64]:
    """The labels as ±1; the file may code them as {0, 1} or as {−1, 1}."""
    labels = block.values[:, 0]
    uses_zero = bool((labels == 0).any())
    wrong = np.flatnonzero(~np.isin(labels, (0.0, 1.0) if uses_zero else (-1.0, 1.0)))
    if wrong.size:
        row = int(wrong[0])
        raise ProblemError(
            f"{block.place(row)}: column {block.labels[0]} is {labels[row]:g}, but labels are all "
            f"in {{0, 1}} or all in {{-1, 1}}{', and others are 0' * uses_zero}. Recode it "
            "(several classes: one against the rest)."
        )
    return 2 * labels - 1 if uses_zero else labels.copy()
