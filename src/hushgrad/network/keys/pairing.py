"""The secrets of an agent and its mask partners in one run.

    secret_ij  = HKDF(X25519 of the certificates' keys, X25519 of the keys of this run;
                      configuration, id of the run, nonces of both)
    share key  = HKDF(secret_ij; stage, starts of this stage and of the one before)

The keys of the run and the nonces come from the state directories of both agents (state/journal.py)
and travel in signed announcements (protocol/announcements.py). So two runs have different shares,
even with the same id, and so have two stages. The state directory deletes the private key of the
run when the run has ended. From then on, nobody can compute the shares again, not even with the
private keys of both certificates.

The agreement of a deployed agent (agreement.py) makes a `Pairing`; masking.py takes its keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hushgrad.errors import ConfigError, MaskError
from hushgrad.network.config.model import AgentConfig, RunConfig
from hushgrad.network.keys.identity import (
    Certificate,
    Identity,
    load_certificate,
    load_identity,
    shared_secret,
)
from hushgrad.network.protocol.announcements import NONCE, SIGNATURE, Announcement
from hushgrad.network.protocol.hello import config_digest

_HALF = SIGNATURE // 2
_ECDSA = ec.ECDSA(hashes.SHA256())


class Pairing:
    """The certificates of one agent and of its partners, and the secrets that follow from them."""

    def __init__(self, config: AgentConfig, numbers: tuple[int, ...]):
        """`numbers`: the partners of the agent; ConfigError if its file lacks one."""
        self.number, self.run = config.number, config.run
        self._identity = load_identity(config.key, config.certificate, name=config.name)
        given = {partner.number: partner for partner in config.partners}
        for number in numbers:
            if number not in given:
                raise ConfigError(
                    f"agent {config.number} shares a mask with agent {number}, but there is no "
                    "[[partner]] of that number. Add the partner, with its certificate."
                )
        self.partners: Mapping[int, Certificate] = {
            n: load_certificate(given[n].certificate, name=given[n].name) for n in numbers
        }

    def announcement(
        self, mask_key: bytes, exponent: int = 0, stepsize: int = 0, links: bytes = b""
    ) -> Announcement:
        """This agent's announcement, from the nonce and the private key of its state directory."""
        nonce, private = mask_key[:NONCE], _private(mask_key)
        key = private.public_key().public_bytes_raw()
        bare = Announcement(self.number, exponent, nonce, key, b"", stepsize, links)
        return bare._replace(signature=_sign(self._identity, _content(self.run, bare)))

    def is_signed(self, announcement: Announcement) -> bool:
        """Whether a partner's announcement is signed by the key of its certificate."""
        key = self.partners[announcement.number].public_key
        r, s = announcement.signature[:_HALF], announcement.signature[_HALF:]
        signature = encode_dss_signature(int.from_bytes(r), int.from_bytes(s))
        try:
            key.verify(signature, _content(self.run, announcement), _ECDSA)
        except InvalidSignature:
            return False
        return True

    def secret(self, mask_key: bytes, partner: Announcement) -> bytes:
        """32 bytes that only this agent and the partner can compute, in this run alone."""
        try:
            of_run = _private(mask_key).exchange(X25519PublicKey.from_public_bytes(partner.key))
        except ValueError as error:
            raise MaskError(
                f"the key that agent {partner.number} announces gives no secret: {error}. Ask its "
                "operator; a new run needs a new id."
            ) from error
        nonces = sorted(
            [(self.number, mask_key[:NONCE].hex()), (partner.number, partner.nonce.hex())]
        )
        info = json.dumps(["hushgrad mask", config_digest(self.run), self.run.id, nonces])
        static = shared_secret(self._identity, self.partners[partner.number])
        return HKDF(hashes.SHA256(), 32, salt=None, info=info.encode()).derive(static + of_run)


def _private(mask_key: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(mask_key[NONCE:])


def _content(run: RunConfig, announcement: Announcement) -> bytes:
    """The bytes that an agent signs."""
    number, exponent, nonce, key, _, stepsize, links = announcement
    said = [number, exponent, nonce.hex(), key.hex(), stepsize, links.hex()]
    return json.dumps(["hushgrad announcement", config_digest(run), run.id, *said]).encode()


def _sign(identity: Identity, content: bytes) -> bytes:
    r, s = decode_dss_signature(identity.signing_key.sign(content, _ECDSA))
    return r.to_bytes(_HALF) + s.to_bytes(_HALF)
