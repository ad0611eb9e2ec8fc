"""Numbers go into whole limbs and come back: exactly, or within a stated part of their size."""

from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad.errors import FitError
from hushgrad.fitting import Model, arithmetic
from hushgrad.fitting.lockstep import add, drive
from hushgrad.fitting.sums import (
    SIZE,
    WIDE,
    is_near,
    narrow,
    noise,
    settled,
)
from support.fits import programmes

reals = st.floats(-(2.0**60), 2.0**60)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.integers(1, 6))
def test_narrow_sums_are_within_a_rounding_per_row(values, n_numbers):
    exponent = 26
    rows = np.array([[v * (n + 1) / 7 for v in values] for n in range(n_numbers)])
    limbs = narrow(exponent).add(rows)
    assert (limbs == np.rint(limbs)).all()
    assert np.abs(limbs[1:]).max() <= 2**11 * len(values)
    found = narrow(exponent).join(settled(limbs.ravel(), limbs.size))
    for value, row in zip(found, rows, strict=True):
        exact = sum(Fraction(v) for v in row)
        # rows round to 2^(e − 84); the float of the sum to 2⁻⁵² of the sizes of its limbs
        size = sum(abs(Fraction(v)) for v in row) + len(row) * Fraction(2) ** (exponent - 24)
        most = len(row) * Fraction(2) ** (exponent - 85) + size / 2**51
        assert abs(Fraction(value) - exact) <= most


@given(st.lists(reals, min_size=2, max_size=30), st.randoms())
def test_limbs_do_not_depend_on_how_rows_are_dealt(values, random):
    """Nothing is carried: the limbs of two sites add up to those of one, to the bit."""
    cut = random.randrange(1, len(values))
    moved = values[:]
    random.shuffle(moved)
    for places in (WIDE, narrow(70)):
        whole = places.add(np.array([values]))
        parts = [places.add(np.array([part])) for part in (moved[:cut], moved[cut:])]
        assert (whole == parts[0] + parts[1]).all()


def test_a_row_that_is_far_too_large_or_not_finite_is_told():
    rows = np.array([[1.0, np.inf, 1e4, 1e6], [1.0, 1.0, 1.0, np.nan]])
    assert is_near(rows, 0, 100).tolist() == [True, False, True, False]
    assert is_near(rows[:1], 0, 2**27).tolist() == [True, False, False, False]


@given(st.lists(st.tuples(reals, reals), min_size=1, max_size=4))
def test_wide_sums_are_exact_up_to_their_last_bit(pairs):
    ours, theirs = (np.array([pair[n] for pair in pairs]) for n in (0, 1))
    limbs = sum(WIDE.add(part[:, None]) for x in (ours, theirs) for part in arithmetic.square(x))
    assert (limbs == np.rint(limbs)).all()
    assert np.abs(limbs).max() <= SIZE
    for value, a, b in zip(WIDE.exact(limbs.ravel()), ours, theirs, strict=True):
        exact = Fraction(float(a)) ** 2 + Fraction(float(b)) ** 2
        assert abs(value - exact) <= 4 * Fraction(2) ** -145


@given(st.floats(0.0, 1e9), st.integers(0, 4))
def test_the_largest_limbs_of_a_size_are_not_exceeded(size, shift):
    places = narrow(30)
    rng = np.random.default_rng(shift)
    for value in (size, -size, *(size * rng.uniform(-1, 1, 20))):
        limbs = np.abs(places.add(np.array([[value]]))).ravel()
        assert (limbs <= places.most(np.array([size])).ravel()).all()


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

    def moments(x):
        first = WIDE.exact(WIDE.add(x[None]).ravel())[0]
        return first, sum(WIDE.exact(WIDE.add(v[None]).ravel())[0] for v in arithmetic.square(x))

    first, second = moments(x)
    exact = [Fraction(float(v)) for v in x]
    assert first == sum(exact)
    assert second == sum(v * v for v in exact)
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
    (far,) = [n for n, flag in enumerate(flags) if flag[0] == 0 < flag[1]][:1]
    assert np.median(np.abs(pooled[far][1][2:])) > 2.0**30


def test_pooled_counts_below_a_sites_own_end_the_fit():
    sites = {"a": {"x": np.arange(9.0), "y": np.arange(9.0)}}
    sites["b"] = {"x": np.arange(6.0), "y": np.arange(6.0) ** 2}

    def pool(vectors):
        return [v - 10.0 * np.eye(len(v))[6] for v in add(vectors)]  # ten rows fewer

    with pytest.raises(FitError, match="a site has sent a false count"):
        drive(programmes(Model(kind="linear", outcome="y", columns=["x"]), sites), pool)
