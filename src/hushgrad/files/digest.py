"""Digests that tell two messages, or a torn write from a whole one, apart.

The polynomial hash of GCM under a key that everyone knows finds every accident at a twentieth of
SHA-256's cost. Such a digest is no commitment: anyone can make two messages with one digest on
purpose. In a journal nobody wants to, and a peer would gain nothing by it, since the second message
is not used. BLAKE2 is quicker for few bytes. The journal and the protocol of the network side use
both. If somebody would gain by two contents with one digest, `commitment` serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

DIGEST = 16  # bytes
_KEY = b"hushgrad digests"
_NONCE = bytes(12)
_GHASH = AESGCM(_KEY)
_FEW = 1024  # bytes
_SMALL = 65_536  # bytes that are joined rather than taken one piece after the other
_MOST = 1 << 30  # bytes that the library takes at a time


def digest(piece: bytes | memoryview) -> bytes:
    if len(piece) <= _FEW:
        return blake2b(piece, digest_size=DIGEST).digest()
    if len(piece) > _MOST:
        return joint_digest(piece)
    return _GHASH.encrypt(_NONCE, b"", piece)


def joint_digest(*pieces: bytes | memoryview) -> bytes:
    """The digest of all pieces as if they were one piece."""
    if sum(map(len, pieces)) <= _SMALL:
        return digest(b"".join(pieces))
    cipher = Cipher(AES(_KEY), GCM(_NONCE)).encryptor()
    for piece in pieces:
        whole = memoryview(piece)
        for place in range(0, len(whole), _MOST):
            cipher.authenticate_additional_data(whole[place : place + _MOST])
    cipher.finalize()
    return cipher.tag


def commitment(data: bytes) -> str:
    """64 hexadecimal digits; nobody can make two contents that have the same."""
    return sha256(data).hexdigest()


def content_digest(parts: Sequence[Any]) -> str:
    """Texts and arrays in their order, as 32 hexadecimal digits: what names a run or a study."""
    total = blake2b(digest_size=DIGEST)
    for part in parts:
        data = part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()
