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
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.machine import ROOT

DELAY = 0.005  # seconds one way: a round trip of 10 ms
RATE = 100e6  # bits per second, IP headers included, in each direction
MTU = 1500  # bytes of an IP packet, as on an Ethernet

_TUN, _NO_HEADER = 0x0001, 0x1000  # flags of TUNSETIFF, <linux/if_tun.h>
_TUNSETIFF = 0x400454CA
_SPIN = 50e-6  # seconds before a packet is due in which a sleep would end too late
_QUEUE = 5000  # packets of a device: a long message enters at once, and must not be cut
_SELF = "/proc/thread-self/ns/net"


class NoLinkError(Exception):
    """This machine cannot make slow links."""


class Link:
    """What is between two agents; each reaches the other at the address of the other's end."""

    def __init__(self, number: int, spaces: tuple[int, int]):
        self.addresses = f"10.77.{number}.1", f"10.77.{number}.2"
        self.devices = tuple(
            _device(space, f"link{number}", here, there)
            for space, here, there in zip(spaces, self.addresses, self.addresses[::-1], strict=True)
        )


@contextmanager
def links(
    n_agents: int, ends: Iterable[tuple[int, int]]
) -> Generator[tuple[list[int], list[Link]]]:
    """Namespaces of so many agents, and the links between some of them, carried by a process."""
    opened: list[int] = []
    carrier = None
    try:
        try:
            opened.extend(_namespace() for _ in range(n_agents))
            spaces, made = list(opened), list[Link]()
            for number, (a, b) in enumerate(ends):
                made.append(Link(number, (spaces[a], spaces[b])))
                opened += made[-1].devices
        except (OSError, AttributeError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or error
            raise NoLinkError(f"this machine cannot make slow links: {reason}") from error
        pairs = [link.devices for link in made]
        carrier = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.network.link", json.dumps(pairs)],
            cwd=ROOT, pass_fds=[device for pair in pairs for device in pair],
        )  # fmt: skip
        yield spaces, made
    finally:
        if carrier is not None:
            carrier.kill()
            carrier.wait()
        for number in opened:
            os.close(number)


@contextmanager
def inside(space: int | None) -> Generator[None]:
    """This thread, and what it starts, in a namespace; None is where it is already."""
    if space is None:
        yield
        return
    home = os.open(_SELF, os.O_RDONLY)
    try:
        os.setns(space, os.CLONE_NEWNET)
        yield
    finally:
        os.setns(home, os.CLONE_NEWNET)
        os.close(home)


def _namespace() -> int:
    home = os.open(_SELF, os.O_RDONLY)
    try:
        os.unshare(os.CLONE_NEWNET)
        # Linux's default: the host's own choice may be another
        with suppress(OSError):
            Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("cubic")
        return os.open(_SELF, os.O_RDONLY)
    finally:
        os.setns(home, os.CLONE_NEWNET)
        os.close(home)


def _device(space: int, name: str, here: str, there: str) -> int:
    """A TUN device of a namespace, through which one address leads to the other."""
    with inside(space):
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN | _NO_HEADER))
        for command in (
            f"ip address add {here} peer {there} dev {name}",
            f"ip link set {name} mtu {MTU} txqueuelen {_QUEUE} up",
        ):
            subprocess.run(command.split(), check=True, capture_output=True, text=True)
    return device


class Direction:
    """Packets on their way: when each has left the sender, and when it arrives."""

    def __init__(self, delay: float = DELAY, rate: float = RATE):
        self._delay, self._seconds, self._free = delay, 8 / rate, 0.0
        self._on_their_way: deque[tuple[float, bytes]] = deque()

    def enter(self, packet: bytes, now: float) -> None:
        self._free = max(self._free, now) + len(packet) * self._seconds
        self._on_their_way.append((self._free + self._delay, packet))

    @property
    def next(self) -> float:
        """When the next packet arrives."""
        return self._on_their_way[0][0] if self._on_their_way else float("inf")

    def leave(self) -> bytes:
        return self._on_their_way.popleft()[1]


def carry(pairs: Sequence[tuple[int, int]]) -> None:
    """Carry packets between the devices of every pair, for ever."""
    ways = [(a, b, Direction()) for pair in pairs for a, b in (pair, pair[::-1])]
    entries = {source: way for source, _, way in ways}
    with suppress(OSError):  # the link is never late because others compute
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    clock, read, write = time.monotonic, os.read, os.write
    while True:
        wait = min(way.next for _, _, way in ways) - clock()
        ready, _, _ = select.select(entries, [], [], None if wait > 1 else max(wait - _SPIN, 0))
        for source in ready:
            with suppress(BlockingIOError):
                while True:
                    entries[source].enter(read(source, MTU), clock())
        for _, target, way in ways:
            while way.next <= clock():
                write(target, way.leave())


if __name__ == "__main__":
    carry([tuple(pair) for pair in json.loads(sys.argv[1])])
