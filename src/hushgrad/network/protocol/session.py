"""The protocol of one agent with its neighbours, without I/O.

The hub (transport/hub.py) gives a session every frame that matters to the run, and sends the frames
that the session returns. The deployed agent commits rounds to the session and takes messages from
it.

Rounds count the yields of a run. Every link carries one message per round in both directions, and
the payload of a message may be empty. So a neighbour's message of round n proves that the neighbour
has committed round n and consumed round n − 1. Hence an agent keeps the last two rounds that it
sent, and at most two rounds of each neighbour: the protocol bounds the memory, even if a neighbour
is slow.

A neighbour that breaks a rule is refused by name (WireError). If this agent itself cannot be the
agent that it claims to be, it stops (StaleCopyError).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from hushgrad.agent.vectors import FINITE
from hushgrad.agent.weights import Ends
from hushgrad.errors import StaleCopyError, WireError
from hushgrad.files.digest import digest
from hushgrad.network.protocol.claims import OLD_COPY, Claims
from hushgrad.network.protocol.codes import OTHER_END
from hushgrad.network.protocol.frames import Bytes, Data, Frame, FrameKind, decode_data, encode
from hushgrad.network.protocol.hello import MIRROR, Hello, differences, run_digest
from hushgrad.network.protocol.states import FINISHED_STATES, RUN, RunEvent, RunState, after


@dataclass(frozen=True)
class SelfDescription:
    """The entries about this agent in every HELLO."""

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
    direction: str  # "both", "in": the peer sends to this agent, "out": the peer hears this agent
    two_hop: bool
    inbox: dict[int, Data] = field(default_factory=dict[int, Data])  # messages to be consumed
    # digests of the messages in the inbox, and of the last two that were consumed
    digests: dict[int, bytes] = field(default_factory=dict[int, bytes])
    ends: Ends | None = None  # known from the peer's HELLO
    incarnation: int = -1
    life: str = ""
    has_finished: bool = False
    knows_finished: bool = False  # the peer knows that this agent has finished

    @property
    def last(self) -> tuple[int, bytes]:
        """The last round that this agent holds of the peer, and the digest of its message."""
        return max(self.digests.items(), default=(-1, b""))


class Session:
    """The rounds and the messages that one agent shares with its neighbours."""

    def __init__(
        self,
        me: SelfDescription,
        peers: Mapping[int, Peer],
        stop_bytes: int,
        *,
        n_agents: int,
        most_rounds: int,
        largest: float = FINITE,
    ):
        """No run of this configuration has more rounds, and no message larger numbers."""
        self.me, self.peers = me, peers
        self._stop_bytes, self._largest = stop_bytes, largest
        self.run_digest = run_digest(me.public)
        names = {j: peer.name for j, peer in peers.items()}
        self._claims = Claims(names, n_agents, most_rounds)
        self.state = RunState.INTRODUCING
        self.round = -1  # the last round that was committed
        self.wanted = 0  # the next round to be consumed
        self._sent: dict[int, Mapping[int, Bytes]] = {}  # round → peer → frame
        self._restored = -1  # the last round that an earlier process may have made
        self._sizes: tuple[int, ...] = ()  # of the exchanges of the present round
        self.missing = set(peers)  # the peers whose message of round `wanted` is not here

    # ---- rounds

    def commit(
        self, round_: int, frames: Mapping[int, Bytes], sizes: tuple[int, ...]
    ) -> list[tuple[Peer, WireError]]:
        """Note that round `round_` is in the journal, so that the agent may send it.

        Returns the neighbours whose early message for this round turns out not to fit.
        """
        self._sent[round_] = frames
        return self._enter(round_, sizes)

    def restore(
        self,
        frames: Mapping[int, Mapping[int, Bytes]],
        consumed: Mapping[int, Mapping[int, bytes]],
        sizes: tuple[int, ...],
    ) -> list[tuple[Peer, WireError]]:
        """Go to the last round of the journal.

        The frames that were sent and the digests of consumed messages are given by round and peer.
        Returns misfits, as `commit` does: at the first start, neighbours may have begun already.
        """
        self._sent, self._restored = dict(frames), max(frames)
        self.wanted = max(consumed, default=-1) + 1
        for n, digests in consumed.items():
            for j, seen in digests.items():
                self.peers[j].digests[n] = seen
        self.missing = {j for j, peer in self.peers.items() if self.wanted not in peer.inbox}
        return self._enter(max(frames), sizes)

    def _enter(self, round_: int, sizes: tuple[int, ...]) -> list[tuple[Peer, WireError]]:
        """Enter a round; returns the peers whose early message has other sizes."""
        if self.state is not RunState.RUNNING:
            self._note(RunEvent.COMMIT)
        self.round, self._sizes = round_, sizes
        misfits: list[tuple[Peer, WireError]] = []
        for peer in self.peers.values():
            early = peer.inbox.get(round_)
            if early is not None:
                try:
                    early.fit(sizes)
                except WireError as error:
                    del peer.inbox[round_], peer.digests[round_]
                    self.missing.add(peer.number)
                    misfits.append((peer, error))
        return misfits

    @property
    def frames(self) -> Mapping[int, Bytes]:
        """The frames of the present round, by peer."""
        return self._sent[self.round]

    @property
    def is_complete(self) -> bool:
        """Whether all messages of the present round are here, and the agent may consume them."""
        if self.missing or self.wanted != self.round:
            return False
        return self.state is RunState.RUNNING

    def take(self) -> dict[int, Data]:
        """The messages of the present round, which are consumed with this call."""
        n = self.wanted
        self.wanted = n + 1
        self._sent.pop(n - 1, None)  # a neighbour that has sent round n has consumed n − 1
        inbox: dict[int, Data] = {}
        for j, peer in self.peers.items():
            inbox[j] = peer.inbox.pop(n)
            peer.digests.pop(n - 2, None)
        self.missing = {j for j, peer in self.peers.items() if not peer.inbox}
        return inbox

    # ---- the run's state

    def _note(self, event: RunEvent) -> None:
        self.state = after(RUN, self.state, event)

    @property
    def has_finished(self) -> bool:
        """Whether this agent has consumed its last round."""
        return self.state in FINISHED_STATES

    @property
    def is_settled(self) -> bool:
        """Whether no neighbour needs this agent any more."""
        return self.state is RunState.SETTLED

    def fail(self) -> None:
        """Note that the agent cannot go on; a result that is safe stays so."""
        self._note(RunEvent.FAIL)

    def finish(self) -> bytes:
        """Note that all rounds are done and the result is safe; returns the FIN for all peers."""
        self._note(RunEvent.FINISH)
        self._note_settled()
        return self.fin(acknowledges=False)

    def fin(self, *, acknowledges: bool) -> bytes:
        """The FIN of this agent; `acknowledges`: this agent knows that the peer has finished."""
        return encode(FrameKind.FIN, round_=self.wanted, flags=int(acknowledges))

    def _note_settled(self) -> None:
        have_all = all(peer.has_finished for peer in self.peers.values())
        if have_all and self.state is RunState.FINISHED:
            self._note(RunEvent.ALL_FINISHED)

    # ---- frames of neighbours

    def accept(self, peer: Peer, frame: Frame) -> bool:
        """Take a DATA frame; returns whether it was new."""
        n = frame.round
        if n > self.round + 1 or (n >= self.wanted and self.state in FINISHED_STATES):
            raise WireError(
                f"{peer.name} sent round {n}, but this agent is at round {self.round}: a neighbour "
                "can be one round ahead at most",
                "future round",
            )
        data = decode_data(frame, self._stop_bytes, self._largest)
        seen = data.digest
        if peer.digests.get(n, seen) != seen:
            raise WireError(
                f"{peer.name} sent two different messages for round {n}", "equivocation"
            )
        if n < self.wanted or n in peer.inbox:
            return False
        if n == self.round:
            data.fit(self._sizes)
        peer.inbox[n], peer.digests[n] = data, seen
        if n == self.wanted:
            self.missing.discard(peer.number)
        return True

    def accept_fin(self, peer: Peer, frame: Frame) -> None:
        """Take a FIN: the neighbour has finished and needs nothing more."""
        # a neighbour that has finished has consumed every round of this agent
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
        self._note_settled()

    # ---- HELLO

    def hello(self, peer: Peer) -> Hello:
        """The HELLO of this agent to a neighbour."""
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
        """Whether a HELLO is late: the same process has said more on another connection since."""
        held, oldest = peer.last[0], min(self._sent, default=0)
        is_behind = hello.round < held or hello.needs < max(held, oldest)
        return is_behind and hello.life == peer.life

    def greet(self, peer: Peer, hello: Hello) -> list[Bytes]:
        """Judge a neighbour's HELLO; returns the frames that the neighbour still needs."""
        self._check_run(peer, hello)
        self._claims.check_degrees(peer.number, hello, peer.direction, two_hop=peer.two_hop)
        self._claims.check_rounds(peer.number, hello)
        self._check_own_copy(peer, hello)
        self._check_their_copy(peer, hello)
        self._claims.believe(peer.number, hello.held)
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
                "there. Both ends of a link must describe the same link",
                "configuration",
            )
        if peer.ends is not None and peer.ends != hello.ends:
            raise WireError(
                f"{peer.name} had {peer.ends.into} links in and {peer.ends.out} out, but now says "
                f"{hello.degree_in} and {hello.degree_out}: the graph of a run does not change",
                "configuration",
            )

    def _check_own_copy(self, peer: Peer, hello: Hello) -> None:
        if hello.held > self.round:
            self._claims.judge(peer.number, hello.held, self.round)
        mine = self._sent.get(hello.held)
        if mine is not None and digest(mine[peer.number]).hex() != hello.held_digest:
            text = (
                f"{peer.name} holds another message of this agent for round {hello.held} than the "
                "journal"
            )
            if hello.held > self._restored:  # this very process has made and sent the message
                raise WireError(f"{text}, which this process has written", "claim")
            raise StaleCopyError(f"{text}. {OLD_COPY}")

    def _check_their_copy(self, peer: Peer, hello: Hello) -> None:
        if hello.incarnation < peer.incarnation:
            raise WireError(
                f"{peer.name} is now incarnation {hello.incarnation}, but incarnation "
                f"{peer.incarnation} was here already",
                "old copy",
            )
        held = peer.last[0]
        if hello.round < held:
            raise WireError(
                f"{peer.name} is at round {hello.round}, but its round {held} is here: its "
                "state is an old copy",
                "old copy",
            )
        if hello.needs < held:  # a neighbour that has sent a round has consumed the one before
            raise WireError(
                f"{peer.name} needs round {hello.needs}, but had consumed up to round {held - 1}: "
                "its state is an old copy",
                "old copy",
            )
        if hello.needs < min(self._sent, default=0):
            raise StaleCopyError(
                f"{peer.name} needs round {hello.needs} of this agent, but the journal begins at "
                f"round {min(self._sent)}: the journal is damaged. Restore the newest state, or "
                "start a new run."
            )
