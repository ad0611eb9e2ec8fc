"""The agents' private random numbers: u = U(key of agent and stream; k, slot).

Every number has an address, so no number depends on the order of the draws. The generator is
Threefry-2x32 with 20 rounds (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, 2011)
in plain array code. The same source runs on NumPy and on jax.numpy and gives the same bits. So
the simulator, an agent alone and a cluster draw identical numbers, also after a restart.

The contract:

    key_trial  = threefry(seed, (trial, TRIAL))          seed: 64 bits, low word first
    key        = threefry(key_trial, (agent, stream))
    u          = (top 53 bits of threefry(key, (k, slot)) + 1) · 2⁻⁵³  ∈ (0, 1]

Two agents i < j draw the shared masks of their objectives with a key of the pair:

    key_ij     = threefry(key of (i, MASK), (j, MASK)),  word_n = threefry(key_ij, (ONCE, n))

A run in stages has a trial's key for every stage; the first stage keeps the key of the trial:

    key_stage  = threefry(key_trial, (stage, STAGE)),  stage ≥ 1

Seeds serve studies and tests. A deployed agent draws with a secret key and a real cipher, at the
same addresses.

Agents of every driver (agent/view.py) draw with it.
"""

from __future__ import annotations

import enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

type Words = tuple[Any, Any]  # two uint32 arrays of one shape

PUBLIC = 0xFFFF_FFFF  # stands for an agent in the addresses of common coins, which everyone knows
ONCE = 0xFFFF_FFFF  # stands for k in the addresses of draws that are made once per run
TRIAL = 0x7472_6961  # "tria": keeps keys of trials apart from keys of agents
STAGE = 0x7374_6167  # "stag": keeps keys of stages apart from keys of agents

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD1_1BDA


class Stream(enum.IntEnum):
    """The purpose of a draw. The contract fixes the numbers: add at the end, never renumber."""

    STEPSIZE = 0
    SPLIT = 1
    SPLIT_CONSTANT = 2
    X0 = 3
    BATCH = 4
    NOISE = 5
    COIN = 6
    MASK = 7


def threefry(key: Words, counter: Words) -> Words:
    """Threefry-2x32-20 of uint32 arrays that broadcast."""
    k0, k1 = key
    x0, x1 = counter[0] + k0, counter[1] + k1
    both = x0 ^ x1
    x0, x1 = both ^ x1, both ^ x0  # of one shape, so NumPy can go on in place
    ks = (k0, k1, k0 ^ k1 ^ np.uint32(_PARITY))
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 += x1
            high = x1 << np.uint32(rotation)
            x1 >>= np.uint32(32 - rotation)
            x1 |= high
            x1 ^= x0
        x0 += ks[(block + 1) % 3]
        x1 += ks[(block + 2) % 3] + np.uint32(block + 1)
    return x0, x1


def uniforms(key: Words, counter: Words) -> Any:
    """u ∈ (0, 1], float64.

    Both products and their sum are exact, so every compiler gives the same bits.
    """
    high, low = threefry(key, counter)
    return (
        high.astype(np.float64) * 2.0**-32
        + ((low >> np.uint32(11)) + np.uint32(1)).astype(np.float64) * 2.0**-53
    )


def words(key: Words, counter: Words) -> NDArray[np.uint64]:
    """The 64 bits of an address as one integer."""
    high, low = threefry(key, counter)
    whole = high.astype(np.uint64)
    whole <<= np.uint64(32)
    whole |= low
    return whole


def trial_keys(
    seed: int, trials: ArrayLike, stage: int = 0
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The keys (trials,) of some trials of a study in a stage; no two seeds share a trial."""
    number = np.asarray(trials, np.uint32)
    word = (np.uint32(seed & 0xFFFF_FFFF), np.uint32(seed >> 32 & 0xFFFF_FFFF))
    key = threefry(
        (np.full_like(number, word[0]), np.full_like(number, word[1])),
        (number, np.full_like(number, TRIAL)),
    )
    if not stage:
        return key
    return threefry(key, (np.full_like(number, stage), np.full_like(number, STAGE)))


def agent_keys(
    trial_key: tuple[NDArray[np.uint32], NDArray[np.uint32]], agents: ArrayLike, stream: Stream
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The keys (agents, trials) of one stream."""
    number = np.asarray(agents, np.uint32)[:, None]
    shape = np.broadcast_shapes(number.shape, trial_key[0].shape)
    return threefry(
        trial_key, (np.broadcast_to(number, shape), np.full(shape, stream, dtype=np.uint32))
    )


class Draws(Protocol):
    """The draws of one agent, by address. All agents share the draws of `Stream.COIN`."""

    def uniforms(
        self, stream: Stream, when: NDArray[np.uint32], slots: NDArray[np.uint32]
    ) -> NDArray[np.float64]:
        """u ∈ (0, 1], (when, slots)."""
        ...


class SeededDraws:
    """Draws by the contract above, from one trial's key."""

    def __init__(self, trial_key: tuple[NDArray[np.uint32], NDArray[np.uint32]], agent: int):
        self._trial_key, self._agent = trial_key, agent
        self._keys: dict[Stream, tuple[NDArray[np.uint32], NDArray[np.uint32]]] = {}

    def uniforms(
        self, stream: Stream, when: NDArray[np.uint32], slots: NDArray[np.uint32]
    ) -> NDArray[np.float64]:
        if stream not in self._keys:
            agent = PUBLIC if stream is Stream.COIN else self._agent
            self._keys[stream] = agent_keys(self._trial_key, [agent], stream)
        return uniforms(self._keys[stream], (when[:, None], slots[None, :]))


def pair_keys(
    trial_key: tuple[NDArray[np.uint32], NDArray[np.uint32]], low: ArrayLike, high: ArrayLike
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The keys (pairs, trials) that the agents low < high share."""
    key = agent_keys(trial_key, low, Stream.MASK)
    number = np.broadcast_to(np.asarray(high, np.uint32)[:, None], key[0].shape)
    return threefry(key, (number, np.full_like(number, Stream.MASK)))


def pair_words(key: tuple[NDArray[np.uint32], NDArray[np.uint32]], n: int) -> NDArray[np.uint64]:
    """The first n words (n, …) of pairs with these keys (…)."""
    slots = np.arange(n, dtype=np.uint32)
    long = key[0][..., None], key[1][..., None]  # loops over words, not over the few pairs
    return np.moveaxis(words(long, (np.full_like(slots, ONCE), slots)), -1, 0)
