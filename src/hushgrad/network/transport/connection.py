"""One connection: bytes in, frames to the hub; what it knows of its own life."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, cast

from hushgrad.errors import AgentError, IdentityError, WireError
from hushgrad.network.protocol.frames import Bytes, Parser
from hushgrad.network.protocol.session import Peer

if TYPE_CHECKING:
    from hushgrad.network.transport.hub import Hub

log = logging.getLogger("hushgrad.agent")


class Connection(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, hub: Hub, *, is_dialled: bool = False):
        self._hub = hub
        self.is_dialled = is_dialled  # by this end
        self._parser = Parser(hub.longest)
        self.peer: Peer | None = None
        self.is_open = False  # both have said HELLO, and it was good
        self.is_closed = False
        self.is_refused = False  # by this end or the other
        self.has_helped = False  # it brought something new
        self.has_acknowledged = False  # the peer's FIN
        self.heartbeat = hub.heartbeat  # seconds: the longer of both ends
        self.away = 0.0  # seconds that the peer was absent before
        self.due = 0  # the round that comes next on this connection
        self.closed: asyncio.Future[None] = hub.loop.create_future()
        self.reason = "closed by the peer"
        self.error: Exception | None = None
        self.made = self.heard = self.spoke = monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        try:
            self._hub.meet(self, self._transport)
        except IdentityError as error:
            self._hub.turn_away("stranger", str(error))
            self.abort("stranger")

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._parser.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = monotonic()
        try:
            for frame in self._parser.received(nbytes):
                if not self.is_closed:
                    self._hub.hear(self, frame)
        except WireError as error:
            self._hub.refuse(self, error)
        except AgentError as error:
            self._hub.fail(error)
        except Exception as error:  # a connection whose frames are lost must not stay open
            log.exception("a frame could not be taken", extra={"event": "defect"})
            self._hub.refuse(self, WireError(f"a frame could not be taken: {error!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        if exc is not None and not self.is_closed:
            self.reason = "broken"
        self.is_closed = True
        if not self.closed.done():
            self.closed.set_result(None)
        self._hub.lose(self, exc)

    def send(self, frame: Bytes) -> None:
        if not self.is_closed:
            self.spoke = monotonic()
            self._transport.write(frame)
            if self._transport.get_write_buffer_size() > self._hub.most_unsent:
                self.abort("does not read")

    def close(self, reason: str) -> None:
        """Send what was written, then end."""
        if not self.is_closed:
            self.reason, self.is_closed = reason, True
            self._transport.close()

    def abort(self, reason: str) -> None:
        """End now."""
        if not self.is_closed:
            self.reason, self.is_closed = reason, True
        self._transport.abort()
