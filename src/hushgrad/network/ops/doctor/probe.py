"""A probe: `hushgrad doctor` asks a neighbour's running agent for its HELLO.

An agent says HELLO first on every connection, and a connection counts only after both ends have
said HELLO. A probe hears the HELLO of the agent, never says its own, and leaves. So a probe does
not disturb a run.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

from hushgrad.errors import AgentError, WireError
from hushgrad.network.config.model import Address, shown_address
from hushgrad.network.keys.identity import Certificate, Identity, client_context
from hushgrad.network.protocol.codes import MEANINGS, REASONS, heard_ending, reason_of
from hushgrad.network.protocol.frames import FrameKind, Parser, limits
from hushgrad.network.protocol.hello import Hello, decode_hello
from hushgrad.network.transport.connecting import connect


async def probe(
    identity: Identity,
    peer: Certificate,
    address: Address,
    *,
    timeout: float,
    proxy: Address | None = None,
) -> Hello:
    """The HELLO of the agent at an address; AgentError gives the reason if none comes."""
    place = shown_address(address)
    context = client_context(identity, peer)
    try:
        async with asyncio.timeout(timeout):
            plain = await connect(address, _kept, proxy=proxy)
            reader, writer = await asyncio.open_connection(
                sock=plain, ssl=context, server_hostname=peer.name
            )
            try:
                return await _hello(reader, peer.name)
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise AgentError(f"no answer from {place} within {timeout:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise AgentError(
            f"the program at {place} does not show the certificate of {peer.name} "
            f"({error.verify_message})"
        ) from error
    except ssl.SSLError as error:
        raise AgentError(
            f"{place} breaks off the TLS handshake ({error.reason}). The neighbour may not "
            "trust this agent's certificate"
        ) from error
    except WireError as error:
        raise AgentError(f"{place} does not speak this protocol: {error}") from error
    except OSError as error:
        raise AgentError(f"{place} cannot be reached: {error.strerror or error}") from error


async def _kept(plain: socket.socket) -> socket.socket:
    return socket.socket(fileno=plain.detach())


async def _hello(reader: asyncio.StreamReader, name: str) -> Hello:
    parser = Parser(limits(1, 0))
    while data := await reader.read(65_536):
        for frame in parser.feed(data):
            if frame.kind is FrameKind.HELLO:
                return decode_hello(frame.body)
            if frame.kind is FrameKind.OVER:
                ending = heard_ending(frame.flags, 0, 1)
                raise AgentError(f"{name} says that the run is over: {MEANINGS[ending]}")
            if frame.kind is FrameKind.REJECT:
                reason = reason_of(frame.flags)
                raise AgentError(f"{name} refuses this agent: {REASONS[reason]} ({reason})")
    raise AgentError(f"{name} closed the connection. It may not trust this agent's certificate")
