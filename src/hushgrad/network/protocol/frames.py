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
    GOSSIP     32 bytes each: tokens of masks, and distances between agents      (mask_tokens.py)

A body is 8-aligned, so that numbers are read where they arrived. Lengths are judged before anything
is allocated. Nothing is ever unpickled.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import WireError
from hushgrad.files.digest import digest
from hushgrad.network.protocol.mask_tokens import ENTRY

MAGIC = b"hush"
VERSION = 2
HEADER = struct.Struct("<4sBBHQQQ")
MOST_EXCHANGES = 8  # in one round; the richest algorithm here has 3

type Bytes = bytes | memoryview

type Vector = NDArray[np.float64]

_FLOAT = np.dtype("<f8")

# Frames up to this size are parsed from one buffer; longer ones are read into their own.
_STAGE = 65_536


class FrameKind(enum.IntEnum):
    """What a frame is."""

    HELLO = 1
    ROW = 2
    DATA = 3
    HEARTBEAT = 4
    FIN = 5
    REJECT = 6
    GOSSIP = 7


_MOST_FLAGS = {FrameKind.DATA: (1 << MOST_EXCHANGES) - 1, FrameKind.FIN: 1}


class Frame(NamedTuple):
    """A frame as it arrived."""

    kind: FrameKind
    round: int
    flags: int
    whole: bytes | memoryview  # header and body

    @property
    def body(self) -> bytes | memoryview:
        return self.whole[HEADER.size :]


def encode(kind: FrameKind, body: bytes = b"", *, round_: int = 0, flags: int = 0) -> bytes:
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
    parts[0] = HEADER.pack(MAGIC, VERSION, FrameKind.DATA, 0, round_, length, flags)
    return b"".join(parts)


@dataclass(slots=True)
class Data:
    """A DATA frame taken apart, its numbers finite."""

    round: int
    stop: bytes
    numbers: Vector  # all exchanges that are in it, one after the other
    present: int  # bit e: exchange e is in it
    digest: bytes  # of the whole frame
    payload: tuple[Vector | None, ...] = ()  # one entry per exchange, once it fits

    def fit(self, sizes: tuple[int, ...]) -> None:
        """Cut the numbers into the exchanges that this round has, of these sizes."""
        if self.present == len(sizes) == 1 and len(self.numbers) == sizes[0]:
            self.payload = (self.numbers,)
            return
        place = 0
        payload: list[Vector | None] = []
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


def decode_data(frame: Frame, stop_bytes: int) -> Data:
    """The parts of a DATA frame; WireError where a number is not finite."""
    kind, round_, flags, whole = frame
    start = HEADER.size + stop_bytes
    if kind is not FrameKind.DATA or len(whole) < start:
        raise WireError(
            f"a message begins with {stop_bytes} bytes of stop bits, but round {round_} has "
            f"{len(frame.body)} bytes"
        )
    numbers = np.frombuffer(whole, _FLOAT, -1, start)
    are_finite = np.isfinite(numbers)
    if not are_finite.all():
        place = int(np.argmin(are_finite))
        raise WireError(
            f"numbers are finite, but number {place} of round {round_} is {numbers[place]}",
            "not finite",
        )
    return Data(round_, bytes(whole[HEADER.size : start]), numbers, flags, digest(whole))


def limits(dim: int, stop_bytes: int, *, n_entries: int = 0) -> Mapping[FrameKind, int]:
    """The longest body of each kind, in bytes."""
    return {
        FrameKind.HELLO: 16_384,
        FrameKind.ROW: 1 << 20,
        FrameKind.DATA: stop_bytes + 8 * MOST_EXCHANGES * dim,
        FrameKind.HEARTBEAT: 0,
        FrameKind.FIN: 0,
        FrameKind.REJECT: 4096,
        FrameKind.GOSSIP: ENTRY * n_entries,
    }


class Parser:
    """Bytes in, frames out, whatever the bytes: write into `buffer()`, then tell `received(n)`.

    Memory stays below the stage and one frame that the limits allow. After a WireError it is spent.
    """

    def __init__(self, longest: Mapping[FrameKind, int]):
        self._rules = {
            int(kind): (kind, length, _MOST_FLAGS.get(kind, 0)) for kind, length in longest.items()
        }
        self._stage = memoryview(bytearray(_STAGE))
        self._start = self._end = 0  # the stage holds [start, end)
        self._head: tuple[FrameKind, int, int, int] | None = (
            None  # kind, round, flags, whole length
        )
        self._long: memoryview | None = None  # a frame longer than the stage
        self._filled = 0

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
        self._long, self._filled = memoryview(np.empty(length, np.uint8)), here
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
    ) -> tuple[FrameKind, int, int, int]:
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
        if length % 8 and kind is FrameKind.DATA:
            raise WireError(f"a DATA frame holds whole float64, but announces {length} bytes")
        if flags > most:
            raise WireError(f"a {kind.name} frame has flags up to {most}, but they are {flags}")
        return kind, round_, flags, HEADER.size + length
