"""Frames arrive as they were sent, however the bytes are cut, or an error names the broken rule."""

import struct
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad.errors import WireError
from hushgrad.files.digest import digest, joint_digest
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.frames import FrameKind, Parser, decode_data, encode, encode_data

DIM = 20_000  # eight exchanges of this size are longer than the parser's stage
FLOATS = st.floats(allow_nan=False, allow_infinity=False)

payloads = st.lists(
    st.none() | st.lists(FLOATS, max_size=5).map(lambda v: np.array(v, np.float64)), max_size=8
).map(tuple)
messages = st.tuples(st.integers(0, 2**64 - 1), st.binary(min_size=8, max_size=8), payloads)
others = st.one_of(
    st.builds(lambda body: encode(FrameKind.HELLO, body), st.binary(max_size=100)),
    st.just(encode(FrameKind.HEARTBEAT)),
    st.builds(lambda n, ack: encode(FrameKind.FIN, round_=n, flags=ack), *2 * [st.integers(0, 1)]),
)
long_ones = st.integers(60_000, 80_000).map(
    lambda n: encode_data(3, bytes(8), (np.arange(n, dtype=np.float64),))
)
frames = st.lists(messages.map(lambda m: encode_data(*m)) | others | long_ones, max_size=6)


def cut(data, places):
    ends = sorted({0, len(data), *(int(p * len(data)) for p in places)})
    return [data[a:b] for a, b in pairwise(ends)]


@given(frames, st.lists(st.floats(0, 1), max_size=10))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent, places):
    parser = Parser(wire.limits(DIM, 8))
    got = [frame for piece in cut(b"".join(sent), places) for frame in parser.feed(piece)]
    assert [bytes(frame.whole) for frame in got] == sent


@given(messages)
def test_a_message_is_read_as_it_was_written(message):
    round_, stop, payload = message
    (frame,) = Parser(wire.limits(DIM, 8)).feed(encode_data(*message))
    data = decode_data(frame, 8)
    data.fit(tuple(0 if v is None else len(v) for v in payload))
    assert (data.round, data.stop, len(data.payload)) == (round_, stop, len(payload))
    for got, sent in zip(data.payload, payload, strict=True):
        assert (got is None) == (sent is None)
        if sent is not None:
            assert np.array(got).tobytes() == sent.tobytes()


STOP = 8
LIMITS = wire.limits(3, STOP, n_entries=2, n_announcements=2, has_stages=True, n_confirmations=2)
# Each field is mostly right, so that what is judged after it is reached.
headers = st.builds(
    wire.HEADER.pack,
    st.just(wire.MAGIC) | st.binary(min_size=4, max_size=4),
    st.just(wire.VERSION) | st.integers(0, 255),
    st.sampled_from(FrameKind) | st.just(FrameKind.DATA) | st.integers(0, 255),
    st.just(0) | st.integers(0, 2**16 - 1),
    st.integers(0, 3) | st.integers(0, 2**64 - 1),
    st.integers(0, 9).map(lambda n: 8 * n) | st.integers(0, 300) | st.integers(0, 2**64 - 1),
    st.integers(0, 3) | st.integers(0, 300) | st.integers(0, 2**64 - 1),
)
numbers = st.lists(st.floats(), max_size=9).map(lambda v: struct.pack(f"<{len(v)}d", *v))
real_frames = st.builds(
    lambda n, vectors: encode_data(n, bytes(STOP), tuple(map(np.array, vectors))),
    st.integers(0, 3),
    st.lists(st.lists(st.floats(), min_size=3, max_size=3), max_size=2),
)
streams = st.lists(headers | numbers | real_frames | others | st.binary(max_size=40), max_size=6)


def read(data, places):
    """Every frame and message in these bytes, up to the rule that they break."""
    parser, read = Parser(LIMITS), []
    try:
        for piece in cut(data, places):
            for frame in parser.feed(piece):
                read.append(frame)
                if frame.kind is FrameKind.DATA:
                    message = decode_data(frame, STOP)
                    message.fit((3, 3)[: frame.round + 1])
                    read.append(message)
    except WireError as error:  # anything else fails
        read.append(error)
    return read


@given(st.lists(st.binary(max_size=300) | headers, max_size=3), st.lists(st.floats(0, 1)))
def test_any_bytes_give_frames_or_a_named_rule(parts, places):
    data = wire.MAGIC + bytes([wire.VERSION]) + b"".join(parts)
    frames = [frame for frame in read(data, places) if isinstance(frame, wire.Frame)]
    assert data.startswith(b"".join(bytes(frame.whole) for frame in frames))


@given(streams, st.lists(st.floats(0, 1), max_size=5))
def test_any_frames_give_messages_or_a_named_rule_however_they_are_cut(parts, places):
    data = b"".join(parts)
    found, in_one_piece = read(data, places), read(data, [])
    broken = [bool(r) and isinstance(r[-1], WireError) for r in (found, in_one_piece)]
    assert broken[0] == broken[1]
    if not broken[0]:  # else a piece that breaks a rule gives none of its frames
        assert list(map(repr, found)) == list(map(repr, in_one_piece))


def random_frame(rng):
    """A frame whose fields are right in nine of ten cases each."""

    def mostly(right, wrong):
        return right if rng.random() < 0.9 else wrong

    body = mostly(8 * int(rng.integers(0, 9)), int(rng.integers(0, 100)))
    head = wire.HEADER.pack(
        mostly(wire.MAGIC, b"HTTP"),
        mostly(wire.VERSION, 1),
        mostly(int(rng.integers(1, 1 + len(FrameKind))), int(rng.integers(256))),
        mostly(0, 1),
        int(rng.integers(0, 3)),
        mostly(body, int(rng.integers(2**62))),
        mostly(int(rng.integers(0, 4)), int(rng.integers(2**62))),
    )
    bits = mostly(np.ones(13).tobytes(), np.full(13, np.nan).tobytes())
    return head + bits[:body]


def test_random_frames_reach_every_rule_of_the_wire():
    rng = np.random.default_rng(0)
    reached = set()
    for _ in range(12_000):
        for found in read(random_frame(rng) + random_frame(rng), []):
            kind = getattr(found, "kind", None)
            reached.add(str(found) if isinstance(found, WireError) else kind or type(found))
    told = " ".join(map(str, reached))
    assert {*FrameKind, wire.Data} <= reached
    for rule in (
        "a frame begins with", "speaks version", "no frame of kind", "at most", "whole float64",
        "has flags up to", "bytes of stop bits", "numbers are finite", "has exchanges of",
    ):  # fmt: skip
        assert rule in told


def test_a_header_has_32_bytes_and_numbers_are_read_where_they_arrived():
    assert wire.HEADER.size == 32
    for n in (2, 20_000):
        sent = encode_data(0, bytes(16), (np.arange(n, dtype=np.float64),))
        (frame,) = Parser(wire.limits(n, 16)).feed(sent)
        numbers = decode_data(frame, 16).numbers
        assert np.shares_memory(numbers, np.frombuffer(frame.whole, np.uint8))
        assert numbers.ctypes.data % 8 == 0


@pytest.mark.parametrize("kind", list(FrameKind))
def test_a_length_is_checked_before_memory_is_allocated(kind):
    longest = wire.limits(DIM, 8)[kind]
    header = wire.HEADER.pack(b"hush", wire.VERSION, kind, 0, 0, longest + 8, 0)
    parser = Parser(wire.limits(DIM, 8))
    tracemalloc.start()
    with pytest.raises(WireError, match=f"at most {longest} bytes"):
        parser.feed(header)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def altered(**changes):
    fields = {
        "magic": b"hush",
        "version": wire.VERSION,
        "kind": 3,
        "zero": 0,
        "round": 0,
        "length": 8,
    }
    fields |= {"flags": 1} | changes
    return struct.pack("<4sBBHQQQ", *fields.values()) + bytes(8)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"magic": b"HTTP"}, "begins with"),
        ({"version": 1}, f"version {wire.VERSION}"),
        ({"kind": 0}, "no frame of kind 0"),
        ({"kind": 77}, "no frame of kind 77"),
        ({"zero": 1}, "in place of zero"),
        ({"length": 12}, "whole float64"),
        ({"length": 2**63}, "at most"),
        ({"flags": 256}, "flags up to 255"),
        ({"kind": 4, "length": 8}, "at most 0 bytes"),
        ({"kind": 5, "length": 0, "flags": 2}, "flags up to 1"),
        ({"kind": 1, "length": 0}, "flags up to 0"),
    ],
)
def test_a_header_that_breaks_a_rule_is_named(changes, rule):
    Parser(wire.limits(3, 0)).feed(altered())
    with pytest.raises(WireError, match=rule):
        Parser(wire.limits(3, 0)).feed(altered(**changes))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad):
    vector = np.array([1e308, -1e308, bad, 1e308])
    (frame,) = Parser(wire.limits(4, 0)).feed(encode_data(7, b"", (vector,)))
    with pytest.raises(WireError, match=r"number 2 of round 7") as refused:
        decode_data(frame, 0)
    assert refused.value.reason == "not finite"
    (fine,) = Parser(wire.limits(4, 0)).feed(encode_data(7, b"", (np.full(4, 1e308),)))
    assert decode_data(fine, 0).numbers[0] == 1e308


@pytest.mark.parametrize(
    ("payload", "sizes"),
    [
        ((np.ones(3),), (4,)),
        ((np.ones(5),), (4,)),
        ((np.ones(4), np.ones(4)), (4,)),
        ((None, np.ones(4)), (4, 1)),
        ((np.ones(4),), ()),
    ],
)
def test_a_message_that_does_not_fit_its_round_is_refused(payload, sizes):
    (frame,) = Parser(wire.limits(5, 0)).feed(encode_data(7, b"", payload))
    with pytest.raises(WireError, match="round 7 has exchanges") as refused:
        decode_data(frame, 0).fit(sizes)
    assert refused.value.reason == "dimension"


@pytest.mark.parametrize("length", [2, 50])
def test_digests_tell_numbers_rounds_exchanges_and_stop_bits_apart(length):
    x, y = np.ones((2, length))
    y[-1] = np.nextafter(1.0, 2.0)
    variants = [
        (0, bytes(8), (x,)),
        (0, bytes(8), (y,)),
        (1, bytes(8), (x,)),
        (0, bytes(7) + b"\x01", (x,)),
        (0, bytes(8), (None, x)),
        (0, bytes(8), ()),
    ]
    every = [encode_data(*v) for v in variants]
    for tells in (digest, lambda sent: joint_digest(sent, every[0])):
        assert len(set(map(tells, every))) == len(variants)
    (frame,) = Parser(wire.limits(length, 8)).feed(every[0])
    assert decode_data(frame, 8).digest == digest(every[0])


def test_a_step_with_too_many_exchanges_is_told_before_it_is_sent():
    with pytest.raises(WireError, match="at most 8 exchanges, but this step yields 9"):
        encode_data(0, b"", (np.ones(1),) * 9)
