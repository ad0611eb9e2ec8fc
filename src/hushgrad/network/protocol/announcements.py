"""Announcements: by them agents that share a mask learn each other's keys of this run.

Partners need not share a link. So every agent announces itself to the whole network before round 0:
its number, a nonce and a public key (X25519) that its state directory made for this run, signed by
the key of its certificate. Each agent gives the announcements that it knows to its neighbours, and
every neighbour passes on those that are new to it. An agent begins when the announcements of all
its partners are here (agreement.py).

In a run in stages an announcement also holds an exponent e: the numbers of the agent's objective at
the start are at most 2^e. The largest exponent of all agents is the unit of their masks, so an
agent then waits for all announcements. In a run with a seed they hold exponents only. If agents
agree on a stepsize, an announcement also holds what the agent tells for it (auto.py): its curvature
and, in a network that is not large, a bit for each of its neighbours. From these every agent
computes the stepsize, and announces that too, under the number n_agents + i. All take the smallest,
so processors that round differently still agree.

Only an agent that holds the certificate can judge a signature. The others see two different
announcements of one agent. Either ends the run: an agent remembers which neighbour told it each
announcement, so operators can ask back along the links to the origin.

The hub (transport/hub.py) sends and receives announcements in ANNOUNCE frames. keys/pairing.py
signs and verifies them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from hushgrad.errors import MaskError, WireError

NONCE = KEY = 32  # bytes
SIGNATURE = 64  # bytes: r and s of ECDSA on P-256
_ENTRY = struct.Struct(f"<Qq{NONCE}s{KEY}s{SIGNATURE}sq")
LEAST, MOST = -900, 1023  # of an exponent: 2^e is a number
PARTS = 64  # of an octave: the stepsize is 2^(−e/64)
ENTRY = _ENTRY.size
OWN = "this agent itself"
_MOST = 2  # announcements of one agent that are kept: two show the conflict


class Announcement(NamedTuple):
    """One agent's keys of this run."""

    number: int
    exponent: int  # 0 if the run has no stages
    nonce: bytes
    key: bytes  # X25519, public
    signature: bytes
    stepsize: int = 0  # what the agent tells for the stepsize: an exponent (auto.py)
    links: bytes = b""  # bit j: agent j is a neighbour


def encode_announcements(announcements: Iterable[Announcement]) -> bytes:
    """The body of an ANNOUNCE frame."""
    return b"".join(_ENTRY.pack(*one[:-1]) + one.links for one in announcements)


def decode_announcements(body: bytes | memoryview, width: int = 0) -> list[Announcement]:
    """The announcements of an ANNOUNCE frame, each with `width` bytes of links."""
    size = ENTRY + width
    if len(body) % size:
        raise WireError(f"an ANNOUNCE holds entries of {size} bytes, but {len(body)} bytes came")
    return [
        Announcement._make((*_ENTRY.unpack_from(body, at), bytes(body[at + ENTRY : at + size])))
        for at in range(0, len(body), size)
    ]


def links_width(n_agents: int) -> int:
    """The bytes of a bit for each agent, in words of eight."""
    return 8 * (-(-n_agents // 64))


def encode_links(numbers: Iterable[int], n_agents: int) -> bytes:
    """A bit for each neighbour."""
    return sum(1 << j for j in numbers).to_bytes(links_width(n_agents), "little")


def decode_links(links: bytes) -> list[int]:
    """The numbers of the neighbours."""
    bits = int.from_bytes(links, "little")
    return [j for j in range(bits.bit_length()) if bits >> j & 1]


class Announcements:
    """The announcements that one agent knows."""

    def __init__(self, n_agents: int = 0, *, has_links: bool = False):
        """The announcements of the agents of a run.

        n_agents     0: they share no secret masks, and announce nothing
        has_links    they tell their links, and then a stepsize, each as agent n_agents + i
        """
        self.n_agents = n_agents
        self._n_numbers = 2 * n_agents if has_links else n_agents
        self.width = links_width(n_agents) if has_links else 0
        self.known: dict[int, dict[Announcement, str]] = {}  # each with the neighbour that told it
        self.most = _MOST * self._n_numbers  # entries in one frame

    def add(self, announcement: Announcement, source: str) -> None:
        """Take an announcement that needs no judgement: this agent's own, or one of its state."""
        self.known.setdefault(announcement.number, {})[announcement] = source

    def entries(self) -> list[Announcement]:
        return [one for held in self.known.values() for one in held]

    def learn(self, told: Iterable[Announcement], source: str) -> list[Announcement]:
        """Take what a neighbour tells; returns the announcements to pass on, which are new."""
        news: list[Announcement] = []
        for announcement in told:
            if announcement.number >= self._n_numbers:
                raise WireError(f"no agent {announcement.number} announces itself in this run")
            if not LEAST <= announcement.exponent <= MOST:
                raise WireError(f"2^{announcement.exponent} is no unit of masks")
            if not LEAST <= announcement.stepsize / PARTS <= MOST:
                raise WireError(f"2^(−{announcement.stepsize}/{PARTS}) is no stepsize")
            if int.from_bytes(announcement.links, "little") >> self.n_agents:
                raise WireError(f"agent {announcement.number} has links to agents of no such run")
            held = self.known.setdefault(announcement.number, {})
            if announcement not in held and len(held) < _MOST:
                held[announcement] = source
                news.append(announcement)
        return news

    def of(self, number: int) -> tuple[Announcement, str] | None:
        """The announcement of an agent and the neighbour that told it, if it is here."""
        return next(iter(self.known.get(number, {}).items()), None)

    def check(self) -> None:
        """Raise MaskError if two different announcements of one agent are known."""
        for number, held in self.known.items():
            if len(held) > 1:
                one, other = held.values()
                if number >= self.n_agents:
                    raise MaskError(
                        f"agent {number - self.n_agents} computes one stepsize for this run, but "
                        f"there are two: one was told by {one}, another by {other}. Either it "
                        "began again with a new state directory: start a new run with a new id. Or "
                        "an agent has told a false one: ask from whom it came, agent by agent."
                    )
                raise MaskError(
                    f"agent {number} announces one key for its masks in this run, but there are "
                    f"two: one was told by {one}, another by {other}. Either agent {number} began "
                    "again with a new state directory: start a new run with a new id. Or an agent "
                    "has told a false announcement: ask from whom it came, agent by agent."
                )
