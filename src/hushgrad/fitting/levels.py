"""Levels of a factor that the sites agree on, in one masked average: who has which stays hidden.

Each site writes the texts of its levels into a table of cells (an invertible lookup table). A text
goes into one cell of each of six parts of the table; the places are hashes of the text. A cell adds
up, over all texts in it and all sites,

    [1, the bytes of the text as whole numbers of 24 bits, a checksum of 48 bits]

The pooled table is read from the outside in. A cell in which only one text is left, from k sites,
holds k times that text: the quotient is a text whose checksum and place are right. It is taken out
of its other cells too, and so on, until nothing is left. The table is a function of the set of
texts and of how many sites have each; so these are what everyone learns.

A table that cannot be read, because texts share all their cells, is pooled again with other places.

`programmes.py` begins with this average if a model has agreed levels.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Generator, Iterable, Mapping

import numpy as np

from hushgrad.errors import FitError
from hushgrad.fitting.counts import agree_on
from hushgrad.fitting.model import Model
from hushgrad.fitting.newton import FitStage, pooled
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.rows import LONGEST_LEVEL, Rows
from hushgrad.fitting.sums import Vector

ATTEMPTS = 3
PARTS = 6  # of a table; two of 12 texts share all their places in 2 of a million tables
_BYTES = 3  # of a whole number
_WORDS = LONGEST_LEVEL // _BYTES
_CHECKS = 2  # whole numbers of the checksum
ENTRY = 1 + _WORDS + _CHECKS  # numbers of a cell


def n_numbers(most_levels: int) -> int:
    """The whole numbers of the table of one factor."""
    return PARTS * _width(most_levels) * ENTRY


def _width(most_levels: int) -> int:
    return max(8, math.ceil(1.5 * most_levels))


def _entry(text: str) -> Vector:
    """The numbers of one text, (ENTRY,)."""
    data = text.encode().ljust(_WORDS * _BYTES, b"\0")
    data += hashlib.sha256(b"check" + text.encode()).digest()[: _CHECKS * _BYTES]
    words = [int.from_bytes(data[n : n + _BYTES]) for n in range(0, len(data), _BYTES)]
    return np.array([1.0, *map(float, words)])


def _places(text: str, salt: str, width: int) -> list[int]:
    digest = hashlib.sha256(f"{salt}:{text}".encode()).digest()
    words = [int.from_bytes(digest[4 * n : 4 * n + 4]) for n in range(PARTS)]
    return [part * width + word % width for part, word in enumerate(words)]


def write_levels(texts: Iterable[str], salt: str, most_levels: int) -> Vector:
    """The table of one site's texts, flat."""
    width = _width(most_levels)
    cells = np.zeros((PARTS * width, ENTRY))
    for text in set(texts):
        cells[_places(text, salt, width)] += _entry(text)
    return cells.reshape(-1)


def read_levels(table: Vector, salt: str, most_levels: int, n_sites: int) -> dict[str, int] | None:
    """The texts and how many sites have each; None: the table cannot be read."""
    width = _width(most_levels)
    cells = table.reshape(-1, ENTRY).copy()
    found: dict[str, int] = {}
    is_new = True
    while is_new:
        is_new = False
        for place, cell in enumerate(cells):
            text = _single(cell, n_sites)
            if text is None or text in found or place not in _places(text, salt, width):
                continue
            found[text], is_new = int(cell[0]), True
            cells[_places(text, salt, width)] -= found[text] * _entry(text)
    return None if cells.any() else found


def _single(cell: Vector, n_sites: int) -> str | None:
    """The text of a cell that holds one text only; None: it holds none or several."""
    count = cell[0]
    if not 1 <= count <= n_sites or (cell % count).any() or (cell < 0).any():
        return None
    words = (cell[1 : 1 + _WORDS] / count).tolist()
    if max(words) >= 2 ** (8 * _BYTES):
        return None
    data = b"".join(int(word).to_bytes(_BYTES) for word in words)
    try:
        text = data.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return None
    return text if (count * _entry(text) == cell).all() else None


def agree_levels(
    model: Model, rows: Rows, digest: str, progress: FitProgress
) -> Generator[Vector, Vector, tuple[dict[str, dict[str, int]], tuple[FitStage, ...]]]:
    """The levels of every open factor, in order, with the number of sites that have each."""
    words, found, stages = agree_on(digest), dict[str, dict[str, int]](), list[FitStage]()
    size = n_numbers(model.most_levels)
    told = ENTRY * model.most_levels  # a table tells no more than the texts in it
    for attempt in range(ATTEMPTS):
        left = [column for column in model.open_factors if column not in found]
        salts = {column: f"{digest}:{column}:{attempt}" for column in left}
        own = [write_levels(rows.texts[c], salts[c], model.most_levels) for c in left]
        numbers = progress.add(told * len(left))
        progress.note_part(None)
        got = yield from pooled(np.concatenate([words.own, *own]))
        stages.append(FitStage("levels", numbers))
        n_sites, got = words.check(got)
        for column, table in zip(left, np.split(got, len(got) // size), strict=True):
            levels = read_levels(table, salts[column], model.most_levels, n_sites)
            if levels is not None:
                found[column] = levels
        if len(found) == len(model.open_factors):
            break
    for column in model.open_factors:
        if column not in found:
            raise FitError(
                f"the levels of {column!r} cannot be read: all sites together have more than "
                f"{model.most_levels}, or a site sent false numbers. Declare the levels, or a "
                "larger most_levels."
            )
    return {c: ordered(model, c, found[c]) for c in model.open_factors}, tuple(stages)


def ordered(model: Model, column: str, found: Mapping[str, int]) -> dict[str, int]:
    """The levels in their order, the reference first; refuses what makes no factor."""
    told = ", ".join(f"{level!r} ({count})" for level, count in sorted(found.items()))
    if not 2 <= len(found) <= model.most_levels:
        raise FitError(
            f"a factor has 2 to most_levels = {model.most_levels} levels, but {column!r} has "
            f"{len(found)} at all sites together (with the number of sites): {told}."
        )
    order = sorted(found, key=_key(found))
    first = model.references.get(column, order[0])
    if first not in found:
        raise FitError(
            f"the reference {first!r} of {column!r} is a level of no site. The levels, with the "
            f"number of sites: {told}."
        )
    return {level: found[level] for level in [first, *(level for level in order if level != first)]}


def _key(levels: Iterable[str]):  # a key for sorted
    """Numbers are sorted as numbers, if all levels are numbers."""
    try:
        numbers = {level: (float(level), level) for level in levels}
    except ValueError:
        return str
    return numbers.__getitem__


def counts_of(rows: Rows) -> Iterable[tuple[str, str, int]]:
    """The rows of this site at each of its levels: column, level, count."""
    for column, texts in rows.texts.items():
        yield from ((column, level, count) for level, count in sorted(Counter(texts).items()))
