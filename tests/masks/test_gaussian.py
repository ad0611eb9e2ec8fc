"""Discrete Gaussians from words: exact tables, exact sums of levels, the same bits everywhere."""

import functools
from bisect import bisect_right
from decimal import Decimal, localcontext
from itertools import accumulate, pairwise

import numpy as np
import pytest
from scipy import stats

from hushgrad.draws import pair_keys, pair_words, trial_keys
from hushgrad.masks.gaussian import BASE_BITS, LEVELS, base, gaussians
from support.gaussians import cumulative_table

SIGMA = 2**BASE_BITS
KNOWN_TABLE = [19, 93217, 168599066, 112248854418, 27537383105371]
KNOWN = [76739545777043, -75038269499986, 48366015200731, 214732519914167]


def pmf(sigma2, reach, digits=60):
    """{x: P(X = x)} ∝ exp(−x²/2σ²) with Decimal's own exponential, for |x| ≤ reach."""
    with localcontext() as context:
        context.prec = digits
        weight = {
            x: (Decimal(-x * x) / (2 * Decimal(sigma2))).exp() for x in range(-reach, reach + 1)
        }
        total = sum(weight.values())
        return {x: w / total for x, w in weight.items()}


def some_words(n, seed=0, levels=LEVELS):
    return np.random.default_rng(seed).integers(2**64, size=(levels, n), dtype=np.uint64)


@pytest.mark.parametrize("bits", [0, 2, 5])
def test_the_table_is_the_exact_distribution_rounded_to_64_bits(bits):
    first, cumulative = cumulative_table(bits)
    exact = pmf(4**bits, 12 * 2**bits)
    with localcontext() as context:
        context.prec = 60
        below = Decimal(0)
        for x in sorted(exact):
            below += exact[x]
            at = x - first
            entry = cumulative[at] if 0 <= at < len(cumulative) else (0 if at < 0 else 2**64)
            assert abs(entry - below * 2**64) <= Decimal("0.5000001")


@functools.cache
def exact_tail():
    """P(Y ≥ x) for x = 0 … 11 σ₀, with Decimal's own exponential of every x."""
    with localcontext() as context:
        context.prec = 32
        unit = -2 * Decimal(SIGMA) ** 2
        weights = [(x * x / unit).exp() for x in range(11 * SIGMA)]
        total = 2 * sum(weights) - 1
        return [*accumulate(w / total for w in reversed(weights))][::-1]


def test_the_table_of_the_sampler_is_exact_in_every_entry():
    """All rounding together moves less than 2⁻⁴⁹ of the probability."""
    first, cumulative = cumulative_table(BASE_BITS)
    assert cumulative == sorted(cumulative)
    assert len(cumulative) == -2 * first
    assert all(a + b == 2**64 for a, b in zip(cumulative, reversed(cumulative), strict=True))
    tail = exact_tail()
    off = [cumulative[-x - first] - tail[x] * 2**64 for x in range(1, 1 - first)]
    assert max(map(abs, off)) <= Decimal("0.5000001")
    moved = sum(abs(a - b) for a, b in pairwise(off))
    assert moved < 2**15  # of 2⁶⁴ on this side; both sides count half


def test_the_sum_of_two_levels_is_a_discrete_gaussian_exactly():
    """σ₀ = 8 and a step of 4: half of σ₀, as in the sampler. The convolution is exact."""
    level, step = pmf(64, 120), 4
    with localcontext() as context:
        context.prec = 60
        total = {}
        for x, p in level.items():
            for y, q in level.items():
                total[x + step * y] = total.get(x + step * y, 0) + p * q
        whole = pmf(64 * (1 + step**2), 500)
        for x in range(-250, 251):  # 7.5 σ
            assert abs(total[x] / whole[x] - 1) < Decimal("1e-30")


def test_a_step_that_is_too_long_would_show():
    """The oracle of the last test: with a step of 2 σ₀ the sum is no discrete Gaussian."""
    level, step = pmf(4, 40), 4
    at = {x: sum(level[x - step * y] * level[y] for y in range(-8, 9)) for x in (0, 1, 2)}
    whole = pmf(4 * (1 + step**2), 100)
    assert abs(at[0] / at[2] / (whole[0] / whole[2]) - 1) > Decimal("1e-3")


def test_every_word_finds_its_entry():
    """At, before and after entries of all parts of the table, with Python's integers."""
    first, cumulative = cumulative_table(BASE_BITS)
    near = {e + k for e in [*cumulative[:50], *cumulative[::997], *cumulative[-50:]]
            for k in (-1, 0, 1)} | {0, 2**63, 2**64 - 1}  # fmt: skip
    words = sorted(w for w in near if 0 <= w < 2**64)
    want = [bisect_right(cumulative, w) + first for w in words]
    assert base(np.array(words, np.uint64)).tolist() == want
    assert {want[0], want[-1]} == {first, -first}


def test_words_beside_every_entry_find_what_a_search_finds():
    """The first bits of a word skip most of the search, so every entry and its neighbours count."""
    first, cumulative = cumulative_table(BASE_BITS)
    entries = np.array(cumulative, np.uint64)
    words = np.concatenate([entries - np.uint64(1), entries, entries + np.uint64(1)])
    words = np.concatenate([words, np.array([0, 2**64 - 1], np.uint64)])
    np.testing.assert_array_equal(
        base(words), np.searchsorted(entries, words, side="right") + first
    )


def test_a_number_is_the_sum_of_its_levels():
    words = some_words(1000)
    first, cumulative = cumulative_table(BASE_BITS)
    for step in (2**34, 2**34 - 12345, 3**18):
        got = gaussians(words, step)
        for n in range(0, 1000, 83):
            Y = [bisect_right(cumulative, int(w)) + first for w in words[:, n]]
            assert got[n] == Y[0] + Y[1] * 2**12 + Y[2] * 2**23 + Y[3] * step


def test_integers_from_fixed_words_are_known():
    """Fixed since the first version: another machine, numpy or table would be noticed."""
    assert cumulative_table(0)[1][:5] == KNOWN_TABLE
    words = pair_words(pair_keys(trial_keys(2026, [3]), [1], [4]), 4 * LEVELS)
    got = gaussians(words.reshape(LEVELS, 4), 2**34 - 1)
    assert got.dtype == np.int64
    assert got.tolist() == KNOWN


def test_base_numbers_pass_a_chi_square_test_against_exact_probabilities():
    """2²⁰ numbers in 64 classes of about equal probability, whose bounds are integers."""
    bounds = np.unique(np.rint(SIGMA * stats.norm.ppf(np.arange(1, 64) / 64)).astype(int))
    tail = exact_tail()
    at = [float(tail[-b] if b < 0 else 1 - tail[b + 1]) for b in bounds]  # P(Y ≤ b)
    expected = np.diff([0.0, *at, 1.0]) * 2**20
    found = np.bincount(np.searchsorted(bounds, base(some_words(2**20, levels=1)[0])),
                        minlength=len(expected))  # fmt: skip
    assert stats.chisquare(found, expected).pvalue > 1e-4


def test_numbers_of_all_levels_are_gaussian_in_bulk_and_tails():
    step, n = 2**34 - 99, 2**20
    z = gaussians(some_words(n, seed=1), step) / (SIGMA * step)
    assert abs(z.mean()) < 5 / np.sqrt(n)
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 5 * np.sqrt(96 / n)
    for t in (2, 3, 4):
        expected = n * 2 * stats.norm.sf(t)
        assert abs(np.count_nonzero(np.abs(z) > t) - expected) < 5 * np.sqrt(expected)
    assert stats.kstest(z, "norm").pvalue > 1e-4


def test_the_last_bits_of_a_number_are_uniform():
    """A share must hide the low bits of what it is added to, too."""
    low = gaussians(some_words(2**18, seed=2), 2**34) & 255
    assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > 1e-4
