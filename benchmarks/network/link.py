"""A slow link between two agents on one machine, for the realistic rows of the benchmark.

Every agent has a network namespace of its own. A link is two TUN devices, one in each namespace,
and the process that carries IP packets between them: `python -m benchmarks.network.link`. Packets
of one direction wait for each other as on a wire, so the direction sends RATE bits a second; then
every packet takes DELAY seconds, and none is lost. The agents' kernels speak TCP across that
distance: windows, acknowledgements and Nagle's rule are real, which a proxy that ends the
connections would hide. The kernel's own `netem` does the same, but many kernels are built without.

Making a link needs Linux, the right to make network namespaces, /dev/net/tun and the command `ip`.
Nothing of it outlives the processes that hold it.
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
_SPIN = 100e-6  # seconds: a sleep ends up to so late, so the last ones are not slept
_CROWD = 20  # packets on their way, of which none is awaited so exactly: others follow
_QUEUE = 5000  # packets of a device: a long message enters at once, and must not be cut
_SELF = "/proc/thread-self/ns/net"


class NoLinkError(Exception):
    """This machine cannot make slow links."""


class Link(NamedTuple):
    """A TUN device at either end; an agent reaches the other at the address of the other's end."""

    addresses: tuple[str, str]
    devices: tuple[int, int]


@contextmanager
def links(
    n_agents: int, ends: Iterable[tuple[int, int]]
) -> Generator[tuple[list[int], list[Link]]]:
    """Namespaces of so many agents, and the links between some of them, carried by a process."""
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
        held.enter_context(carrier)  # leaving closes its standard input, and waits
        yield spaces, made


@contextmanager
def inside(space: int | None) -> Generator[None]:
    """This thread, and what it starts, in a namespace; None stays where it is."""
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
        # not the machine's own choice: BBR paces, which costs a long message 1 %
        Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("reno")
        space = os.open(_SELF, os.O_RDONLY)
    held.callback(os.close, space)
    return space


def _device(held: ExitStack, space: int, name: str, here: str, there: str) -> int:
    """A TUN device of a namespace, through which one address leads to the other."""
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
    """Packets on their way: each leaves when all before it have left, then travels."""

    def __init__(self, delay: float = DELAY, rate: float = RATE):
        self._delay, self._seconds, self._free = delay, 8 / rate, 0.0
        self._packets: deque[tuple[float, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._packets)

    def enter(self, packet: bytes, now: float) -> None:
        self._free = max(self._free, now) + len(packet) * self._seconds
        self._packets.append((self._free + self._delay, packet))

    def due(self) -> float:
        """When the next packet arrives."""
        return self._packets[0][0] if self._packets else inf

    def leave(self) -> bytes:
        return self._packets.popleft()[1]


def carry(pairs: Sequence[tuple[int, int]]) -> None:
    """Carry packets between the devices of every pair, until standard input ends."""
    with suppress(OSError):  # a link is not late because agents compute
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
