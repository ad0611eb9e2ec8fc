"""Which data an agent computes with, told by keyed digests: the same rows are known again.

Rows of a CSV file are known whatever their order, the order of columns, the header, the delimiter
and the way in which numbers are written. A sketch, the least of the rows' digests, estimates how
many rows two files share (MinHash). Other files are known by their bytes. The path counts too, with
symbolic links resolved. All digests are keyed: without the ledger's secret they tell nothing.

What this cannot see: a copy whose every row was changed, for example by one more column. A policy
that lists its data files (`data`) does not need to see it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

DELIMITERS = (",", ";", "\t")  # as fits read them
SKETCH = 128  # digests: the shared part is estimated to ± 0.04
SAME = 0.2  # of the rows in both files: they are one data set
_BYTES = 8  # of a digest in a sketch
_MANY = 4096  # digests that are kept while a file is read


@dataclass(frozen=True)
class DataDigest:
    """The identity of a file of data."""

    place: str  # of the resolved path
    content: str  # of the rows, in any order
    sketch: tuple[str, ...]  # the least digests of rows, in order
    n_rows: int

    def facts(self) -> dict[str, Any]:
        """For a line of a ledger."""
        return {
            "place": self.place, "data": self.content, "data_rows": self.n_rows,
            "sketch": "".join(self.sketch),
        }  # fmt: skip

    def shares(self, facts: Mapping[str, Any]) -> float:
        """The part of rows that these data share with those of a line; 1 for the same place."""
        if facts.get("place") == self.place or facts.get("data") == self.content:
            return 1.0
        text: str = facts.get("sketch", "")
        width = 2 * _BYTES
        other = {text[n : n + width] for n in range(0, len(text), width)}
        least = sorted(other | set(self.sketch))[:SKETCH]
        both = other & set(self.sketch)
        return len([one for one in least if one in both]) / max(1, len(least))


def data_digest(path: Path | None, secret: bytes, *, other: str = "") -> DataDigest | None:
    """The identity of the data at a path; `other` names data that are no file; None: no data."""
    if path is None:
        if not other:
            return None
        name = _keyed(secret, b"name", other.encode())
        return DataDigest(name, name, (name[: 2 * _BYTES],), 1)
    resolved = path.resolve()
    total, count, least = 0, 0, set[str]()
    for row in _rows(resolved):
        one = _keyed(secret, b"row", row)
        total, count = total + int(one, 16), count + 1  # a sum does not depend on the order
        least.add(one[: 2 * _BYTES])
        if len(least) > _MANY:
            least = set(sorted(least)[:SKETCH])
    content = _keyed(secret, b"rows", f"{count} {total}".encode())
    place = _keyed(secret, b"place", str(resolved).encode())
    return DataDigest(place, content, tuple(sorted(least)[:SKETCH]), count)


def _rows(path: Path) -> Iterator[bytes]:
    """The rows of a CSV file, each in one form; of another file, its content."""
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        yield path.read_bytes()
        return
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        header = file.readline()
        for row in csv.reader(file, delimiter=max(DELIMITERS, key=header.count)):
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
