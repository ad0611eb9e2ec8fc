"""The physical limit of a round on a link. The reports compare rounds on slow links with it.

In every round an agent sends one message to each neighbour, and needs the neighbours' messages
before it can compute the next round. Both directions of a link work at the same time, and so do
different links. So a round takes at least

    propagation + 8 · (bytes of one message on the wire) / RATE.

The last byte leaves the sender after all other bytes, and then travels. The bytes on the wire are
the frame (a header of 32 bytes and d numbers of 8), the additions of TLS, and the headers of TCP
and IP. The limit counts neither acknowledgements, although TCP needs them, nor computing. So the
limit is a bound for every program that uses TLS over TCP.

`propagation` measures a link in each turn, before the agents start, as `ping` does. The result is
the median time of a datagram from one program to another, less the time of the datagram's bytes. A
link adds some microseconds to DELAY, and the kernel needs some to wake a program.
"""

from __future__ import annotations

import socket
import statistics
import time

from benchmarks.network.link import MTU, RATE, Link, inside

HEADER = 32  # bytes of a frame before its numbers
RECORD = 16_384  # bytes of data in the longest TLS record (RFC 8446, 5.1)
SEALED = 5 + 1 + 16  # bytes that TLS 1.3 adds to a record: header, kind of content, tag
TCP_IP = 20 + 20 + 12  # bytes of IPv4, TCP and TCP's timestamps in every packet
UDP_IP = 20 + 8
PINGS = 50
PATIENCE = 5.0  # seconds that a datagram may need


def wire_bytes(dim: int) -> int:
    """The bytes of the IP packets that carry one message of `dim` numbers.

    >>> wire_bytes(2)
    122
    """
    frame = HEADER + 8 * dim
    stream = frame + SEALED * -(-frame // RECORD)
    return stream + TCP_IP * -(-stream // (MTU - TCP_IP))


def round_seconds(dim: int, propagation: float) -> float:
    """The shortest time of a round between neighbours on a link."""
    return propagation + 8 * wire_bytes(dim) / RATE


def propagation(spaces: tuple[int, int], link: Link, size: int = 72) -> float:
    """The seconds that a datagram travels, without the time of its bytes."""
    ends: list[socket.socket] = []
    for space, address in zip(spaces, link.addresses, strict=True):
        with inside(space):
            ends.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        ends[-1].settimeout(PATIENCE)
        ends[-1].bind((address, 0))
    taken: list[float] = []
    for n in range(PINGS):
        here, there = ends if n % 2 else ends[::-1]
        started = time.monotonic()
        here.sendto(bytes(size), there.getsockname())
        there.recv(size)
        taken.append(time.monotonic() - started)
    for end in ends:
        end.close()
    return statistics.median(taken) - 8 * (size + UDP_IP) / RATE
