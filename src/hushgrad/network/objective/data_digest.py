"""Keyed digests of the data that an agent computes with: the same rows are known again.

Rows of a CSV file are known whatever their order, the order of columns, the header, the delimiter
and the way in which numbers are written. A sketch, the least of the rows' digests, estimates how
many different rows two files have and share (MinHash), and so how much of the smaller file is in
the larger one: neither rows that are left out nor rows that are put in between hide the others.
Other files are known by their bytes. The path counts too, with symbolic links resolved. All digests
are keyed: without the ledger's secret they tell nothing.

The digests cannot see a copy whose every row was changed, for example by one more column, or less
than about a fiftieth of a file. A policy that lists its data files (`data`) does not need to see
that. The ledger (state/ledger.py) keeps the digests.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

SKETCH = 128  # digests: the part of both files' rows that they share is estimated to ± 0.04
SAME = 0.2  # of the smaller file's rows are in the other one: they are one data set
_BYTES = 8  # of a digest in a sketch
_ROOT_OFF = 2.0  # four standard deviations of the root of a count of digests
_MANY = 4096  # digests that are kept while a file is read


@dataclass(frozen=True)
class DataDigest:
    """The identity of a file of data."""

    place: str  # of the resolved path
    content: str  # of the rows, in any order
    sketch: tuple[str, ...]  # the least digests of rows, in order
    n_rows: int

    @classmethod
    def of_line(cls, facts: Mapping[str, Any]) -> DataDigest | None:
        """The identity of the data of a line; None: it has none."""
        if "sketch" not in facts:
            return None
        return cls(facts["place"], facts["data"], _cut(facts["sketch"]), facts["data_rows"])

    def facts(self) -> dict[str, Any]:
        """For a line of a ledger."""
        return {
            "place": self.place, "data": self.content, "data_rows": self.n_rows,
            "sketch": "".join(self.sketch),
        }  # fmt: skip

    def shares(self, facts: Mapping[str, Any]) -> float:
        """The part of the smaller file's rows that is in the other; 1 for the same place.

        facts    of a line of a ledger
        """
        if facts.get("place") == self.place or facts.get("data") == self.content:
            return 1.0
        other = _cut(facts.get("sketch", ""))
        mine, union = _distinct(self.sketch), sorted({*other, *self.sketch})[:SKETCH]
        both = set(other) & set(self.sketch) & set(union)
        smaller = min(mine, _distinct(other))
        return min(1.0, len(both) / len(union) * _distinct(union) / smaller) if smaller else 0.0

    def changed(self, facts: Mapping[str, Any]) -> float:
        """How many rows at least one of both files has and the other has not; 0: the same rows.

        Files with fewer than 128 different rows together are compared exactly. Of larger files a
        sample of 128 rows is, and a single row of it may be the only one that changed.

        facts    of a line of a ledger; data that are no rows of text count as one
        """
        if facts.get("data") == self.content:
            return 0.0
        other = _cut(facts.get("sketch", ""))
        union = sorted({*other, *self.sketch})[:SKETCH]
        apart = len(set(union) - (set(other) & set(self.sketch)))
        if len(union) == SKETCH:
            apart = max(0.0, math.sqrt(apart) - _ROOT_OFF) ** 2
        return max(1.0, apart / len(union) * _distinct(union)) if union else 1.0


def _cut(text: str) -> tuple[str, ...]:
    width = 2 * _BYTES
    return tuple(text[n : n + width] for n in range(0, len(text), width))


def _distinct(sketch: Sequence[str]) -> float:
    """About how many digests there are, of which these are the least."""
    if len(sketch) < SKETCH:
        return len(sketch)
    return (SKETCH - 1) * 16.0 ** (2 * _BYTES) / int(sketch[-1], 16)


def data_digest(
    path: Path | None, secret: bytes, *, delimiter: str | None = None, other: str = ""
) -> DataDigest | None:
    """The identity of the data at a path; None: no data.

    delimiter    with which the agent reads the rows; None: the file has no rows of text
    other        names data that are no file
    """
    if path is None:
        if not other:
            return None
        name = _keyed(secret, b"name", other.encode())
        return DataDigest(name, name, (name[: 2 * _BYTES],), 1)
    resolved = path.resolve()
    total, count, least = 0, 0, set[str]()
    for row in _rows(resolved, delimiter):
        one = _keyed(secret, b"row", row)
        total, count = total + int(one, 16), count + 1  # a sum does not depend on the order
        least.add(one[: 2 * _BYTES])
        if len(least) > _MANY:
            least = set(sorted(least)[:SKETCH])
    content = _keyed(secret, b"rows", f"{count} {total}".encode())
    place = _keyed(secret, b"place", str(resolved).encode())
    return DataDigest(place, content, tuple(sorted(least)[:SKETCH]), count)


def _rows(path: Path, delimiter: str | None) -> Iterator[bytes]:
    """The rows of a CSV file, each in one form; of another file, its content."""
    if delimiter is None:
        yield path.read_bytes()
        return
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.reader(file, delimiter=delimiter)
        next(rows, None)
        for row in rows:
            if row:
                yield "\x1f".join(sorted(map(_plain, row))).encode()


def _plain(cell: str) -> str:
    """A number as its shortest text, with a point."""
    text = cell.strip()
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return text
    return repr(value + 0.0) if math.isfinite(value) else text


def _keyed(secret: bytes, what: bytes, data: bytes) -> str:
    return blake2b(data, key=secret, person=what, digest_size=16).hexdigest()
