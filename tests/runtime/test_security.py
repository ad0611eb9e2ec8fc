"""Whoever is not a neighbour is turned away, whoever breaks a rule is refused by name: the run goes
on.
"""

import asyncio
import gc
import logging
import socket
import ssl
import sys
import urllib.request
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

sys.path.insert(0, str(Path(__file__).parent))
import crew as crews
import foes
import lives

from hushgrad.runtime import link, transport, wire
from hushgrad.runtime.agentfile import load_config
from hushgrad.runtime.identity import load_identity, mint
from hushgrad.runtime.result import Status
from hushgrad.runtime.wire import Kind

VICTIM, ACTOR = 1, 2  # who is attacked, and whose part a rogue plays before the honest one comes


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def calm(tmp_path_factory, keys):
    """The iterates of a run that nobody attacks."""
    life = lives.Life(tmp_path_factory.mktemp("calm"), keys, seed=1)
    asyncio.run(life.run())
    return life.iterates


@pytest.fixture
def life(tmp_path, keys):
    return lives.Life(tmp_path, keys, seed=1)


def assert_goes_on(life, results, calm):
    assert {r.status for r in results} == {Status.DONE}, results
    assert life.iterates == calm


# ---- strangers


def client(**limits):
    """A TLS client that trusts whom it meets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for name, value in limits.items():
        setattr(context, name, value)
    return context


def showing(identity, context=None):
    context = context or client()
    context.load_cert_chain(identity.certificate_path, identity.key_path)
    return context


def signed_by(directory, keys, issuer):
    """A certificate for agent-2 that a neighbour has signed with its own key."""
    authority = x509.load_pem_x509_certificate((keys / f"{issuer}.crt").read_bytes())
    signer = serialization.load_pem_private_key(
        (keys / f"{issuer}.key").read_bytes().split(b"-----END PRIVATE KEY-----\n")[0]
        + b"-----END PRIVATE KEY-----\n",
        None,
    )
    fake = mint(directory, "agent-2")
    genuine = x509.load_der_x509_certificate(fake.certificate.der)
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "agent-2")]))
        .issuer_name(authority.subject)
        .public_key(genuine.public_key())
        .serial_number(7)
        .not_valid_before(datetime.now(UTC) - timedelta(1))
        .not_valid_after(datetime.now(UTC) + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("agent-2")]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    fake.certificate_path.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    return fake


STRANGERS = {
    "someone unknown": lambda d, keys: (showing(mint(d, "mallory")), "certificate"),
    "another key under a neighbour's name": lambda d, keys: (
        showing(mint(d, "agent-2")),
        "certificate",
    ),
    "an agent of the run who is no neighbour": lambda d, keys: (
        showing(mint(d, "agent-3")),
        "certificate",
    ),
    "one whom a neighbour vouches for": lambda d, keys: (
        showing(signed_by(d, keys, "agent-0")),
        "certificate",
    ),
    "one without a certificate": lambda d, keys: (client(), "no certificate"),
    "TLS 1.2": lambda d, keys: (
        showing(mint(d, "agent-2"), client(maximum_version=ssl.TLSVersion.TLSv1_2)),
        "not TLS 1.3",
    ),
}


async def knock(address, context=None, content=b""):
    """Connect as soon as someone listens, say something, and wait until it is over."""
    for _ in range(250):
        try:
            reader, writer = await asyncio.open_connection(
                *address, ssl=context, server_hostname="agent-1" if context else None
            )
            break
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
        except (ssl.SSLError, OSError):
            return
    writer.write(content)
    with suppress(ssl.SSLError, OSError):
        await reader.read()
    writer.transport.abort()


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_is_turned_away_counted_and_logged(life, keys, calm, tmp_path, caplog, who):
    context, reason = STRANGERS[who](tmp_path / "theirs", keys)
    siege = knock(life.configs[VICTIM].listen, context)
    results = asyncio.run(life.run(siege=siege))
    assert_goes_on(life, results, calm)
    assert life.agents[VICTIM].stats.rejected == {reason: 1}
    (record,) = [r for r in caplog.records if getattr(r, "event", "") == "rejected"]
    assert record.reason == reason
    assert "127.0.0.1 failed its handshake" in record.getMessage()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        wire.encode(Kind.HELLO, b"{}"),
        b"\x16\x03\x03\xff\xff" + bytes(200),
        np.random.default_rng(0).bytes(5000),
    ],
    ids=["http", "our frames in plain", "a broken record", "noise"],
)
def test_plaintext_is_turned_away_counted_and_logged(life, calm, caplog, said):
    siege = knock(life.configs[VICTIM].listen, content=said)
    assert_goes_on(life, asyncio.run(life.run(siege=siege)), calm)
    assert sum(life.agents[VICTIM].stats.rejected.values()) == 1
    assert set(life.agents[VICTIM].stats.rejected) <= {"not TLS 1.3", "handshake"}
    assert [r.levelno for r in caplog.records if getattr(r, "event", "") == "rejected"] == [
        logging.WARNING
    ]


@pytest.mark.parametrize(
    ("dates", "why"),
    [
        ({"days": 1.0, "not_before": datetime.now(UTC) - timedelta(5)}, "has expired"),
        ({"not_before": datetime.now(UTC) + timedelta(5)}, "is not yet valid"),
    ],
    ids=["expired", "not yet valid"],
)
def test_a_neighbours_certificate_counts_only_within_its_dates(
    life, keys, calm, tmp_path, caplog, dates, why
):
    caplog.set_level(logging.INFO)
    untimely = mint(tmp_path / "untimely", "agent-2", **dates)
    trust(life, ACTOR, untimely.certificate_path, untimely.key_path, max_wait=1.0)
    for result in asyncio.run(life.run())[:ACTOR]:
        assert result.status is Status.PEER_LOST
        assert result.detail.startswith("agent-2 at round 0")
    for agent in life.agents[:2]:
        assert agent.stats.rejected.keys() == {"certificate"}
    assert f"certificate {why}" in caplog.text
    trust(life, ACTOR, keys / "agent-2.crt", keys / "agent-2.key", max_wait=20.0)
    assert_goes_on(life, asyncio.run(life.run()), calm)


def trust(life, j, certificate, key, *, max_wait):
    """Let agent j have this certificate, and everyone trust it."""
    changed = []
    for config in life.configs:
        if config.number == j:
            config = replace(config, certificate=certificate, key=key)
        neighbours = tuple(
            replace(n, certificate=certificate) if n.number == j else n for n in config.neighbours
        )
        changed.append(replace(config, neighbours=neighbours, max_wait=max_wait))
    life.configs = changed


def server(identity, **limits):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate_path, identity.key_path)
    for name, value in limits.items():
        setattr(context, name, value)
    return context


IMPOSTORS = {
    "someone unknown": (lambda d, keys: server(mint(d, "mallory")), "certificate"),
    "another key under the neighbour's name": (
        lambda d, keys: server(mint(d, "agent-2")),
        "certificate",
    ),
    "another neighbour": (
        lambda d, keys: server(load_identity(keys / "agent-1.key", keys / "agent-1.crt")),
        "certificate",
    ),
    "TLS 1.2": (
        lambda d, keys: server(
            load_identity(keys / "agent-2.key", keys / "agent-2.crt"),
            maximum_version=ssl.TLSVersion.TLSv1_2,
        ),
        "not TLS 1.3",
        "handshake",  # a server may end without a word
    ),
    "plaintext": (lambda d, keys: None, "not TLS 1.3"),
}


@pytest.mark.parametrize("who", IMPOSTORS)
def test_who_answers_at_a_neighbours_address_must_be_the_neighbour(
    life, keys, calm, tmp_path, caplog, who
):
    caplog.set_level(logging.INFO)
    build, *reasons = IMPOSTORS[who]
    context = build(tmp_path / "theirs", keys)

    async def impersonate():
        async def answer(reader, writer):
            with suppress(OSError):
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" if context is None else b"")
                await reader.read()
            writer.transport.abort()

        async with await asyncio.start_server(answer, *life.configs[ACTOR].listen, ssl=context):
            while not all(life.agents[j].stats.rejected for j in (0, 1)):
                await asyncio.sleep(0.01)

    assert_goes_on(life, asyncio.run(life.run(siege=impersonate())), calm)
    assert life.agents[0].stats.rejected.keys() <= set(reasons)
    assert "cannot reach agent-2 yet" in caplog.text


# ---- crowds


def test_connections_that_say_nothing_keep_nobody_out(life, calm, monkeypatch):
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


def test_who_knocks_while_an_agent_leaves_is_not_left_waiting(keys):
    async def leave():
        serves = transport.TLS(mint(keys / "leaving", "agent-0"), {}, {}, ("127.0.0.1", 0))
        address = serves._socket.getsockname()
        serving = asyncio.create_task(serves.serve(None, None))
        await asyncio.sleep(0)
        with socket.create_connection(address) as caller:
            # the loop learns of the caller and of the end at once, of the end first
            asyncio.get_running_loop().call_soon(serving.cancel)
            await asyncio.wait([serving])
            caller.settimeout(5)
            with suppress(ConnectionResetError):
                assert caller.recv(1) == b""

    asyncio.run(leave())
    gc.collect()  # a socket that was forgotten would warn, and warnings are errors


def test_a_neighbour_may_not_keep_many_connections_in_suspense(life, calm):
    async def siege():
        async with AsyncExitStack() as stack:
            for _ in range(30):
                await stack.enter_async_context(rogue(life))
            while life.agents[VICTIM].stats.rejected["crowd"] != 26:
                await asyncio.sleep(0.01)

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)


def rogue(life):
    return foes.Rogue(life.configs[ACTOR], life.configs[VICTIM])


def test_a_neighbour_that_never_says_hello_is_dropped(life, calm, monkeypatch):
    monkeypatch.setattr(link, "HANDSHAKE", 0.5)

    async def siege():
        async with rogue(life) as silent:
            silent.write(wire.encode(Kind.HELLO, bytes(100))[:20])  # and not a byte more
            assert await silent.reject() is None
        assert [frame.kind for frame in silent.heard] == [Kind.HELLO]

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)


# ---- neighbours that break rules


def numbers(*values):
    return np.array(values, "<f8").tobytes()


def header(kind, length, *, magic=b"hush", version=1, zero=0, flags=0):
    return wire.HEADER.pack(magic, version, kind, zero, 0, length, flags)


def says(*frames, hello=True, **changes):
    def script(rogue):
        if hello:
            rogue.hello(**changes)
        for frame in frames:
            rogue.write(frame)

    return script


def data(*values, round_=0, flags=1):
    return wire.encode(Kind.DATA, numbers(*values), round_=round_, flags=flags)


# what it says, why it is refused, a word of the answer
BREACHES = {
    "an oversized length": (says(header(Kind.DATA, 1 << 40)), "frame", "announces 1099511627776"),
    "an oversized hello": (says(header(Kind.HELLO, 1 << 20), hello=False), "frame", "at most"),
    "half a number": (says(header(Kind.DATA, 12)), "frame", "whole float64"),
    "another magic": (says(header(Kind.DATA, 0, magic=b"HTTP")), "frame", "begins with"),
    "another version": (says(header(Kind.DATA, 0, version=9)), "frame", "version 1"),
    "no kind": (says(header(99, 0)), "frame", "kind 99"),
    "flags of nothing": (says(header(Kind.HEARTBEAT, 0, flags=1)), "frame", "flags"),
    "nan": (says(data(1.0, np.nan, 0.0)), "not finite", "number 1 of round 0 is nan"),
    "infinity": (says(data(-np.inf, 1.0, 0.0)), "not finite", "is -inf"),
    "a number too few": (says(data(1.0, 2.0)), "dimension", "2 numbers"),
    "exchanges that are not": (says(data(1.0, 2.0, 3.0, flags=4)), "dimension", "0b100"),
    "a future round": (says(data(1.0, 2.0, 3.0, round_=7)), "future round", "round 7"),
    "a round left out": (says(data(1.0, 2.0, 3.0, round_=1)), "future round", "round 1"),
    "data before hello": (says(data(1.0, 2.0, 3.0), hello=False), "order", "before HELLO"),
    "hello twice": (lambda r: (r.hello(), r.hello()), "order", "HELLO twice"),
    "an end before the end": (says(wire.encode(Kind.FIN, round_=0)), "other end", "committed"),
    "no json": (says(wire.encode(Kind.HELLO, b"\xff{"), hello=False), "frame", "JSON"),
    "deep json": (says(wire.encode(Kind.HELLO, b"[" * 16_000), hello=False), "frame", "JSON"),
    "no table": (says(wire.encode(Kind.HELLO, b"[]"), hello=False), "frame", "table"),
    "a degree below nothing": (says(degree_out=-1), "frame", "degree_out"),
    "a number as text": (says(needs="0"), "frame", "needs"),
    "an entry too much": (says(extra=1), "frame", "entries"),
    "another run": (says(public={"run": "x"}), "configuration", "run: test here, x there"),
    "another's number": (says(number=0), "configuration", "calls itself agent 0"),
    "another direction": (says(direction="in"), "configuration", "link"),
    "a row of another kind": (says(wire.encode(Kind.ROW, b"{}")), "frame", "ROW"),
}  # fmt: skip


@pytest.mark.parametrize("breach", BREACHES)
def test_a_neighbour_that_breaks_a_rule_is_refused_by_name(life, calm, caplog, breach):
    script, reason, word = BREACHES[breach]

    async def siege():
        async with rogue(life) as actor:
            script(actor)
            said, text = await actor.reject()
            assert said == reason
            assert "agent-2" in text
            assert word in text

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)
    assert life.agents[VICTIM].stats.rejected == {reason: 1}
    (record,) = [r for r in caplog.records if getattr(r, "event", "") == "rejected"]
    assert (record.peer, record.reason) == ("agent-2", reason)


@pytest.mark.parametrize(
    ("second", "reason"),
    [(data(1.0, 2.0, 3.0), "replay"), (data(1.0, 2.0, 4.0), "equivocation")],
    ids=["replay", "equivocation"],
)
def test_two_messages_for_one_round_are_refused_by_name_and_so_is_the_run(
    life, calm, second, reason
):
    life.configs[VICTIM] = replace(life.configs[VICTIM], max_wait=1.0)
    life.configs[0] = replace(life.configs[0], max_wait=3.0)

    async def siege():
        async with rogue(life) as actor:
            actor.hello()
            actor.write(data(1.0, 2.0, 3.0) + second)
            said, text = await actor.reject()
            assert said == reason
            assert "agent-2 sent" in text

    first, victim, late = asyncio.run(life.run(siege=siege()))
    # what was said in the name of agent-2 is held: no other agent-2 can begin anew
    assert late.status is Status.REFUSED
    assert late.detail.startswith("agent-1 holds round 0 of this agent")
    assert {first.status, victim.status} == {Status.PEER_LOST}


def test_who_claims_to_hold_more_than_was_sent_ends_the_run_by_name(life):
    life.configs = [replace(config, max_wait=1.0) for config in life.configs]

    async def siege():
        async with rogue(life) as actor:
            actor.hello(held=9, held_digest="00", needs=10, round=9)
            await actor.reject()

    _, victim, _ = asyncio.run(life.run(siege=siege()))
    assert victim.status is Status.REFUSED
    assert "agent-2 holds round 9 of this agent" in victim.detail


def test_who_comes_only_to_be_refused_counts_as_absent(life):
    life.configs = [replace(config, max_wait=1.5) for config in life.configs]

    async def besiege():
        while True:
            async with rogue(life) as actor:
                actor.hello()
                actor.write(data(np.nan, 0.0, 0.0))
                await actor.reject()

    async def siege():
        with suppress(OSError, AssertionError, TypeError):  # until nobody is there any more
            await besiege()

    _, victim, _ = asyncio.run(life.run(siege=siege()))
    assert victim.status is Status.PEER_LOST
    assert victim.detail.startswith("agent-2 at round 0 (agent-2: numbers are finite")
    assert victim.seconds < 10
    assert life.agents[VICTIM].stats.rejected["not finite"] > 3


def test_what_a_neighbour_says_cannot_write_into_logs_or_results(life, calm, caplog):
    async def siege():
        async with rogue(life) as actor:
            actor.hello(public={"run": "x\nerror: \x1b[2J\ud800 forged"})
            await actor.reject()
        async with rogue(life) as actor:
            actor.hello()
            actor.send(Kind.REJECT, b'{"reason": "a\\nb", "text": "c\\ud800\\u001b[2J\\nd"}')
            await actor.reject()

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)
    assert "forged" in caplog.text
    for record in caplog.records:
        assert all(c.isprintable() for c in record.getMessage())


def test_metrics_of_a_process_count_who_was_turned_away(tmp_path, keys):
    port, *_ = crews.ports(1)
    algorithm = {"name": "DIGing", "stepsize": {"kind": "constant", "value": 0.2}}
    crew = crews.enlist(
        tmp_path / "crew", algorithm, edges=((0, 1),), keys=keys, iterations=30,
        metrics=f"127.0.0.1:{port}",
    )  # fmt: skip
    try:
        crew.start(1)
        address = load_config(crew.file(1)).listen
        asyncio.run(knock(address, showing(mint(tmp_path / "theirs", "mallory"))))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert 'hushgrad_rejected_total{reason="certificate"} 1.0' in answer.read().decode()
        assert "refused: 127.0.0.1 failed its handshake" in crew.log(1)
        text = crew.file(0).read_text().replace(f'metrics = "127.0.0.1:{port}"\n', "")
        crew.file(0).write_text(text)
        crew.start(0)
        assert crew.end() == [0, 0]
    finally:
        crew.close()
