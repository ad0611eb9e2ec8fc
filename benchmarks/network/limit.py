"""The physical limit of a round on a link, which the realistic rows are held against.

In every round an agent sends one message to each neighbour and needs theirs before it can compute
the next. Both directions of a link work at the same time, and so do different links. So a round
takes at least

    DELAY + 8 · (bytes of one message on the wire) / RATE:

the last byte leaves the sender after all others have, and then travels. Bytes on the wire are those
of the frame (a header of 32 bytes, d numbers of 8), of its TLS records, and of TCP and IP around
them. Acknowledgements are left out, although TCP needs them, and so is all computing: the limit is
a bound for any program that uses TLS over TCP.
"""

from __future__ import annotations

from benchmarks.network.link import DELAY, MTU, RATE

HEADER = 32  # bytes of a frame before its numbers
RECORD = 16_384  # bytes of data in the longest TLS record (RFC 8446, 5.1)
SEALED = 5 + 1 + 16  # bytes that TLS 1.3 adds to each: header, kind of content, tag
TCP_IP = 20 + 20 + 12  # bytes of IPv4, TCP and TCP's timestamps in every packet


def wire_bytes(dim: int) -> int:
    """Bytes of IP packets that carry one message of so many numbers.

    >>> wire_bytes(2)
    122
    """
    frame = HEADER + 8 * dim
    stream = frame + SEALED * -(-frame // RECORD)
    return stream + TCP_IP * -(-stream // (MTU - TCP_IP))


def round_seconds(dim: int) -> float:
    """The shortest time of a round between neighbours on a link."""
    return DELAY + 8 * wire_bytes(dim) / RATE
