"""The hub of one agent: it owns all connections to the neighbours and joins the parts around them.

Dialling (dialling.py) makes connections, watching (watching.py) notices dead ones and lost
neighbours, dispatch (dispatch.py) takes the frames that come in. The hub sends the rounds that the
deployed agent commits, and wakes the agent when a frame may end its wait. The session
(protocol/session.py) judges the content of frames.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from hushgrad.agent.weights import Row
from hushgrad.errors import AgentError, WireError
from hushgrad.network.ops.counters import Stats
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.announcements import Announcements, encode_announcements
from hushgrad.network.protocol.codes import Ending, ending_of
from hushgrad.network.protocol.confirmations import Confirmations
from hushgrad.network.protocol.distances import Distances
from hushgrad.network.protocol.frames import Bytes, FrameKind
from hushgrad.network.protocol.hello import encode_row
from hushgrad.network.protocol.mask_tokens import MaskTokens, encode_entries
from hushgrad.network.protocol.session import Peer, Session
from hushgrad.network.protocol.stages import Starts
from hushgrad.network.protocol.states import Act, ConnectionState
from hushgrad.network.transport.connection import Connection
from hushgrad.network.transport.dialling import Dialling
from hushgrad.network.transport.dispatch import Dispatch
from hushgrad.network.transport.tls import Transport
from hushgrad.network.transport.watching import Watching

log = logging.getLogger("hushgrad.agent")

LINGER = 2.0  # seconds: a neighbour that starts now should learn why the run is over
_MOST_WAITING = 4  # connections of one neighbour that have not said HELLO: 64 kB each


class Hub:
    """All connections of one agent."""

    def __init__(
        self,
        session: Session,
        transport: Transport,
        *,
        dialled: Iterable[int],
        heartbeat: float,
        max_wait: float,
        dim: int,
        n_agents: int,
        diameter: int | None,
        stop_bytes: int,
        stats: Stats,
        mask_tokens: MaskTokens,
        announcements: Announcements,
        starts: Starts,
        confirmations: Confirmations,
    ):
        """`diameter` None: agents do not stop by a tolerance."""
        self.session, self._transport, self._stats = session, transport, stats
        self.heartbeat, self._dialled, self.mask_tokens = heartbeat, tuple(dialled), mask_tokens
        self.announcements, self.starts = announcements, starts
        self.confirmations = confirmations
        self.distances = Distances(session.me.number, n_agents, diameter)
        n_entries = mask_tokens.most + self.distances.most
        self.longest = wire.limits(
            dim, stop_bytes, n_entries=n_entries, n_announcements=announcements.most,
            links_width=announcements.width,
            has_stages=starts.most > 0, n_confirmations=confirmations.most,
        )  # fmt: skip
        # to a peer that reads, at most two rounds, all starts of stages and one frame of each other
        # kind are on their way
        self.most_unsent = sum(self.longest.values()) + (
            2 * self.longest[FrameKind.DATA] + starts.most * self.longest[FrameKind.STAGE]
        )
        self._links: dict[int, Connection] = {}  # the open connection of each peer
        self._all: set[Connection] = set()
        self._by_name = {peer.name: peer for peer in session.peers.values()}
        self.watching = Watching(
            session, links=self._links, connections=self._all, heartbeat=heartbeat,
            max_wait=max_wait, fail=self.fail,
        )  # fmt: skip
        self._dispatch = Dispatch(
            self, session, links=self._links, watching=self.watching, mask_tokens=mask_tokens,
            announcements=announcements, distances=self.distances, starts=starts,
            confirmations=confirmations,
            n_agents=n_agents, stats=stats,
        )  # fmt: skip
        self._dialling = Dialling(
            session.me.number, transport, lambda: Connection(self, is_dialled=True),
            links=self._links, objections=self.watching.objections, stats=stats,
        )  # fmt: skip
        self.hear, self.refuse = self._dispatch.hear, self._dispatch.refuse  # for connections
        self.rows = self._dispatch.rows  # the neighbours' weights, as far as they are known
        self.row: Row | None = None  # this agent's weights, once they are known
        self.complete: Callable[[], None] = self.wake  # when all messages of a round are here
        self.failure: Exception | None = None
        self._over: Bytes | None = None  # the frame that tells peers that the run is over here
        self._untold: set[int] = set()  # peers that do not know it yet
        self._ended: set[int] = set()  # peers that have said the same
        self._tasks: list[asyncio.Task[None]] = []
        self._changed: asyncio.Future[None] | None = None
        stats.connected.update(dict.fromkeys(self._by_name, False))
        stats.missing = self.watching.missing_names

    # ---- from the start to the end

    def start(self) -> None:
        """Begin to dial, to serve and to watch."""
        if self._tasks:
            return
        serving = self._transport.serve(lambda: Connection(self), self.turn_away)
        dialling = [self._dialling.dial(self.session.peers[j]) for j in self._dialled]
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(job) for job in (self.watching.run(), serving, *dialling)]
        for task in self._tasks:
            task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """An agent that no longer watches or serves could wait for ever, so it fails."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(AgentError(f"this agent can no longer serve its links: {error!r}."))

    async def close(self) -> None:
        """End all connections after the transport has sent everything that was written."""
        await self._tell_the_absent()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._transport.close()
        links = list(self._all)
        for link in links:
            link.close("left")
        if links:
            await asyncio.wait([link.closed for link in links], timeout=1.0)
        for link in list(self._all):
            link.abort("left")

    async def change(self) -> None:
        """Wait for the next event that may matter to the agent; raises a failure."""
        if self.failure is None:
            await self._next_change()
        self.check()

    async def _next_change(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def wake(self) -> None:
        """End the wait of `change`."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    # ---- failure

    def check(self) -> None:
        """Raise the failure, if there is one."""
        if self.failure is not None:
            raise self.failure

    def fail(
        self, error: Exception, ending: Ending | None = None, origin: int | None = None
    ) -> None:
        """Note that the agent cannot go on, and tell the neighbours how its run ended.

        ending    None: the one of the error, if it has one
        origin    the agent with which the end began; None: this one
        """
        if self.failure is None:
            self.failure = error
            self.session.fail()
            ending = ending or ending_of(error)
            if ending is not None:
                number = self.session.me.number if origin is None else origin
                self._over = wire.encode(
                    FrameKind.OVER, self.session.run_digest, flags=ending, round_=number
                )
                self._untold = set(self.session.peers) - self._ended
                for j in tuple(self._links):
                    self._tell_over(j)
        self.wake()

    @property
    def is_telling(self) -> bool:
        """Whether peers do not know yet that the run is over."""
        return bool(self._untold)

    def hear_ending(self, peer: Peer, error: Exception, ending: Ending, origin: int) -> None:
        """A peer says that the run is over: end, too, and pass it on."""
        self._ended.add(peer.number)
        self._untold.discard(peer.number)
        self.fail(error, ending, origin)

    def _tell_over(self, j: int) -> None:
        """Tell a peer that the run is over here."""
        if self._over is not None and j in self._untold:
            self._untold.discard(j)
            self._links[j].send(self._over)

    async def _tell_the_absent(self) -> None:
        """Wait a little for neighbours that do not know yet why the run is over."""
        try:
            async with asyncio.timeout(LINGER):
                while self._untold:
                    await self._next_change()
        except TimeoutError:
            log.debug("the agent ended before it could tell all neighbours of its failure")

    # ---- sending

    def commit(self, round_: int, frames: Mapping[int, Bytes], sizes: tuple[int, ...]) -> None:
        """Send a round that is in the journal."""
        if misfits := self.session.commit(round_, frames, sizes):
            self.refuse_all(misfits)
        self._dispatch.check_distances()
        self.send_round()

    def send_round(self) -> None:
        """Send the present round to every peer that is here; the others get it when they come."""
        self.check()
        self.watching.note_progress()
        frames, peers, sent = self.session.frames, self.session.peers, self._stats.sent
        for j, link in tuple(self._links.items()):
            link.send(frames[j])
            sent[peers[j].name] += 1

    def broadcast(self, frame: Bytes) -> None:
        """Send a frame to every peer that is here."""
        for link in tuple(self._links.values()):
            link.send(frame)

    def tell_row(self, row: Row) -> None:
        """Give this agent's weights to its neighbours, now and when they connect."""
        self.row = row
        for j, link in tuple(self._links.items()):
            self._send_row(link, self.session.peers[j])

    def _send_row(self, link: Connection, peer: Peer) -> None:
        if self.row is not None and not peer.two_hop:
            link.send(wire.encode(FrameKind.ROW, encode_row(self.row)))

    # ---- one connection: calls of Connection and Dispatch

    def meet(self, link: Connection, transport: asyncio.Transport) -> None:
        """A connection is made: find out whose, and say HELLO, or that the run is over."""
        self._all.add(link)
        peer = link.peer = self._by_name[self._transport.name_of(transport)]
        link.note(Act.MEET)
        self._limit_waiting(peer)
        if self._over is not None:  # this agent may not even have read its journal
            self._untold.discard(peer.number)
            link.send(self._over)
            self.wake()
            return
        hello = self.session.hello(peer)
        link.due = hello.needs
        link.send(wire.encode(FrameKind.HELLO, hello.encode()))

    def _limit_waiting(self, peer: Peer) -> None:
        waiting = [k for k in self._all if k.peer is peer and k.state is ConnectionState.GREETED]
        if len(waiting) > _MOST_WAITING:
            self.turn_away("crowd", f"{peer.name} has {len(waiting)} connections without a HELLO")
            min(waiting, key=lambda link: link.made).abort("crowd")

    def welcome(self, link: Connection, peer: Peer, backlog: Iterable[Bytes]) -> None:
        """A connection is open: send everything that the peer should know now."""
        if self._over is not None:
            self._tell_over(peer.number)
            return
        self._send_row(link, peer)
        if announced := self.announcements.entries():
            link.send(wire.encode(FrameKind.ANNOUNCE, encode_announcements(announced)))
        if entries := self.mask_tokens.entries() + self.distances.entries():
            link.send(wire.encode(FrameKind.GOSSIP, encode_entries(entries)))
        for start in self.starts.frames():
            link.send(start)
        if confirmed := self.confirmations.entries():
            link.send(wire.encode(FrameKind.CONFIRM, encode_entries(confirmed)))
        if self.failure is None:
            for unsent in backlog:
                link.send(unsent)

    def refuse_all(self, misfits: Iterable[tuple[Peer, WireError]]) -> None:
        """Refuse peers, as far as they are here, for messages that do not fit."""
        for peer, error in misfits:
            link = self._links.get(peer.number)
            if link is not None:
                self.refuse(link, error)

    def turn_away(self, reason: str, text: str, name: str = "") -> None:
        """Count and log a refusal."""
        self._stats.rejected[reason] += 1
        log.warning(
            "refused: %s", text, extra={"event": "rejected", "peer": name, "reason": reason}
        )

    def lose(self, link: Connection, error: Exception | None) -> None:
        """A connection is gone."""
        self._all.discard(link)
        peer = link.peer
        if peer is None or self._links.get(peer.number) is not link:
            return
        del self._links[peer.number]
        self.watching.note_departure(link, peer)
        self._stats.connected[peer.name] = False
        self._stats.reconnects[peer.name, link.reason] += 1
        log.info(
            "lost %s: %s", peer.name, error or link.reason,
            extra={"event": "disconnected", "peer": peer.name, "reason": link.reason},
        )  # fmt: skip
        self.wake()
