"""The identity of an agent: its self-signed certificate, its keys, and the certificates it trusts.

There is no certificate authority that could be deceived. A certificate carries the agent's name as
its only DNS name, and the agent's public mask key (X25519) as an extension. NAME.key holds the two
private keys, and only its owner may read it. Links use TLS 1.3, and both sides verify each other.
An agent trusts a certificate only if it is, byte for byte, one that was exchanged before.

`hushgrad key` makes and shows certificates; the TLS transport (transport/tls.py), the masks
(masking.py) and `hushgrad doctor` use them.
"""

from __future__ import annotations

import re
import ssl
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hushgrad.errors import IdentityError
from hushgrad.files.atomic import create_file

DAYS = 730  # validity of a new certificate: longer than most projects
CLOCK_SLACK = timedelta(hours=1)  # the clock of a neighbour may be so late

# Under the arc 2.25 anyone may use a random UUID as an OID (ITU-T X.667). This UUID is
# ab228116-a986-4477-9558-d70e3af58860.
MASK_KEY_OID = x509.ObjectIdentifier("2.25.227477143598734530831701805033445492832")

# One DNS label. Labels with "--" in the third place are reserved (RFC 5890).
_NAME = re.compile(r"(?!..--)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PEM = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)
_EVERYONE = stat.S_IRWXG | stat.S_IRWXO
_OCTETS = b"\x04\x20"  # the DER header of an octet string of 32 bytes


@dataclass(frozen=True)
class Certificate:
    """The certificate that an agent shows to its neighbours."""

    name: str
    fingerprint: str  # SHA-256 of the certificate, in groups for reading aloud
    not_before: datetime
    not_after: datetime
    der: bytes = field(repr=False)
    mask_key: bytes = field(repr=False)  # X25519, public, 32 bytes
    public_key: ec.EllipticCurvePublicKey = field(repr=False, compare=False)

    @property
    def pem(self) -> str:
        return ssl.DER_cert_to_PEM_cert(self.der)

    def is_fingerprint(self, text: str) -> bool:
        """Whether the text is this certificate's fingerprint, in groups of any size."""
        return _bare(text) == _bare(self.fingerprint)

    def objection(self, now: datetime | None = None) -> str | None:
        """The reason why no agent accepts the certificate at this time, or None."""
        now = now or datetime.now(UTC)
        if now < self.not_before:
            return f"is not valid before {self.not_before:%Y-%m-%d %H:%M} UTC"
        if now > self.not_after:
            return f"expired on {self.not_after:%Y-%m-%d %H:%M} UTC"
        return None


@dataclass(frozen=True)
class Identity:
    """An agent's certificate with its private keys."""

    certificate: Certificate
    key_path: Path
    certificate_path: Path
    mask_secret: X25519PrivateKey = field(repr=False)
    signing_key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def name(self) -> str:
        return self.certificate.name


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """The name itself; IdentityError if no agent can have the name."""
    if not is_name(name):
        raise IdentityError(
            f"an agent's name has 1 to 63 characters a-z, 0-9 and -, with a letter or digit at "
            f"both ends and no -- in the third place, but this name is {name!r}. Try "
            f"{_nearest(name)!r}."
        )
    return name


def _nearest(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:63].strip("-") or "agent-0"


def mint(
    directory: str | Path,
    name: str,
    *,
    days: float = DAYS,
    not_before: datetime | None = None,
) -> Identity:
    """Make NAME.key (0600) and NAME.crt in a directory; IdentityError if one exists already."""
    check_name(name)
    directory = Path(directory)
    key_path, certificate_path = directory / f"{name}.key", directory / f"{name}.crt"
    for path in (key_path, certificate_path):
        if path.exists():
            raise IdentityError(
                f"'{path}' is there already and stays as it is: agents that trust the old "
                "certificate would not trust a new one. Choose another name or directory, or move "
                "the file away."
            )
    key, mask_secret = ec.generate_private_key(ec.SECP256R1()), X25519PrivateKey.generate()
    start = not_before or datetime.now(UTC) - CLOCK_SLACK
    certificate = _sign(name, key, mask_secret, start, start + timedelta(days=days))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        create_file(key_path, _private_pem(key) + _private_pem(mask_secret), mode=0o600)
        public = certificate.public_bytes(serialization.Encoding.PEM)
        create_file(certificate_path, public, mode=0o644)
    except OSError as error:
        raise IdentityError(
            f"no key can be written into '{directory}': {error.strerror}. Choose another directory."
        ) from error
    return load_identity(key_path, certificate_path)


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    mask_secret: X25519PrivateKey,
    not_before: datetime,
    not_after: datetime,
) -> x509.Certificate:
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
         "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"), False,
    )  # fmt: skip
    both_sides = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    mask_key = mask_secret.public_key().public_bytes_raw()
    return (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, **usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both_sides), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.UnrecognizedExtension(MASK_KEY_OID, _OCTETS + mask_key), critical=False)
        .sign(key, hashes.SHA256())
    )


def _private_pem(key: ec.EllipticCurvePrivateKey | X25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def load_certificate(path: str | Path, *, name: str | None = None) -> Certificate:
    """Read a certificate of the form that `mint` makes; IdentityError for any other.

    `name`: the certificate must have this name.
    """
    path = Path(path)
    blocks = [block for label, block in _blocks(path, "certificate") if label == b"CERTIFICATE"]
    if len(blocks) != 1:
        raise IdentityError(
            f"'{path}' holds {len(blocks)} certificates instead of one. "
            "`hushgrad key new NAME` makes NAME.crt."
        )
    try:
        parsed = x509.load_pem_x509_certificate(blocks[0])
        found, mask_key, public_key = _content(parsed)
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise IdentityError(
            f"'{path}' is no certificate of an agent: {error}. `hushgrad key new NAME` makes one."
        ) from error
    if name is not None and name != found:
        raise IdentityError(
            f"'{path}' is the certificate of {found}, and not of {name}. Correct the name or the "
            "path."
        )
    der = parsed.public_bytes(serialization.Encoding.DER)
    return Certificate(
        name=found,
        fingerprint=fingerprint(der),
        not_before=parsed.not_valid_before_utc,
        not_after=parsed.not_valid_after_utc,
        der=der,
        mask_key=mask_key,
        public_key=public_key,
    )


def _content(certificate: x509.Certificate) -> tuple[str, bytes, ec.EllipticCurvePublicKey]:
    """(name, mask key, public key); ValueError if the certificate is not of the form of `mint`."""
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("its key is not on the elliptic curve P-256")
    try:
        certificate.verify_directly_issued_by(certificate)
    except Exception as error:  # InvalidSignature has no text
        raise ValueError("it is not signed by its own key") from error
    extensions = certificate.extensions
    if extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
        raise ValueError("it may sign other certificates (CA)")
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if len(list(names)) != 1 or not isinstance(only := next(iter(names)), x509.DNSName):
        raise ValueError("it does not have exactly one DNS name")
    if not is_name(only.value):
        raise ValueError(f"its name {only.value!r} cannot be an agent's")
    mask_key = extensions.get_extension_for_oid(MASK_KEY_OID).value
    raw = mask_key.value if isinstance(mask_key, x509.UnrecognizedExtension) else b""
    if len(raw) != 34 or not raw.startswith(_OCTETS):
        raise ValueError("its mask key has not 32 bytes")
    return only.value, raw.removeprefix(_OCTETS), key


def load_identity(
    key_path: str | Path, certificate_path: str | Path, *, name: str | None = None
) -> Identity:
    """Read an agent's keys and certificate; IdentityError if other users can read the keys."""
    key_path, certificate_path = Path(key_path), Path(certificate_path)
    certificate = load_certificate(certificate_path, name=name)
    blocks = [block for _, block in _blocks(key_path, "key file")]
    check_mode(key_path)
    try:
        key, mask_secret = (serialization.load_pem_private_key(b, None) for b in blocks)
    except (ValueError, TypeError) as error:
        raise IdentityError(
            f"'{key_path}' does not hold an agent's two private keys: {error}. "
            "`hushgrad key new NAME` makes them."
        ) from error
    if not isinstance(mask_secret, X25519PrivateKey):
        raise IdentityError(f"the second key in '{key_path}' is not X25519. Restore the file.")
    if (
        not isinstance(key, ec.EllipticCurvePrivateKey)
        or key.public_key() != certificate.public_key
        or mask_secret.public_key().public_bytes_raw() != certificate.mask_key
    ):
        raise IdentityError(
            f"'{key_path}' is not the key of '{certificate_path}' (agent {certificate.name}). "
            "Name the two files that `hushgrad key new` made together."
        )
    return Identity(certificate, key_path, certificate_path, mask_secret, key)


def check_mode(path: Path) -> None:
    """Refuse a file with secrets that other users can open."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _EVERYONE:
        raise IdentityError(
            f"only its owner may read '{path}', but its mode is {mode:04o}. Run: chmod 600 '{path}'"
        )


def _blocks(path: Path, what: str) -> list[tuple[bytes, bytes]]:
    """(label, block) of every PEM block in a file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise IdentityError(
            f"there is no {what} at '{path}'. `hushgrad key new NAME` makes your agent's own; "
            "`hushgrad key trust` stores the certificate of another agent."
        ) from None
    except OSError as error:
        raise IdentityError(f"the {what} '{path}' cannot be read: {error.strerror}.") from error
    return [(match[1], match[0]) for match in _PEM.finditer(content)]


def fingerprint(der: bytes) -> str:
    """SHA-256 in sixteen groups of four digits.

    >>> fingerprint(b"")[:29]
    'e3b0:c442:98fc:1c14:9afb:f4c8'
    """
    digest = sha256(der).hexdigest()
    return ":".join(digest[n : n + 4] for n in range(0, len(digest), 4))


def _bare(text: str) -> str:
    return re.sub(r"[\s:-]", "", text).lower()


def server_context(identity: Identity, peers: Iterable[Certificate]) -> ssl.SSLContext:
    """The context for accepting: a caller must show the certificate of one of `peers`."""
    return _context(ssl.PROTOCOL_TLS_SERVER, identity, peers)


def client_context(identity: Identity, peer: Certificate) -> ssl.SSLContext:
    """The context for dialling one peer; pass `server_hostname=peer.name`."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity, [peer])


def _context(protocol: int, identity: Identity, peers: Iterable[Certificate]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    # a trusted certificate ends the chain although no authority has signed it
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    context.load_cert_chain(identity.certificate_path, identity.key_path)
    trusted = "".join(peer.pem for peer in peers)
    if trusted:
        context.load_verify_locations(cadata=trusted)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # no session resumption: every connection shows its certificate
    return context


def peer_name(connection: ssl.SSLObject | ssl.SSLSocket | Any, peers: Iterable[Certificate]) -> str:
    """The name of the peer whose certificate the other end has shown."""
    shown = connection.getpeercert(binary_form=True)
    for peer in peers:
        if shown == peer.der:
            return peer.name
    known = "no certificate" if shown is None else f"the certificate {fingerprint(shown)}"
    raise IdentityError(f"the other end showed {known}, and no neighbour has that certificate.")


def shared_secret(identity: Identity, peer: Certificate) -> bytes:
    """32 bytes that only the two agents can compute, the same at both ends (X25519, HKDF).

    The secret depends on both certificates, so a new certificate gives a new secret.
    """
    try:
        raw = identity.mask_secret.exchange(X25519PublicKey.from_public_bytes(peer.mask_key))
    except ValueError as error:
        raise IdentityError(
            f"the mask key in the certificate of {peer.name} gives no secret: {error}. "
            "Ask for a new certificate."
        ) from error
    ends = b"".join(sorted(sha256(c.der).digest() for c in (identity.certificate, peer)))
    return HKDF(hashes.SHA256(), 32, salt=None, info=b"hushgrad mask key" + ends).derive(raw)
