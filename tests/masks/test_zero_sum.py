"""Shares cancel to the bit, have the requested sizes, and add exactly to rounded numbers."""

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import hushgrad as hg
from hushgrad.errors import AlgorithmError
from hushgrad.masks import Mask, Sizes

KNOWN = "97e504d533f51522153d8d2ebf3372ef2ef7d586383101b2c3eceb045e045b29"


def words_of_pairs(seed):
    """Words of a deployed agent's key agreements: both partners get the same."""

    def of(number):
        def of_pair(partner):
            rng = np.random.default_rng([seed, *sorted((number, partner))])
            return lambda n: rng.integers(2**64, size=n, dtype=np.uint64)

        return of_pair

    return of


def masks_of(design, sizes, m, seed):
    of = words_of_pairs(seed)
    return [design.mask(i, sizes, n_agents=m, pair_words=of(i)) for i in range(m)]


SIZE = st.floats(1e-9, 1e9)


@given(st.integers(2, 30), st.integers(1, 6), SIZE, st.one_of(st.none(), SIZE), SIZE,
       st.integers(0, 100))  # fmt: skip
def test_masks_sum_to_zero_to_the_bit(m, d, linear, quadratic, lam, seed):
    masks = hg.masks.zero_sum(linear=linear, quadratic=quadratic or 0)
    every = masks_of(masks, masks.sizes(d, lam=lam, eta=None), m, seed)
    assert all(mask.c.all() for mask in every)
    assert not sum(mask.c for mask in every).any()
    assert all((mask.Q is None) == (quadratic is None) for mask in every)
    if quadratic:
        assert not sum(mask.Q for mask in every).any()
        assert all((mask.Q == mask.Q.T).all() for mask in every)


def test_the_two_shares_of_a_pair_have_opposite_signs():
    """Every other pair draws the middle word, whose integer is zero."""
    masks, m = hg.masks.zero_sum(quadratic=0.1), 5
    sizes, of = masks.sizes(3, lam=0.03, eta=None), words_of_pairs(0)

    def only_this_pair(number):
        return lambda partner: (
            of(number)(partner)
            if {number, partner} == {1, 4}
            else lambda n: np.full(n, 2**63, np.uint64)
        )

    first, low, *others, high = (
        masks.mask(i, sizes, n_agents=m, pair_words=only_this_pair(i)) for i in range(m)
    )
    assert (low.c == -high.c).all()
    assert (low.Q == -high.Q).all()
    assert low.c.all()
    assert not any(mask.c.any() or mask.Q.any() for mask in (first, *others))


def share(sizes, n, seed=0):
    words = np.random.default_rng(seed).integers(2**64, size=(sizes.n_words, n), dtype=np.uint64)
    return sizes.parts(sizes.share(words))


@pytest.mark.parametrize("dim", [1, 12])
def test_entries_have_the_requested_sizes(dim):
    n = 40_000 // dim
    sizes = hg.masks.zero_sum(linear=0.5, quadratic=0.1).sizes(dim, lam=0.03, eta=None)
    c, Q = share(sizes, n)

    def has_variance(values, expected):
        spread = 5 * expected * np.sqrt(2 / values.size)
        assert abs((values**2).mean() - expected) < spread

    has_variance(c, (0.5 / 0.03) ** 2)
    room = 0.1 / 0.03
    assert sizes.curvature == pytest.approx(room)
    white, identity = room * math.sqrt(0.51 / dim), 0.7 * room
    diagonal = np.array([Q[a, a] for a in range(dim)])
    # the entries of one diagonal share τ, so their mean and their differences are judged apart
    has_variance(diagonal.mean(axis=0), identity**2 + white**2 / dim)
    if dim > 1:
        has_variance(Q[np.triu_indices(dim, 1)], white**2)
        has_variance((diagonal[1:] - diagonal[:-1])[::2], 2 * white**2)


def test_entries_are_gaussian_and_not_correlated():
    c, Q = share(hg.masks.zero_sum(quadratic=0.1).sizes(3, lam=0.1, eta=None), 20_000)
    upper = Q[np.triu_indices(3)]
    numbers = np.concatenate([c, upper[[1, 2, 4]]])
    assert all(stats.kstest(row / row.std(), "norm").pvalue > 1e-4 for row in numbers)
    correlation = np.corrcoef(numbers) - np.eye(6)
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)


def test_the_trace_is_hidden_as_well_as_a_single_entry():
    """White masks would leave the mean of the diagonal visible: its σ would fall with √d."""
    d = 60
    sizes = hg.masks.zero_sum(quadratic=0.1).sizes(d, lam=0.1, eta=None)
    _, Q = share(sizes, 300)
    means = np.trace(Q) / d
    assert means.std() > 0.6 * 0.1 / 0.1
    assert sizes.quadratic / np.sqrt(d) < 0.02


def test_masks_of_fixed_words_are_known():
    """Fixed since the first version: another machine or numpy would be noticed."""
    masks = hg.masks.zero_sum(linear=0.3, quadratic=0.02)
    sizes = masks.sizes(40, lam=0.05, eta=None)

    def of(i):
        return lambda j: (
            lambda n: (
                np.arange(1, n + 1, dtype=np.uint64)
                * np.uint64(0x9E37_79B9_7F4A_7C15 + 2 * (i ^ j))
            )
        )

    made = [masks.mask(i, sizes, n_agents=6, pair_words=of(i)) for i in range(6)]
    content = b"".join(m.c.astype("<f8").tobytes() + m.Q.astype("<f8").tobytes() for m in made)
    assert hashlib.sha256(content).hexdigest() == KNOWN


def test_the_quadratic_part_follows_the_networks_gap_unless_it_is_given():
    default, given_ = hg.masks.zero_sum(), hg.masks.zero_sum(quadratic=0.3)
    assert default.sizes(1, lam=0.1, eta=0.6).curvature == pytest.approx(0.1 * 0.4 / 0.1)
    four = default.sizes(4, lam=0.1, eta=0.6)
    assert four.quadratic == pytest.approx(0.1 * 0.4 / 0.1 * math.sqrt(0.51) / 2)
    assert four.identity == pytest.approx(0.1 * 0.4 / 0.1 * 0.7)
    sixteen = hg.masks.zero_sum(n_partners=16).sizes(1, lam=0.1, eta=0.6)
    assert sixteen.curvature == pytest.approx(0.05 * 0.4 / 0.1)  # more shares, each of them smaller
    assert default.sizes(4, lam=0.1, eta=None) == Sizes(4, 10.0, 0.0)
    assert given_.sizes(1, lam=0.1, eta=0.6).curvature == pytest.approx(3.0)


def test_the_linear_part_follows_the_scale_of_gradients_if_it_is_known():
    masks = hg.masks.zero_sum(linear=3.0)
    assert masks.sizes(2, lam=0.1, eta=0.6, scale=1024.0).linear == 3072.0
    assert masks.sizes(2, lam=0.1, eta=0.6).linear == pytest.approx(30.0)
    with_scale, without = (masks.sizes(2, lam=0.1, eta=0.6, scale=s) for s in (1024.0, None))
    assert with_scale.curvature == without.curvature


# ---- masked statistics


@given(st.integers(2, 12), st.integers(1, 5), st.floats(1e-6, 1e3), st.integers(0, 50))
def test_masked_statistics_sum_to_the_rounded_statistics_exactly(m, d, lam, seed):
    """In Fractions, which round nothing."""
    masks, rng = hg.masks.zero_sum(quadratic=0.1), np.random.default_rng(seed)
    sizes = masks.sizes(d, lam=lam, eta=None)
    H, q = rng.normal(size=(m, d, d)) * 0.1 / lam, rng.normal(size=(m, d)) / lam
    rounded = [sizes.on_grid(q[i], H[i]) for i in range(m)]
    masked = [
        mask.statistic(H[i], q[i], sizes) for i, mask in enumerate(masks_of(masks, sizes, m, seed))
    ]
    for which in (0, 1):
        ours = np.array([[*map(Fraction, own[1 - which].ravel())] for own in masked])
        plain = np.array([[*map(Fraction, own[which].ravel())] for own in rounded])
        assert (ours.sum(axis=0) == plain.sum(axis=0)).all()
        assert (ours != plain).all()


@given(st.floats(1e-12, 1e12), st.floats(-30.0, 30.0), st.floats(-30.0, 30.0))
def test_numbers_go_to_the_nearest_point_of_a_grid_that_is_a_power_of_two(size, a, b):
    sizes = Sizes(1, size, size / 3, size / 5)
    q, H = sizes.on_grid(np.array([a * size]), np.array([[b * size / 3]]))
    for value, rounded, grid in ((a * size, q[0], sizes.linear_grid),
                                 (b * size / 3, H[0, 0], sizes.quadratic_grid)):  # fmt: skip
        assert math.frexp(grid)[0] == 0.5
        assert (Fraction(rounded) / Fraction(grid)).denominator == 1
        assert abs(Fraction(value) - Fraction(rounded)) <= Fraction(grid) / 2
    assert size / 2**47 <= sizes.linear_grid <= size / 2**46


def test_numbers_without_masks_stay_as_they_are():
    q, H = np.array([0.1, 1e300]), np.full((2, 2), 0.3)
    same = Sizes(2, 0.0, 0.0).on_grid(q, H)
    assert (same[0] == q).all()
    assert (same[1] == H).all()
    masked = Mask(np.array([1.0, 2.0]), None).statistic(H, np.array([0.5, 0.5]), Sizes(2, 1.0, 0.0))
    assert masked[0] is H
    assert masked[1].tolist() == [1.5, 2.5]


@pytest.mark.parametrize("bad", [1e9, np.inf, np.nan])
def test_a_statistic_that_is_too_large_for_its_grid_is_refused(bad):
    sizes = Sizes(2, 1.0, 0.5, 0.5)
    mask = Mask(np.zeros(2), np.zeros((2, 2)))
    with pytest.raises(AlgorithmError, match=r"entry of q is .*declare a larger scale"):
        mask.statistic(np.eye(2), np.array([1.0, bad]), sizes)
    with pytest.raises(AlgorithmError, match=r"entry of H is .*smaller stepsize"):
        mask.statistic(bad * np.ones((2, 2)), np.ones(2), sizes)
    nearly = Mask(np.full(2, 120.0), np.zeros((2, 2)))
    with pytest.raises(AlgorithmError, match=r"q \+ c is 220"):
        nearly.statistic(np.eye(2), np.array([1.0, 100.0]), sizes)


def test_more_shares_than_a_float_can_add_exactly_are_refused():
    sizes = Sizes(1, 1.0, 0.0)
    with pytest.raises(AlgorithmError, match=r"n_partners=….*at most 64"):
        sizes.parts(np.array([2**53 + 2]))
    assert sizes.parts(np.array([-(2**53)]))[0][0] == -(2.0**53) * sizes.linear_grid
