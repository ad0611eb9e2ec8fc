"""The columns of one site: from a CSV file, or from a mapping of names to arrays.

A column is read by its name, so the order of columns in a file does not matter. Cells stay texts
until a model says what they mean (`rows.py`). Every error names the site, the place, the column and
the cell.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ProblemError
from hushgrad.schema.places import allowed_names, suggestion

DELIMITERS = (",", ";", "\t")
_MOST_NAMES = 20  # columns that a message lists

type Cells = list[str] | NDArray[np.float64]  # texts, or numbers with NaN where one is missing


@dataclass(frozen=True, eq=False)
class SiteTable:
    """The rows of one site that a model needs."""

    site: str
    columns: Mapping[str, Cells]  # each (rows,)
    place: Callable[[int], str]  # row → the site and the row, for messages
    decimal: str = "."

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.columns.values())))


def read_table(
    path: Path | str,
    names: Sequence[str],
    *,
    site: str,
    delimiter: str | None = None,
    decimal: str = ".",
) -> SiteTable:
    """The columns `names` of a CSV file in UTF-8, with or without a byte order mark.

    delimiter    None: the one of comma, semicolon and tab that gives a header with all names
    decimal      "." or ",": the decimal sign of this file
    """
    path = Path(path)
    if decimal not in (".", ","):
        raise ProblemError(f'site {site}: decimal is "." or ",", but decimal = {decimal!r}.')
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            between = delimiter or _delimiter(file.readline(), names)
            file.seek(0)
            return _read(
                site, path, csv.reader(file, delimiter=between, strict=True), names, decimal
            )
    except FileNotFoundError:
        raise ProblemError(f"site {site}: there is no file '{path}'. Correct the path.") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProblemError(
            f"site {site}: '{path}' cannot be read: {error}. Save it as CSV in UTF-8."
        ) from error


def delimiter_of(path: Path, names: Sequence[str]) -> str:
    """The delimiter with which `read_table` reads these columns, if it is not told."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return _delimiter(file.readline(), names)


def _delimiter(header: str, names: Sequence[str]) -> str:
    for delimiter in DELIMITERS:
        cells = [cell.strip() for cell in next(csv.reader([header], delimiter=delimiter), [])]
        if set(names) <= set(cells):
            return delimiter
    return max(DELIMITERS, key=header.count)


def _read(site: str, path: Path, rows: Any, names: Sequence[str], decimal: str) -> SiteTable:
    header = [name.strip() for name in next(rows, [])]
    picked = [_column(f"site {site}: {path}:1", header, name) for name in names]
    cells: list[list[str]] = [[] for _ in names]
    lines: list[int] = []
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise ProblemError(
                f"site {site}: {path}:{rows.line_num}: the row has {len(row)} cells and the header "
                f"{len(header)}. Correct the row, or its delimiter."
            )
        for column, n in zip(cells, picked, strict=True):
            column.append(row[n].strip())
        lines.append(rows.line_num)
    if not lines:
        raise ProblemError(f"site {site}: '{path}' has no rows. Every site needs at least one.")
    columns = dict(zip(names, cells, strict=True))
    return SiteTable(site, columns, lambda n: f"site {site}: {path}:{lines[n]}", decimal)


def _column(place: str, header: Sequence[str], name: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    if name in header:
        raise ProblemError(f"{place}: the column {name!r} is there twice. Rename one.")
    more = [f"… ({len(header)} in all)"] if len(header) > _MOST_NAMES else []
    raise ProblemError(
        f"{place}: there is no column {name!r}.{suggestion(name, header)} "
        f"{allowed_names([*header[:_MOST_NAMES], *more])}"
    )


def table_of(columns: Mapping[str, Any], names: Sequence[str], *, site: str) -> SiteTable:
    """The columns `names` of a mapping to arrays or lists, of numbers or of texts."""
    found: dict[str, Cells] = {}
    for name in names:
        if name not in columns:
            _column(f"site {site}", list(columns), name)
        values = np.asarray(columns[name])
        if values.ndim != 1 or not len(values):
            raise ProblemError(
                f"site {site}: the column {name!r} has shape (rows,) with at least one row, but "
                f"its shape is {values.shape}."
            )
        is_number = values.dtype.kind in "fiub"
        found[name] = (
            values.astype(np.float64) if is_number else [_text(v) for v in values.tolist()]
        )
    sizes = {name: len(cells) for name, cells in found.items()}
    if len(set(sizes.values())) > 1:
        raise ProblemError(f"site {site}: columns have equal numbers of rows, but got {sizes}.")
    return SiteTable(site, found, lambda n: f"site {site}: row {n}")


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()
