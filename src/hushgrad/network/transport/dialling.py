"""Dialling: an agent dials every neighbour whose address it has, until the neighbour is here.

If both agents of a link have an address, the agent with the smaller number dials first, and the
other waits a moment for it. The hub (hub.py) starts one task of this kind for each address.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Mapping

from hushgrad.network.ops.counters import Stats
from hushgrad.network.protocol.session import Peer
from hushgrad.network.protocol.states import ConnectionState
from hushgrad.network.transport.connection import Connection
from hushgrad.network.transport.tls import Transport, refusal

log = logging.getLogger("hushgrad.agent")

FIRST_DELAY, LONGEST_DELAY = 0.05, 2.0  # seconds between attempts to dial, doubling
COURTESY = 0.2  # seconds that the greater number waits: one connection is enough


class Dialling:
    """Dials the neighbours of one agent."""

    def __init__(
        self,
        number: int,
        transport: Transport,
        new_connection: Callable[[], Connection],
        *,
        links: Mapping[int, Connection],
        objections: dict[int, str],
        stats: Stats,
    ):
        """`number` of this agent; `links` holds the open connection of each peer, `objections` the
        last reason for which a peer did not serve this agent.
        """
        self._number, self._transport, self._new_connection = number, transport, new_connection
        self._links, self._objections, self._stats = links, objections, stats

    async def dial(self, peer: Peer) -> None:
        """Connect to a peer, and again whenever the peer is lost; runs until cancelled."""
        delay, said = FIRST_DELAY, ""
        while True:
            await self._give_way(peer)
            link = self._new_connection()
            text, level = await self._live(peer, link)
            is_here = peer.number in self._links  # because the peer has dialled this agent
            if link.state is ConnectionState.LEFT or link.has_helped:
                delay, said = FIRST_DELAY, ""
            elif link.state is not ConnectionState.REFUSED and text != said and not is_here:
                said = self._objections[peer.number] = text
                log.log(
                    level, "cannot reach %s yet: %s", peer.name, text,
                    extra={"event": "unreachable", "peer": peer.name},
                )  # fmt: skip
            # neighbours that were cut off together should not come back in step
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, LONGEST_DELAY)

    async def _live(self, peer: Peer, link: Connection) -> tuple[str, int]:
        """Make one connection and wait for its end; returns the reason, and its level in the log,
        for the case that the connection was never open.
        """
        try:
            await self._transport.dial(peer.name, lambda: link)
        except (OSError, ValueError) as error:  # ValueError: the host's name is malformed
            if isinstance(error, ssl.SSLError):
                self._stats.rejected[refusal(error)] += 1
            if isinstance(error, ssl.SSLCertVerificationError):
                text = f"the program there does not show the certificate of {peer.name}"
                return f"{text}: {error.verify_message}", logging.WARNING
            return f"{type(error).__name__}: {error}", logging.INFO
        await link.closed
        reason = link.error or link.reason
        return f"it ended the connection before HELLO: {reason}", logging.INFO

    async def _give_way(self, peer: Peer) -> None:
        """Wait while the peer is connected; then, if the peer has the smaller number, wait a
        moment whether the peer dials.
        """
        while True:
            while (link := self._links.get(peer.number)) is not None:
                await asyncio.wait([link.closed])
            if self._number < peer.number:
                return
            await asyncio.sleep(COURTESY)
            if peer.number not in self._links:
                return
