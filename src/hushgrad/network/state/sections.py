"""What a journal is made of: sections, as bytes.

A section holds numbers by name and shape, as float64, with a few facts and a blob of bytes. A
checksum runs through all sections of a slot, so that neither a torn section nor an old one behind a
new one is ever read. Long arrays begin and end with blocks of the disk, so that it can read them
where they lie.
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

from hushgrad.agent.rooms import BLOCK, blocks, to_block
from hushgrad.files.digest import DIGEST, digest, joint_digest

type Arrays = Mapping[str, NDArray[np.float64] | tuple[float, ...]]
type Read = Callable[[int, int], bytes]  # of a place and a length
type Pack = Callable[..., bytes]

# A section: magic and checksum; k, round, lengths of layout, blob and arrays, and 1, or BLOCK if
# each array fills whole blocks; then these three. The checksum covers all that follows it and,
# through the one before, all that precedes.
_MAGIC = b"hushjrnl"
_HEAD = struct.Struct("<qqQQQQ")
_CHECKED = len(_MAGIC) + DIGEST  # where the checked part begins
_START = _CHECKED + _HEAD.size
NOTHING = bytes(DIGEST)  # the checksum of what is empty
_FLOAT = np.dtype("<f8")
_LONG = 4 * BLOCK  # bytes that arrays have on average, if they begin and end with blocks
_NONE: Mapping[str, Any] = MappingProxyType({})


class Vectors(NamedTuple):
    """Arrays of few numbers, as many each, one after the other."""

    names: tuple[str, ...]
    numbers: tuple[float, ...]


class Section(NamedTuple):
    """What was written together."""

    k: int
    round: int
    arrays: Arrays = _NONE
    blob: bytes = b""
    facts: Mapping[str, Any] = _NONE  # what else is to be said, if JSON can hold it
    vectors: Vectors | None = None  # in place of arrays and facts, to be written; read as arrays


@functools.lru_cache(maxsize=64)
def _layout(facts: str, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> bytes:
    """Which facts and arrays a section has: in most rounds the same as in others."""
    arrays = [(name, *shape) for name, shape in zip(names, shapes, strict=True)]
    text = f"[{facts}, {json.dumps(arrays)}]".encode()
    return text + b" " * (-len(text) % 8)


@functools.lru_cache(maxsize=64)
def _form(names: tuple[str, ...], size: int, n_blob: int) -> tuple[Pack, bytes]:
    """How all that is checked of a section of few numbers is packed, and its layout."""
    text = _layout("{}", names, ((size // len(names),),) * len(names))
    n_padded = n_blob + -n_blob % 8
    return struct.Struct(f"{_HEAD.format}{len(text)}s{n_padded}s{size}d").pack, text


def encode_section(section: Section, checksum: bytes) -> tuple[list[Any], bytes]:
    """The pieces of a section that follows what has this checksum, and the new checksum. Pieces do
    not hold the arrays that they are of; the section does.
    """
    k, round_, arrays, blob, facts, vectors = section
    if vectors is not None:  # as in most rounds of few numbers
        names, numbers = vectors
        pack, text = _form(names, len(numbers), len(blob))
        checked = pack(k, round_, len(text), len(blob), 8 * len(numbers), 1, text, blob, *numbers)
        checksum = digest(checksum + checked)
        return [_MAGIC + checksum + checked], checksum
    values = [np.ascontiguousarray(value, _FLOAT) for value in arrays.values()]
    shapes = tuple([value.shape for value in values])
    layout = _layout(json.dumps(dict(facts)) if facts else "{}", tuple(arrays), shapes)
    text = layout + blob + bytes(-len(blob) % 8)
    sizes = [value.nbytes for value in values]
    if sum(sizes) < _LONG * len(sizes) or not sizes:
        head = _HEAD.pack(k, round_, len(layout), len(blob), sum(sizes), 1)
        checked = b"".join((head, text, *values))
        checksum = digest(checksum + checked)
        return [_MAGIC + checksum + checked], checksum
    head = _HEAD.pack(k, round_, len(layout), len(blob), sum(map(to_block, sizes)), BLOCK)
    text = text.ljust(to_block(_START + len(text)) - _START, b"\0")
    pieces = [piece for value in values for piece in _whole(value)]
    checksum = joint_digest(checksum, head, text, *pieces)
    return [b"".join((_MAGIC, checksum, head, text)), *pieces], checksum


def _whole(array: NDArray[np.float64]) -> list[Any]:
    """An array to the end of its last block: as a memoryview, if a disk can read it there."""
    found = blocks(array)
    pieces = [array, bytes(to_block(array.nbytes) - array.nbytes)] if found is None else [found]
    return [piece for piece in pieces if memoryview(piece).nbytes]


class _Stored(Mapping[str, NDArray[np.float64]]):
    """Arrays that stay where they are until they are asked for: some steps of long vectors are
    more than an agent needs at a time.
    """

    def __init__(self, read: Read, place: int, shapes: list[list[Any]], block: int):
        self._read = read
        self._places: dict[str, tuple[int, list[int]]] = {}
        for name, *shape in shapes:
            self._places[name] = place, shape
            size = 8 * math.prod(shape)
            place += size + -size % block

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        place, shape = self._places[name]
        return np.frombuffer(self._read(place, 8 * math.prod(shape)), _FLOAT).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def decode_sections(content: bytes) -> tuple[list[Section], int, bytes]:
    """The sections of a slot up to the first that is torn, where they end, their checksum."""
    return read_sections(lambda place, count: content[place : place + count], len(content))


def read_sections(read: Read, size: int) -> tuple[list[Section], int, bytes]:
    """The same of a file of this size; `read` gives so many bytes of it from a place on."""
    sections: list[Section] = []
    place, checksum = 0, NOTHING  # of what is whole
    while place + _START <= size:
        start = read(place, _START)
        magic, stated = start[: len(_MAGIC)], start[len(_MAGIC) : _CHECKED]
        k, round_, n_layout, n_blob, n_arrays, block = _HEAD.unpack_from(start, _CHECKED)
        layout = place + len(start)
        blob = layout + n_layout
        arrays = blob + n_blob + -n_blob % 8
        if magic != _MAGIC or block not in (1, BLOCK):
            break
        arrays += -(arrays - place) % block
        end = arrays + n_arrays
        if end > size:
            break
        rest = read(layout, end - layout)
        found = joint_digest(checksum, start[_CHECKED:], rest)
        if found != stated:
            break
        facts, shapes = json.loads(rest[:n_layout])
        stored = _Stored(read, arrays, shapes, block)
        sections.append(Section(k, round_, stored, rest[n_layout : n_layout + n_blob], facts))
        place, checksum = end, found
    return sections, place, checksum
