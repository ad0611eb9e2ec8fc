"""The protocol of one agent with its neighbours, without I/O.

Rounds count the yields of a run. Every link carries one message per round in both directions, its
payload may be empty; so a neighbour's message of round n proves that it has committed n and
consumed n − 1. Hence an agent keeps two rounds of what it sent, and never more than two of what
a neighbour sent: memory is bounded by the protocol, whoever is slow.

Whoever breaks a rule is refused by name (WireError); if it is this agent that cannot be what it
claims to be, it stops (StaleCopyError).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from hushgrad.agent.weights import Ends
from hushgrad.errors import StaleCopyError, WireError
from hushgrad.files.digest import digest
from hushgrad.network.protocol.frames import (
    Bytes,
    Data,
    Frame,
    FrameKind,
    decode_data,
    encode,
)
from hushgrad.network.protocol.hello import MIRROR, OTHER_END, Hello, differences


@dataclass(frozen=True)
class SelfDescription:
    """What this agent says of itself in every HELLO."""

    public: Mapping[str, str]
    number: int
    incarnation: int
    ends: Ends
    heartbeat: float = 0.0  # seconds
    life: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass
class Peer:
    """One neighbour, as far as this agent knows."""

    number: int
    name: str
    direction: str  # "both", "in": it sends here, "out": it hears this agent
    two_hop: bool
    inbox: dict[int, Data] = field(default_factory=dict[int, Data])
    held: dict[int, bytes] = field(default_factory=dict[int, bytes])  # marks of two old rounds
    ends: Ends | None = None  # known from its HELLO
    incarnation: int = -1
    life: str = ""
    has_finished: bool = False
    knows_finished: bool = False  # that this agent has finished

    @property
    def last(self) -> tuple[int, bytes]:
        """The last round that is held of it, with its mark."""
        known = self.held | {n: data.digest for n, data in self.inbox.items()}
        return max(known.items(), default=(-1, b""))


class Session:
    """Where an agent stands with all its neighbours."""

    def __init__(self, me: SelfDescription, peers: Mapping[int, Peer], stop_bytes: int):
        self.me, self.peers, self._stop_bytes = me, peers, stop_bytes
        self.round = -1  # the last committed
        self.wanted = 0  # the next to be consumed
        self.has_finished = False
        self._sent: dict[int, Mapping[int, Bytes]] = {}  # round → peer → frame
        self._sizes: tuple[int, ...] = ()  # of the exchanges of the present round
        self.missing = set(peers)  # whose message of round `wanted` is not here

    # ---- rounds

    def commit(
        self, round_: int, frames: Mapping[int, Bytes], sizes: tuple[int, ...]
    ) -> list[tuple[Peer, WireError]]:
        """Round `round_` is in the journal: from now on it may be sent.

        Gives the neighbours whose early message for it turns out not to fit.
        """
        self._sent[round_] = frames
        return self._stand(round_, sizes)

    def _stand(self, round_: int, sizes: tuple[int, ...]) -> list[tuple[Peer, WireError]]:
        """In a round whose sizes are known now; gives who has sent others, early."""
        self.round, self._sizes = round_, sizes
        if len(self.missing) == len(self.peers) and self.wanted == round_:
            return []
        found: list[tuple[Peer, WireError]] = []
        for peer in self.peers.values():
            if self.round in peer.inbox:
                try:
                    peer.inbox[self.round].fit(self._sizes)
                except WireError as error:
                    del peer.inbox[self.round]
                    self.missing.add(peer.number)
                    found.append((peer, error))
        return found

    @property
    def frames(self) -> Mapping[int, Bytes]:
        """Of the present round, by peer."""
        return self._sent[self.round]

    @property
    def is_complete(self) -> bool:
        """Whether all messages of the present round are here."""
        return not self.missing and self.wanted == self.round

    def take(self) -> dict[int, Data]:
        """The messages of the present round; it is consumed with this."""
        n = self.wanted
        self.wanted = n + 1
        self._sent.pop(n - 1, None)  # who has sent this round has the one before
        box: dict[int, Data] = {}
        missing: set[int] = set()
        for j, peer in self.peers.items():
            inbox, held = peer.inbox, peer.held
            box[j] = data = inbox.pop(n)
            held[n] = data.digest
            held.pop(n - 2, None)
            if not inbox:
                missing.add(j)
        self.missing = missing
        return box

    def restore(
        self,
        frames: Mapping[int, Mapping[int, Bytes]],
        consumed: Mapping[int, Mapping[int, bytes]],
        sizes: tuple[int, ...],
    ) -> list[tuple[Peer, WireError]]:
        """Stand again where the journal ends: frames and marks of messages by round and peer.

        Gives misfits, as `commit` does: at the first start, neighbours may have begun already.
        """
        self._sent = dict(frames)
        self.wanted = max(consumed, default=-1) + 1
        for n, marks in consumed.items():
            for j, seen in marks.items():
                self.peers[j].held[n] = seen
        self.missing = {j for j, peer in self.peers.items() if self.wanted not in peer.inbox}
        return self._stand(max(frames), sizes)

    def finish(self) -> bytes:
        """All rounds are done and the result is safe; gives the FIN for everyone."""
        self.has_finished = True
        return self.fin(acknowledges=False)

    def fin(self, *, acknowledges: bool) -> bytes:
        return encode(FrameKind.FIN, round_=self.wanted, flags=int(acknowledges))

    @property
    def is_settled(self) -> bool:
        """Whether nobody needs this agent any more."""
        return self.has_finished and all(p.has_finished for p in self.peers.values())

    # ---- what comes in

    def accept(self, peer: Peer, frame: Frame) -> bool:
        """Take a DATA frame; whether it was new."""
        n = frame.round
        if n > self.round + 1 or (self.has_finished and n >= self.wanted):
            raise WireError(
                f"{peer.name} sent round {n}, but this agent is at round {self.round}: a neighbour "
                "can be one round ahead at most",
                "future round",
            )
        data = decode_data(frame, self._stop_bytes)
        known = peer.inbox[n].digest if n in peer.inbox else peer.held.get(n)
        if known not in (None, data.digest):
            raise WireError(
                f"{peer.name} sent two different messages for round {n}", "equivocation"
            )
        if n < self.wanted or n in peer.inbox:
            return False
        if n == self.round:
            data.fit(self._sizes)
        peer.inbox[n] = data
        if n == self.wanted:
            self.missing.discard(peer.number)
        return True

    def accept_fin(self, peer: Peer, frame: Frame) -> None:
        """A neighbour has finished and needs nothing more."""
        # who has finished has consumed every round of this agent
        if self.round < 0 or frame.round != self.round + 1:
            raise WireError(
                f"{peer.name} says that the run ended before round {frame.round}, but this agent "
                f"has committed round {self.round}"
                + ". The diameter in [run] must bound the hops between any two agents: correct it "
                "in every file, and start a new run." * bool(self._stop_bytes),
                OTHER_END,
            )
        peer.has_finished = True
        peer.knows_finished |= bool(frame.flags)

    # ---- HELLO

    def hello(self, peer: Peer) -> Hello:
        """What this agent tells a neighbour on every connection."""
        held, seen = peer.last
        needs = self.wanted
        while needs in peer.inbox:
            needs += 1
        return Hello(
            public=self.me.public,
            number=self.me.number,
            incarnation=self.me.incarnation,
            life=self.me.life,
            round=self.round,
            needs=needs,
            held=held,
            held_digest=seen.hex(),
            degree_in=self.me.ends.into,
            degree_out=self.me.ends.out,
            direction=peer.direction,
            two_hop=peer.two_hop,
            clock=int(time.time()),
            heartbeat=int(1000 * self.me.heartbeat),
        )

    def is_outdated(self, peer: Peer, hello: Hello) -> bool:
        """Whether a HELLO was overtaken by what the same process said on another connection."""
        held, oldest = peer.last[0], min(self._sent, default=0)
        is_behind = hello.round < held or hello.needs < max(held, oldest)
        return is_behind and hello.life == peer.life

    def greet(self, peer: Peer, hello: Hello) -> list[Bytes]:
        """Judge a neighbour's HELLO; gives the frames that it still needs."""
        self._check_run(peer, hello)
        self._check_own_copy(peer, hello)
        self._check_their_copy(peer, hello)
        peer.ends, peer.incarnation, peer.life = hello.ends, hello.incarnation, hello.life
        frames = [self._sent[n][peer.number] for n in sorted(self._sent) if n >= hello.needs]
        if self.has_finished:
            frames.append(self.fin(acknowledges=peer.has_finished))
        return frames

    def _check_run(self, peer: Peer, hello: Hello) -> None:
        other = differences(self.me.public, hello.public)
        if other:
            raise WireError(
                f"{peer.name} is configured for another run: {other}. All agents of a run need "
                "the same entries",
                "configuration",
            )
        if hello.number != peer.number:
            raise WireError(
                f"{peer.name} is agent {peer.number} here, but calls itself agent {hello.number}",
                "configuration",
            )
        if (hello.direction, hello.two_hop) != (MIRROR[peer.direction], peer.two_hop):
            raise WireError(
                f"the link to {peer.name} is (direction, two_hop) = "
                f"{(peer.direction, peer.two_hop)} here, but {(hello.direction, hello.two_hop)} "
                "there; seen from both ends, a link is one",
                "configuration",
            )
        if peer.ends is not None and peer.ends != hello.ends:
            raise WireError(
                f"{peer.name} had {peer.ends.into} links in and {peer.ends.out} out, but now says "
                f"{hello.degree_in} and {hello.degree_out}: the graph of a run does not change",
                "configuration",
            )

    def _check_own_copy(self, peer: Peer, hello: Hello) -> None:
        way_out = (
            "This state directory is an old copy, or another agent uses this one's key. Restore "
            "the newest state, or start a new run."
        )
        if hello.heard > self.round:
            raise StaleCopyError(
                f"{peer.name} holds round {hello.heard} of this agent, whose journal ends at round "
                f"{self.round}. {way_out}"
            )
        mine = self._sent.get(hello.held)
        if mine is not None and digest(mine[peer.number]).hex() != hello.held_digest:
            raise StaleCopyError(
                f"{peer.name} holds another message of this agent for round {hello.held} than "
                f"the journal gives. {way_out}"
            )

    def _check_their_copy(self, peer: Peer, hello: Hello) -> None:
        if hello.incarnation < peer.incarnation:
            raise WireError(
                f"{peer.name} comes as incarnation {hello.incarnation}, but incarnation "
                f"{peer.incarnation} was here already",
                "old copy",
            )
        held = peer.last[0]
        if hello.round < held:
            raise WireError(
                f"{peer.name} stands at round {hello.round}, but its round {held} is here: its "
                "state is an old copy",
                "old copy",
            )
        if hello.needs < held:  # who has sent a round has consumed the one before
            raise WireError(
                f"{peer.name} needs round {hello.needs}, but had consumed up to round {held - 1}: "
                "its state is an old copy",
                "old copy",
            )
        if hello.needs < min(self._sent, default=0):
            raise StaleCopyError(
                f"{peer.name} needs round {hello.needs} of this agent, whose journal should hold "
                f"it, but begins at round {min(self._sent)}: it is damaged. Restore the newest "
                "state, or start a new run."
            )
