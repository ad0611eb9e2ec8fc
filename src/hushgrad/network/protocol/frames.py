"""Frames: the messages between two agents, byte for byte.

Connections (transport/connection.py) parse frames, and the session and the hub encode them. A
frame is a header of 32 bytes and a body, little-endian throughout:

    4s  magic "hush"      B  version      B  kind      H  zero
    Q   round             Q  length of the body        Q  flags

    HELLO      JSON: the sender, its run, the rounds that it holds and needs     (hello.py)
    ROW        JSON: the sender's weights, for W²                                (hello.py)
    DATA       float64: the message of `round`; bit e of the flags says that exchange e is in it.
               The first words hold the bits by which agents stop together       (stopping.py)
    HEARTBEAT  empty: the sender is alive
    FIN        empty: the sender has finished and needs nothing more; flags 1: the sender knows that
               the receiver has finished
    REJECT     empty: the sender refuses the receiver; flags: the code of its reason   (codes.py)
    GOSSIP     32 bytes each: tokens of masks, and distances between agents      (mask_tokens.py)
    ANNOUNCE   152 bytes each: the agents' signed keys of this run; with the stepsize "auto" also
               a bit for each agent, in words of eight bytes                   (announcements.py)
    STAGE      float64: the θ at which a stage begins; `round` holds its number        (stages.py)
    OVER       16 bytes, the digest of the run: it is over for the sender. Flags: the code of its
               ending, `round`: the number of the agent with which the end began       (codes.py)
    CONFIRM    32 bytes each: tokens by which partners confirm a fit          (confirmations.py)

A body is 8-aligned, so that numbers are read in place. The parser checks a length before it
allocates memory. No code unpickles a frame.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.vectors import FINITE, Vector, is_within
from hushgrad.errors import WireError
from hushgrad.files.digest import digest
from hushgrad.network.protocol import announcements, mask_tokens
from hushgrad.network.protocol.codes import MOST_ENDING, MOST_REASON, RUN_DIGEST

MAGIC = b"hush"
VERSION = 7  # 7: links in announcements, from which agents compute the automatic stepsize
HEADER = struct.Struct("<4sBBHQQQ")
_HEADER_SIZE = HEADER.size
_FIRST, _JOINED = struct.Struct("<4sBBH"), struct.Struct("<8sQQQ")  # four fields, apart and as one
MOST_HELLO = 61_440  # bytes; a HELLO names every value of a contract
MOST_EXCHANGES = 8  # exchanges in one round; no algorithm of the library has more than 3

type Bytes = bytes | memoryview

_FLOAT = np.dtype("<f8")

# Frames up to this size share one buffer; a longer frame gets its own.
_STAGE = 65_536


class FrameKind(enum.IntEnum):
    """The kinds of frames, and their numbers on the wire."""

    HELLO = 1
    ROW = 2
    DATA = 3
    HEARTBEAT = 4
    FIN = 5
    REJECT = 6
    GOSSIP = 7
    ANNOUNCE = 8
    STAGE = 9
    OVER = 10
    CONFIRM = 11

    __hash__ = int.__hash__  # Enum's own is a call of Python, and looked up in every round


_FIRST_OF = {kind: _FIRST.pack(MAGIC, VERSION, kind, 0) for kind in FrameKind}
_FIRST_OF_DATA = _FIRST_OF[FrameKind.DATA]
_MOST_FLAGS = {
    FrameKind.DATA: (1 << MOST_EXCHANGES) - 1, FrameKind.FIN: 1, FrameKind.REJECT: MOST_REASON,
    FrameKind.OVER: MOST_ENDING,
}  # fmt: skip


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
    """The DATA frame of a round; None stands for an exchange that does not use the link."""
    if len(payload) > MOST_EXCHANGES:
        raise WireError(
            f"a round has at most {MOST_EXCHANGES} exchanges, but this step yields {len(payload)}. "
            "Divide them among several rounds."
        )
    flags, length = 0, len(stop)
    parts: list[Any] = [b"", stop]
    for e, vector in enumerate(payload):
        if vector is not None:
            flags |= 1 << e
            parts.append(np.ascontiguousarray(vector, _FLOAT))
            length += parts[-1].nbytes
    parts[0] = _JOINED.pack(_FIRST_OF_DATA, round_, length, flags)
    return b"".join(parts)


@dataclass(slots=True)
class Data:
    """The parts of a DATA frame; all its numbers are finite."""

    round: int
    stop: bytes
    numbers: Vector  # all exchanges of the frame, one after the other
    present: int  # bit e: exchange e is in the frame
    digest: bytes  # of the whole frame
    payload: tuple[Vector | None, ...] = ()  # one entry for each exchange, set by `fit`

    def fit(self, sizes: tuple[int, ...]) -> None:
        """Divide the numbers into the exchanges of the round; WireError if sizes differ."""
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


def decode_data(frame: Frame, stop_bytes: int, largest: float = FINITE) -> Data:
    """The parts of a DATA frame; WireError if a number is not finite, or above `largest`."""
    kind, round_, flags, whole = frame
    start = _HEADER_SIZE + stop_bytes
    if kind is not FrameKind.DATA or len(whole) < start:
        raise WireError(
            f"a message begins with {stop_bytes} bytes of stop bits, but round {round_} has "
            f"{len(frame.body)} bytes"
        )
    numbers = np.frombuffer(whole, _FLOAT, -1, start)
    if not is_within(numbers, largest):
        raise _objection(round_, numbers, largest)
    return Data(round_, bytes(whole[_HEADER_SIZE:start]), numbers, flags, digest(whole))


def _objection(round_: int, numbers: Vector, largest: float) -> WireError:
    """The objection to a message with a number that is not finite or too large."""
    is_good = np.isfinite(numbers)
    if not is_good.all():
        place = int(np.argmin(is_good))
        text = f"numbers are finite, but number {place} of round {round_} is {numbers[place]}"
        return WireError(text, "not finite")
    place = int(np.argmax(np.abs(numbers)))
    return WireError(
        f"numbers of this run are at most {largest:.3g} in size, but number {place} of round "
        f"{round_} is {numbers[place]:.3g}",
        "too large",
    )


def limits(
    dim: int,
    stop_bytes: int,
    *,
    n_entries: int = 0,
    n_announcements: int = 0,
    links_width: int = 0,
    has_stages: bool = False,
    n_confirmations: int = 0,
) -> Mapping[FrameKind, int]:
    """The longest body of each kind, in bytes."""
    return {
        FrameKind.HELLO: MOST_HELLO,
        FrameKind.ROW: 1 << 20,
        FrameKind.DATA: stop_bytes + 8 * MOST_EXCHANGES * dim,
        FrameKind.HEARTBEAT: 0,
        FrameKind.FIN: 0,
        FrameKind.REJECT: 0,
        FrameKind.GOSSIP: mask_tokens.ENTRY * n_entries,
        FrameKind.ANNOUNCE: (announcements.ENTRY + links_width) * n_announcements,
        FrameKind.STAGE: 8 * dim * has_stages,
        FrameKind.OVER: RUN_DIGEST,
        FrameKind.CONFIRM: mask_tokens.ENTRY * n_confirmations,
    }


class Parser:
    """Turns bytes into frames. Write n bytes into `buffer()`, then call `received(n)`.

    A parser needs the memory of its stage and of one frame within the limits, whatever the bytes.
    After a WireError, it cannot be used any more.
    """

    def __init__(self, longest: Mapping[FrameKind, int]):
        self._rules = {
            _FIRST_OF[kind]: (kind, length, _MOST_FLAGS.get(kind, 0))
            for kind, length in longest.items()
        }
        self._stage = memoryview(bytearray(_STAGE))
        self._start = self._end = 0  # the stage holds [start, end)
        self._head: tuple[FrameKind, int, int, int] | None = (
            None  # kind, round, flags, whole length
        )
        self._long: memoryview | None = None  # a frame longer than the stage
        self._filled = 0

    def buffer(self) -> memoryview:
        """The place for the next bytes; never empty."""
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
        """The frames that are complete after `count` more bytes."""
        if self._long is not None:
            return self._fill(self._long, count)
        self._end += count
        frames: list[Frame] = []
        while self._end - self._start >= _HEADER_SIZE:
            head = self._head or self._judge(*_JOINED.unpack_from(self._stage, self._start))
            kind, round_, flags, length = head
            end = self._start + length
            if end > self._end:
                self._head = head
                if length > _STAGE:
                    self._begin_long(length)
                break
            frames.append(Frame(kind, round_, flags, bytes(self._stage[self._start : end])))
            self._start, self._head = end, None
        return frames

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete after these bytes."""
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
        self, first: bytes, round_: int, length: int, flags: int
    ) -> tuple[FrameKind, int, int, int]:
        rule = self._rules.get(first)
        if rule is None:
            raise _unknown(*_FIRST.unpack(first))
        kind, longest, most = rule
        if length > longest:
            raise WireError(
                f"a {kind.name} frame has at most {longest} bytes here, but announces {length}"
            )
        if length % 8 and kind in (FrameKind.DATA, FrameKind.STAGE):
            raise WireError(
                f"a {kind.name} frame holds whole float64, but announces {length} bytes"
            )
        if flags > most:
            raise WireError(f"a {kind.name} frame has flags up to {most}, but they are {flags}")
        return kind, round_, flags, _HEADER_SIZE + length


def _unknown(magic: bytes, version: int, number: int, zero: int) -> WireError:
    """The objection to a frame that begins in no known way."""
    if magic != MAGIC:
        return WireError(f"a frame begins with {MAGIC!r}, but this one begins with {magic!r}")
    if version != VERSION:
        return WireError(f"this agent speaks version {VERSION} of the protocol, not {version}")
    return WireError(f"there is no frame of kind {number} with {zero} in place of zero")
