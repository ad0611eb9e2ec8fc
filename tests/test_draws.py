"""Draws follow their written contract, with the same bits in NumPy and in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad import draws
from hushgrad.draws import Stream

WORD = st.integers(0, 2**32 - 1)


def words(*values):
    return tuple(np.array([v], np.uint32) for v in values)


# Known answers of Random123's kat_vectors for threefry2x32, 20 rounds: counter, key, result
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_threefry_gives_the_known_answers_of_random123(counter, key, result):
    got = draws.threefry(words(*key), words(*counter))
    assert tuple(int(w[0]) for w in got) == result


@given(WORD, WORD, WORD, WORD)
def test_numpy_and_jax_draw_the_same_bits(k0, k1, c0, c1):
    with jax.enable_x64(True):
        theirs = draws.uniforms(
            tuple(jnp.asarray(w) for w in words(k0, k1)),
            tuple(jnp.asarray(w) for w in words(c0, c1)),
        )
        assert theirs.dtype == jnp.float64
    ours = draws.uniforms(words(k0, k1), words(c0, c1))
    assert ours.dtype == np.float64
    assert float(ours[0]).hex() == float(theirs[0]).hex()


@given(WORD, WORD, WORD, WORD)
def test_a_uniform_is_the_top_53_bits_plus_one(k0, k1, c0, c1):
    high, low = (int(w[0]) for w in draws.threefry(words(k0, k1), words(c0, c1)))
    exact = (
        ((high << 32 | low) >> 11) + 1
    ) / 2**53  # Python's integers round nothing before the division
    assert draws.uniforms(words(k0, k1), words(c0, c1))[0] == exact
    assert 0 < exact <= 1


def test_keys_follow_the_contract_step_by_step():
    seed, trial, agent = 0x1234_5678_9ABC_DEF0, 7, 3
    trial_key = draws.threefry(words(0x9ABC_DEF0, 0x1234_5678), words(trial, draws.TRIAL))
    key = draws.threefry(trial_key, words(agent, Stream.SPLIT))
    got = draws.agent_keys(draws.trial_keys(seed, [5, trial]), [0, 1, 2, agent], Stream.SPLIT)
    assert [int(w[3, 1]) for w in got] == [int(w[0]) for w in key]


def test_different_seeds_share_no_trial():
    keys = [
        (int(a), int(b))
        for seed in range(40)
        for a, b in zip(*draws.trial_keys(seed, np.arange(40)), strict=True)
    ]
    assert len(set(keys)) == len(keys)


def test_streams_and_agents_have_different_keys():
    trial_key = draws.trial_keys(0, [0])
    keys = [
        (int(a), int(b))
        for stream in Stream
        for a, b in zip(
            *(w[:, 0] for w in draws.agent_keys(trial_key, np.arange(50), stream)), strict=True
        )
    ]
    assert len(set(keys)) == len(keys)


def test_uniforms_are_uniform():
    key = draws.agent_keys(draws.trial_keys(1, [0]), np.arange(100), Stream.STEPSIZE)
    u = draws.uniforms(key, (np.arange(1000, dtype=np.uint32), np.zeros(1000, np.uint32)))
    counts = np.histogram(u, bins=50, range=(0, 1))[0]
    chi2 = ((counts - u.size / 50) ** 2 / (u.size / 50)).sum()
    assert 20 < chi2 < 95  # 49 degrees of freedom: far inside 1e-4 tails
    assert abs(np.corrcoef(u[:, :-1].ravel(), u[:, 1:].ravel())[0, 1]) < 0.01
