"""Announcements: by them agents that share a mask learn each other's keys of this run.

Partners need not share a link. So every agent announces itself to the whole network before round 0:
its number, a nonce and a public key (X25519) that its state directory made for this run, signed by
the key of its certificate. Each agent gives the announcements that it knows to its neighbours, and
every neighbour passes on those that are new to it. An agent begins when the announcements of all
its partners are here (agreement.py).

In a run in stages an announcement also holds an exponent e: the numbers of the agent's objective at
the start are at most 2^e. The largest exponent of all agents is the unit of their masks, so an
agent then waits for all announcements. In a run with a seed they hold exponents only. If agents
agree on a stepsize, an announcement also holds what the agent needs (auto.py).

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
    stepsize: int = 0  # e of the stepsize 2^−e that this agent needs, if agents agree on one


def encode_announcements(announcements: Iterable[Announcement]) -> bytes:
    """The body of an ANNOUNCE frame."""
    return b"".join(_ENTRY.pack(*announcement) for announcement in announcements)


def decode_announcements(body: bytes | memoryview) -> list[Announcement]:
    """The announcements of an ANNOUNCE frame."""
    if len(body) % ENTRY:
        raise WireError(f"an ANNOUNCE holds entries of {ENTRY} bytes, but {len(body)} bytes came")
    return [Announcement(*fields) for fields in _ENTRY.iter_unpack(body)]


class Announcements:
    """The announcements that one agent knows."""

    def __init__(self, n_agents: int = 0):
        """`n_agents` 0: the agents of this run share no secret masks, and announce nothing."""
        self._n_agents = n_agents
        self.known: dict[int, dict[Announcement, str]] = {}  # each with the neighbour that told it
        self.most = _MOST * n_agents  # entries in one frame

    def add(self, announcement: Announcement, source: str) -> None:
        """Take an announcement that needs no judgement: this agent's own, or one of its state."""
        self.known.setdefault(announcement.number, {})[announcement] = source

    def entries(self) -> list[Announcement]:
        return [one for held in self.known.values() for one in held]

    def learn(self, told: Iterable[Announcement], source: str) -> list[Announcement]:
        """Take what a neighbour tells; returns the announcements to pass on, which are new."""
        news: list[Announcement] = []
        for announcement in told:
            if announcement.number >= self._n_agents:
                raise WireError(f"no agent {announcement.number} announces itself in this run")
            if not LEAST <= announcement.exponent <= MOST:
                raise WireError(f"2^{announcement.exponent} is no unit of masks")
            if not LEAST <= announcement.stepsize <= MOST:
                raise WireError(f"2^−{announcement.stepsize} is no stepsize")
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
                raise MaskError(
                    f"agent {number} announces one key for its masks in this run, but there are "
                    f"two: one was told by {one}, another by {other}. Either agent {number} began "
                    "again with a new state directory: start a new run with a new id. Or an agent "
                    "has told a false announcement: ask from whom it came, agent by agent."
                )
