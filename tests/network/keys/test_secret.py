"""Draws from a secret key are the numbers of the cipher, at the addresses of seeded draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad.draws import ONCE, Stream
from hushgrad.network.keys.secret import SecretDraws, derive, keystream, public_coins

SECRET = bytes(range(32))
WORD = st.integers(0, 2**32 - 1)


def at(draws, stream, k, slot):
    return draws.uniforms(stream, np.array([k], np.uint32), np.array([slot], np.uint32))[0, 0]


def test_the_keystream_is_that_of_rfc_8439():
    # section 2.3.2: key 00…1f, nonce 000000090000004a00000000, block 1
    nonce = (0x09000000, 0x4A000000, 0)
    words = keystream(SECRET, nonce, 1, 1)
    assert words.tobytes().hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


@given(
    st.sampled_from([s for s in Stream if s is not Stream.COIN]),
    st.lists(WORD, min_size=1, max_size=4),
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
)
def test_a_draw_depends_on_its_address_only(stream, when, slots):
    draws = SecretDraws(SECRET, "run")
    near = np.array([when[0], *(min(when[0] + n, ONCE) for n in (1, 2))], np.uint32)
    together = draws.uniforms(stream, near, np.array(slots, np.uint32))
    again = SecretDraws(SECRET, "run")
    for row, k in zip(together, near, strict=True):
        assert row.tolist() == [at(again, stream, k, slot) for slot in slots]


def test_a_draw_is_the_top_53_bits_plus_one_of_its_word():
    key = derive(SECRET, purpose="draws", run="run")
    draws = SecretDraws(SECRET, "run")
    near = int(keystream(key, (int(Stream.SPLIT), 0, 0), 17, 1)[0, 5])
    far = int(keystream(key, (int(Stream.SPLIT), 1, 17), 2, 1)[0, 3])
    assert at(draws, Stream.SPLIT, 17, 5) == ((near >> 11) + 1) / 2**53
    assert at(draws, Stream.SPLIT, 17, 19) == ((far >> 11) + 1) / 2**53


def test_no_two_addresses_secrets_or_runs_share_a_draw():
    slots, when = np.arange(24, dtype=np.uint32), np.arange(40, dtype=np.uint32)
    streams = [s for s in Stream if s is not Stream.COIN]
    every = [
        SecretDraws(secret, run).uniforms(stream, when, slots)
        for secret in (SECRET, SECRET[::-1])
        for run in ("a", "b")
        for stream in streams
    ]
    assert len(np.unique(every)) == np.size(every)


def test_coins_are_public_and_differ_from_run_to_run():
    when, slots = np.arange(100, dtype=np.uint32), np.zeros(1, np.uint32)
    mine, yours = (SecretDraws(s, "a").uniforms(Stream.COIN, when, slots) for s in (SECRET, b"x"))
    np.testing.assert_array_equal(mine, yours)
    np.testing.assert_array_equal(mine, public_coins("a").uniforms(Stream.COIN, when, slots))
    assert (mine != public_coins("b").uniforms(Stream.COIN, when, slots)).all()


@pytest.mark.parametrize("slot", [0, 7, 8, 30])
def test_uniforms_are_uniform(slot):
    when = np.arange(20_000, dtype=np.uint32)
    draws = SecretDraws(SECRET, "run").uniforms(Stream.SPLIT, when, np.array([slot], np.uint32))
    counts = np.histogram(draws, bins=50, range=(0, 1))[0]
    assert 20 < ((counts - 400) ** 2 / 400).sum() < 95
    assert draws.min() > 0
    assert draws.max() <= 1
