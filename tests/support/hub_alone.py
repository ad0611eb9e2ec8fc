"""A real hub in the middle of a run, without a network; the test plays its only peer."""

import numpy as np

from hushgrad.agent.weights import Ends, Row
from hushgrad.files.digest import digest
from hushgrad.network.ops.counters import Stats
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.announcements import (
    Announcement,
    Announcements,
    encode_announcements,
)
from hushgrad.network.protocol.codes import Ending, reason_code
from hushgrad.network.protocol.frames import FrameKind, encode_data
from hushgrad.network.protocol.hello import encode_row, run_digest
from hushgrad.network.protocol.mask_tokens import MaskTokens, encode_entries
from hushgrad.network.protocol.session import Peer, SelfDescription, Session
from hushgrad.network.protocol.stages import Starts
from hushgrad.network.transport.connection import Connection
from hushgrad.network.transport.hub import Hub

DIM, STOP = 3, 8
NUMBER, PEER = 0, 1
PUBLIC = {"run": "alone", "algorithm": "DIGing()", "dim": "3"}
ROUND = 5  # the present round of the agent and of its peer
ANNOUNCED = [Announcement(j, 0, bytes([j]) * 32, bytes(32), bytes(64)) for j in (1, 2)]
GOSSIP = [(0, 1, bytes(16)), (1, 2, bytes(16)), (1, 1, bytes(16)), (2, 2, b"\1" + bytes(15))]


START = np.arange(DIM) + 0.5  # of stage 1; this agent is the one that decides on it


def message(round_):
    return encode_data(round_, bytes(STOP), (np.arange(DIM) + float(round_),))


def session_of(number, name_of_other):
    """The session of one agent, which has committed ROUND and consumed the round before."""
    other = 1 - number
    peers = {other: Peer(other, name_of_other, "both", False)}
    me = SelfDescription(PUBLIC, number, 1, Ends(1, 1))
    session = Session(me, peers, STOP, n_agents=3, most_rounds=100)
    frames = {n: {other: message(n)} for n in (ROUND - 1, ROUND)}
    consumed = {n: {other: digest(message(n))} for n in (ROUND - 2, ROUND - 1)}
    session.restore(frames, consumed, (DIM,))
    return session


def hello_of_peer():
    """The HELLO frame of an honest peer."""
    there = session_of(PEER, "me")
    return wire.encode(FrameKind.HELLO, there.hello(there.peers[NUMBER]).encode())


def over(ending=Ending.DIVERGED, origin=PEER):
    """The OVER frame of the peer."""
    return wire.encode(FrameKind.OVER, run_digest(PUBLIC), flags=ending, round_=origin)


def honest_frames():
    """A frame of each kind that an honest peer may send now, by kind."""
    row = encode_row(Row(0.5, {0: 0.25, 2: 0.25}, {0: "me", 2: "third"}))
    return {
        FrameKind.HELLO: hello_of_peer(),
        FrameKind.ROW: wire.encode(FrameKind.ROW, row),
        FrameKind.DATA: message(ROUND),
        FrameKind.HEARTBEAT: wire.encode(FrameKind.HEARTBEAT),
        FrameKind.FIN: wire.encode(FrameKind.FIN, round_=ROUND + 1),
        FrameKind.REJECT: wire.encode(FrameKind.REJECT, flags=reason_code("order")),
        FrameKind.GOSSIP: wire.encode(FrameKind.GOSSIP, encode_entries(GOSSIP)),
        FrameKind.ANNOUNCE: wire.encode(FrameKind.ANNOUNCE, encode_announcements(ANNOUNCED)),
        FrameKind.STAGE: wire.encode(FrameKind.STAGE, START.tobytes(), round_=1),
        FrameKind.OVER: over(),
    }


class Wire:
    """The agent's end of a connection, with the methods that a connection calls."""

    def __init__(self):
        self.written, self.has_ended = b"", False

    def write(self, data):
        assert not self.has_ended
        self.written += data

    def get_write_buffer_size(self):
        return 0

    def close(self):
        self.has_ended = True

    abort = close


class EveryoneIsPeer:
    """A transport that takes every connection for the peer's."""

    def name_of(self, connection):
        return "peer"


def hub_alone():
    """The agent's hub; needs a running event loop."""
    mask_tokens = MaskTokens(3, lambda j: ((j + 1) % 3, (j - 1) % 3))
    mask_tokens.add({(0, 1): bytes(16)})
    starts = Starts(NUMBER, DIM, 2)
    starts.add(1, START)
    return Hub(
        session_of(NUMBER, "peer"), EveryoneIsPeer(), dialled=(), heartbeat=1.0, max_wait=1.0,
        dim=DIM, n_agents=3, diameter=2, stop_bytes=STOP, stats=Stats(),
        mask_tokens=mask_tokens, announcements=Announcements(3), starts=starts,
    )  # fmt: skip


def connect(hub):
    """A new connection of the peer to the hub, and its wire."""
    link, end = Connection(hub), Wire()
    link.connection_made(end)
    return link, end


def deliver(link, data):
    """Let bytes arrive on a connection, until the connection is over."""
    rest = memoryview(data)
    while rest and not link.is_over:
        room = link.get_buffer(-1)
        count = min(len(room), len(rest))
        room[:count] = rest[:count]
        link.buffer_updated(count)
        rest = rest[count:]
