"""TCP connections: to every address of a name at a time, through a proxy, and from all addresses.

The TLS transport (tls.py) and the doctor's probe (ops/doctor/probe.py) use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from itertools import chain, zip_longest
from typing import Any

from hushgrad.errors import AgentError
from hushgrad.network.config.model import Address, shown_address

ATTEMPT = 10.0  # seconds for TCP, proxy and TLS together; four round trips and some arithmetic
STAGGER = 0.5  # seconds before the next address is tried, too (RFC 8305: 0.1 to 2)
_MOST_ANSWER = 16_384  # bytes of a proxy's answer

type Finish[S: socket.socket] = Callable[[socket.socket], Awaitable[S]]


async def connect[S: socket.socket](
    address: Address, finish: Finish[S], *, proxy: Address | None = None
) -> S:
    """A connection to an address, finished by `finish`: the first that succeeds.

    A host may have several addresses, and some of them may lead nowhere. Every address gets
    ATTEMPT seconds of its own, and the next address is tried after STAGGER seconds, or at once if
    the one before fails. With a `proxy` its addresses count, and the proxy finds the host.
    """
    places = await _addresses(*(proxy or address))
    failures: list[tuple[str, Exception]] = []
    running: dict[asyncio.Task[S], str] = {}
    try:
        while places or running:
            if places:
                place = places.pop(0)
                task = asyncio.create_task(_attempt(place, address, proxy, finish))
                running[task] = str(place[-1][0])
            done, _ = await asyncio.wait(
                running, timeout=STAGGER if places else None,
                return_when=asyncio.FIRST_COMPLETED,
            )  # fmt: skip
            for task in done:
                error = task.exception()
                if error is None:
                    del running[task]
                    return task.result()
                if not isinstance(error, Exception):
                    raise error
                failures.append((running.pop(task), error))
    finally:
        for task in running:
            task.cancel()
        for made in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(made, socket.socket):  # it succeeded, too, but came second
                made.close()
    raise _failure(failures)


async def _attempt[S: socket.socket](
    place: tuple[Any, ...], address: Address, proxy: Address | None, finish: Finish[S]
) -> S:
    family, kind, proto, _, where = place
    with contextlib.closing(socket.socket(family, kind, proto)) as plain:
        # `finish` may hand the descriptor on to another socket
        plain.setblocking(False)
        try:
            async with asyncio.timeout(ATTEMPT):
                await asyncio.get_running_loop().sock_connect(plain, where)
                if proxy is not None:
                    await _open_tunnel(plain, address, proxy)
                return await finish(plain)
        except TimeoutError:
            raise TimeoutError(f"no answer within {ATTEMPT:g} s") from None


async def _addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    """The addresses of a host, of both families by turns: one family may not work at all."""
    async with asyncio.timeout(ATTEMPT):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not found:
        raise OSError(f"{host} has no address")
    first = found[0][0]
    of_first = [place for place in found if place[0] == first]
    of_other = [place for place in found if place[0] != first]
    by_turns = chain.from_iterable(zip_longest(of_first, of_other))
    return [place for place in by_turns if place is not None]


def _failure(failures: list[tuple[str, Exception]]) -> Exception:
    """The error of a dial whose attempts have all failed."""
    errors = [error for _, error in failures]
    telling = [error for error in errors if isinstance(error, ssl.SSLError)]
    if telling or len(errors) == 1:  # a program answered
        return (telling or errors)[0]
    return OSError("; ".join(f"{where}: {error}" for where, error in failures))


async def _open_tunnel(plain: socket.socket, address: Address, proxy: Address) -> None:
    """Ask an HTTP proxy to pass all further bytes on to an address."""
    loop, target = asyncio.get_running_loop(), shown_address(address)
    await loop.sock_sendall(plain, f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        more = await loop.sock_recv(plain, _MOST_ANSWER)
        answer += more
        if not more or len(answer) > _MOST_ANSWER:
            raise ConnectionError(f"the proxy {shown_address(proxy)} gives no answer of HTTP")
    version, _, rest = answer.partition(b" ")
    code = rest[:3].decode("ascii", "replace")
    if not version.startswith(b"HTTP/1.") or not code.isdecimal():
        raise ConnectionError(f"the proxy {shown_address(proxy)} gives no answer of HTTP")
    if not code.startswith("2"):  # the words beside the code are the proxy's own
        raise ConnectionError(
            f"the proxy {shown_address(proxy)} refuses to connect to {target} (HTTP {code})"
        )
    if not answer.endswith(b"\r\n\r\n") or answer.count(b"\r\n\r\n") > 1:
        raise ConnectionError(f"the proxy {shown_address(proxy)} speaks before the neighbour does")


def listening(address: Address) -> socket.socket:
    """A socket that accepts connections at an address; `::` takes IPv4, too."""
    host, port = address
    is_six = ":" in host
    try:
        return socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_six else socket.AF_INET,
            backlog=128,
            dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise AgentError(
            f"this agent cannot listen at {shown_address(address)}: {error.strerror or error}. Is "
            "another agent running there? Change `listen`, or end it."
        ) from error
