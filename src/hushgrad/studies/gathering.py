"""The parts of a sweep's table that several programs wrote, joined into one table.

`hushgrad run --rows 10-19` and `--row 7` write parts (`sweep-10-19.csv`, `sweep-7.csv`), for
example as the tasks of a cluster's array. `hushgrad gather` joins them. Cells stay the texts that a
part has, so no digit changes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrad.errors import StudyError
from hushgrad.studies.sweep import Table, cell

if TYPE_CHECKING:
    from hushgrad.studies.study import Study

_PART = re.compile(r"sweep-[\d,-]+\.csv")
_TIMES = ("seconds",)  # differ between two runs of one row


@dataclass(frozen=True)
class Gathered:
    """The rows that parts have, and those that no part has."""

    table: Table  # texts
    parts: tuple[Path, ...]
    missing: tuple[int, ...]


def gather(study: Study, directory: Path) -> Gathered:
    """Join all `sweep-….csv` of a directory; StudyError if one is no part of this study."""
    rows = study.sweep()
    parts = sorted(p for p in directory.glob("sweep-*.csv") if _PART.fullmatch(p.name))
    found: dict[tuple[int, str], tuple[Path, dict[str, str]]] = {}
    for path in parts:
        for line, record in _read(path):
            place = f"{path}:{line}"
            text = record.get("row") or ""
            number = int(text) if text.isdecimal() else len(rows)
            if number >= len(rows):
                raise StudyError(
                    f"{place}: {study.source.name} has rows 0 to {len(rows) - 1}, but the part has "
                    f"row {text!r}. Move the file away."
                )
            _compare(place, rows[number].settings, record)
            key = number, record.get("algorithm", "")
            if key in found:
                _check_equal(place, found[key], record)
            found.setdefault(key, (path, record))
    have = {number for number, _ in found}
    order = sorted(found, key=lambda key: key[0])  # algorithms of a row stay in their order
    return Gathered(
        Table(tuple(found[key][1] for key in order)),
        tuple(parts),
        tuple(row.row for row in rows if row.row not in have),
    )


def _read(path: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            return [(reader.line_num, {k: v or "" for k, v in r.items()}) for r in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StudyError(f"'{path}' cannot be read as a part of a sweep: {error}.") from error


def _compare(place: str, settings: Mapping[str, object], record: Mapping[str, str]) -> None:
    for key, value in settings.items():
        if record.get(key) != str(cell(value)):
            raise StudyError(
                f"{place}: the study's row has {key} = {cell(value)}, but the part has "
                f"{record.get(key)!r}: it is of another study, or of another state of this one. "
                "Move the file away, or run its rows again."
            )


def _check_equal(place: str, before: tuple[Path, dict[str, str]], record: dict[str, str]) -> None:
    path, other = before
    for key in record:
        if key not in _TIMES and record[key] != other.get(key):
            raise StudyError(
                f"{place}: '{path}' has the same row with {key} = {other.get(key)}, but here it is "
                f"{record[key]}. Keep one of the two files."
            )
