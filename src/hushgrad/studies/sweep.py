"""The product of a sweep's settings: concrete studies, numbered from 0.

`Study.run_sweep`, `hushgrad run --row` and `hushgrad gather` take its rows.
"""

from __future__ import annotations

import copy
import csv
import io
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hushgrad.errors import StudyError
from hushgrad.files.atomic import write_file
from hushgrad.schema.builders import PARTS, Builder, builders, parameters, part_of
from hushgrad.schema.places import Source, allowed_names, shown, suggestion

if TYPE_CHECKING:
    from hushgrad.studies.study import Study

SWEPT_TABLES = ("network", "problem", "algorithm", "run")
_ALGORITHM = re.compile(r"algorithm(?:\[([^\]]*)\])?\.(.+)")


@dataclass(frozen=True)
class SweepRow:
    """One combination of a sweep's values."""

    row: int
    settings: Mapping[str, Any]  # dotted key → value
    study: Study  # concrete: the settings are in its tables, and it has no sweep

    def __str__(self) -> str:
        return f"row {self.row} ({describe(self.settings)})"


@dataclass(frozen=True)
class Table:
    """Tidy results: one record for every row and algorithm."""

    rows: tuple[dict[str, Any], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for row in self.rows for column in row))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def write_csv(self, path: str | Path) -> Path:
        """One line per record; tables and lists among the settings are written as JSON."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns)
        writer.writeheader()
        writer.writerows({k: cell(v) for k, v in row.items()} for row in self.rows)
        return write_file(Path(path), text.getvalue())


def cell(value: Any) -> Any:
    """A value as a table in CSV has it."""
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def describe(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {shown(value)}" for key, value in settings.items())


def settings_of(source: Source, sweep: Any) -> dict[str, list[Any]]:
    """Dotted keys and their values; `a.b = […]` counts as `"a.b" = […]`."""
    if not isinstance(sweep, dict) or not sweep:
        raise source.error(
            ("sweep",), 'needs at least one line such as "algorithm.stepsize.value" = [0.01, 0.02].'
        )
    flat: dict[str, list[Any]] = {}
    for key, values in cast("dict[str, Any]", sweep).items():
        if isinstance(values, dict):
            inner = settings_of(source, values)
            flat |= {f"{key}.{name}": value for name, value in inner.items()}
        elif not isinstance(values, list) or not values:
            raise source.error(
                ("sweep", key), f"= {shown(values)} is not a list of the values to sweep over."
            )
        else:
            flat[key] = cast("list[Any]", values)
    return flat


def n_rows(settings: Mapping[str, Sequence[Any]]) -> int:
    return math.prod(len(values) for values in settings.values())


def combinations(settings: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """The product, the last key varying fastest."""
    for values in itertools.product(*settings.values()):
        yield dict(zip(settings, values, strict=True))


def applied(
    source: Source,
    tables: Mapping[str, Any],
    settings: Mapping[str, Any],
    classes: Sequence[Builder],
) -> dict[str, Any]:
    """The tables with the settings in their places and without the sweep.

    classes   the class of every algorithm, whose parameters decide to which ones a key applies
    """
    tables = copy.deepcopy({name: table for name, table in tables.items() if name != "sweep"})
    for key, value in settings.items():
        targets = _targets(source, tables, key, classes)
        name = key.rpartition(".")[2]
        for target in targets:
            target[name] = copy.deepcopy(value)
    return tables


def _targets(
    source: Source, tables: dict[str, Any], key: str, classes: Sequence[Builder]
) -> list[dict[str, Any]]:
    """The tables that a swept key is written into."""
    if match := _ALGORITHM.fullmatch(key):
        return _algorithm_targets(source, tables, key, match[1], match[2].split("."), classes)
    first, *path = key.split(".")
    if first not in SWEPT_TABLES or not path:
        raise source.error(
            ("sweep", key),
            f"does not start with a table and a dot.{suggestion(first, SWEPT_TABLES)} "
            f"{allowed_names(f'{name}.…' for name in SWEPT_TABLES)}",
        )
    table = _inner(tables.setdefault(first, {}), path[:-1])
    if table is None:
        raise source.error(
            ("sweep", key),
            f"leads into {'.'.join([first, *path[:-1]])}, which is not a table of this study.",
        )
    return [table]


def _algorithm_targets(
    source: Source,
    tables: dict[str, Any],
    key: str,
    which: str | None,
    path: list[str],
    classes: Sequence[Builder],
) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = tables["algorithm"]
    numbers = range(len(entries)) if which is None else [_number(source, key, which, entries)]
    targets = [
        table
        for i in numbers
        if (table := _inner(entries[i], path[:-1])) is not None
        and path[-1] in _keys_at(classes[i], entries[i], path[:-1])
    ]
    if not targets:
        names = sorted({k for i in numbers for k in _keys_at(classes[i], entries[i], path[:-1])})
        around = ".".join(path[:-1])
        way_out = f" {allowed_names(names)}" if names else f" Write {around} into [[algorithm]]."
        raise source.error(
            ("sweep", key),
            f"is a key of no algorithm that it means.{suggestion(path[-1], names)}{way_out}",
        )
    return targets


def _number(source: Source, key: str, which: str, entries: Sequence[Mapping[str, Any]]) -> int:
    """The position of the algorithm that `[which]` means: a number, a label or a name."""
    if which.isdecimal() and int(which) < len(entries):
        return int(which)
    for by in ("label", "name"):
        found = [i for i, entry in enumerate(entries) if entry.get(by) == which]
        if len(found) == 1:
            return found[0]
        if found:
            raise source.error(
                ("sweep", key), f"means {len(found)} algorithms. Use a number, as in algorithm[0]."
            )
    names = [str(entry.get("label", entry.get("name"))) for entry in entries]
    raise source.error(
        ("sweep", key), f"means no algorithm.{suggestion(which, names)} "
        f"{allowed_names([*map(str, range(len(entries))), *names])}"
    )  # fmt: skip


def _inner(table: Any, path: Sequence[str]) -> dict[str, Any] | None:
    for name in path:
        table = table.get(name) if isinstance(table, dict) else None
    return cast("dict[str, Any]", table) if isinstance(table, dict) else None


def _keys_at(cls: Builder, table: dict[str, Any], path: Sequence[str]) -> set[str]:
    """The keys that a table inside an algorithm's may have."""
    builder: Builder = cls
    for name in path:
        inner = _inner(table, [name])
        taken = parameters(builder).get(name)
        part = None if taken is None else part_of(taken.annotation)
        if inner is None or part is None:
            return set()
        choices = builders(PARTS[part], part)
        kind = inner.get("kind")
        if kind not in choices:
            return {"kind"}
        builder, table = choices[kind], inner
    return {*parameters(builder), *(["kind"] if path else ["label"])}


def row_of(rows: Sequence[SweepRow], number: int) -> SweepRow:
    """Row `number`, or StudyError with the rows that there are."""
    if not 0 <= number < len(rows):
        raise StudyError(f"the sweep has rows 0 to {len(rows) - 1}, but row = {number}.")
    return rows[number]


def numbers(text: str) -> list[int]:
    """The row numbers of a list such as "0,3,10-19", each once, in order.

    >>> numbers("12,3-5,4")
    [3, 4, 5, 12]
    """
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise StudyError(
                f"rows are numbers and ranges such as 0,3,10-19, but {part.strip()!r} is neither."
            )
        found |= set(range(first, last + 1))
    return sorted(found)
