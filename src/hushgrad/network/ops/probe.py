"""Ask a neighbour's running agent who it is and what it runs, without disturbing it.

An agent says HELLO first on every connection, and a connection counts for it only once the other
side has said HELLO too. A probe listens to the one, never says the other, and leaves.
"""

from __future__ import annotations

import asyncio
import ssl

from hushgrad.errors import AgentError, WireError
from hushgrad.network.config.model import Address
from hushgrad.network.keys.identity import Certificate, Identity, client_context
from hushgrad.network.protocol.frames import FrameKind, Parser, limits
from hushgrad.network.protocol.hello import Hello, decode_hello, decode_reject


async def probe(
    identity: Identity, peer: Certificate, address: Address, *, timeout: float
) -> Hello:
    """The HELLO of the agent at this address; AgentError with the reason if there is none."""
    host, port = address
    context = client_context(identity, peer)
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context, server_hostname=peer.name
            )
            try:
                return await _hello(reader, peer.name)
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise AgentError(f"no answer from {host}:{port} within {timeout:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise AgentError(
            f"who answers at {host}:{port} does not show the certificate of {peer.name} "
            f"({error.verify_message})"
        ) from error
    except ssl.SSLError as error:
        raise AgentError(
            f"{host}:{port} breaks off the TLS handshake ({error.reason}). It may not trust this "
            "agent's certificate"
        ) from error
    except WireError as error:
        raise AgentError(f"{host}:{port} does not speak this protocol: {error}") from error
    except OSError as error:
        raise AgentError(f"{host}:{port} cannot be reached: {error.strerror or error}") from error


async def _hello(reader: asyncio.StreamReader, name: str) -> Hello:
    parser = Parser(limits(1, 0))
    while data := await reader.read(65_536):
        for frame in parser.feed(data):
            if frame.kind is FrameKind.HELLO:
                return decode_hello(frame.body)
            if frame.kind is FrameKind.REJECT:
                raise AgentError(f"{name} refuses this agent: {decode_reject(frame.body)[1]}")
    raise AgentError(f"{name} closed the connection. It may not know this agent's certificate")
