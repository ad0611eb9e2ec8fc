"""Strangers are turned away, neighbours that break a rule are refused by name, and runs go on."""

import ast
import asyncio
import gc
import json
import logging
import socket
import ssl
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

import hushgrad as hg
from hushgrad.errors import IdentityError, WireError
from hushgrad.network.config.file import load_config
from hushgrad.network.keys.identity import Certificate, load_identity, mint
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol import codes, hello
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.mask_tokens import encode_entries
from hushgrad.network.protocol.session import Session
from hushgrad.network.transport import tls as transport
from hushgrad.network.transport import watching
from support import agent_network, attackers, process_network, random_crashes
from support.tables import some

K = 40  # iterations: an attack comes before the first
VICTIM, ACTOR = 1, 2  # the attacked agent, and the agent whose place an attacker takes first


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def calm(tmp_path_factory, keys):
    """The iterates of a run without an attack."""
    life = random_crashes.Life(tmp_path_factory.mktemp("calm"), keys, seed=1, iterations=K)
    asyncio.run(life.run())
    return life.iterates


@pytest.fixture
def life(tmp_path, keys):
    return random_crashes.Life(tmp_path, keys, seed=1, iterations=K)


def assert_goes_on(life, results, calm):
    assert {r.status for r in results} == {Status.DONE}, results
    assert life.iterates == calm


# ---- strangers


def client(**limits):
    """A TLS client that trusts every server."""
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
    """Connect as soon as the agent listens, send `content`, and wait for the end."""
    for _ in range(2000):
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
    if who in ("someone unknown", "another key under a neighbour's name"):
        assert "its certificate is no neighbour's" in record.getMessage()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        wire.encode(FrameKind.HELLO, b"{}"),
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
    life, keys, calm, tmp_path, caplog, monkeypatch, dates, why
):
    caplog.set_level(logging.INFO)
    untimely = mint(tmp_path / "untimely", "agent-2", **dates)
    trust(life, ACTOR, untimely.certificate_path, untimely.key_path, max_wait=2.5)
    with monkeypatch.context() as patch:  # its own agent does not know the date
        patch.setattr(Certificate, "objection", lambda certificate: None)
        results = asyncio.run(life.run())
    for result in results[:ACTOR]:
        assert result.status is Status.PEER_LOST
        assert result.detail.startswith("agent-2 at round 0")
    for agent in life.agents[:2]:
        assert agent.stats.rejected.keys() == {"certificate"}
    assert f"certificate {why}" in caplog.text
    trust(life, ACTOR, keys / "agent-2.crt", keys / "agent-2.key", max_wait=20.0)
    assert_goes_on(life, asyncio.run(life.run()), calm)


@pytest.mark.parametrize(
    ("dates", "why"),
    [
        ({"days": 1.0, "not_before": datetime.now(UTC) - timedelta(5)}, "expired on"),
        ({"not_before": datetime.now(UTC) + timedelta(5)}, "is not valid before"),
    ],
    ids=["expired", "not yet valid"],
)
def test_an_agent_whose_own_certificate_is_untimely_does_not_start(life, tmp_path, dates, why):
    own = mint(tmp_path / "untimely", "agent-0", **dates)
    config = replace(life.configs[0], certificate=own.certificate_path, key=own.key_path)
    (agent,) = agent_network.agents([config], [lambda x: x])
    with pytest.raises(IdentityError, match=f"no neighbour would accept this agent.* {why}"):
        asyncio.run(agent.run())
    assert not config.state.exists()  # nothing was begun


def trust(life, j, certificate, key, *, max_wait):
    """Give agent j this certificate, and let all neighbours trust it."""
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
def test_a_program_at_a_neighbours_address_must_be_the_neighbour(
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
    records = [r for r in caplog.records if "cannot reach agent-2 yet" in r.getMessage()]
    assert records
    if "certificate" in reasons:  # another program answers
        told = [r.getMessage() for r in records if r.levelno == logging.WARNING]
        assert any("does not show the certificate of agent-" in text for text in told)


# ---- crowds


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


def rogue(life):
    return attackers.Rogue(life.configs[ACTOR], life.configs[VICTIM])


def test_a_neighbour_that_never_says_hello_is_dropped(life, calm, monkeypatch):
    monkeypatch.setattr(watching, "HANDSHAKE", 0.5)

    async def siege():
        async with rogue(life) as silent:
            silent.write(wire.encode(FrameKind.HELLO, bytes(100))[:20])  # and not a byte more
            assert await silent.reject() is None
        assert [frame.kind for frame in silent.heard] == [FrameKind.HELLO]

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)


# ---- neighbours that break rules


def numbers(*values):
    return np.array(values, "<f8").tobytes()


def header(kind, length, *, magic=b"hush", version=wire.VERSION, zero=0, flags=0):
    return wire.HEADER.pack(magic, version, kind, zero, 0, length, flags)


def says(*frames, hello=True, **changes):
    def script(rogue):
        if hello:
            rogue.hello(**changes)
        for frame in frames:
            rogue.write(frame)

    return script


def data(*values, round_=0, flags=1):
    return wire.encode(FrameKind.DATA, numbers(*values), round_=round_, flags=flags)


def row(number, name):
    links = [[0, 0.25, "agent-0"], [number, 0.25, name]]
    return wire.encode(FrameKind.ROW, json.dumps({"own": 0.5, "links": links}).encode())


# name → the frames of the attacker, the reason of the refusal, a word of the answer
BREACHES = {
    "an oversized length": (says(header(FrameKind.DATA, 1 << 40)), "frame", "announces 109951162"),
    "an oversized hello": (says(header(FrameKind.HELLO, 1 << 20), hello=False), "frame", "at most"),
    "half a number": (says(header(FrameKind.DATA, 12)), "frame", "whole float64"),
    "another magic": (says(header(FrameKind.DATA, 0, magic=b"HTTP")), "frame", "begins with"),
    "another version": (says(header(FrameKind.DATA, 0, version=9)), "frame", "version 7"),
    "no kind": (says(header(99, 0)), "frame", "kind 99"),
    "flags of nothing": (says(header(FrameKind.HEARTBEAT, 0, flags=1)), "frame", "flags"),
    "nan": (says(data(1.0, np.nan, 0.0)), "not finite", "number 1 of round 0 is nan"),
    "a huge number": (says(data(1.0, 0.0, -2e30)), "too large", "1e+30 in size, but number 2"),
    "infinity": (says(data(-np.inf, 1.0, 0.0)), "not finite", "is -inf"),
    "a number too few": (says(data(1.0, 2.0)), "dimension", "2 numbers"),
    "exchanges that are not": (says(data(1.0, 2.0, 3.0, flags=4)), "dimension", "0b100"),
    "a future round": (says(data(1.0, 2.0, 3.0, round_=7)), "future round", "round 7"),
    "a round left out": (says(data(1.0, 2.0, 3.0, round_=1)), "future round", "round 1"),
    "data before hello": (says(data(1.0, 2.0, 3.0), hello=False), "order", "before HELLO"),
    "hello twice": (lambda r: (r.hello(), r.hello()), "order", "HELLO twice"),
    "an end before the end": (says(wire.encode(FrameKind.FIN, round_=0)), "other end", "committed"),
    "no json": (says(wire.encode(FrameKind.HELLO, b"\xff{"), hello=False), "frame", "JSON"),
    "deep json": (says(wire.encode(FrameKind.HELLO, b"[" * 16_000), hello=False), "frame", "JSON"),
    "no table": (says(wire.encode(FrameKind.HELLO, b"[]"), hello=False), "frame", "table"),
    "a degree below nothing": (says(degree_out=-1), "frame", "degree_out"),
    "a degree beyond all agents": (says(degree_in=10**9), "claim", "1000000000 links in"),
    "a number as text": (says(needs="0"), "frame", "needs"),
    "an entry too much": (says(extra=1), "frame", "entries"),
    "another run": (says(public={"run": "x"}), "configuration", "here, x there"),
    "another's number": (says(number=0), "configuration", "calls itself agent 0"),
    "another direction": (says(direction="in"), "configuration", "link"),
    "a row of another kind": (says(wire.encode(FrameKind.ROW, b"{}")), "frame", "ROW"),
    "a row with a name that is none": (says(row(0, "x\x1b[2J\nerror: forged")), "frame", "ROW"),
    "a row of nobody's": (says(row(9**30, "agent-0")), "frame", "ROW"),
    "a token where nothing is masked": (says(header(FrameKind.GOSSIP, 32)), "frame", "at most 0"),
    "a key where nothing is masked": (says(header(FrameKind.ANNOUNCE, 152)), "frame", "at most 0"),
}  # fmt: skip


@pytest.mark.parametrize("breach", BREACHES)
def test_a_neighbour_that_breaks_a_rule_is_refused_by_name(life, calm, caplog, breach):
    script, reason, word = BREACHES[breach]

    async def siege():
        async with rogue(life) as actor:
            script(actor)
            assert await actor.reject() == reason

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)
    assert life.agents[VICTIM].stats.rejected == {reason: 1}
    (record,) = [r for r in caplog.records if getattr(r, "event", "") == "rejected"]
    assert (record.peer, record.reason) == ("agent-2", reason)
    assert "agent-2" in record.getMessage()
    assert word in record.getMessage()


MASKED = hg.PDGNDS(design="recommended", stepsize=hg.stepsizes.constant(0.1))
NOBODYS = encode_entries([(1, 3, bytes(16))])
MASKED_BREACHES = {
    "nan": BREACHES["nan"],
    "half a token": (says(wire.encode(FrameKind.GOSSIP, bytes(40))), "frame", "32 bytes"),
    "half an announcement": (says(wire.encode(FrameKind.ANNOUNCE, bytes(40))), "frame", "152 b"),
    "a key of nobody's": (
        says(wire.encode(FrameKind.ANNOUNCE, b"\3" + bytes(151))), "frame", "no agent 3",
    ),
    "a token too much": (says(header(FrameKind.GOSSIP, 7 * 32)), "frame", "at most 192"),
    "a token of nobody's": (says(wire.encode(FrameKind.GOSSIP, NOBODYS)), "frame", "no mask"),
    "a distance in a run without tolerance": (
        says(wire.encode(FrameKind.GOSSIP, bytes(32))), "frame", "hops away",
    ),
}  # fmt: skip


@pytest.mark.parametrize("breach", some(MASKED_BREACHES, 2))
def test_with_masks_a_peer_that_breaks_a_rule_is_refused_and_the_run_ends_at_the_optimum(
    tmp_path, keys, caplog, breach
):
    """The agents run their default design, with draws from secrets."""
    script, reason, word = MASKED_BREACHES[breach]
    life = random_crashes.Life(tmp_path, keys, MASKED, iterations=300)
    assert all(config.partners for config in life.configs)

    async def siege():
        async with rogue(life) as actor:
            script(actor)
            assert await actor.reject() == reason

    results = asyncio.run(life.run(siege=siege()))
    assert {r.status for r in results} == {Status.DONE}, results
    (record,) = [r for r in caplog.records if getattr(r, "event", "") == "rejected"]
    assert word in record.getMessage()
    assert life.agents[VICTIM].stats.rejected == {reason: 1}
    slopes = [life.gradient(j) for j in range(random_crashes.M)]
    for result in results:
        pull = np.sum([slope(result.theta) for slope in slopes], axis=0)
        assert np.abs(pull).max() < 1e-3


def test_in_a_run_with_a_tolerance_a_peer_that_ends_too_early_is_named_by_every_agent(
    tmp_path, keys
):
    life = random_crashes.Life(tmp_path, keys, iterations=5000, tolerance=1e-12, max_wait=10.0)
    life.configs[ACTOR] = replace(life.configs[ACTOR], max_wait=0.5)

    async def siege():
        async with rogue(life) as actor:
            actor.hello()
            while life.agents[VICTIM].stats.round < 0:
                await asyncio.sleep(0.01)
            actor.send(FrameKind.FIN, round_=0)
            await actor.reject()

    first, victim, _ = asyncio.run(life.run(siege=siege()))
    assert {first.status, victim.status} == {Status.REFUSED}
    assert "agent-2 says that the run ended before round 0" in victim.detail
    assert "The diameter in [run] must bound the hops" in victim.detail
    assert first.detail.startswith(
        "agent-1 ended the run: agents would not stop in the same round (refused)"
    )


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
            assert await actor.reject() == reason

    first, victim, late = asyncio.run(life.run(siege=siege()))
    # the victim holds a message of the false agent-2, so the honest one cannot begin
    assert late.status is Status.REFUSED
    assert late.detail.startswith("agent-1 holds round 0 of this agent")
    assert {first.status, victim.status} == {Status.PEER_ENDED}
    assert first.detail.startswith("agent-2 ended the run: its state is an old copy or does not")


@pytest.mark.parametrize("n", [9, 10**6])
def test_a_peer_that_claims_to_hold_what_was_never_sent_ends_nobody(life, calm, caplog, n):
    async def siege():
        for _ in range(2):
            async with rogue(life) as actor:
                actor.hello(held=n, held_digest="00", needs=n + 1, round=n)
                assert await actor.reject() == "claim"

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)
    assert life.agents[VICTIM].stats.rejected == {"claim": 2}


def test_a_peer_that_is_refused_again_and_again_counts_as_absent(life):
    life.configs = [replace(config, max_wait=1.5) for config in life.configs]

    async def besiege():
        while True:
            async with rogue(life) as actor:
                actor.hello()
                actor.write(data(np.nan, 0.0, 0.0))
                await actor.reject()

    async def siege():
        with suppress(OSError, AssertionError, TypeError):  # until the victim has ended
            await besiege()

    _, victim, _ = asyncio.run(life.run(siege=siege()))
    assert victim.status is Status.PEER_LOST
    assert victim.detail.startswith("agent-2 at round 0 (agent-2: numbers are finite")
    assert life.agents[VICTIM].stats.rejected["not finite"] > 1


def test_text_of_a_neighbour_stands_in_quotation_marks_and_adds_no_lines(life, calm, caplog):
    """The values of a HELLO are the only text of a peer that an agent ever prints."""

    async def siege():
        async with rogue(life) as actor:
            actor.hello(public={"run": "x\nerror: \x1b[2J\ud800 forged”", "error: all": "lost"})
            await actor.reject()
        async with rogue(life) as actor:
            actor.hello()
            actor.send(FrameKind.REJECT, flags=2)
            await actor.reject()

    assert_goes_on(life, asyncio.run(life.run(siege=siege())), calm)
    labels = {reason for _, reason in life.agents[VICTIM].stats.reconnects}
    assert labels <= {"refused (order)", "left", "closed by the peer", "broken"}
    assert "“xerror: [2J forged” there" in caplog.text
    assert "an entry: nothing here, lost there" in caplog.text
    for record in caplog.records:
        assert all(c.isprintable() for c in record.getMessage())


def test_every_reason_that_an_agent_gives_is_one_that_a_neighbour_counts():
    """Reasons label metrics, so a neighbour's choice must not add any."""
    given = set()
    for path in Path(hello.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_error = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "WireError"
            if is_error and len(node.args) > 1:
                given |= {
                    part.value for part in ast.walk(node.args[1]) if isinstance(part, ast.Constant)
                }
    assert {"equivocation", "replay", "not finite"} <= given
    assert given <= codes.REASONS.keys()
    for reason in codes.REASONS:
        assert codes.reason_of(codes.reason_code(reason)) == reason
    for code in (0, codes.MOST_REASON + 1):
        with pytest.raises(WireError, match=f"its code is {code}"):
            codes.reason_of(code)


def alone(tmp_path, keys, dim, **options):
    """An agent whose only neighbour dials it, and that neighbour's configuration."""
    pair = hg.Network(hg.graphs.path(2))
    victim, actor = agent_network.configs(
        tmp_path, hg.DGD(), pair, dim=dim, iterations=10**5, keys=keys, **options
    )
    neighbours = tuple(replace(n, address=None) for n in victim.neighbours)
    return replace(victim, neighbours=neighbours), actor


def test_a_neighbour_that_sends_and_never_reads_costs_no_memory(tmp_path, keys):
    dim = 20_000
    victim, actor = alone(tmp_path, keys, dim)

    async def besiege():
        (agent,) = agent_network.agents([victim], [lambda x: x])
        run = asyncio.create_task(agent.run())
        longest, n = 0, 0
        async with attackers.Rogue(actor, victim) as deaf, asyncio.timeout(30):
            deaf._writer.transport.pause_reading()
            deaf.hello()
            while not agent.stats.reconnects:
                if agent.stats.round >= n - 1:
                    deaf.write(wire.encode_data(n, b"", (np.zeros(dim),)))
                    n += 1
                await asyncio.sleep(0.001)
                waiting = [link._transport.get_write_buffer_size() for link in agent._hub._all]
                longest = max(longest, *waiting, 0)
        agent.stop()
        await run
        assert set(agent.stats.reconnects) == {("agent-1", "does not read")}
        return longest, agent._hub.most_unsent

    longest, most = asyncio.run(besiege())
    assert 0 < longest < most + 10 * dim
    assert most < 10_000_000


def test_a_neighbour_that_comes_and_goes_without_a_message_is_lost(tmp_path, keys):
    victim, actor = alone(tmp_path, keys, 1, max_wait=1.0, heartbeat=0.2)

    async def besiege():
        (agent,) = agent_network.agents([victim], [lambda x: x])
        run = asyncio.create_task(agent.run())
        with suppress(AssertionError, OSError):  # until the agent has ended
            while not run.done():
                async with attackers.Rogue(actor, victim) as flapping:
                    flapping.hello()
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.5)
        return await run

    async def in_time():
        async with asyncio.timeout(60):
            return await besiege()

    assert asyncio.run(in_time()).status is Status.PEER_LOST


def test_a_neighbour_that_only_says_that_it_is_here_ends_the_run_by_name(tmp_path, keys):
    victim, actor = alone(tmp_path, keys, 1, max_wait=0.8, heartbeat=0.2)

    async def besiege():
        (agent,) = agent_network.agents([victim], [lambda x: x])
        run = asyncio.create_task(agent.run())
        async with attackers.Rogue(actor, victim) as idle, asyncio.timeout(30):
            idle.hello()
            while not run.done():
                idle.send(FrameKind.HEARTBEAT)
                await asyncio.sleep(0.05)
        return await run

    result = asyncio.run(besiege())
    assert result.summary == "peer lost: agent-1 at round 0 (connected, but silent for 0.8 s)"


def test_a_neighbour_that_comes_back_is_given_its_whole_time_again(tmp_path, keys):
    """The neighbour computes for nearly `max_wait`, and then its connection breaks."""
    victim, actor = alone(tmp_path, keys, 1, max_wait=1.5, heartbeat=0.2)

    async def besiege():
        (agent,) = agent_network.agents([victim], [lambda x: x])
        run = asyncio.create_task(agent.run())
        async with attackers.Rogue(actor, victim) as slow:
            slow.hello()
            for _ in range(10):
                slow.send(FrameKind.HEARTBEAT)
                await asyncio.sleep(0.1)
        await asyncio.sleep(0.8)
        assert not run.done()
        agent.stop()
        return await run

    assert asyncio.run(besiege()).status is Status.STOPPED


def test_a_frame_that_the_agent_itself_cannot_take_ends_the_connection_not_the_run(
    life, calm, monkeypatch, caplog
):
    struck = []

    def accept(session, peer, frame, untouched=Session.accept):
        if frame.round == 30 and not struck:
            struck.append(peer.name)
            raise KeyError("a defect")
        return untouched(session, peer, frame)

    monkeypatch.setattr(Session, "accept", accept)
    assert_goes_on(life, asyncio.run(life.run()), calm)
    assert len(struck) == 1
    assert "a frame could not be taken: KeyError('a defect')" in caplog.text


def test_an_agent_whose_watching_task_dies_ends_and_does_not_wait_for_ever(life, monkeypatch):
    def die(*_):
        raise RuntimeError("no clock")

    monkeypatch.setattr(watching.Watching, "_check_absence", die)
    life.at = {(j, 60): lambda: None for j in range(3)}
    asyncio.run(life.run(until=1))

    async def wait():
        (agent,) = agent_network.agents(life.configs[:1], [lambda x: x])
        async with asyncio.timeout(60):
            return await agent.run()

    result = asyncio.run(wait())
    assert result.status is Status.FAILED
    assert "can no longer serve its links: RuntimeError('no clock')" in result.detail


def test_metrics_of_a_process_count_refused_connections(tmp_path, keys):
    port, *_ = process_network.ports(1)
    algorithm = {"name": "DIGing", "stepsize": {"kind": "constant", "value": 0.2}}
    network = process_network.write_network(
        tmp_path / "network", algorithm, edges=((0, 1),), keys=keys, iterations=30,
        metrics=f"127.0.0.1:{port}",
    )  # fmt: skip
    try:
        network.start(1)
        address = load_config(network.file(1)).listen
        asyncio.run(knock(address, showing(mint(tmp_path / "theirs", "mallory"))))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert 'hushgrad_rejected_total{reason="certificate"} 1.0' in answer.read().decode()
        assert "refused: 127.0.0.1 failed its handshake" in network.log(1)
        text = network.file(0).read_text().replace(f'metrics = "127.0.0.1:{port}"\n', "")
        network.file(0).write_text(text)
        network.start(0)
        assert network.end() == [0, 0]
    finally:
        network.close()
