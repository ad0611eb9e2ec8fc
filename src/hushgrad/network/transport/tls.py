"""The transport of the deployed agent: TLS over TCP (tests may use in_memory.py instead).

A transport has a small interface, `Transport`: dial a neighbour, serve the neighbours that dial
this agent, and name the peer of a connection. Both sides of a connection have asyncio's interface:
the hub gives a BufferedProtocol, and the transport offers `write`, `close` and `abort`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from hushgrad.network.config.model import Address
from hushgrad.network.keys.identity import (
    Certificate,
    Identity,
    client_context,
    peer_name,
    server_context,
)
from hushgrad.network.transport.connecting import connect, listening

HANDSHAKE = 10.0  # seconds for the TLS of a caller; two round trips and some arithmetic
_MOST_STRANGERS = 64  # simultaneous handshakes: each costs a socket and some 50 kB
_MAPPED = "::ffff:"  # begins the address of a caller over IPv4, if the agent listens at [::]
_RECORD = 16_384  # the most bytes in a TLS record
_UNKNOWN = 18  # OpenSSL's code of a self-signed certificate that the agent does not trust

type NewProtocol = Callable[[], asyncio.BufferedProtocol]
type Refused = Callable[[str, str], None]  # (reason to count by, text for the log)


class Transport(Protocol):
    """Carries frames. It calls `connection_made` after it has verified the peer."""

    async def dial(self, name: str, new: NewProtocol) -> None:
        """Connect to a neighbour; OSError (or ssl.SSLError, or TimeoutError) if that fails."""
        ...

    async def serve(self, new: NewProtocol, refused: Refused) -> None:
        """Accept connections until cancelled; calls `refused` for each that it refuses."""
        ...

    def name_of(self, connection: Any) -> str:
        """The name of the peer of a connection; IdentityError if the peer is no neighbour."""
        ...

    def close(self) -> None:
        """Accept no connection any more; `serve` need not have been called."""
        ...


class TLS:
    """Both ends show a certificate, and each end accepts only certificates of its neighbours."""

    def __init__(
        self,
        identity: Identity,
        neighbours: Mapping[str, Certificate],
        addresses: Mapping[str, Address],
        listen: Address | socket.socket | None,
        proxies: Mapping[str, Address] | None = None,
    ):
        """`addresses`, and proxies on the way, of the neighbours that this agent dials."""
        self._identity, self._neighbours = identity, neighbours
        self._addresses, self._proxies = addresses, proxies or {}
        # the program that started this process may have bound a socket for it
        self._socket = listening(listen) if isinstance(listen, tuple) else listen
        if self._socket is not None:
            self._socket.setblocking(False)

    async def dial(self, name: str, new: NewProtocol) -> None:
        context = client_context(self._identity, self._neighbours[name])
        secure = await connect(
            self._addresses[name],
            lambda plain: _shake_hands(plain, context, server_hostname=name),
            proxy=self._proxies.get(name),
        )
        _SecureTransport(secure, new())

    async def serve(self, new: NewProtocol, refused: Refused) -> None:
        listener = self._socket
        if listener is None:
            return
        loop, number = asyncio.get_running_loop(), listener.fileno()
        context = server_context(self._identity, self._neighbours.values())
        judging: dict[asyncio.Task[None], str] = {}  # handshakes, by origin, the oldest first
        pause: asyncio.TimerHandle | None = None

        def accept() -> None:
            nonlocal pause
            try:
                plain, origin = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return  # the caller is gone
            except OSError as error:  # out of file descriptors, most likely
                refused("accept", f"no connection can be accepted: {error}")
                loop.remove_reader(number)
                pause = loop.call_later(1.0, lambda: loop.add_reader(number, accept))
                return
            if len(judging) >= _MOST_STRANGERS:
                oldest = _oldest_of_the_most(judging)
                refused("crowd", f"{judging.pop(oldest)} was slow while many others came")
                oldest.cancel()
            host = origin[0].removeprefix(_MAPPED)
            task = loop.create_task(self._judge(plain, host, context, new, refused))
            judging[task] = host
            task.add_done_callback(lambda task: judging.pop(task, None))
            # after a handshake the TLS socket has the descriptor; otherwise this closes it
            task.add_done_callback(lambda _: plain.close())

        # loop.sock_accept, cancelled at the wrong moment, would lose a connection unclosed
        loop.add_reader(number, accept)
        try:
            await asyncio.Event().wait()
        finally:
            if pause is not None:
                pause.cancel()
            loop.remove_reader(number)
            for task in judging:
                task.cancel()
            self.close()

    async def _judge(
        self,
        plain: socket.socket,
        origin: str,
        context: ssl.SSLContext,
        new: NewProtocol,
        refused: Refused,
    ) -> None:
        """Finish the handshake of a caller, and refuse the caller if it fails.

        A TLS 1.3 client has finished before the server has seen the client's certificate.
        """
        try:
            async with asyncio.timeout(HANDSHAKE):
                secure = await _shake_hands(plain, context, server_side=True)
        except TimeoutError:
            refused("silence", f"{origin} did not finish its handshake in {HANDSHAKE:.0f} s")
        except OSError as error:
            refused(refusal(error), f"{origin} failed its handshake: {_text(error)}")
        else:
            _SecureTransport(secure, new())

    def name_of(self, connection: Any) -> str:
        return peer_name(connection.socket, self._neighbours.values())

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _oldest_of_the_most[T](judging: Mapping[T, str]) -> T:
    """The handshake that ends when there are too many.

    A neighbour's handshake is short, so a caller that waits for long is silent. And most of a crowd
    comes from one place.
    """
    counts = Counter(judging.values())
    most = max(counts.values())
    return next(task for task, origin in judging.items() if counts[origin] == most)


async def _shake_hands(plain: socket.socket, context: ssl.SSLContext, **side: Any) -> ssl.SSLSocket:
    plain.setblocking(False)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    secure = context.wrap_socket(plain, do_handshake_on_connect=False, **side)
    try:
        while True:
            try:
                secure.do_handshake()
                return secure
            except ssl.SSLWantReadError:
                await _ready(secure, "reader")
            except ssl.SSLWantWriteError:
                await _ready(secure, "writer")
    except BaseException:
        secure.close()
        raise


async def _ready(sock: socket.socket, side: Literal["reader", "writer"]) -> None:
    loop, number = asyncio.get_running_loop(), sock.fileno()
    add, remove = {
        "reader": (loop.add_reader, loop.remove_reader),
        "writer": (loop.add_writer, loop.remove_writer),
    }[side]
    ready: asyncio.Future[None] = loop.create_future()
    add(number, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        remove(number)


class _SecureTransport(asyncio.Transport):
    """A TLS socket in the event loop.

    asyncio's own TLS passes every byte through two more buffers and some ten more calls. Without
    them, a round costs little more than half.
    """

    def __init__(self, secure: ssl.SSLSocket, protocol: asyncio.BufferedProtocol):
        super().__init__()
        self.socket, self._protocol = secure, protocol
        self._loop, self._number = asyncio.get_running_loop(), secure.fileno()
        self._backlog: deque[memoryview] = deque()
        self._is_closing = False
        protocol.connection_made(self)
        if not self._is_closing:
            self._loop.add_reader(self._number, self._read)
            self._read()  # the loop does not wake for bytes that came with the handshake

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        """The bytes that wait because the peer does not read."""
        return sum(map(len, self._backlog)) if self._backlog else 0

    def _read(self) -> None:
        """Fill the protocol's buffer record by record. After a full record, more bytes may wait."""
        room = memoryview(self._protocol.get_buffer(-1))
        size, filled = len(room), 0
        failure, is_over = None, False
        try:
            filled = count = self.socket.recv_into(room, size)
            while count == _RECORD and filled < size:
                count = self.socket.recv_into(room[filled:], size - filled)
                filled += count
            is_over = not count
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            failure, is_over = error, True
        if filled:
            self._protocol.buffer_updated(filled)
        if is_over:
            self._end(failure)
        elif filled == size:  # the loop does not wake for the rest of a record
            self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        if not self._is_closing:
            self._read()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._backlog:
            self._backlog.append(memoryview(data))
        elif not self._is_closing:
            rest = self._send(data)
            if rest:
                self._backlog.append(memoryview(rest))
                self._loop.add_writer(self._number, self._flush)

    def _send(self, data: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
        """Send as many bytes as the socket takes now; returns the rest."""
        try:
            sent = self.socket.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return data
        except OSError as error:
            self._end(error)
            return b""
        return b"" if sent == len(data) else memoryview(data)[sent:]

    def _flush(self) -> None:
        while self._backlog:
            rest = self._send(self._backlog[0])
            if rest:
                self._backlog[0] = memoryview(rest)
                return
            if self._backlog:
                self._backlog.popleft()
        self._loop.remove_writer(self._number)
        if self._is_closing:
            self._end(None)

    def close(self) -> None:
        """End the connection when all bytes are written."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.remove_reader(self._number)
            if not self._backlog:
                self._end(None)

    def abort(self) -> None:
        self._end(ConnectionAbortedError("aborted"))

    def _end(self, error: Exception | None) -> None:
        if self.socket.fileno() < 0:
            return
        self._is_closing = True
        self._loop.remove_reader(self._number)
        self._loop.remove_writer(self._number)
        self._backlog.clear()
        if error is None:
            with contextlib.suppress(OSError, ValueError):
                self.socket.unwrap()  # tells the peer, and does not wait for its answer
        self.socket.close()
        self._loop.call_soon(self._protocol.connection_lost, error)


def refusal(error: Exception) -> str:
    """The reason of a failed handshake, in a word or two to count by."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "certificate"
    text = _text(error)
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in text:
        return "no certificate"
    if (
        "UNSUPPORTED_PROTOCOL" in text
        or "PROTOCOL_VERSION" in text
        or "WRONG_VERSION_NUMBER" in text
        or "HTTP_REQUEST" in text
    ):
        return "not TLS 1.3"
    return "handshake"


def _text(error: Exception) -> str:
    if getattr(error, "verify_code", 0) == _UNKNOWN:
        return "its certificate is no neighbour's"
    return getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
