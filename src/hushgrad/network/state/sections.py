"""The sections of a journal as bytes; journal.py writes them, position.py reads them.

A section holds float64 arrays by name and shape, a few facts, and a blob of bytes. The checksum of
a section covers all sections before it. So a reader stops at a torn section, and at an old section
behind a new one.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.files.digest import DIGEST, digest, joint_digest

type Arrays = Mapping[str, NDArray[np.float64]]
type Read = Callable[[int, int], bytes]  # (place, length) → bytes

# A section: magic and checksum; k, round, and the lengths of layout, blob and arrays; then layout,
# blob and arrays. The checksum covers everything behind it, and the checksum of the section before.
_MAGIC = b"hushjrnl"
_HEAD = struct.Struct("<qqQQQ")
_CHECKED = len(_MAGIC) + DIGEST  # where the checked part begins
_START = _CHECKED + _HEAD.size
NOTHING = bytes(DIGEST)  # the checksum of an empty slot
_FLOAT = np.dtype("<f8")
_SHORT = 4096  # bytes
_NONE: Mapping[str, Any] = MappingProxyType({})


class Section(NamedTuple):
    """Arrays, facts and bytes that are written together."""

    k: int
    round: int
    arrays: Arrays = _NONE
    blob: bytes = b""
    facts: Mapping[str, Any] = _NONE  # values that JSON can hold


@functools.lru_cache(maxsize=64)
def _layout(facts: str, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> bytes:
    """The facts, names and shapes of a section; cached, since most rounds have the same."""
    arrays = [(name, *shape) for name, shape in zip(names, shapes, strict=True)]
    text = f"[{facts}, {json.dumps(arrays)}]".encode()
    return text + b" " * (-len(text) % 8)


def encode_section(section: Section, checksum: bytes) -> tuple[list[Any], int, bytes]:
    """The pieces of a section, their length in bytes, and the checksum of the section; `checksum`
    is of the section before.
    """
    k, round_, arrays, blob, facts = section
    values = [np.ascontiguousarray(value, _FLOAT) for value in arrays.values()]
    shapes = tuple([value.shape for value in values])
    layout = _layout(json.dumps(dict(facts)) if facts else "{}", tuple(arrays), shapes)
    size = sum([value.nbytes for value in values])
    head = _HEAD.pack(k, round_, len(layout), len(blob), size)
    pieces = [head, layout, blob, bytes(-len(blob) % 8), *values]
    if size <= _SHORT:  # as most sections of short vectors: one piece costs less than several
        whole = b"".join(pieces)
        checksum = digest(checksum + whole)
        return [b"".join((_MAGIC, checksum, whole))], _CHECKED + len(whole), checksum
    plain = [value.reshape(-1).view(np.uint8).data for value in values]
    pieces = [b"".join(pieces[:4]), *plain]
    checksum = joint_digest(checksum, *pieces)
    return [_MAGIC + checksum, *pieces], _CHECKED + len(pieces[0]) + size, checksum


class _Stored(Mapping[str, NDArray[np.float64]]):
    """Arrays that are read from the disk when they are used.

    All long vectors of a slot would fill more memory than an agent needs.
    """

    def __init__(self, read: Read, place: int, shapes: list[list[Any]]):
        self._read = read
        self._places: dict[str, tuple[int, list[int]]] = {}
        for name, *shape in shapes:
            self._places[name] = place, shape
            place += 8 * math.prod(shape)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        place, shape = self._places[name]
        return np.frombuffer(self._read(place, 8 * math.prod(shape)), _FLOAT).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def decode_sections(content: bytes) -> tuple[list[Section], int, bytes]:
    """The sections before the first torn one, the place behind them, and their checksum."""
    return read_sections(lambda place, count: content[place : place + count], len(content))


def read_sections(read: Read, size: int) -> tuple[list[Section], int, bytes]:
    """The same as `decode_sections`, for `size` bytes that `read` gives."""
    sections: list[Section] = []
    place, checksum = 0, NOTHING  # after the whole sections so far
    while place + _START <= size:
        start = read(place, _START)
        magic, stated = start[: len(_MAGIC)], start[len(_MAGIC) : _CHECKED]
        k, round_, n_layout, n_blob, n_arrays = _HEAD.unpack_from(start, _CHECKED)
        layout = place + _START
        arrays = layout + n_layout + n_blob + -n_blob % 8
        end = arrays + n_arrays
        if magic != _MAGIC or end > size:
            break
        rest = read(layout, end - layout)
        found = joint_digest(checksum, start[_CHECKED:], rest)
        if found != stated:
            break
        facts, shapes = json.loads(rest[:n_layout])
        blob = rest[n_layout : n_layout + n_blob]
        sections.append(Section(k, round_, _Stored(read, arrays, shapes), blob, facts))
        place, checksum = end, found
    return sections, place, checksum
