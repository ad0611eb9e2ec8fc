"""Dispatch: every frame of a neighbour comes in here, and each kind of frame has one method.

The hub (hub.py) gives the frames of all connections to one `Dispatch`. A frame that breaks a rule
raises WireError, and the connection then calls `refuse`. Of the hub, dispatch knows only the narrow
interface `Station`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, MutableMapping
from typing import Protocol

from hushgrad.agent.weights import Row
from hushgrad.errors import DiameterError, StageError, WireError
from hushgrad.network.ops.counters import Stats
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.announcements import (
    Announcements,
    decode_announcements,
    encode_announcements,
)
from hushgrad.network.protocol.codes import (
    OTHER_END,
    REASONS,
    Ending,
    ended_by,
    heard_ending,
    reason_code,
    reason_of,
)
from hushgrad.network.protocol.confirmations import Confirmations
from hushgrad.network.protocol.distances import Distances
from hushgrad.network.protocol.frames import Bytes, Frame, FrameKind
from hushgrad.network.protocol.hello import Hello, decode_hello, decode_row
from hushgrad.network.protocol.mask_tokens import MaskTokens, decode_entries, encode_entries
from hushgrad.network.protocol.session import Peer, Session
from hushgrad.network.protocol.stages import Starts
from hushgrad.network.protocol.states import Act, ConnectionState, RunState, is_in_turn
from hushgrad.network.transport.connection import Connection, Owner
from hushgrad.network.transport.watching import Watching

log = logging.getLogger("hushgrad.agent")


class Station(Owner, Protocol):
    """The part of the hub that dispatch calls, besides the part that connections call."""

    complete: Callable[[], None]  # called when all messages of a round are here

    def welcome(self, link: Connection, peer: Peer, backlog: Iterable[Bytes]) -> None:
        """A connection is open: send everything that the peer should know now."""
        ...

    def wake(self) -> None:
        """Wake the agent: it may have waited for the frame."""
        ...

    def hear_ending(self, peer: Peer, error: Exception, ending: Ending, origin: int) -> None:
        """A peer says that the run is over, and that the end began with agent `origin`."""
        ...


class Dispatch:
    """Takes the frames of one agent's neighbours."""

    def __init__(
        self,
        station: Station,
        session: Session,
        *,
        links: MutableMapping[int, Connection],
        watching: Watching,
        mask_tokens: MaskTokens,
        announcements: Announcements,
        distances: Distances,
        starts: Starts,
        confirmations: Confirmations,
        n_agents: int,
        stats: Stats,
    ):
        """`links` holds the open connection of each peer; a good HELLO adds one."""
        self._station, self._session, self._links = station, session, links
        self._watching, self._stats, self._n_agents = watching, stats, n_agents
        self._mask_tokens, self._distances = mask_tokens, distances
        self._announcements, self._starts = announcements, starts
        self._confirmations = confirmations
        self.rows: dict[int, Row] = {}  # weights that peers have told
        self._methods: dict[FrameKind, Callable[[Connection, Peer, Frame], None]] = {
            FrameKind.HELLO: self._take_hello,
            FrameKind.ROW: self._take_row,
            FrameKind.DATA: self._take_data,
            FrameKind.HEARTBEAT: self._take_heartbeat,
            FrameKind.FIN: self._take_fin,
            FrameKind.REJECT: self._take_reject,
            FrameKind.GOSSIP: self._take_gossip,
            FrameKind.ANNOUNCE: self._take_announce,
            FrameKind.STAGE: self._take_stage,
            FrameKind.OVER: self._take_over,
            FrameKind.CONFIRM: self._take_confirm,
        }

    def hear(self, link: Connection, frame: Frame) -> None:
        """Take one frame of a peer."""
        peer, kind = link.peer, frame.kind
        assert peer is not None
        if not is_in_turn(link.state, kind):
            is_hello = kind is FrameKind.HELLO
            rule = "said HELLO twice" if is_hello else f"sent {kind.name} before HELLO"
            raise WireError(f"{peer.name} {rule}", "order")
        self._methods[kind](link, peer, frame)

    def refuse(self, link: Connection, error: WireError) -> None:
        """End the connection of a peer that broke a rule, and tell the peer which rule."""
        assert link.peer is not None
        name = link.peer.name
        text = str(error) if name in str(error) else f"{name}: {error}"
        self._station.turn_away(error.reason, text, name)
        self._watching.objections[link.peer.number] = text
        link.send(wire.encode(FrameKind.REJECT, flags=reason_code(error.reason)))
        link.close(f"refused ({error.reason})", Act.REFUSE)
        if self._session.state is not RunState.INTRODUCING:
            self._fail_at_other_end(error.reason, text)

    def check_distances(self) -> None:
        """In round `diameter`, fail if an agent is farther away."""
        if self._session.round == self._distances.diameter:
            error = self._distances.objection()
            if error is not None:
                self._station.fail(error)

    def _fail_at_other_end(self, reason: str, text: str) -> None:
        """Fail if two agents end in different rounds: then no agent may say that all converged."""
        if reason == OTHER_END and self._distances.diameter is not None:
            self._station.fail(DiameterError(text))

    # ---- the kinds of frames

    def _take_hello(self, link: Connection, peer: Peer, frame: Frame) -> None:
        hello = decode_hello(frame.body)
        old = self._links.get(peer.number)
        if self._session.is_outdated(peer, hello) or self._is_crossed(link, old, hello):
            link.close("crossed")
            return
        backlog = self._session.greet(peer, hello)
        if old is not None:  # the latest connection wins
            del self._links[peer.number]
            old.abort("replaced")
        link.note(FrameKind.HELLO)
        # a peer that may be silent for longer than this agent may is not dead
        longest = self._watching.max_wait
        link.heartbeat = max(self._station.heartbeat, min(hello.heartbeat / 1000, longest))
        self._watching.note_arrival(link, peer, old)
        self._links[peer.number] = link
        self._stats.connected[peer.name] = True
        self._stats.resent += len(backlog)
        log.info("connected to %s", peer.name, extra={"event": "connected", "peer": peer.name})
        self._station.welcome(link, peer, backlog)
        # in this case, the FIN in the backlog has acknowledged the peer's FIN
        if self._session.has_finished and peer.has_finished and link.is_open:
            link.note(Act.ACKNOWLEDGE)
        self._station.wake()

    def _is_crossed(self, link: Connection, old: Connection | None, hello: Hello) -> bool:
        """Whether both ends have dialled at once: then the smaller number's connection stays."""
        if old is None or old.peer is None or old.peer.life != hello.life:
            return False
        is_smaller = self._session.me.number < old.peer.number
        is_alive = link.made - old.heard < old.heartbeat
        return is_alive and old.is_dialled == is_smaller != link.is_dialled

    def _take_row(self, link: Connection, peer: Peer, frame: Frame) -> None:
        del link
        if peer.number not in self.rows:
            self._watching.note_progress()
        self.rows[peer.number] = decode_row(frame.body, self._n_agents)
        self._station.wake()

    def _take_data(self, link: Connection, peer: Peer, frame: Frame) -> None:
        """Take a message; the rounds on a connection follow the one that the HELLO asked for."""
        n, session = frame.round, self._session
        self._stats.received[peer.name] += 1
        is_new = n <= link.due and session.accept(peer, frame)
        if n != link.due:
            raise WireError(
                f"{peer.name} sent round {n} where round {link.due} was due",
                "replay" if n < link.due else "future round",
            )
        link.due += 1
        if not is_new:  # the message came over an earlier connection, too
            self._stats.duplicates += 1
            return
        self._watching.note_help(link, peer)
        if n == session.wanted:
            self._stats.wait_seconds[peer.name].add(link.heard - self._watching.waits_since)
            if session.is_complete:
                # again, since an agent that was started in this round has not checked distances
                self.check_distances()
                self._station.complete()

    def _take_heartbeat(self, link: Connection, peer: Peer, frame: Frame) -> None:
        """Do nothing: the connection itself has noted the time."""

    def _take_fin(self, link: Connection, peer: Peer, frame: Frame) -> None:
        self._session.accept_fin(peer, frame)
        self._watching.note_help(link, peer)
        if self._session.has_finished and link.state is ConnectionState.OPEN:
            link.note(Act.ACKNOWLEDGE)
            link.send(self._session.fin(acknowledges=True))
        self._station.wake()

    def _take_reject(self, link: Connection, peer: Peer, frame: Frame) -> None:
        reason = reason_of(frame.flags)
        text = f"{peer.name} refuses this agent: {REASONS[reason]} ({reason})"
        self._watching.objections[peer.number] = text
        log.error(text, extra={"event": "refused", "peer": peer.name, "reason": reason})
        link.abort(f"refused ({reason})", FrameKind.REJECT)
        self._fail_at_other_end(reason, text)

    def _take_over(self, link: Connection, peer: Peer, frame: Frame) -> None:
        """The run is over at a peer, so it is over here, unless the peer had finished before."""
        if bytes(frame.body) != self._session.run_digest:
            raise WireError(f"{peer.name} says that another run is over", "configuration")
        origin = frame.round
        ending = heard_ending(frame.flags, origin, self._n_agents)
        error = ended_by(peer.name, peer.number, ending, origin, max(self._session.round, 0))
        self._watching.objections[peer.number] = str(error)
        log.error(
            "%s", error, extra={"event": "over", "peer": peer.name, "reason": ending.name.lower()}
        )
        link.abort(f"over ({ending.name.lower()})", FrameKind.OVER)
        if not peer.has_finished:
            self._station.hear_ending(peer, error, ending, origin)

    def _take_gossip(self, link: Connection, peer: Peer, frame: Frame) -> None:
        """Pass on the entries that are new, and no others: agents would echo them without end."""
        told = decode_entries(frame.body)
        news = self._mask_tokens.learn(told, peer.name) + self._distances.learn(told)
        if news:
            self._pass_on(link, wire.encode(FrameKind.GOSSIP, encode_entries(news)))
            self._mask_tokens.check()

    def _take_announce(self, link: Connection, peer: Peer, frame: Frame) -> None:
        """Pass on the announcements that are new; the agent may wait for one of them."""
        told = decode_announcements(frame.body, self._announcements.width)
        news = self._announcements.learn(told, peer.name)
        if news:
            self._pass_on(link, wire.encode(FrameKind.ANNOUNCE, encode_announcements(news)))
            self._announcements.check()
            self._watching.note_progress()
            self._station.wake()

    def _take_stage(self, link: Connection, peer: Peer, frame: Frame) -> None:
        """Pass on the start of a stage if it is new; the agent may wait for it."""
        try:
            news = self._starts.learn(frame, peer.name)
        except StageError as error:
            self._station.fail(error)
            return
        if news is not None:
            self._pass_on(link, news)
            self._station.wake()

    def _take_confirm(self, link: Connection, peer: Peer, frame: Frame) -> None:
        """Pass on the tokens that are new; the agent may wait for one of them."""
        news = self._confirmations.learn(decode_entries(frame.body), peer.name)
        if news:
            self._pass_on(link, wire.encode(FrameKind.CONFIRM, encode_entries(news)))
            self._station.wake()

    def _pass_on(self, link: Connection, frame: Bytes) -> None:
        """Send a frame to every peer but the one from which its content came."""
        for other in tuple(self._links.values()):
            if other is not link:
                other.send(frame)
