"""Watching: an agent sends heartbeats, ends silent connections, and notices lost neighbours.

The hub (hub.py) starts one task that watches, and tells it when a peer comes and goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic, time

from hushgrad.errors import PeerLostError
from hushgrad.network.ops.logs import iso_time
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.session import Peer, Session
from hushgrad.network.protocol.states import ConnectionState
from hushgrad.network.transport.connection import Connection
from hushgrad.network.transport.tls import HANDSHAKE

log = logging.getLogger("hushgrad.agent")

PATIENCE = 10.0  # seconds of waiting until the log and `hushgrad status` name the neighbours
SILENCE = 3.0  # heartbeats without a byte until a connection counts as dead
_HEARTBEAT = wire.encode(FrameKind.HEARTBEAT)


def _nobody(names: Sequence[str], since: str) -> None:
    del names, since


class Watching:
    """Watches the connections and the neighbours of one agent."""

    def __init__(
        self,
        session: Session,
        *,
        links: Mapping[int, Connection],
        connections: Collection[Connection],
        heartbeat: float,
        max_wait: float,
        fail: Callable[[PeerLostError], None],
    ):
        """`links` holds the open connection of each peer, `connections` all that exist; `fail` ends
        the run when a peer that is waited for is absent for longer than `max_wait` seconds.
        """
        self._session, self._links, self._connections = session, links, connections
        self._heartbeat, self.max_wait, self._fail = heartbeat, max_wait, fail
        self.waits_since = monotonic()  # for the next message, or for anything else that is due
        self._absent_since = dict.fromkeys(session.peers, self.waits_since)
        # what the agent waits for besides messages of a round, in words
        self._due: Callable[[], Sequence[str]] = tuple[str, ...]
        self._met: set[int] = set()
        # called with the names and the beginning of a wait that lasts, and with none at its end
        self.tell: Callable[[Sequence[str], str], None] = _nobody
        self._named: tuple[str, ...] = ()  # in the log, as those for whom this agent waits
        self._next_word = PATIENCE  # seconds of waiting until the next line in the log
        self.objections: dict[int, str] = {}  # the last complaint about each peer, or by it

    async def run(self) -> None:
        """Watch until cancelled."""
        pause, last = self._heartbeat / 2, monotonic()
        while True:
            await asyncio.sleep(pause)
            now = monotonic()
            if now - last > 2 * pause:  # this agent itself stood still
                self.forgive(now - last - pause, now)
            last = now
            self.look(now)

    def forgive(self, late: float, now: float) -> None:
        """Do not count the last `late` seconds as silence or absence of any peer.

        A machine that was busy or asleep has neither read nor dialled meanwhile.
        """
        for link in self._connections:
            link.made, link.heard = min(link.made + late, now), min(link.heard + late, now)
        for j, since in self._absent_since.items():
            self._absent_since[j] = min(since + late, now)
        self.waits_since = min(self.waits_since + late, now)

    def look(self, now: float) -> None:
        """Send heartbeats, end silent connections and notice lost peers, all as of time `now`."""
        for link in list(self._connections):
            if self._is_dead(link, now):
                link.abort("silent")
            elif link.is_open and now - link.spoke > self._heartbeat / 2:
                link.send(_HEARTBEAT)
        self._check_absence(now)
        self._check_silence(now)
        self._note_wait(now)

    def _is_dead(self, link: Connection, now: float) -> bool:
        if link.state is ConnectionState.GREETED:
            return now - link.made > HANDSHAKE
        return now - link.heard > SILENCE * link.heartbeat

    def _check_absence(self, now: float) -> None:
        for j in sorted(self.missing()):
            if j not in self._links and now - self._absent_since[j] > self.max_wait:
                self._lose(self._session.peers[j].name, self.objections.get(j))

    def _check_silence(self, now: float) -> None:
        """End if a peer that is connected does not bring what is waited for.

        A peer that was away meanwhile has `max_wait` from its return, but twice that in all: it
        could come and go.
        """
        waited, silence = now - self.waits_since, f"connected, but silent for {self.max_wait:g} s"
        if waited <= self.max_wait:
            return
        owing = sorted(self._owing())
        if late := [j for j in owing if self._is_late(j, now)]:
            # a peer that was refused explains the wait, and may be why others are silent
            j = next((j for j in owing if j in self.objections), late[0])
            self._lose(self._session.peers[j].name, self.objections.get(j) or silence)
            return
        if due := self._due():
            self._lose(
                ", ".join(due),
                f"not here after {self.max_wait:g} s, of agents behind "
                "neighbours that are connected",
            )

    def _is_late(self, j: int, now: float) -> bool:
        """Whether a peer that owes a message has been connected for long enough to bring it."""
        link, longest = self._links.get(j), self.max_wait
        return link is not None and (
            now - link.made > longest or now - self.waits_since > 2 * longest
        )

    def _lose(self, who: str, why: str | None) -> None:
        text = f"{who} at round {max(self._session.round, 0)}"
        self._fail(PeerLostError(f"{text} ({why})" if why else text))

    def _note_wait(self, now: float) -> None:
        """Say in the log for whom this agent waits, ever more rarely, and when that is over."""
        waited = now - self.waits_since
        names = tuple(self.awaited_names()) if waited > PATIENCE else ()
        if not names:
            if self._named:
                log.info(
                    "the wait for %s is over", ", ".join(self._named), extra={"event": "arrived"}
                )
                self.tell((), "")
            self._named, self._next_word = (), PATIENCE
        elif names != self._named or waited >= self._next_word:
            since = iso_time(time() - waited)
            log.info(
                "waiting for %s since %s", ", ".join(names), since,
                extra={"event": "waiting", "round": max(self._session.round, 0)},
            )  # fmt: skip
            self.tell(names, since)
            self._named, self._next_word = names, max(2 * waited, PATIENCE)

    # ---- peers come and go

    def note_arrival(self, link: Connection, peer: Peer, old: Connection | None) -> None:
        """The peer has a new open connection, in the place of `old` if it had one."""
        if peer.number not in self._met and self._session.round < 0:
            self.note_progress()
        self._met.add(peer.number)
        if old is None:
            link.away = monotonic() - self._absent_since[peer.number]
        else:
            link.away = 0.0 if old.has_helped else old.away

    def note_help(self, link: Connection, peer: Peer) -> None:
        """The peer has sent a message that this agent needed: forget earlier complaints."""
        link.has_helped = True
        if self.objections:
            self.objections.pop(peer.number, None)

    def note_departure(self, link: Connection, peer: Peer) -> None:
        """The peer's open connection is gone.

        A peer that comes and goes without the message that is waited for counts as absent.
        """
        is_welcome = link.has_helped or peer.number not in self.missing()
        self._absent_since[peer.number] = monotonic() - (0.0 if is_welcome else link.away)

    # ---- the peers that are waited for

    def note_progress(self) -> None:
        """This agent has sent a round, or got something that it waited for before its rounds."""
        self.waits_since = monotonic()

    @contextmanager
    def awaiting(self, due: Callable[[], Sequence[str]]) -> Generator[None]:
        """Within it the agent waits for something besides messages: `due` names what lacks."""
        self._due = due
        try:
            yield
        finally:
            self._due = tuple[str, ...]

    def _owing(self) -> set[int]:
        """The peers whose message is all that this agent lacks now; it may compute meanwhile."""
        session = self._session
        is_waiting = session.has_finished or session.round == session.wanted >= 0
        return self.missing() if is_waiting else set()

    def awaited_names(self) -> list[str]:
        """The names of all that this agent waits for now."""
        owing = self._owing() if self._session.round >= 0 else self.missing()
        return [*(self._session.peers[j].name for j in sorted(owing)), *self._due()]

    def missing(self) -> set[int]:
        """The peers that this agent waits for."""
        session = self._session
        if session.has_finished:
            return {j for j, peer in session.peers.items() if not peer.has_finished}
        return session.missing if session.round >= 0 else set(session.peers) - set(self._links)

    def missing_names(self) -> list[str]:
        """The names of the peers that this agent waits for; other threads may ask, too."""
        return [self._session.peers[j].name for j in sorted(self.missing().copy())]
