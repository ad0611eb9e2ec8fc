"""Frames: what two agents say to each other, byte for byte.

A frame is a header of 32 bytes and a body, little-endian throughout:

    4s  magic "hush"      B  version      B  kind      H  zero
    Q   round             Q  length of the body        Q  flags

    HELLO      JSON: who speaks, of which run, what it holds and what it needs   (hello.py)
    ROW        JSON: the sender's weights, for W²                                (weights.py)
    DATA       float64: what the sender sends in `round`; bit e of the flags: exchange e is in it.
               The first words hold the bits by which agents stop together       (stopping.py)
    HEARTBEAT  empty: I am here
    FIN        empty: I have finished and need nothing more; flags 1: and so, I know, have you
    REJECT     JSON: why the connection ends
    PLEDGE     32 bytes each: by which it is seen that masks cancel              (pledges.py)

A body is 8-aligned, so that numbers are read where they arrived. Lengths are judged before anything
is allocated. Nothing is ever unpickled.
"""

from __future__ import annotations

import enum
import functools
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import WireError
from hushgrad.runtime.digest import mark
from hushgrad.runtime.pledges import ENTRY
from hushgrad.simulate import few, passes
from hushgrad.simulate.few import MOST
from hushgrad.simulate.rooms import Rooms

MAGIC = b"hush"
VERSION = 2
HEADER = struct.Struct("<4sBBHQQQ")
MOST_EXCHANGES = 8  # in one round; the richest algorithm here has 3

type Bytes = bytes | memoryview

type Numbers = NDArray[np.float64] | tuple[float, ...]

_FLOAT = np.dtype("<f8")

# Frames up to this size are parsed from one buffer; longer ones are read into their own.
_STAGE = 65_536


class Kind(enum.IntEnum):
    """What a frame is."""

    HELLO = 1
    ROW = 2
    DATA = 3
    HEARTBEAT = 4
    FIN = 5
    REJECT = 6
    PLEDGE = 7


_DATA = int(Kind.DATA)  # a plain number is packed at less cost
_MOST_FLAGS = {Kind.DATA: (1 << MOST_EXCHANGES) - 1, Kind.FIN: 1}


class Frame(NamedTuple):
    """A frame as it arrived."""

    kind: Kind
    round: int
    flags: int
    whole: bytes | memoryview  # header and body

    @property
    def body(self) -> bytes | memoryview:
        return self.whole[HEADER.size :]


def encode(kind: Kind, body: bytes = b"", *, round_: int = 0, flags: int = 0) -> bytes:
    """A frame in one piece, so that a short one is one TLS record."""
    return HEADER.pack(MAGIC, VERSION, kind, 0, round_, len(body), flags) + body


def encode_data(
    round_: int, stop: bytes, payload: tuple[NDArray[np.float64] | None, ...] = ()
) -> bytes:
    """The DATA frame of a round; an exchange that does not use the link is None."""
    if len(payload) > MOST_EXCHANGES:
        raise WireError(
            f"a round has at most {MOST_EXCHANGES} exchanges, but this step yields {len(payload)}. "
            "Spread them over several rounds."
        )
    flags, length = 0, len(stop)
    parts: list[Any] = [b"", stop]
    for e, vector in enumerate(payload):
        if vector is not None:
            flags |= 1 << e
            parts.append(np.ascontiguousarray(vector, _FLOAT))
            length += parts[-1].nbytes
    parts[0] = HEADER.pack(MAGIC, VERSION, Kind.DATA, 0, round_, length, flags)
    return b"".join(parts)


@functools.cache
def packed(size: int) -> struct.Struct:
    """Few numbers are read and written as plain ones, at less cost than an array's."""
    return struct.Struct(f"<{size}d")


def encode_few(round_: int, stop: bytes, messages: tuple[tuple[float, ...], ...]) -> list[bytes]:
    """The DATA frames of a round of one exchange, of as many numbers each."""
    if not messages:
        return []
    size = len(messages[0])
    pack, length = packed(size).pack, len(stop) + 8 * size
    head = HEADER.pack(MAGIC, VERSION, _DATA, 0, round_, length, 1) + stop
    return [head + pack(*message) for message in messages]


def room(stop_bytes: int) -> int:
    """Words of a DATA frame before its numbers."""
    return (HEADER.size + stop_bytes) // 8


def address(letter: memoryview, round_: int, stop: bytes) -> None:
    """Make the DATA frame of a round of one exchange whose numbers are in their place already."""
    start = HEADER.size
    HEADER.pack_into(letter, 0, MAGIC, VERSION, _DATA, 0, round_, len(letter) - start, 1)
    if stop:
        letter[start : start + len(stop)] = stop


@dataclass(slots=True)
class Data:
    """A DATA frame taken apart, its numbers finite."""

    round: int
    stop: bytes
    numbers: Numbers  # all exchanges that are in it, one after the other
    present: int  # bit e: exchange e is in it
    mark: bytes
    payload: tuple[Numbers | None, ...] = ()  # one entry per exchange, once it fits

    def fit(self, sizes: tuple[int, ...]) -> None:
        """Cut the numbers into the exchanges that this round has, of these sizes."""
        if self.present == len(sizes) == 1 and len(self.numbers) == sizes[0]:
            self.payload = (self.numbers,)
            return
        place = 0
        payload: list[Numbers | None] = []
        for e, size in enumerate(sizes):
            if self.present >> e & 1:
                payload.append(self.numbers[place : place + size])
                place += size
            else:
                payload.append(None)
        if place != len(self.numbers) or self.present >> len(sizes):
            raise WireError(
                f"round {self.round} has exchanges of {list(sizes)} numbers, but a message holds "
                f"{len(self.numbers)} numbers for exchanges {self.present:#b}",
                "dimension",
            )
        self.payload = tuple(payload)


def decode_due(whole: bytes, round_: int, start: int) -> Data | None:
    """The message of this round if `whole` is nothing but that, in one exchange, as most are.

    `start` is where numbers begin. None leaves it to others to say what else it is.
    """
    length = len(whole) - HEADER.size
    if len(whole) < start or whole[: HEADER.size] != HEADER.pack(
        MAGIC, VERSION, _DATA, 0, round_, length, 1
    ):
        return None
    numbers, are_finite = _read(whole, start)
    if not are_finite:
        return None
    return Data(round_, whole[HEADER.size : start], numbers, 1, mark(whole), (numbers,))


def decode_data(frame: Frame, stop_bytes: int) -> Data:
    """The parts of a DATA frame; WireError where a number is not finite."""
    kind, round_, flags, whole = frame
    start = HEADER.size + stop_bytes
    if kind is not Kind.DATA or len(whole) < start:
        raise WireError(
            f"a message begins with {stop_bytes} bytes of stop bits, but round {round_} has "
            f"{len(frame.body)} bytes"
        )
    numbers, are_finite = _read(whole, start)
    if not are_finite:
        place = int(np.argmin(np.isfinite(numbers)))
        raise WireError(
            f"numbers are finite, but number {place} of round {round_} is {numbers[place]}",
            "not finite",
        )
    return Data(round_, bytes(whole[HEADER.size : start]), numbers, flags, mark(whole))


def _read(whole: Bytes, start: int) -> tuple[Numbers, bool]:
    """The numbers of a frame, and whether they are finite."""
    count = (len(whole) - start) // 8
    if count <= MOST:
        few_numbers = packed(count).unpack_from(whole, start)
        return few_numbers, few.is_finite(few_numbers)
    numbers = np.frombuffer(whole, _FLOAT, -1, start)
    return numbers, passes.is_finite(numbers)


def is_finite(vector: Numbers) -> bool:
    if isinstance(vector, tuple):
        return few.is_finite(vector)
    if len(vector) <= MOST:
        return few.is_finite(tuple(vector.tolist()))
    return passes.is_finite(vector)


def limits(dim: int, stop_bytes: int, *, n_pledges: int = 0) -> Mapping[Kind, int]:
    """The longest body of each kind, in bytes."""
    return {
        Kind.HELLO: 16_384,
        Kind.ROW: 1 << 20,
        Kind.DATA: stop_bytes + 8 * MOST_EXCHANGES * dim,
        Kind.HEARTBEAT: 0,
        Kind.FIN: 0,
        Kind.REJECT: 4096,
        Kind.PLEDGE: ENTRY * n_pledges,
    }


class Parser:
    """Bytes in, frames out, whatever the bytes: write into `buffer()`, then tell `received(n)`.

    Memory stays below the stage and one frame that the limits allow. After a WireError it is spent.
    """

    def __init__(self, longest: Mapping[Kind, int]):
        self._rules = {
            int(kind): (kind, length, _MOST_FLAGS.get(kind, 0)) for kind, length in longest.items()
        }
        self._stage = memoryview(bytearray(_STAGE))
        self._start = self._end = 0  # the stage holds [start, end)
        self._head: tuple[Kind, int, int, int] | None = None  # kind, round, flags, whole length
        self._long: memoryview | None = None  # a frame longer than the stage
        self._filled = 0
        self._rooms: dict[int, Rooms] = {}  # for the last length of these

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._long is not None:
            return self._long[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
            return self._stage
        if self._end == _STAGE:
            rest = self._end - self._start
            self._stage[:rest] = bytes(self._stage[self._start : self._end])
            self._start, self._end = 0, rest
        return self._stage[self._end :]

    def alone(self, count: int) -> bytes | None:
        """The next `count` bytes, if nothing came before them that is not yet part of a frame.

        Who can use them as they are need not tell `received`.
        """
        if self._start == self._end and self._long is None:
            return bytes(self._stage[:count])
        return None

    def received(self, count: int) -> list[Frame]:
        """The frames that `count` more bytes complete."""
        if self._long is not None:
            return self._fill(self._long, count)
        self._end += count
        frames: list[Frame] = []
        while self._start < self._end:
            if self._head is None:
                if self._end - self._start < HEADER.size:
                    break
                self._head = self._judge(*HEADER.unpack_from(self._stage, self._start))
            kind, round_, flags, length = self._head
            end = self._start + length
            if end > self._end:
                if length > _STAGE:
                    self._begin_long(length)
                break
            frames.append(Frame(kind, round_, flags, bytes(self._stage[self._start : end])))
            self._start, self._head = end, None
        return frames

    def feed(self, data: bytes) -> list[Frame]:
        """The same for bytes that are already here."""
        frames: list[Frame] = []
        rest = memoryview(data)
        while rest:
            room = self.buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            frames += self.received(count)
            rest = rest[count:]
        return frames

    def _begin_long(self, length: int) -> None:
        here = self._end - self._start
        if length not in self._rooms:
            self._rooms = {length: Rooms(-(-length // 8))}  # messages of a run are as long
        whole = memoryview(self._rooms[length].take()).cast("B")
        self._long, self._filled = whole[:length], here
        self._long[:here] = self._stage[self._start : self._end]
        self._start = self._end = 0

    def _fill(self, long: memoryview, count: int) -> list[Frame]:
        self._filled += count
        if self._filled < len(long) or self._head is None:
            return []
        kind, round_, flags, _ = self._head
        self._long = self._head = None
        return [Frame(kind, round_, flags, long)]

    def _judge(
        self,
        magic: bytes,
        version: int,
        number: int,
        zero: int,
        round_: int,
        length: int,
        flags: int,
    ) -> tuple[Kind, int, int, int]:
        if magic != MAGIC:
            raise WireError(f"a frame begins with {MAGIC!r}, but here are {magic!r}")
        if version != VERSION:
            raise WireError(f"this agent speaks version {VERSION} of the protocol, not {version}")
        if number not in self._rules or zero:
            raise WireError(f"there is no frame of kind {number} with {zero} in the place of zero")
        kind, longest, most = self._rules[number]
        if length > longest:
            raise WireError(
                f"a {kind.name} frame has at most {longest} bytes here, but announces {length}"
            )
        if length % 8 and kind is Kind.DATA:
            raise WireError(f"a DATA frame holds whole float64, but announces {length} bytes")
        if flags > most:
            raise WireError(f"a {kind.name} frame has flags up to {most}, but they are {flags}")
        return kind, round_, flags, HEADER.size + length
