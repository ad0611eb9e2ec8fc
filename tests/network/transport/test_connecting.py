"""Dialling finds the address that works, goes through a proxy, and [::] serves both families."""

import asyncio
import logging
import socket
import time
from contextlib import suppress
from dataclasses import replace

import pytest

import hushgrad as hg
from hushgrad.errors import AgentError
from hushgrad.network.keys.identity import load_certificate, load_identity
from hushgrad.network.ops.doctor.probe import probe
from hushgrad.network.ops.result import Status
from hushgrad.network.transport import connecting
from hushgrad.network.transport.connecting import connect, listening
from support import agent_network

HAS_IPV6 = socket.has_ipv6 and socket.has_dualstack_ipv6()


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


async def kept(plain):
    return socket.socket(fileno=plain.detach())


class BlackHole:
    """An address that never answers: a full backlog, as behind a firewall that drops packets."""

    def __enter__(self):
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(0)
        self.address = self._socket.getsockname()
        self._callers = []
        for _ in range(4):
            caller = socket.socket()
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(self.address)
            self._callers.append(caller)
        return self

    def __exit__(self, *_):
        for one in (*self._callers, self._socket):
            one.close()


def resolved(monkeypatch, *addresses):
    """Let every name have these addresses."""

    async def getaddrinfo(loop, host, port, **_):
        families = [socket.AF_INET6 if ":" in a[0] else socket.AF_INET for a in addresses]
        return [
            (family, socket.SOCK_STREAM, 0, "", address)
            for family, address in zip(families, addresses, strict=True)
        ]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)


def test_an_address_that_never_answers_hides_no_address_that_does(monkeypatch):
    monkeypatch.setattr(connecting, "STAGGER", 0.05)

    async def dial():
        with BlackHole() as hole, socket.create_server(("127.0.0.1", 0)) as server:
            resolved(monkeypatch, hole.address, server.getsockname())
            started = time.monotonic()
            with await connect(("name", 1), kept) as made:
                assert made.getpeername() == server.getsockname()
            return time.monotonic() - started

    assert asyncio.run(dial()) < connecting.ATTEMPT / 2


def test_an_address_that_refuses_costs_no_time_and_all_that_fail_are_named(monkeypatch):
    monkeypatch.setattr(connecting, "STAGGER", 1000.0)
    (port,) = agent_network.free_ports(1)

    async def dial(*addresses):
        resolved(monkeypatch, *addresses)
        return await connect(("name", 1), kept)

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(dial(("127.0.0.1", port), server.getsockname())).close()
    with pytest.raises(OSError, match=r"^127\.0\.0\.1: .*111.*; 127\.0\.0\.2: .*111"):
        asyncio.run(dial(("127.0.0.1", port), ("127.0.0.2", port)))
    with pytest.raises(ConnectionRefusedError):  # one address: its own error
        asyncio.run(dial(("127.0.0.1", port)))


def test_every_address_has_a_time_of_its_own(monkeypatch):
    monkeypatch.setattr(connecting, "STAGGER", 0.05)
    monkeypatch.setattr(connecting, "ATTEMPT", 0.2)

    async def dial():
        with BlackHole() as one, BlackHole() as other:
            resolved(monkeypatch, one.address, other.address)
            await connect(("name", 1), kept)

    with pytest.raises(OSError, match=r"no answer within 0.2 s; 127\.0\.0\.1: no answer within"):
        asyncio.run(dial())


def test_an_address_where_another_program_answers_hides_no_neighbour(monkeypatch):
    """The finish (TLS, for an agent) is part of the race."""
    with (
        socket.create_server(("127.0.0.1", 0)) as wrong,
        socket.create_server(("127.0.0.1", 0)) as right,
    ):
        resolved(monkeypatch, wrong.getsockname(), right.getsockname())

        async def finish(plain):
            if plain.getpeername() == wrong.getsockname():
                raise OSError("it is not the neighbour")
            return await kept(plain)

        with asyncio.run(connect(("name", 1), finish)) as made:
            assert made.getpeername() == right.getsockname()


def test_addresses_of_both_families_are_tried_by_turns(monkeypatch):
    six, four = [(f"::{n}", 1, 0, 0) for n in (1, 2, 3)], [("127.0.0.1", 1)]
    resolved(monkeypatch, *six, *four)
    places = asyncio.run(connecting._addresses("name", 1))
    assert [place[-1] for place in places] == [six[0], four[0], six[1], six[2]]


@pytest.mark.skipif(not HAS_IPV6, reason="no IPv6 here")
def test_an_agent_that_listens_at_all_addresses_serves_both_families():
    (port,) = agent_network.free_ports(1)
    try:
        server = listening(("::", port))
    except AgentError:
        pytest.skip("no IPv6 here")
    with server:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=5).close()
        with pytest.raises(AgentError, match=rf"cannot listen at \[::\]:{port}: Address already"):
            listening(("::", port))


# ---- proxies


class HTTPProxy:
    """A real proxy that passes CONNECT on, or answers by a script."""

    def __init__(self, answer=None):
        self.asked, self._answer, self._jobs = [], answer, set()
        self.carried = b""  # bytes from the agents that dial through it

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def _serve(self, reader, writer):
        self._jobs.add(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, version = head.splitlines()[0].split()
            self.asked.append((method, target, version))
            if self._answer is not None:
                writer.write(self._answer)
                await reader.read()
                return
            host, _, port = target.rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
            await asyncio.gather(
                self._pipe(reader, far_writer, keep=True), self._pipe(far_reader, writer)
            )
        except OSError:
            pass
        finally:
            writer.transport.abort()

    async def _pipe(self, reader, writer, *, keep=False):
        try:
            while data := await reader.read(65_536):
                self.carried += data if keep else b""
                writer.write(data)
        finally:
            writer.transport.abort()


def pair(tmp_path, keys, **options):
    network = hg.Network(hg.graphs.path(2))
    return agent_network.configs(
        tmp_path, hg.DGD(), network, dim=1, iterations=5, keys=keys, **options
    )


def through(config, proxy):
    neighbours = tuple(replace(n, proxy=proxy) for n in config.neighbours)
    return replace(config, neighbours=neighbours, listen=None)


def test_agents_meet_through_a_proxy_with_tls_from_end_to_end(tmp_path, keys):
    configs = pair(tmp_path, keys)
    configs[1] = replace(
        configs[1], neighbours=tuple(replace(n, address=None) for n in configs[1].neighbours)
    )

    async def run():
        async with HTTPProxy() as proxy:
            configs[0] = through(configs[0], proxy.address)
            agents = agent_network.agents(configs, [lambda x: x - 1.0] * 2)
            return await agent_network.ends(agents), proxy

    results, proxy = asyncio.run(run())
    assert {r.status for r in results} == {Status.DONE}
    host, port = configs[1].listen
    assert set(proxy.asked) == {("CONNECT", f"{host}:{port}", "HTTP/1.1")}
    assert proxy.carried[:1] == b"\x16"  # a TLS handshake, and no frame of ours in plain
    assert b"hush" not in proxy.carried


def test_the_doctor_asks_through_the_proxy_too(tmp_path, keys):
    configs = pair(tmp_path, keys, max_wait=5.0)
    own = load_identity(configs[0].key, configs[0].certificate)
    peer = load_certificate(configs[1].certificate)

    async def ask():
        (agent,) = agent_network.agents(configs[1:], [lambda x: x])
        run = asyncio.create_task(agent.run())
        async with HTTPProxy() as proxy:
            await asyncio.sleep(0)
            while agent._hub is None:
                await asyncio.sleep(0.01)
            hello = await probe(own, peer, configs[1].listen, timeout=10, proxy=proxy.address)
            agent.stop()
            await run
            return hello.number, len(proxy.asked)

    assert asyncio.run(ask()) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 403 Forbidden by Mallory\r\n\r\n", "refuses to connect to .* \\(HTTP 403\\)$"),
        (b"HTTP/1.1 407 Auth\r\nX: y\r\n\r\n", "\\(HTTP 407\\)$"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no answer of HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\nhush", "speaks before the neighbour"),
        (b"x" * 20_000, "no answer of HTTP"),
    ],
    ids=["forbidden", "password", "ssh", "too much", "endless"],
)
def test_a_proxy_that_does_not_connect_is_named_by_its_code_alone(answer, words):
    async def dial():
        async with HTTPProxy(answer) as proxy:
            await connect(("north.example.org", 7440), kept, proxy=proxy.address)

    with pytest.raises(ConnectionError, match=words) as refused:
        asyncio.run(dial())
    assert "Mallory" not in str(refused.value)


def test_an_agent_says_why_a_proxy_does_not_let_it_through(tmp_path, keys, caplog):
    caplog.set_level(logging.INFO)
    configs = pair(tmp_path, keys, max_wait=0.6, heartbeat=0.1)

    async def run():
        async with HTTPProxy(b"HTTP/1.1 403 No\r\n\r\n") as proxy:
            (agent,) = agent_network.agents([through(configs[0], proxy.address)], [lambda x: x])
            return await agent.run()

    result = asyncio.run(run())
    assert result.status is Status.PEER_LOST
    assert "(HTTP 403)" in result.detail
