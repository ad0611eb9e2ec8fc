"""Connections to the neighbours: dialled and accepted, watched, replaced when they break.

Who has a neighbour's address dials it, unless it is here already; if both have one, the smaller
number goes first. What a connection carries is the session's business; here it is found out who is
at the other end, that it says HELLO first, and that it is alive.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

from hushgrad.agent.weights import Row
from hushgrad.errors import AgentError, DiameterError, MaskError, PeerLostError, WireError
from hushgrad.network.ops.counters import Stats
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.distances import Distances
from hushgrad.network.protocol.frames import Bytes, Frame, FrameKind
from hushgrad.network.protocol.hello import (
    OTHER_END,
    Hello,
    decode_hello,
    decode_reject,
    decode_row,
    encode_reject,
    encode_row,
)
from hushgrad.network.protocol.mask_tokens import Entry, MaskTokens, decode_entries, encode_entries
from hushgrad.network.protocol.session import Peer, Session
from hushgrad.network.transport.connection import Connection
from hushgrad.network.transport.tls import HANDSHAKE, Transport, refusal

log = logging.getLogger("hushgrad.agent")

FIRST_DELAY, LONGEST_DELAY = 0.05, 2.0  # seconds between attempts to dial, doubling
COURTESY = 0.2  # seconds: both may have each other's address, and one connection is enough
SILENCE = 3.0  # heartbeats without a byte until a connection counts as dead
LINGER = 2.0  # seconds: a neighbour that starts now should learn why the run is over
_FOR_ALL = (MaskError, DiameterError)
_MOST_WAITING = 4  # connections of one neighbour that have not said HELLO: 64 kB each
_HEARTBEAT = wire.encode(FrameKind.HEARTBEAT)


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
    ):
        """`diameter` None: agents do not stop by a tolerance."""
        self.loop = asyncio.get_running_loop()
        self._n_agents, self.mask_tokens = n_agents, mask_tokens
        self.reach = Distances(session.me.number, n_agents, diameter)
        self.longest = wire.limits(dim, stop_bytes, n_pledges=mask_tokens.most + self.reach.most)
        # who reads has at most two rounds and one frame of each other kind on their way
        self.most_unsent = 2 * self.longest[FrameKind.DATA] + sum(self.longest.values())
        self.session, self._transport, self._stats = session, transport, stats
        self._dialled, self.heartbeat, self._max_wait = tuple(dialled), heartbeat, max_wait
        self._links: dict[int, Connection] = {}  # the open one of each peer
        self._all: set[Connection] = set()
        self._by_name = {peer.name: peer for peer in session.peers.values()}
        self._absent_since = dict.fromkeys(session.peers, monotonic())
        self._objection: dict[int, str] = {}  # what a peer last said or did wrong
        self._tasks: list[asyncio.Task[None]] = []
        self._changed: asyncio.Future[None] | None = None
        self.failure: Exception | None = None
        self._untold: set[int] = set()  # peers that do not know of a failure that ends it for all
        self.complete: Callable[[], None] = self.wake  # when all messages of a round are here
        self.row: Row | None = None  # this agent's weights, once known
        self.rows: dict[int, Row] = {}
        self._waits_since = monotonic()
        stats.connected.update(dict.fromkeys(self._by_name, False))
        stats.missing = self._missing_names

    # ---- life

    def start(self) -> None:
        """Begin to dial, to serve and to watch."""
        if self._tasks:
            return
        jobs = [self._watch(), self._transport.serve(lambda: Connection(self), self.turn_away)]
        jobs += [self._dial(self.session.peers[j]) for j in self._dialled]
        self._tasks = [self.loop.create_task(job) for job in jobs]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Without its watch or its ears an agent could wait for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(AgentError(f"this agent can no longer serve its links: {error!r}."))

    async def close(self) -> None:
        """End all connections, after what was written is out."""
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

    async def _tell_the_absent(self) -> None:
        """Stay a little for neighbours that have not heard why the run is over."""
        try:
            async with asyncio.timeout(LINGER):
                while self._untold:
                    self._changed = self.loop.create_future()
                    await self._changed
        except TimeoutError:
            log.debug("left without having told everyone")

    async def change(self) -> None:
        """Wait until something came that an agent may have waited for; raises what failed."""
        if self.failure is None:
            self._changed = self.loop.create_future()
            await self._changed
        self.check()

    def check(self) -> None:
        """Raise what failed."""
        if self.failure is not None:
            raise self.failure

    def wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def fail(self, error: Exception) -> None:
        """The run cannot go on; if for nobody, all neighbours are to know."""
        if self.failure is None:
            self.failure = error
            if isinstance(error, _FOR_ALL):
                self._untold = set(self.session.peers) - set(self._links)
                for j in tuple(self._links):
                    self._tell_failure(j)
        self.wake()

    def _tell_failure(self, j: int) -> None:
        """Say that agents would not stop together; of masks, the pledges themselves have told."""
        if isinstance(self.failure, DiameterError):
            body = encode_reject(OTHER_END, str(self.failure))
            self._links[j].send(wire.encode(FrameKind.REJECT, body))
        self._untold.discard(j)

    # ---- sending

    def commit(self, round_: int, frames: Mapping[int, Bytes], sizes: tuple[int, ...]) -> None:
        """Send a round that is in the journal."""
        misfits = self.session.commit(round_, frames, sizes)
        if misfits:
            self.refuse_all(misfits)
        self._check_reach()
        self.send_round()

    def send_round(self) -> None:
        """The present round to everyone who is here; the others get it when they come."""
        self.check()
        self._waits_since = monotonic()
        frames, peers, sent = self.session.frames, self.session.peers, self._stats.sent
        for j, link in tuple(self._links.items()):
            link.send(frames[j])
            sent[peers[j].name] += 1

    def broadcast(self, frame: Bytes) -> None:
        for link in tuple(self._links.values()):
            link.send(frame)

    def tell_row(self, row: Row) -> None:
        """Give this agent's weights to its neighbours, now and when they connect."""
        self.row = row
        for j in self._links:
            self._send_row(j)

    def _send_row(self, j: int) -> None:
        if self.row is not None and not self.session.peers[j].two_hop:
            self._links[j].send(wire.encode(FrameKind.ROW, encode_row(self.row)))

    def _tell_on(self, news: Iterable[Entry], heard_from: Connection) -> None:
        frame = wire.encode(FrameKind.PLEDGE, encode_entries(news))
        for link in tuple(self._links.values()):
            if link is not heard_from:
                link.send(frame)

    # ---- a connection's life

    def meet(self, link: Connection, connection: Any) -> None:
        """A connection is made: find out whose, and say HELLO."""
        self._all.add(link)
        name = self._transport.name_of(connection)
        link.peer = self._by_name[name]
        self._limit_waiting(link.peer)
        hello = self.session.hello(link.peer)
        link.due = hello.needs
        link.send(wire.encode(FrameKind.HELLO, hello.encode()))

    def _limit_waiting(self, peer: Peer) -> None:
        waiting = [k for k in self._all if k.peer is peer and not (k.is_open or k.is_closed)]
        if len(waiting) > _MOST_WAITING:
            self.turn_away("crowd", f"{peer.name} has {len(waiting)} connections without a HELLO")
            min(waiting, key=lambda link: link.made).abort("crowd")

    def hear(self, link: Connection, frame: Frame) -> None:
        """One frame of a peer."""
        peer, kind = link.peer, frame.kind
        assert peer is not None
        if kind is FrameKind.DATA and link.is_open:
            self._accept(link, peer, frame)
        elif kind is FrameKind.REJECT:
            self._rejected(link, peer, frame)
        elif not link.is_open:
            if kind is not FrameKind.HELLO:
                raise WireError(f"{peer.name} sent {kind.name} before HELLO", "order")
            self._open(link, peer, frame)
        elif frame.kind is FrameKind.FIN:
            self.session.accept_fin(peer, frame)
            self._helped(link, peer)
            self._acknowledge(link, peer)
            self.wake()
        elif frame.kind is FrameKind.ROW:
            self.rows[peer.number] = decode_row(frame.body, self._n_agents)
            self.wake()
        elif frame.kind is FrameKind.PLEDGE:
            self._learn(link, peer, frame)
        elif frame.kind is FrameKind.HELLO:
            raise WireError(f"{peer.name} said HELLO twice", "order")

    def _learn(self, link: Connection, peer: Peer, frame: Frame) -> None:
        """Tell on what is news, and nothing else: agents would echo each other without end."""
        told = decode_entries(frame.body)
        news = self.mask_tokens.learn(told, peer.name) + self.reach.learn(told)
        if news:
            self._tell_on(news, link)
            self.mask_tokens.check()

    def _took(self, link: Connection, peer: Peer, n: int) -> None:
        """A new message is here, of the present round or the next."""
        self._helped(link, peer)
        session = self.session
        if n == session.wanted:
            self._stats.wait_seconds[peer.name].add(link.heard - self._waits_since)
            if session.is_complete:
                self._check_reach()  # again, since the agent may have been started in this round
                self.complete()

    def _accept(self, link: Connection, peer: Peer, frame: Frame) -> None:
        """Rounds follow each other on a connection, from the one that this agent's HELLO needs."""
        self._stats.received[peer.name] += 1
        is_new = frame.round <= link.due and self.session.accept(peer, frame)
        if frame.round != link.due:
            raise WireError(
                f"{peer.name} sent round {frame.round} where round {link.due} was due",
                "replay" if frame.round < link.due else "future round",
            )
        link.due += 1
        if not is_new:  # it came over the connection before, too
            self._stats.duplicates += 1
            return
        self._took(link, peer, frame.round)

    def _check_reach(self) -> None:
        if self.session.round == self.reach.diameter:
            error = self.reach.objection()
            if error is not None:
                self.fail(error)

    def _helped(self, link: Connection, peer: Peer) -> None:
        link.has_helped = True
        if self._objection:
            self._objection.pop(peer.number, None)

    def _open(self, link: Connection, peer: Peer, frame: Frame) -> None:
        hello = decode_hello(frame.body)
        old = self._links.get(peer.number)
        if self.session.is_outdated(peer, hello) or self._is_crossed(link, old, hello):
            link.close("crossed")
            return
        backlog = self.session.greet(peer, hello)
        if old is not None:  # the latest connection wins
            del self._links[peer.number]
            old.abort("replaced")
        link.is_open = True
        # who is allowed to be silent for longer than this agent would be is not dead
        link.heartbeat = max(self.heartbeat, min(hello.heartbeat / 1000, self._max_wait))
        if old is None:
            link.away = monotonic() - self._absent_since[peer.number]
        else:
            link.away = 0.0 if old.has_helped else old.away
        self._links[peer.number] = link
        self._stats.connected[peer.name] = True
        self._stats.resent += len(backlog)
        log.info("connected to %s", peer.name, extra={"event": "connected", "peer": peer.name})
        self._send_row(peer.number)
        if told := self.mask_tokens.entries() + self.reach.entries():
            link.send(wire.encode(FrameKind.PLEDGE, encode_entries(told)))
        if self.failure is None:
            for unsent in backlog:
                link.send(unsent)
        elif self._untold:
            self._tell_failure(peer.number)
        link.has_acknowledged = self.session.has_finished and peer.has_finished
        self.wake()

    def _is_crossed(self, link: Connection, old: Connection | None, hello: Hello) -> bool:
        """Whether both ends have dialled at once: then the smaller number's connection stays."""
        if old is None or old.peer is None or old.peer.life != hello.life:
            return False
        is_smaller = self.session.me.number < old.peer.number
        is_alive = link.made - old.heard < old.heartbeat
        return is_alive and old.is_dialled == is_smaller != link.is_dialled

    def _acknowledge(self, link: Connection, peer: Peer) -> None:
        if self.session.has_finished and not link.has_acknowledged:
            link.has_acknowledged = True
            link.send(self.session.fin(acknowledges=peer.has_finished))

    def _rejected(self, link: Connection, peer: Peer, frame: Frame) -> None:
        reason, text = decode_reject(frame.body)
        self._objection[peer.number] = f"it refuses this agent: {text}"
        link.is_refused = True
        log.error(
            "%s refuses this agent: %s", peer.name, text,
            extra={"event": "refused", "peer": peer.name, "reason": reason},
        )  # fmt: skip
        link.abort(f"refused ({reason})")
        self._fail_to_end(reason, f"{text.partition(' (told by ')[0]} (told by {peer.name})")

    def refuse(self, link: Connection, error: WireError) -> None:
        """End a connection that breaks a rule, and say which."""
        assert link.peer is not None
        name = link.peer.name
        text = str(error) if name in str(error) else f"{name}: {error}"
        self.turn_away(error.reason, text, name)
        self._objection[link.peer.number] = text
        link.is_refused = True
        link.send(wire.encode(FrameKind.REJECT, encode_reject(error.reason, text)))
        link.close(f"refused ({error.reason})")
        if self.session.round >= 0:
            self._fail_to_end(error.reason, text)

    def _fail_to_end(self, reason: str, text: str) -> None:
        """If agents do not end in the same round, nobody may say that all have converged."""
        if reason == OTHER_END and self.reach.diameter is not None:
            self.fail(DiameterError(text))

    def refuse_all(self, misfits: Iterable[tuple[Peer, WireError]]) -> None:
        for peer, error in misfits:
            link = self._links.get(peer.number)
            if link is not None:
                self.refuse(link, error)

    def turn_away(self, reason: str, text: str, name: str = "") -> None:
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
        # who comes and goes without having brought what is waited for was not here
        is_welcome = link.has_helped or peer.number not in self.missing()
        self._absent_since[peer.number] = monotonic() - (0.0 if is_welcome else link.away)
        self._stats.connected[peer.name] = False
        self._stats.reconnects[peer.name, link.reason] += 1
        log.info(
            "lost %s: %s", peer.name, error or link.reason,
            extra={"event": "disconnected", "peer": peer.name, "reason": link.reason},
        )  # fmt: skip
        self.wake()

    # ---- tasks

    async def _dial(self, peer: Peer) -> None:
        delay, said = FIRST_DELAY, ""
        while True:
            await self._give_way(peer)
            link = Connection(self, is_dialled=True)
            try:
                await self._transport.dial(peer.name, lambda link=link: link)
            except (OSError, ValueError) as error:  # ValueError: a host that cannot be one
                text, level = f"{type(error).__name__}: {error}", logging.INFO
                if isinstance(error, ssl.SSLCertVerificationError):
                    text = f"who answers does not show its certificate: {error.verify_message}"
                    level = logging.WARNING
                if isinstance(error, ssl.SSLError):
                    self._stats.rejected[refusal(error)] += 1
            else:
                await link.closed
                reason = link.error or link.reason
                text, level = f"it ended the connection before HELLO: {reason}", logging.INFO
            if link.is_open or link.is_refused:
                if link.has_helped or not link.is_refused:
                    delay, said = FIRST_DELAY, ""
            elif text != said and peer.number not in self._links:  # nor here the other way
                said = self._objection[peer.number] = text
                log.log(
                    level, "cannot reach %s yet: %s", peer.name, text,
                    extra={"event": "unreachable", "peer": peer.name},
                )  # fmt: skip
            # neighbours that were cut off together should not come back in step
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, LONGEST_DELAY)

    async def _give_way(self, peer: Peer) -> None:
        """Wait while the peer is here; and, if it has the smaller number, whether it comes."""
        while True:
            while (link := self._links.get(peer.number)) is not None:
                await asyncio.wait([link.closed])
            if self.session.me.number < peer.number:
                return
            await asyncio.sleep(COURTESY)
            if peer.number not in self._links:
                return

    async def _watch(self) -> None:
        """Heartbeats, dead connections, lost peers."""
        while True:
            await asyncio.sleep(self.heartbeat / 2)
            now = monotonic()
            for link in list(self._all):
                is_silent = now - link.heard > SILENCE * link.heartbeat
                if is_silent if link.is_open else now - link.made > HANDSHAKE:
                    link.abort("silent")
                elif link.is_open and now - link.spoke > self.heartbeat / 2:
                    link.send(_HEARTBEAT)
            self._check_absence(now)

    def _check_absence(self, now: float) -> None:
        needed = self.missing()
        for j in sorted(needed):
            if j not in self._links and now - self._absent_since[j] > self._max_wait:
                objection = self._objection.get(j)
                self.fail(
                    PeerLostError(
                        f"{self.session.peers[j].name} at round {max(self.session.round, 0)}"
                        + (f" ({objection})" if objection else "")
                    )
                )

    def _missing_names(self) -> list[str]:
        """The same by name; other threads ask, too, and so of a copy."""
        return [self.session.peers[j].name for j in sorted(self.missing().copy())]

    def missing(self) -> set[int]:
        """Whom this agent waits for."""
        session = self.session
        if session.has_finished:
            return {j for j, peer in session.peers.items() if not peer.has_finished}
        return session.missing if session.round >= 0 else set(session.peers) - set(self._links)
