"""A transport for tests: it joins agents of one process without sockets."""

from __future__ import annotations

import asyncio
from typing import Any

from hushgrad.errors import IdentityError
from hushgrad.network.transport.tls import NewProtocol, Refused


class InMemoryTransport:
    """The transport of one agent; all agents share the table `everyone`."""

    def __init__(self, name: str, everyone: dict[str, InMemoryTransport]):
        self.name, self._everyone = name, everyone
        everyone[name] = self
        self.new: NewProtocol | None = None  # makes a protocol, while this agent serves

    async def dial(self, name: str, new: NewProtocol) -> None:
        other = self._everyone.get(name)
        if other is None or other.new is None:
            raise ConnectionRefusedError(f"{name} is not here")
        here, there = _End(self.name, name), _End(name, self.name)
        here.other, there.other = there, here
        there.begin(other.new())
        here.begin(new())

    async def serve(self, new: NewProtocol, refused: Refused) -> None:
        del refused  # no stranger can come
        self.new = new
        try:
            await asyncio.Event().wait()
        finally:
            self.new = None

    def name_of(self, connection: Any) -> str:
        if not isinstance(connection, _End):
            raise IdentityError("only agents of this process are known here.")
        return connection.to

    def close(self) -> None:
        self.new = None


class _End(asyncio.Transport):
    """One end of a connection in memory."""

    other: _End

    def __init__(self, of: str, to: str):
        super().__init__()
        self.of, self.to = of, to
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.BufferedProtocol | None = None
        self._closing = False

    def begin(self, protocol: asyncio.BufferedProtocol) -> None:
        self._protocol = protocol
        self._loop.call_soon(protocol.connection_made, self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._loop.call_soon(self.other.deliver, bytes(data))

    def deliver(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self._closing and self._protocol is not None:
            room = memoryview(self._protocol.get_buffer(len(rest)))
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self._protocol.buffer_updated(count)
            rest = rest[count:]

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(ConnectionAbortedError("aborted"))

    def is_closing(self) -> bool:
        return self._closing

    def _end(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, error)
            self._loop.call_soon(self.other.close)
