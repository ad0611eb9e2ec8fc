"""The draws of a deployed agent: ChaCha20 under a secret key, at the addresses of draws.py.

The key is 32 random bytes. The state directory (state/journal.py) makes a new one for every run,
because with the same draws on other data an observer could subtract one run from the other.

    u     = (top 53 bits of word + 1) · 2⁻⁵³  ∈ (0, 1]
    word  = word `slot` of block k of ChaCha20(key of the run; stream, 0, 0),            slot < 8
            word `slot` mod 8 of block ⌊slot/8⌋ of ChaCha20(key of the run; stream, 1, k), otherwise

Stepsizes and the weights of up to eight links use the first eight slots, so one call gives their
draws for many iterations. All agents need the same coins, so coins come from the run's public id.

masking.py derives the keys of masks here, too.
"""

from __future__ import annotations

import struct
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from hushgrad.draws import SeededDraws, Stream, trial_keys

WORDS = 8  # uniforms in a block of ChaCha20, 64 bytes


def derive(secret: bytes, *, purpose: str, run: str, length: int = 32) -> bytes:
    """The key for one purpose in one run."""
    info = f"hushgrad {purpose} {run}".encode()
    return HKDF(hashes.SHA256(), length, salt=None, info=info).derive(secret)


def keystream(
    key: bytes, nonce: tuple[int, int, int], first: int, blocks: int
) -> NDArray[np.uint64]:
    """Blocks [first, first + blocks) of ChaCha20, (blocks, 8) words."""
    counter_and_nonce = struct.pack("<4I", first, *nonce)
    cipher = Cipher(ChaCha20(key, counter_and_nonce), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(64 * blocks)), "<u8").reshape(blocks, WORDS)


def as_uniforms(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """u ∈ (0, 1]: the top 53 bits, plus one."""
    return ((words >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53


class SecretDraws:
    """The draws of one agent in one run; every stage of a run has its own."""

    def __init__(self, secret: bytes, run: str, stage: int = 0):
        purpose = f"draws of stage {stage}" if stage else "draws"
        self._key = derive(secret, purpose=purpose, run=run)
        self._coins = public_coins(run, stage)

    def uniforms(
        self, stream: Stream, when: NDArray[np.uint32], slots: NDArray[np.uint32]
    ) -> NDArray[np.float64]:
        """u (when, slots)."""
        if stream is Stream.COIN:
            return self._coins.uniforms(stream, when, slots)
        words = np.empty((len(when), len(slots)), np.uint64)
        near = slots < WORDS
        if near.any():
            first, last = int(when.min()), int(when.max())
            stream_of_all = keystream(self._key, (stream, 0, 0), first, last - first + 1)
            words[:, near] = stream_of_all[when - np.uint32(first)][:, slots[near]]
        if not near.all():
            far = slots[~near]
            first = int(far.min()) // WORDS
            blocks = int(far.max()) // WORDS - first + 1
            for row, k in zip(words, when.tolist(), strict=True):
                own = keystream(self._key, (stream, 1, k), first, blocks).ravel()
                row[~near] = own[far - np.uint32(first * WORDS)]
        return as_uniforms(words)


def public_coins(run: str, stage: int = 0) -> SeededDraws:
    """The coins of a run without a seed, from its id."""
    seed = int.from_bytes(sha256(f"hushgrad coins {run}".encode()).digest()[:8], "little")
    return SeededDraws(trial_keys(seed, [0], stage), 0)
