"""Numbers go into whole limbs and come back: exactly, or within a stated part of their size."""

from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad.errors import FitError
from hushgrad.fitting import Model
from hushgrad.fitting.lockstep import add, drive
from hushgrad.fitting.site_sums import moments
from hushgrad.fitting.sums import SIZE, from_narrow, from_wide, narrow, noise, settled, wide
from support.fits import programmes

reals = st.floats(-(2.0**60), 2.0**60)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), st.integers(1, 6))
def test_narrow_sums_are_within_a_rounding_per_site(values, n_sites):
    exponent = 20
    limbs = [narrow(np.array(values) * (site + 1) / 7, exponent) for site in range(n_sites)]
    for sent in limbs:
        assert (sent == np.rint(sent)).all()
        assert np.abs(sent).max() <= 2 * SIZE
    found = from_narrow(settled(np.sum(limbs, axis=0), 3 * len(values)), exponent)
    exact = [sum(Fraction(v * (site + 1) / 7) for site in range(n_sites)) for v in values]
    off = [abs(Fraction(a) - b) for a, b in zip(found, exact, strict=True)]
    most = [Fraction(n_sites, 2 ** (73 - exponent)) + abs(b) / 2**51 for b in exact]
    assert all(a <= b for a, b in zip(off, most, strict=True))


def test_a_number_that_is_far_too_large_or_not_finite_is_no_limb():
    assert narrow(np.array([1.0, np.inf]), 0) is None
    assert narrow(np.array([1.0, np.nan]), 0) is None
    assert narrow(np.array([1e6]), 0) is None
    assert narrow(np.array([1e4]), 0) is not None


@given(st.lists(st.tuples(reals, reals), min_size=1, max_size=4))
def test_wide_sums_are_exact_up_to_their_last_bit(pairs):
    ours, theirs = ([Fraction(pair[n]) ** 2 * (1 - 2 * n) for pair in pairs] for n in (0, 1))
    for sent in (wide(ours), wide(theirs)):
        assert (sent == np.rint(sent)).all()
        assert np.abs(sent).max() <= SIZE
    found = from_wide(wide(ours) + wide(theirs))
    for value, a, b in zip(found, ours, theirs, strict=True):
        assert abs(value - (a + b)) <= Fraction(2) ** -144


def test_an_average_that_has_not_settled_is_an_error():
    assert settled(np.array([3.2, -7.9, -0.1]), 3).tolist() == [3.0, -8.0, 0.0]
    assert not np.signbit(settled(np.array([-0.1]), 1)).any()
    for wrong in ([3.4], [np.nan]):
        with pytest.raises(FitError, match="had not settled"):
            settled(np.array(wrong), 1)
    with pytest.raises(FitError, match="vectors of one length"):
        settled(np.zeros(3), 4)


def test_moments_survive_a_mean_that_is_far_larger_than_the_spread():
    x = 1e9 + np.random.default_rng(0).standard_normal(500)
    first, second = moments(x)
    exact = [Fraction(float(v)) for v in x]
    variance = second - first * first / 500
    true = sum(v * v for v in exact) - sum(exact) ** 2 / 500
    assert abs(variance / true - 1) < Fraction(1, 10**14)
    first, second = moments(np.full(60, 0.1))
    assert second * 60 == first * first  # a constant column has exactly no variance


def test_a_site_that_is_too_far_sends_noise_and_not_zeros():
    """Zeros would leave the sums of the other sites alone in the pooled vector."""
    first, second = noise(300), noise(300)
    assert (first == np.rint(first)).all()
    assert np.abs(first).max() <= 2.0**33
    assert (first != second).all()
    assert 2.0**31 < np.median(np.abs(first)) < 2.0**33
    sites = {
        "north": {"x": np.array([0.0, 1.0, 2.0]), "y": np.array([0.0, 1.0, 1.0])},
        "south": {"x": np.array([0.0, 1.0, 2e3]), "y": np.array([1.0, 0.0, 2.0])},
    }
    declared = Model(kind="poisson", outcome="y", columns=["x"])
    pooled, flags = [], []

    def pool(vectors):
        pooled.append(vectors)
        flags.append([int(v[1]) for v in vectors])
        if len(pooled) == 2:  # a false gradient leads far away
            return [v - np.eye(len(v))[4] * 2.0**30 for v in add(vectors)]
        return add(vectors)

    with suppress(FitError):
        drive(programmes(declared, sites), pool)
    (far,) = [n for n, flag in enumerate(flags) if flag == [0, 1]][:1]
    assert np.median(np.abs(pooled[far][1][2:])) > 2.0**30


def test_pooled_counts_below_a_sites_own_end_the_fit():
    sites = {"a": {"x": np.arange(9.0), "y": np.arange(9.0)}}
    sites["b"] = {"x": np.arange(6.0), "y": np.arange(6.0) ** 2}

    def pool(vectors):
        return [v - 10.0 * np.eye(len(v))[6] for v in add(vectors)]  # ten rows fewer

    with pytest.raises(FitError, match="a site has sent a false count"):
        drive(programmes(Model(kind="linear", outcome="y", columns=["x"]), sites), pool)
