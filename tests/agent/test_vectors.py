"""The judgement of a vector's numbers, for few and for many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad.agent.vectors import FINITE, combine, is_within


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=70),
    st.sampled_from([1.0, 1e30, FINITE]),
)
def test_numbers_are_within_a_bound_if_each_of_them_is(numbers, most):
    expected = all(np.isfinite(v) and abs(v) <= most for v in numbers)
    assert is_within(np.array(numbers), most) == expected


@pytest.mark.parametrize("n", [1, 32, 33, 5000])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.0000001e12, -1.0000001e12])
def test_one_bad_number_among_many_is_seen(n, bad):
    vector = np.full(n, 1e12)  # their sum is far above the bound
    assert is_within(vector, 1e12)
    vector[n // 2] = bad
    assert not is_within(vector, 1e12)


@given(
    st.lists(st.sampled_from([-2.0, -1.0, -0.3, 0.0, 1.0, 1.7]), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
)
def test_a_combination_adds_products_from_the_first_to_the_last(weights, seed):
    vectors = [*np.random.default_rng(seed).normal(size=(len(weights), 3))]
    before = np.array(vectors)
    expected = np.zeros(3)
    for w, vector in zip(weights, before, strict=True):
        expected = expected + w * vector
    assert np.array_equal(combine(weights, vectors), expected)
    assert np.array_equal(vectors, before)
