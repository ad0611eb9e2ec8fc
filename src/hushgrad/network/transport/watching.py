"""Watching: an agent sends heartbeats, ends silent connections, and notices lost neighbours.

The hub (hub.py) starts one task that watches, and tells it when a peer comes and goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from time import monotonic

from hushgrad.errors import PeerLostError
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.session import Peer, Session
from hushgrad.network.protocol.states import ConnectionState
from hushgrad.network.transport.connection import Connection
from hushgrad.network.transport.tls import HANDSHAKE

SILENCE = 3.0  # heartbeats without a byte until a connection counts as dead
_HEARTBEAT = wire.encode(FrameKind.HEARTBEAT)


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
        self._absent_since = dict.fromkeys(session.peers, monotonic())
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

    def look(self, now: float) -> None:
        """Send heartbeats, end silent connections and notice lost peers, all as of time `now`."""
        for link in list(self._connections):
            if self._is_dead(link, now):
                link.abort("silent")
            elif link.is_open and now - link.spoke > self._heartbeat / 2:
                link.send(_HEARTBEAT)
        self._check_absence(now)

    def _is_dead(self, link: Connection, now: float) -> bool:
        if link.state is ConnectionState.GREETED:
            return now - link.made > HANDSHAKE
        return now - link.heard > SILENCE * link.heartbeat

    def _check_absence(self, now: float) -> None:
        for j in sorted(self.missing()):
            if j not in self._links and now - self._absent_since[j] > self.max_wait:
                objection = self.objections.get(j)
                self._fail(
                    PeerLostError(
                        f"{self._session.peers[j].name} at round {max(self._session.round, 0)}"
                        + (f" ({objection})" if objection else "")
                    )
                )

    # ---- peers come and go

    def note_arrival(self, link: Connection, peer: Peer, old: Connection | None) -> None:
        """The peer has a new open connection, in the place of `old` if it had one."""
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

    def missing(self) -> set[int]:
        """The peers that this agent waits for."""
        session = self._session
        if session.has_finished:
            return {j for j, peer in session.peers.items() if not peer.has_finished}
        return session.missing if session.round >= 0 else set(session.peers) - set(self._links)

    def missing_names(self) -> list[str]:
        """The names of the peers that this agent waits for; other threads may ask, too."""
        return [self._session.peers[j].name for j in sorted(self.missing().copy())]
