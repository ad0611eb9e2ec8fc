"""Networks and neighbours that do not behave, for tests of faults and of security: a proxy that
fails, a neighbour that sends any bytes.
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import asdict

from hushgrad.network.deployed import Agent
from hushgrad.network.keys.identity import client_context, load_certificate, load_identity
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.codes import reason_of
from hushgrad.network.protocol.frames import FrameKind, Parser
from hushgrad.network.wiring import session_of

ANY = wire.limits(1 << 20, 1 << 10, n_entries=1 << 10, n_announcements=100, has_stages=True)


class Proxy:
    """Forwards connections to an address, and can fail.

    `hold()` is a partition: bytes wait until `heal()`, as in TCP. `forget()` is a firewall that
    lost its table: on the present connections no byte and no end arrives any more.
    """

    def __init__(self, target):
        self.target = target
        self._open = asyncio.Event()
        self._open.set()
        self._epoch = 0
        self.connections = 0
        self._writers = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    def hold(self):
        self._open.clear()

    def heal(self):
        self._open.set()

    def forget(self):
        self._epoch += 1

    async def _carry(self, reader, writer):
        self.connections += 1
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        epoch = self._epoch
        await asyncio.gather(
            self._pipe(reader, far_writer, epoch), self._pipe(far_reader, writer, epoch)
        )

    async def _pipe(self, reader, writer, epoch):
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._open.wait()
                if epoch == self._epoch:
                    writer.write(data)
        if epoch == self._epoch:
            writer.transport.abort()


class Rogue:
    """An attacker with a neighbour's key, who dials an agent and writes frames by hand."""

    def __init__(self, config, victim):
        """The configurations of the agent whose key it has, and of the agent that it dials."""
        self.config, self.victim = config, victim
        self.parser = Parser(ANY)
        self.heard = []  # frames that came

    async def __aenter__(self):
        identity = load_identity(self.config.key, self.config.certificate)
        context = client_context(identity, load_certificate(self.victim.certificate))
        for _ in range(100):
            try:
                self._reader, self._writer = await asyncio.open_connection(
                    *self.victim.listen, ssl=context, server_hostname=self.victim.name
                )
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)  # the victim does not listen yet
            else:
                return self
        raise AssertionError(f"{self.victim.name} does not listen")

    async def __aexit__(self, *_):
        self._writer.transport.abort()

    def hello(self, **changes):
        """Send the HELLO of the honest agent at its start, with these changes."""
        session, _ = session_of(Agent(self.config).config, 0)
        honest = session.hello(session.peers[self.victim.number])
        self.send(FrameKind.HELLO, json.dumps(asdict(honest) | changes).encode())

    def send(self, kind, body=b"", **header):
        self.write(wire.encode(kind, body, **header))

    def write(self, data):
        self._writer.write(data)

    async def reject(self):
        """The reason of the REJECT that comes; None if the connection ends without one."""
        while data := await self._reader.read(65_536):
            for frame in self.parser.feed(data):
                if frame.kind is FrameKind.REJECT:
                    return reason_of(frame.flags)
                self.heard.append(frame)
        return None
