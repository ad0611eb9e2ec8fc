"""Any bytes are taken or refused by a named rule, in little time and memory."""

import asyncio
import gc
import json
import logging
import random
import resource
import ssl
import struct
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrad.errors import AgentError, WireError
from hushgrad.network.keys.identity import client_context, mint, server_context
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.frames import FrameKind, Parser
from hushgrad.network.protocol.hello import decode_hello, decode_row
from hushgrad.network.state.sections import NOTHING, Section, decode_sections, encode_section
from support import hub_alone
from support.hub_alone import DIM, NUMBER, PEER, ROUND, STOP

LIMITS = wire.limits(DIM, STOP, n_entries=6, n_announcements=6)


def honest():
    """HELLO, the next messages of the run, and a frame of every other kind."""
    frames = hub_alone.honest_frames()
    return [
        frames[FrameKind.HELLO],
        frames[FrameKind.ROW],
        frames[FrameKind.DATA],
        frames[FrameKind.HEARTBEAT],
        hub_alone.message(ROUND + 1),
        frames[FrameKind.FIN],
        frames[FrameKind.GOSSIP],
        frames[FrameKind.ANNOUNCE],
        frames[FrameKind.REJECT],
    ]


def listen_to(chunks):
    """Let an agent hear a stream; returns its hub afterwards."""
    hub = hub_alone.hub_alone()
    link, end = hub_alone.connect(hub)
    for chunk in chunks:
        hub_alone.deliver(link, chunk)
    session = hub.session
    inbox = session.peers[PEER].inbox
    assert all(session.wanted <= n <= session.round + 1 for n in inbox)
    assert all(np.isfinite(data.numbers).all() for data in inbox.values())
    assert hub.failure is None or isinstance(hub.failure, AgentError)
    assert len(end.written) < 5_000
    return hub


# ---- mutations

ODD = [
    0,
    1,
    -1,
    2**31,
    2**63,
    2**64 - 1,
    1e400,
    float("nan"),
    None,
    True,
    "",
    "\ud800\n",
    [],
    {},
    [[]],
]


def flip(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(rng, data):
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:a] + data[b:] if rng.random() < 0.5 else data[:b]


def splice(rng, data):
    a, b = (rng.randrange(len(data)) for _ in range(2))
    return data[:a] + data[b:]


def relabel(rng, data):
    """Another value in one field of the header."""
    fields = list(wire.HEADER.unpack_from(data))
    n = rng.randrange(1, len(fields))
    size = {1: 8, 2: 8, 3: 16}.get(n, 64)
    fields[n] = rng.choice(
        [0, 1, 2, 7, 8, ROUND, ROUND + 2, LIMITS[FrameKind.DATA], 2**31, 2**63, rng.getrandbits(64)]
    ) % (1 << size)
    return wire.HEADER.pack(*fields) + data[wire.HEADER.size :]


def retell(rng, data):
    """Another value in one entry of a JSON body, or another entry."""
    kind = data[5]
    try:
        said = json.loads(data[wire.HEADER.size :])
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return renumber(rng, data)
    said[rng.choice([*said, "new"])] = rng.choice(ODD)
    return wire.encode(kind, json.dumps(said).encode())


def renumber(rng, data):
    """Another number in a body of numbers."""
    body = bytearray(data[wire.HEADER.size :])
    if len(body) < 8:
        return flip(rng, data)
    value = rng.choice([np.nan, np.inf, -np.inf, 5e-324, 1.8e308, rng.random()])
    struct.pack_into("<d", body, 8 * rng.randrange(len(body) // 8), value)
    return data[: wire.HEADER.size] + bytes(body)


def noise(rng, data):
    return rng.randbytes(rng.randrange(1, 200))


def mutated(rng, frames):
    """A stream of frames, some of them wrong, in another order, more often or never."""
    stream = list(frames)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        n = rng.randrange(min(rng.randrange(2), len(stream) - 1), len(stream))
        change = rng.choice([flip, cut, splice, relabel, relabel, retell, retell, noise, None])
        if change is not None and stream[n]:
            stream[n] = change(rng, stream[n]) if len(stream[n]) >= 32 else noise(rng, b"")
        elif rng.random() < 0.5:
            stream.insert(rng.randrange(len(stream)), stream[n])
        elif len(stream) > 1:
            stream.pop(n)
    whole = b"".join(stream)
    if rng.random() < 0.1:
        whole = flip(rng, whole) if whole else whole
    return whole


def pieces(rng, data):
    """The same bytes as they may arrive."""
    if rng.random() < 0.5 or not data:
        return [data]
    ends = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(1, 5)))
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


# ---- the targets: each takes one input and may fail only with a named error


def parse(rng, frames):
    parser = Parser(LIMITS)
    try:
        for piece in pieces(rng, mutated(rng, frames)):
            for frame in parser.feed(piece):
                assert len(frame.body) <= LIMITS[frame.kind]
                if frame.kind is FrameKind.DATA:
                    wire.decode_data(frame, STOP).fit((DIM,))
    except WireError:
        pass


def talk(rng, frames):
    listen_to(pieces(rng, mutated(rng, frames)))


def decode(rng, frames):
    body = mutated(rng, [frames[rng.choice([0, 1, 7])]])[wire.HEADER.size :]
    for decoder in (decode_hello, lambda body: decode_row(body, 3)):
        with suppress(WireError):
            decoder(body)


def journal(rng, frames):
    content, checksum = b"", NOTHING
    for n in range(3):
        section = Section(n, n, {"x": np.arange(n + 1.0)}, facts={"sent": "ab"})
        parts, _, checksum = encode_section(section, checksum)
        content += b"".join(parts)
    sections, _, _ = decode_sections(mutated(rng, [content]))
    for n, section in enumerate(sections):
        assert section.k == n
        np.testing.assert_array_equal(section.arrays["x"], np.arange(n + 1.0))


def fuzz(target, count, seed):
    """Run a target on `count` inputs; its slowest in seconds, and growth of memory in bytes."""
    frames, slowest = honest(), 0.0
    gc.freeze()  # older objects are not the target's, and the collector may skip them
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for n in range(count):
        rng = random.Random(seed * 10**9 + n)
        started = time.process_time()
        try:
            target(rng, frames)
        except Exception as error:
            error.add_note(f"input {n} of seed {seed}")
            raise
        slowest = max(slowest, time.process_time() - started)
        if n % 200 == 0:
            gc.collect()  # connections are cyclic garbage, which should not count as growth
    gc.unfreeze()
    return slowest, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


TARGETS = {"frames": parse, "session": talk, "bodies": decode, "journal": journal}


@pytest.fixture(autouse=True)
def silence(monkeypatch):
    """Drop the log lines of refusals, but raise the error of a defect."""
    logger = logging.getLogger("hushgrad.agent")
    logger.setLevel(logging.CRITICAL)
    monkeypatch.setattr(logger, "exception", raise_again)
    yield
    logger.setLevel(logging.NOTSET)


def raise_again(*_, **__):
    raise  # the error that the caller has caught


async def in_loop(target, count, seed):
    return fuzz(target, count, seed)


def test_every_frame_of_an_honest_neighbour_is_taken():
    async def check():
        *frames, _ = honest()
        hub = listen_to(frames)
        assert hub.failure is None
        peer = hub.session.peers[PEER]
        assert sorted(peer.inbox) == [ROUND, ROUND + 1]
        assert peer.has_finished
        assert set(hub.rows) == {PEER}
        assert hub.distances.hops == {NUMBER: 0, PEER: 1, 2: 2}
        assert not hub._stats.rejected

    asyncio.run(check())


@pytest.mark.parametrize("target", TARGETS)
def test_wrong_bytes_are_named_in_little_time_and_memory(target):
    slowest, growth = asyncio.run(in_loop(TARGETS[target], 1500, seed=1))
    assert slowest < 0.5
    assert growth < 20_000_000


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_million_wrong_inputs_are_named_in_little_time_and_memory(target):
    count = {"frames": 600_000, "session": 300_000, "bodies": 80_000, "journal": 30_000}[target]
    slowest, growth = asyncio.run(in_loop(TARGETS[target], count, seed=2))
    assert slowest < 0.5
    assert growth < 20_000_000


@settings(max_examples=400)
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_no_bytes_are_too_strange_for_the_parser(chunks):
    parser = Parser(LIMITS)
    try:
        for chunk in chunks:
            parser.feed(chunk)
    except WireError:
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from([*json.loads(honest()[0][wire.HEADER.size :])]), JSON))
def test_no_hello_is_too_strange_for_a_session(loop, changes):
    async def check():
        said = json.loads(honest()[0][wire.HEADER.size :]) | changes
        listen_to([wire.encode(FrameKind.HELLO, json.dumps(said).encode())])

    loop.run(check())


# ---- TLS itself


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """Server and client contexts of two agents."""
    keys = tmp_path_factory.mktemp("keys")
    ann, bob = mint(keys, "ann"), mint(keys, "bob")
    return server_context(ann, [bob.certificate]), client_context(bob, ann.certificate)


def shake_hands(ends, rng, spoil):
    """Whether a handshake succeeds, flight number `spoil` of the client being changed."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = ends[0].wrap_bio(to_server, to_client, server_side=True)
    from_client = ssl.MemoryBIO()
    client = ends[1].wrap_bio(to_client, from_client, server_hostname="ann")
    for flight in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
            sent = from_client.read()
            if sent and flight == spoil:
                sent = rng.choice([flip, cut, splice, noise])(rng, sent)
            to_server.write(sent)
    try:
        server.do_handshake()
    except ssl.SSLError:
        return False
    return True


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_spoilt_handshake_fails(ends, count):
    assert shake_hands(ends, random.Random(0), spoil=9)
    succeeded = 0
    for n in range(count):
        rng = random.Random(n)
        succeeded += shake_hands(ends, rng, spoil=rng.randrange(2))
    # a mutation may leave the flight as it was
    assert succeeded < count / 10
