"""Only neighbours complete a handshake. Every handshake here uses a real socket on loopback."""

import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from hushgrad.errors import IdentityError
from hushgrad.network.keys.identity import (
    check_name,
    client_context,
    load_certificate,
    load_identity,
    mint,
    peer_name,
    server_context,
    shared_secret,
)

WAIT = 5.0


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Identities of several agents."""
    directory = tmp_path_factory.mktemp("keys")
    return {name: mint(directory, name) for name in ("ann", "bob", "eve", "dan")}


def meet(server, client, hostname, peers, *, plaintext=False):
    """(result of the server, result of the client) of one connection.

    Each is the name that `peer_name` gives or the exception; a TLS 1.3 client learns of a refusal
    only when it reads, so both sides exchange a byte.
    """
    outcome = {}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT)

        def serve():
            try:
                raw, _ = listener.accept()
                raw.settimeout(WAIT)
                with raw, server.wrap_socket(raw, server_side=True) as link:
                    outcome["server"] = peer_name(link, peers)
                    link.sendall(b"!")
                    link.recv(1)
            except (OSError, IdentityError) as error:
                outcome["server"] = error

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with socket.create_connection(listener.getsockname(), timeout=WAIT) as raw:
                if plaintext:
                    raw.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
                    answer = raw.recv(100)
                    outcome["client"] = ConnectionError(answer)
                else:
                    with client.wrap_socket(raw, server_hostname=hostname) as link:
                        assert link.version() == "TLSv1.3"
                        if link.recv(1) != b"!":
                            raise ConnectionError("closed")
                        outcome["client"] = "in"
                        link.sendall(b"!")
        except OSError as error:
            outcome["client"] = error
        thread.join()
    return outcome["server"], outcome["client"]


def test_neighbours_recognise_each_other(people):
    ann, bob = people["ann"], people["bob"]
    known = [bob.certificate, people["dan"].certificate]
    assert meet(server_context(ann, known), client_context(bob, ann.certificate), "ann", known) == (
        "bob",
        "in",
    )


def refused(outcome, reason):
    """Check that the server refused for this reason, and that the client got no answer."""
    server, client = outcome
    assert isinstance(server, (ssl.SSLError, IdentityError)), server
    assert reason in str(server)
    assert isinstance(client, OSError), client
    return True


def test_a_stranger_is_refused(people):
    ann, eve = people["ann"], people["eve"]
    known = [people["bob"].certificate]
    outcome = meet(server_context(ann, known), client_context(eve, ann.certificate), "ann", known)
    assert refused(outcome, "CERTIFICATE_VERIFY_FAILED")


def test_an_agent_without_neighbours_lets_nobody_in(people):
    ann, eve = people["ann"], people["eve"]
    outcome = meet(server_context(ann, []), client_context(eve, ann.certificate), "ann", [])
    assert refused(outcome, "CERTIFICATE_VERIFY_FAILED")


def test_a_certificate_of_ones_own_under_a_neighbours_name_is_refused(people, tmp_path):
    ann = people["ann"]
    false_bob = mint(tmp_path, "bob")
    known = [people["bob"].certificate]
    outcome = meet(
        server_context(ann, known), client_context(false_bob, ann.certificate), "ann", known
    )
    assert refused(outcome, "CERTIFICATE_VERIFY_FAILED")


def test_a_neighbours_certificate_without_its_key_is_of_no_use(people, tmp_path):
    eve = people["eve"]
    with pytest.raises(IdentityError, match=r"is not the key of .* \(agent bob\)"):
        load_identity(eve.key_path, people["bob"].certificate_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLError, match="KEY_VALUES_MISMATCH"):
        context.load_cert_chain(people["bob"].certificate_path, eve.key_path)


def test_a_neighbour_cannot_answer_in_anothers_place(people):
    """Dan is a neighbour of Bob's, but he sits where Bob looks for Ann."""
    bob, dan = people["bob"], people["dan"]
    server = server_context(dan, [bob.certificate])
    client = client_context(bob, people["ann"].certificate)
    _, outcome = meet(server, client, "ann", [bob.certificate])
    assert isinstance(outcome, ssl.SSLCertVerificationError)


def test_the_name_dialled_must_be_the_certificates(people):
    ann, bob = people["ann"], people["bob"]
    _, outcome = meet(
        server_context(ann, [bob.certificate]),
        client_context(bob, ann.certificate),
        "dan",
        [bob.certificate],
    )
    assert isinstance(outcome, ssl.SSLCertVerificationError)
    assert "Hostname mismatch" in str(outcome)


@pytest.mark.parametrize(
    ("start", "days", "reason"),
    [
        (timedelta(days=-10), 3, "certificate has expired"),
        (timedelta(days=1), 3, "certificate is not yet valid"),
    ],
    ids=["expired", "not yet valid"],
)
@pytest.mark.parametrize("side", ["client", "server"])
def test_certificates_count_only_in_their_time(people, tmp_path, start, days, reason, side):
    bad = mint(tmp_path, "bob", days=days, not_before=datetime.now(UTC) + start)
    good = people["ann"]
    server, client = (good, bad) if side == "client" else (bad, good)
    server_outcome, client_outcome = meet(
        server_context(server, [client.certificate]),
        client_context(client, server.certificate),
        server.name,
        [client.certificate],
    )
    judge = server_outcome if side == "client" else client_outcome
    assert isinstance(judge, ssl.SSLError)
    assert reason in str(judge)
    assert "in" not in (server_outcome, client_outcome)
    assert bad.certificate.objection() is not None
    assert good.certificate.objection() is None


def test_tls_1_2_is_refused(people):
    ann, bob = people["ann"], people["bob"]
    client = client_context(bob, ann.certificate)
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_2
    outcome = meet(server_context(ann, [bob.certificate]), client, "ann", [bob.certificate])
    assert refused(outcome, "UNSUPPORTED_PROTOCOL")


def test_plaintext_is_refused(people):
    ann, bob = people["ann"], people["bob"]
    outcome = meet(
        server_context(ann, [bob.certificate]), None, "ann", [bob.certificate], plaintext=True
    )
    assert refused(outcome, "HTTP_REQUEST")


def test_a_client_without_a_certificate_is_refused(people):
    ann, bob = people["ann"], people["bob"]
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=ann.certificate.pem)
    outcome = meet(server_context(ann, [bob.certificate]), client, "ann", [bob.certificate])
    assert refused(outcome, "PEER_DID_NOT_RETURN_A_CERTIFICATE")


def test_a_certificate_that_verifies_but_was_not_exchanged_is_refused(people):
    """The certificates must be equal byte for byte, even if the trust store accepts both."""
    ann, bob, dan = people["ann"], people["bob"], people["dan"]
    outcome = meet(
        server_context(ann, [bob.certificate, dan.certificate]),
        client_context(dan, ann.certificate),
        "ann",
        [bob.certificate],
    )
    assert refused(outcome, dan.certificate.fingerprint)


# ---- files


def test_a_key_that_others_can_read_is_refused_with_the_way_out(tmp_path):
    ann = mint(tmp_path, "ann")
    assert stat.S_IMODE(ann.key_path.stat().st_mode) == 0o600
    for mode in (0o640, 0o604, 0o610, 0o620):
        ann.key_path.chmod(mode)
        with pytest.raises(IdentityError, match=f"mode is {mode:04o}. Run: chmod 600"):
            load_identity(ann.key_path, ann.certificate_path)
    ann.key_path.chmod(0o400)
    assert load_identity(ann.key_path, ann.certificate_path).certificate == ann.certificate


@pytest.mark.parametrize("left", ["ann.key", "ann.crt"])
def test_nothing_is_ever_overwritten(tmp_path, left):
    (tmp_path / left).write_text("precious")
    with pytest.raises(IdentityError, match="is there already and stays as it is"):
        mint(tmp_path, "ann")
    assert [p.name for p in tmp_path.iterdir()] == [left]
    assert (tmp_path / left).read_text() == "precious"


def test_a_certificate_says_what_was_minted(tmp_path):
    before = datetime.now(UTC)
    ann = mint(tmp_path, "ann", days=30)
    read = load_certificate(tmp_path / "ann.crt")
    assert read == ann.certificate
    assert (read.name, read.not_after - read.not_before) == ("ann", timedelta(days=30))
    assert read.not_before < before < read.not_after
    parsed = x509.load_der_x509_certificate(read.der)
    by_library = parsed.fingerprint(hashes.SHA256()).hex()
    assert read.fingerprint.replace(":", "") == by_library
    assert read.is_fingerprint(by_library.upper())
    assert not read.is_fingerprint(by_library[:-1])
    assert not read.is_fingerprint("")


def foreign(name, *, ca=False, names=("ann",), mask=True, key=None):
    """A certificate that `mint` did not make."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), False)
    )
    if mask:
        from hushgrad.network.keys.identity import MASK_KEY_OID

        value = x509.UnrecognizedExtension(MASK_KEY_OID, b"\x04\x20" + bytes(32))
        builder = builder.add_extension(value, critical=False)
    signer = ec.generate_private_key(ec.SECP256R1()) if name == "unsigned" else key
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "holds 0 certificates"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no certificate of"),
        (foreign("ann") + foreign("ann"), "holds 2 certificates"),
        (foreign("ann", ca=True), "may sign other certificates"),
        (foreign("ann", names=("ann", "bob")), "exactly one DNS name"),
        (foreign("ann", names=("Ann!",)), "cannot be an agent's"),
        (foreign("ann", mask=False), "extension was found"),
        (foreign("unsigned"), "not signed by its own key"),
    ],
    ids=["empty", "garbage", "two", "authority", "two names", "bad name", "no mask", "unsigned"],
)
def test_only_certificates_of_agents_are_read(tmp_path, content, reason):
    (tmp_path / "x.crt").write_bytes(content)
    with pytest.raises(IdentityError, match=reason):
        load_certificate(tmp_path / "x.crt")


@pytest.mark.parametrize("foreign", [0, 1], ids=["signing key", "mask key"])
def test_both_keys_must_be_the_certificates(people, tmp_path, foreign):
    bob, eve = (
        people[n].key_path.read_text().split("-----END PRIVATE KEY-----\n")[:2]
        for n in ("bob", "eve")
    )
    mixed = [eve[n] if n == foreign else bob[n] for n in (0, 1)]
    path = tmp_path / "bob.key"
    path.touch(0o600)
    path.write_text("".join(f"{block}-----END PRIVATE KEY-----\n" for block in mixed))
    with pytest.raises(IdentityError, match="is not the key of"):
        load_identity(path, people["bob"].certificate_path)


def test_a_certificate_of_another_name_is_refused(people):
    bob = people["bob"]
    assert load_certificate(bob.certificate_path, name="bob") == bob.certificate
    with pytest.raises(IdentityError, match="is the certificate of bob, and not of ann"):
        load_certificate(bob.certificate_path, name="ann")
    with pytest.raises(IdentityError, match="is the certificate of bob, and not of ann"):
        load_identity(bob.key_path, bob.certificate_path, name="ann")


def test_a_missing_or_exchanged_file_is_named(people, tmp_path):
    with pytest.raises(IdentityError, match=r"there is no certificate at .*hushgrad key new"):
        load_certificate(tmp_path / "none.crt")
    (tmp_path / "a.key").touch(0o600)
    with pytest.raises(IdentityError, match="does not hold an agent's two private keys"):
        load_identity(tmp_path / "a.key", people["ann"].certificate_path)


@pytest.mark.parametrize(
    "name",
    ["", "Ann", "a_b", "a.b", "-a", "a-", "a b", "ä", "*", "xn--a", "a" * 64, "a\n", "ab--c"],
)
def test_names_that_no_certificate_can_carry_are_refused(name, tmp_path):
    with pytest.raises(IdentityError, match="an agent's name has"):
        mint(tmp_path, name)
    assert not list(tmp_path.iterdir())


@given(st.text("abzAZ019-_. ä*\n", max_size=80))
def test_the_name_offered_instead_is_a_name(name):
    try:
        assert check_name(name) == name
    except IdentityError as error:
        offered = str(error).rpartition("Try ")[2].strip(".'\"")
        assert check_name(offered) == offered


@pytest.mark.parametrize("name", ["a", "0", "10", "agent-0", "a" * 63, "1-2-3"])
def test_every_name_that_is_allowed_can_be_dialled(name, people, tmp_path):
    one, ann = mint(tmp_path, name), people["ann"]
    known = [ann.certificate]
    server, client = server_context(one, known), client_context(ann, one.certificate)
    assert meet(server, client, name, known) == ("ann", "in")


def test_two_agents_and_nobody_else_share_a_secret(people):
    ann, bob, eve = people["ann"], people["bob"], people["eve"]
    secret = shared_secret(ann, bob.certificate)
    assert len(secret) == 32
    assert secret == shared_secret(bob, ann.certificate)
    others = [shared_secret(eve, ann.certificate), shared_secret(eve, bob.certificate)]
    assert len({secret, *others}) == 3


def test_a_mask_key_without_strength_is_refused(people, tmp_path):
    (tmp_path / "weak.crt").write_bytes(foreign("ann"))
    with pytest.raises(IdentityError, match="gives no secret"):
        shared_secret(people["bob"], load_certificate(tmp_path / "weak.crt"))


def test_secrets_never_show_in_a_repr(people):
    text = repr(people["ann"])
    assert "mask_secret" not in text
    assert "PRIVATE" not in text
