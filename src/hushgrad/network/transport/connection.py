"""One connection to a neighbour: bytes become frames, and frames go to the owner.

The hub (hub.py) makes and owns all connections of an agent. A connection knows of the hub only the
narrow interface `Owner`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from time import monotonic
from typing import Protocol, cast

from hushgrad.errors import AgentError, IdentityError, WireError
from hushgrad.network.protocol.frames import Bytes, Frame, FrameKind, Parser
from hushgrad.network.protocol.session import Peer
from hushgrad.network.protocol.states import (
    CONNECTION,
    OPEN_STATES,
    OVER_STATES,
    Act,
    ConnectionEvent,
    ConnectionState,
    after,
)

log = logging.getLogger("hushgrad.agent")


class Owner(Protocol):
    """The part of the hub that a connection calls."""

    heartbeat: float  # seconds
    longest: Mapping[FrameKind, int]  # bytes in the body of a frame, by kind
    most_unsent: int  # bytes that may wait to be sent

    def meet(self, link: Connection, transport: asyncio.Transport) -> None:
        """The connection is made; IdentityError if the peer is not a neighbour."""
        ...

    def hear(self, link: Connection, frame: Frame) -> None:
        """The peer has sent a frame; WireError if the frame breaks a rule."""
        ...

    def refuse(self, link: Connection, error: WireError) -> None:
        """The peer has broken a rule."""
        ...

    def turn_away(self, reason: str, text: str, name: str = "") -> None:
        """Count and log a refusal."""
        ...

    def fail(self, error: Exception) -> None:
        """The agent cannot go on."""
        ...

    def lose(self, link: Connection, error: Exception | None) -> None:
        """The connection is gone."""
        ...


class Connection(asyncio.BufferedProtocol):
    """One connection, in one of the states of protocol/states.py."""

    def __init__(self, owner: Owner, *, is_dialled: bool = False):
        self._owner = owner
        self._parser = Parser(owner.longest)
        self.state = ConnectionState.NEW
        self.is_dialled = is_dialled  # by this agent; otherwise the peer has dialled
        self.peer: Peer | None = None
        self.has_helped = False  # the connection has brought a message that the agent needed
        self.heartbeat = owner.heartbeat  # seconds: the longer heartbeat of both ends
        self.away = 0.0  # seconds that the peer was absent before this connection
        self.due = 0  # the round of the next DATA frame on this connection
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reason = "closed by the peer"
        self.error: Exception | None = None
        self.made = self.heard = self.spoke = monotonic()

    @property
    def is_open(self) -> bool:
        """Whether both ends have said HELLO and neither has ended the connection."""
        return self.state in OPEN_STATES

    @property
    def is_over(self) -> bool:
        """Whether an end has ended the connection; the transport may still send the last bytes."""
        return self.state in OVER_STATES

    def note(self, event: ConnectionEvent) -> None:
        """Go to the state that follows the event."""
        self.state = after(CONNECTION, self.state, event)

    # ---- calls of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        try:
            self._owner.meet(self, self._transport)
        except IdentityError as error:
            self._owner.turn_away("stranger", str(error))
            self.abort("stranger")

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._parser.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = monotonic()
        try:
            for frame in self._parser.received(nbytes):
                if self.state not in OVER_STATES:
                    self._owner.hear(self, frame)
        except WireError as error:
            self._owner.refuse(self, error)
        except AgentError as error:
            self._owner.fail(error)
        except Exception as error:  # a connection that has lost a frame must not stay open
            log.exception("a frame could not be taken", extra={"event": "defect"})
            self._owner.refuse(self, WireError(f"a frame could not be taken: {error!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        if exc is not None and not self.is_over:
            self.reason = "broken"
        self.note(Act.LOST)
        if not self.closed.done():
            self.closed.set_result(None)
        self._owner.lose(self, exc)

    # ---- calls of the hub

    def send(self, frame: Bytes) -> None:
        """Send a frame; a connection that is over sends nothing."""
        if self.state not in OVER_STATES:
            self.spoke = monotonic()
            self._transport.write(frame)
            if self._transport.get_write_buffer_size() > self._owner.most_unsent:
                self.abort("does not read")

    def close(self, reason: str, event: ConnectionEvent = Act.END) -> None:
        """End the connection after the transport has sent everything that was written."""
        if not self.is_over:
            self.reason = reason
            self.note(event)
            self._transport.close()

    def abort(self, reason: str, event: ConnectionEvent = Act.END) -> None:
        """End the connection now."""
        if not self.is_over:
            self.reason = reason
            self.note(event)
        self._transport.abort()
