"""A link of loopback made as slow as one between organisations, which also counts its bytes.

A rehearsal (rehearsal.py) runs on such links.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from hushgrad.network.config.model import Address

_PIECE = 65536  # bytes that are read at a time


class SlowLink:
    """Passes on what comes, after `delay` seconds in each direction."""

    def __init__(self, target: Address, delay: float):
        self._target, self._delay = target, delay
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.n_bytes = 0  # in both directions

    @property
    def address(self) -> Address:
        host, port = self._socket.getsockname()
        return host, port

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._socket)

    async def stop(self) -> None:
        """Close every connection; an agent that is still there sees its link end."""
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def close(self) -> None:
        self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            writers.append(far_writer)
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        except OSError:  # the listener has gone: the other end sees that its link has ended
            pass
        finally:
            self._serving.discard(task)
            for one in writers:
                one.close()
            with suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(*(one.wait_closed() for one in writers))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read at once and write later, so that pieces overtake nothing and wait for nothing."""
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def deliver() -> None:
            while True:
                when, piece = await due.get()
                await asyncio.sleep(max(0.0, when - clock()))
                if not piece:
                    break
                writer.write(piece)
            writer.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(deliver())
            with suppress(OSError):
                while piece := await reader.read(_PIECE):
                    self.n_bytes += len(piece)
                    due.put_nowait((clock() + self._delay, piece))
            due.put_nowait((clock() + self._delay, b""))
