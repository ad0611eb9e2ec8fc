"""Strangers are turned away, counted and logged, and runs go on."""

import asyncio
import logging
import ssl
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from hushgrad.errors import IdentityError
from hushgrad.network.keys.identity import Certificate, load_identity, mint
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.frames import FrameKind
from support import agent_network
from support.attacked_life import (
    ACTOR,
    VICTIM,
    assert_goes_on,
    client,
    knock,
    showing,
)


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
