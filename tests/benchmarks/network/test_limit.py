"""The limit of a round equals a hand computation, and a link is never faster than its rate."""

import random
import socket
import threading
import time
from pathlib import Path

import pytest

from benchmarks.network import limit
from benchmarks.network.link import DELAY, MTU, RATE, Direction, NoLinkError, inside, links

SLACK = 0.05  # seconds: the median lateness on a very busy machine; an idle one has 0.0003


@pytest.mark.parametrize(
    ("dim", "by_hand"),
    [
        (2, 32 + 16 + 22 + 52),  # one record, one packet
        (172, 32 + 1376 + 22 + 52),  # 1430 bytes of a packet's 1448
        (175, 32 + 1400 + 22 + 2 * 52),  # 1454: two packets
        (10_000, 80_032 + 5 * 22 + 56 * 52),
        (100_000, 800_032 + 49 * 22 + 554 * 52),
    ],
)
def test_bytes_on_the_wire_are_the_frame_and_the_additions_of_tls_tcp_and_ip(dim, by_hand):
    assert limit.wire_bytes(dim) == by_hand


def test_a_round_takes_propagation_and_bytes():
    assert limit.round_seconds(2, 0.005) == pytest.approx(0.005 + 122 * 8 / 100e6)
    assert limit.round_seconds(100_000, 0.005) == pytest.approx(0.07139, abs=5e-6)


def test_packets_wait_for_earlier_packets_and_then_travel():
    way = Direction(delay=5.0, rate=8.0)  # a byte takes a second
    assert way.due() == float("inf")
    way.enter(b"ab", 10.0)
    way.enter(b"c", 11.0)  # while the first packet leaves
    way.enter(b"d", 20.0)  # long after the others
    arrived = []
    while len(way):
        arrived.append((way.due(), way.leave()))
    assert arrived == [(17.0, b"ab"), (18.0, b"c"), (26.0, b"d")]


@pytest.fixture(scope="module")
def link():
    try:
        with links(2, [(0, 1)]) as (spaces, made):
            yield spaces, made[0]
    except NoLinkError as error:
        pytest.skip(str(error))


def test_a_datagram_travels_for_the_delay_of_the_link(link):
    spaces, made = link
    propagation = limit.propagation(spaces, made)
    assert DELAY <= propagation <= DELAY + SLACK


def test_a_stream_is_no_faster_than_the_rate(link):
    spaces, made = link
    with inside(spaces[1]):
        ear = socket.create_server((made.addresses[1], 0))
    with inside(spaces[0]):
        here = socket.create_connection(ear.getsockname(), timeout=limit.PATIENCE)
    with ear, here, ear.accept()[0] as there:
        data = random.Random(0).randbytes(4_000_000)
        started = time.monotonic()
        sending = threading.Thread(target=here.sendall, args=(data,))
        sending.start()
        got = bytearray()
        while len(got) < len(data):
            got += there.recv(len(data))
        taken = time.monotonic() - started
        sending.join()
    assert got == data
    least = DELAY + len(data) * MTU / (MTU - limit.TCP_IP) * 8 / RATE  # 0.34 s
    assert least <= taken <= least + 1  # TCP starts slowly, and the machine may be busy


def test_a_namespace_is_entered_and_left(link):
    def here():
        return Path("/proc/thread-self/ns/net").readlink()

    (left, right), _ = link
    home = here()
    with inside(left):
        at_left = here()
    with inside(right):
        at_right = here()
    assert here() == home
    assert len({home, at_left, at_right}) == 3
