"""An agent's state directory, and in it the journal: what was committed before it was sent.

    run.json    which run of which agent the directory belongs to
    secret      32 random bytes (0600), minted with the directory
    starts      how often it was opened: the incarnation
    links.json  what the neighbours said of their links, once all have
    begun       there once the first round is in the journal, before it is sent
    lock        held by the one process that may write
    slot-0, -1  the journal: some steps in one, the next ones in the other, and so by turns

A slot is a sequence of sections, one per round, each written before its round is sent: the sums of
the round before, the gradients evaluated since, the marks of what is sent and of what was consumed
(a frame itself if it is short, otherwise its digest). The first has the state at the start of its
step in place of sums; for k = 0 only x⁰. A checksum runs through all sections, so that neither a
torn section nor an old one behind a new one is ever read; the slot that is being overwritten is not
the one that is needed. State is stored by field name and shape, as float64. Long arrays begin and
end with blocks of the disk, so that it can read them where they lie.
"""

from __future__ import annotations

import fcntl
import functools
import json
import math
import os
import secrets
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import StateError
from hushgrad.runtime.digest import DIGEST, digest, joint_digest
from hushgrad.runtime.direct import Direct, Staging
from hushgrad.runtime.identity import check_mode
from hushgrad.runtime.result import replace_file
from hushgrad.simulate.rooms import BLOCK, blocks, to_block

FORMAT = 5
STEPS = 8  # in a slot: the state, the larger part, is written once for all of them
SECRET = 32  # bytes

type Arrays = Mapping[str, NDArray[np.float64] | tuple[float, ...]]
type Facts = dict[str, Any]  # what JSON can hold
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
_PIECES = 1024  # that the system takes at a time
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


class StateDirectory:
    """The directory of one agent in one run, locked."""

    def __init__(
        self,
        path: Path,
        *,
        run: str,
        agent: str,
        durability: Literal["process", "power"] = "power",
    ):
        self.path, self._run = path, run
        self._sync = durability == "power"
        self._slots: list[_Slot] = []
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self._sync:
                _sync_directory(path.parent)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateError(f"the state directory '{path}' cannot be used: {error}.") from error
        if not _lock_alone(self._lock):
            os.close(self._lock)
            raise StateError(
                f"the state directory '{path}' is in use: another process runs this agent. "
                "Two writers would send two messages for one round. End the other one first."
            )
        try:
            self._adopt({"format": FORMAT, "run": run, "agent": agent})
            self.incarnation = self._count_start()
            self.secret = self._read_secret()
            self._begun = path / "begun"
            staging = Staging() if self._sync else None  # where to copy is less than to wait
            for n in (0, 1):
                self._slots.append(_Slot(path / f"slot-{n}", staging))
            self._slot = self._slots[1]  # the newer one
        except BaseException:
            self.close()
            raise

    def _adopt(self, belongs: Facts) -> None:
        """Mint a new directory, or check whose an old one is."""
        label = self.path / "run.json"
        if not label.exists():
            if (self.path / "slot-0").exists():
                raise StateError(
                    f"'{self.path}' holds a journal, but no run.json that says whose. Restore it."
                )
            _write(self.path / "secret", secrets.token_bytes(SECRET), mode=0o600)
            _write(label, json.dumps(belongs, indent=2).encode() + b"\n")
        found = _read_json(label)
        if found != belongs:
            raise StateError(
                f"the state directory '{self.path}' belongs to agent {found.get('agent')!r} in run "
                f"{found.get('run')!r} (format {found.get('format')}), not to agent "
                f"{belongs['agent']!r} in run {self._run!r} (format {FORMAT}). A state is never "
                "used for another run: choose another directory."
            )

    def _count_start(self) -> int:
        file = self.path / "starts"
        number = _read_json(file) + 1 if file.exists() else 1
        _write(file, b"%d\n" % number)
        return number

    def _read_secret(self) -> bytes:
        file = self.path / "secret"
        if not file.exists():
            raise StateError(f"'{file}' is missing: no draw can be repeated without. Restore it.")
        check_mode(file)
        secret = file.read_bytes()
        if len(secret) != SECRET:
            raise StateError(f"'{file}' has {len(secret)} bytes instead of {SECRET}. Restore it.")
        return secret

    @property
    def links(self) -> Facts | None:
        """What neighbours said of their links, if it was stored."""
        file = self.path / "links.json"
        return _read_json(file) if file.exists() else None

    def store_links(self, links: Facts) -> None:
        _write(self.path / "links.json", json.dumps(links).encode())

    # ---- journal

    def read(self) -> list[list[Section]]:
        """The whole sections of each slot, the older first, those that are empty left out."""
        found = [(sections, slot) for slot in self._slots if (sections := slot.read())]
        found.sort(key=lambda pair: pair[0][0].round)
        if found:
            self._slot = found[-1][1]
        elif self._begun.exists():
            raise StateError(
                f"the journal in '{self.path}' cannot be read, but its run had begun. To begin "
                "again would send other messages for rounds that neighbours hold. Restore the "
                "newest state, or start a new run with a new id and directory."
            )
        return [sections for sections, _ in found]

    def begin(self, section: Section) -> None:
        """Write the first section of a slot, over those of the older one."""
        one, other = self._slots
        slot = other if self._slot is one else one
        slot.write(section, afresh=True)
        self._slot = slot
        if section.round == 0:
            _write(self._begun, b"")

    def append(self, section: Section) -> None:
        """One more section of the newer slot."""
        self._slot.write(section, afresh=False)

    def close(self) -> None:
        for slot in self._slots:
            slot.close()
        os.close(self._lock)


def _lock_alone(lock: int) -> bool:
    """Whether this process has the lock now; who only looks holds it for an instant."""
    for pause in (0.0, 0.01, 0.05):
        time.sleep(pause)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        return True
    return False


class _Slot:
    """One file of the journal, overwritten in place: its blocks are there already, and a sync
    need not change the file's size.
    """

    def __init__(self, path: Path, staging: Staging | None):
        """With `staging` it waits for the disk."""
        self._path, self._sync = path, staging is not None
        try:
            if self._sync:
                path.touch(0o600)
                _sync_directory(path.parent)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateError(f"the journal '{path}' cannot be opened: {error}.") from error
        self._direct = None if staging is None else Direct(path, staging)
        self._end, self._checksum = 0, NOTHING

    def read(self) -> list[Section]:
        """What is whole; the next section goes behind it."""
        size = os.fstat(self._file).st_size
        sections, self._end, self._checksum = read_sections(self._read, size)
        return sections

    def _read(self, place: int, count: int) -> bytes:
        content = os.pread(self._file, count, place)
        while len(content) < count:  # the system gives 2 GB at most
            more = os.pread(self._file, count - len(content), place + len(content))
            if not more:
                break
            content += more
        return content

    def write(self, section: Section, *, afresh: bool) -> None:
        place, checksum = (0, NOTHING) if afresh else (self._end, self._checksum)
        pieces, checksum = encode_section(section, checksum)
        try:
            end = self._write_all(pieces, place)
            if self._sync:  # also of what went past the cache: the disk has one too
                os.fdatasync(self._file)
        except OSError as error:
            raise StateError(
                f"the journal '{self._path}' cannot be written: {error.strerror}. Nothing of this "
                "round was sent and the state is kept: make room, then start the agent again."
            ) from error
        self._end, self._checksum = end, checksum

    def _write_all(self, pieces: list[Any], place: int) -> int:
        """Write bytes and arrays from a place on; gives where they end."""
        if len(pieces) == 1:
            total = len(pieces[0])
            count = os.pwrite(self._file, pieces[0], place)
        else:
            total = sum([memoryview(piece).nbytes for piece in pieces])
            count = None
            if self._direct is not None and len(pieces) <= _PIECES:
                count = self._direct.write(pieces, place)
            if count is None:
                count = os.pwritev(self._file, pieces[:_PIECES], place)
        if count < total:
            self._write_rest(pieces, count, place)
        return place + total

    def _write_rest(self, pieces: list[Any], count: int, place: int) -> None:
        """What is left of the pieces after so many bytes: they were too many at a time, or the
        disk fills up; if nothing fits any more, that is an error.
        """
        for piece in pieces:
            rest = memoryview(piece).cast("B")
            done = min(count, len(rest))
            count, place, rest = count - done, place + done, rest[done:]
            while rest:
                more = os.pwrite(self._file, rest, place)
                place, rest = place + more, rest[more:]

    def close(self) -> None:
        os.close(self._file)
        if self._direct is not None:
            self._direct.close()


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise StateError(
            f"'{path}' is damaged: {error}. Restore the newest state, or start a new run with a "
            "new id and directory."
        ) from error


def _write(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    try:
        replace_file(path, lambda file: (os.fchmod(file.fileno(), mode), file.write(content)))
    except OSError as error:
        raise StateError(f"'{path}' cannot be written: {error.strerror}.") from error


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
