"""Crowds of connections keep no neighbour out."""

import asyncio
import gc
import socket
from contextlib import AsyncExitStack, suppress

from hushgrad.network.keys.identity import mint
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.transport import tls as transport
from hushgrad.network.transport import watching
from support.attacked_life import VICTIM, assert_goes_on, knock, rogue


def test_silent_connections_keep_no_neighbour_out(life, calm, monkeypatch):
    monkeypatch.setattr(transport, "HANDSHAKE", 1.0)

    crowd = []

    async def siege():
        address = life.configs[VICTIM].listen
        await knock(address, content=b"x")  # it listens
        crowd.extend(
            [await asyncio.to_thread(socket.create_connection, address) for _ in range(200)]
        )

    try:
        assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)
    finally:
        for connection in crowd:
            connection.close()
    rejected = life.agents[VICTIM].stats.rejected
    assert rejected["crowd"] >= 100
    assert rejected.keys() <= {"crowd", "silence", "handshake", "not TLS 1.3"}


def test_a_caller_does_not_wait_while_an_agent_leaves(keys):
    async def leave():
        serves = transport.TLS(mint(keys / "leaving", "agent-0"), {}, {}, ("127.0.0.1", 0))
        address = serves._socket.getsockname()
        serving = asyncio.create_task(serves.serve(None, None))
        await asyncio.sleep(0)
        with socket.create_connection(address) as caller:
            # the loop learns of the end and of the caller in one turn, of the end first
            asyncio.get_running_loop().call_soon(serving.cancel)
            await asyncio.wait([serving])
            caller.settimeout(5)
            with suppress(ConnectionResetError):
                assert caller.recv(1) == b""

    asyncio.run(leave())
    gc.collect()  # an unclosed socket would warn, and warnings are errors


def test_a_crowd_from_one_place_keeps_no_caller_from_another_place_out(keys, monkeypatch):
    monkeypatch.setattr(transport, "_MOST_STRANGERS", 3)
    told = []

    async def besiege():
        serves = transport.TLS(mint(keys / "besieged", "agent-0"), {}, {}, ("127.0.0.1", 0))
        port = serves._socket.getsockname()[1]
        refused = lambda reason, text: told.append((reason, text.split()[0]))  # noqa: E731  # one line, used here
        serving = asyncio.create_task(serves.serve(None, refused))
        calls = []
        for origin in ("127.0.0.2", *["127.0.0.1"] * 4):
            await asyncio.sleep(0.02)
            calls.append(socket.create_connection(("127.0.0.1", port), source_address=(origin, 0)))
        async with asyncio.timeout(20):
            while len(told) < 2:
                await asyncio.sleep(0.01)
        serving.cancel()
        await asyncio.wait([serving])
        for call in calls:
            call.close()

    asyncio.run(besiege())
    assert told[:2] == [("crowd", "127.0.0.1")] * 2


def test_a_neighbour_may_not_keep_many_connections_without_hello(life, calm):
    async def siege():
        async with AsyncExitStack() as stack:
            for _ in range(30):
                await stack.enter_async_context(rogue(life))
            while life.agents[VICTIM].stats.rejected["crowd"] != 26:
                await asyncio.sleep(0.01)

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)


def test_a_neighbour_that_never_says_hello_is_dropped(life, calm, monkeypatch):
    monkeypatch.setattr(watching, "HANDSHAKE", 0.5)

    async def siege():
        async with rogue(life) as silent:
            silent.write(wire.encode(FrameKind.HELLO, bytes(100))[:20])  # and not a byte more
            assert await silent.reject() is None
        assert [frame.kind for frame in silent.heard] == [FrameKind.HELLO]

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)
