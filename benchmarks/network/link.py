"""A slow link between two agents on one machine, for the realistic rows of the benchmark.

Every agent has a network namespace of its own. A link is two TUN devices, one in each namespace.
The process `python -m benchmarks.network.link` carries IP packets between the devices. Packets of
one direction wait for each other as on a wire, so a direction sends RATE bits a second. Then every
packet takes DELAY seconds, and no packet is lost. The kernel speaks TCP across that distance, so
windows, acknowledgements and Nagle's rule are real. A proxy that ends the connections would hide
them. The kernel's own `netem` would do the same, but many kernels lack it.

Making a link needs Linux, the right to make network namespaces, /dev/net/tun and the command `ip`.
The kernel removes a link when the processes that use the link end.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import ROOT

DELAY = 0.005  # seconds one way: a round trip of 10 ms
RATE = 100e6  # bits per second, IP headers included, in each direction
MTU = 1500  # bytes of an IP packet, as on an Ethernet

_TUN, _NO_HEADER = 0x0001, 0x1000  # flags of TUNSETIFF, <linux/if_tun.h>
_TUNSETIFF = 0x400454CA
_SPIN = 100e-6  # seconds: a sleep may end this late, so the carrier wakes earlier and polls
_CROWD = 20  # with so many packets on their way, the carrier does not poll: others follow
_QUEUE = 5000  # packets of a device: a whole long message must fit, or TCP loses a part
_SELF = "/proc/thread-self/ns/net"


class NoLinkError(Exception):
    """This machine cannot make slow links."""


class Link(NamedTuple):
    """Two TUN devices. The address of an end is the address of the agent at that end."""

    addresses: tuple[str, str]
    devices: tuple[int, int]


@contextmanager
def links(
    n_agents: int, ends: Iterable[tuple[int, int]]
) -> Generator[tuple[list[int], list[Link]]]:
    """The namespaces of n agents, the links between the given ends, and the carrier process."""
    with ExitStack() as held:
        try:
            spaces = [_namespace(held) for _ in range(n_agents)]
            made: list[Link] = []
            for n, (a, b) in enumerate(ends):
                left, right = f"10.77.{n}.1", f"10.77.{n}.2"
                devices = (
                    _device(held, spaces[a], f"link{n}", left, right),
                    _device(held, spaces[b], f"link{n}", right, left),
                )
                made.append(Link((left, right), devices))
        except (OSError, AttributeError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or error
            raise NoLinkError(f"this machine cannot make slow links: {reason}") from error
        pairs = [link.devices for link in made]
        carrier = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.network.link", json.dumps(pairs)],
            cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[end for pair in pairs for end in pair],
        )  # fmt: skip
        held.enter_context(carrier)  # the exit closes the carrier's standard input and waits
        yield spaces, made


@contextmanager
def inside(space: int | None) -> Generator[None]:
    """Run this thread, and the processes that it starts, in a namespace; None: no change."""
    home = os.open(_SELF, os.O_RDONLY)
    try:
        if space is not None:
            os.setns(space, os.CLONE_NEWNET)
        yield
    finally:
        os.setns(home, os.CLONE_NEWNET)
        os.close(home)


def _namespace(held: ExitStack) -> int:
    with inside(None):
        os.unshare(os.CLONE_NEWNET)
        # not the machine's default: BBR paces its packets, which costs a long message 1 %
        Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("reno")
        space = os.open(_SELF, os.O_RDONLY)
    held.callback(os.close, space)
    return space


def _device(held: ExitStack, space: int, name: str, here: str, there: str) -> int:
    """A TUN device in a namespace, which leads from the address `here` to `there`."""
    with inside(space):
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        held.callback(os.close, device)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN | _NO_HEADER))
        for command in (
            f"ip address add {here} peer {there} dev {name}",
            f"ip link set {name} mtu {MTU} txqueuelen {_QUEUE} up",
        ):
            subprocess.run(command.split(), check=True, capture_output=True, text=True)
    return device


class Direction:
    """The packets on their way. A packet leaves after all earlier packets, and then travels."""

    def __init__(self, delay: float = DELAY, rate: float = RATE):
        self._delay, self._seconds, self._free = delay, 8 / rate, 0.0
        self._packets: deque[tuple[float, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._packets)

    def enter(self, packet: bytes, now: float) -> None:
        self._free = max(self._free, now) + len(packet) * self._seconds
        self._packets.append((self._free + self._delay, packet))

    def due(self) -> float:
        """The time when the next packet arrives."""
        return self._packets[0][0] if self._packets else inf

    def leave(self) -> bytes:
        return self._packets.popleft()[1]


def carry(pairs: Sequence[tuple[int, int]]) -> None:
    """Carry packets between the devices of every pair, until standard input ends."""
    with suppress(OSError):  # real-time priority: computing agents must not delay a link
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    ways = [(a, b, Direction()) for pair in pairs for a, b in (pair, pair[::-1])]
    entries = {source: way for source, _, way in ways}
    while True:
        wait = min(way.due() for way in entries.values()) - time.monotonic()
        if max(map(len, entries.values())) < _CROWD:
            wait -= _SPIN
        ready, _, _ = select.select([0, *entries], [], [], None if wait == inf else max(wait, 0))
        if 0 in ready:
            return
        for source in ready:
            with suppress(BlockingIOError):
                while True:
                    entries[source].enter(os.read(source, MTU), time.monotonic())
        for _, target, way in ways:
            while way.due() <= time.monotonic():
                os.write(target, way.leave())


if __name__ == "__main__":
    carry(json.loads(sys.argv[1]))
