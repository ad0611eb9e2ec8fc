"""Long vectors: NumPy's numbers to the bit, whatever the pieces and the expression."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad.agent import long
from hushgrad.agent.long import Long

DIM = 7
OPERATIONS = [np.add, np.subtract, np.multiply, np.divide]


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    monkeypatch.setattr(long, "PIECE", 3)
    with np.errstate(all="ignore"):  # v / (v − v) is what it is
        yield


def leaves(seed):
    return np.random.default_rng(seed).uniform(1.0, 2.0, size=(4, DIM))


@st.composite
def expressions(draw, depth=4):
    """A function of vectors (plain or long) that uses only what they have in common."""
    kind = draw(st.sampled_from(["leaf"] if depth == 0 else ["leaf", "number", "negative", "two"]))
    if kind == "leaf":
        n = draw(st.integers(0, 3))
        return lambda v: v[n]
    first = draw(expressions(depth - 1))
    if kind == "negative":
        return lambda v: -first(v)
    operation = draw(st.sampled_from(OPERATIONS))
    if kind == "number":
        c = draw(st.sampled_from([2, 0.5, -3.0, np.float64(1.25), np.full((1, 1, 1), 0.75)]))
        flip = draw(st.booleans())
        return lambda v: operation(c, first(v)) if flip else operation(first(v), c)
    second = draw(expressions(depth - 1))
    return lambda v: operation(first(v), second(v))


@given(expressions(), st.integers(0, 5))
def test_an_expression_is_what_numpy_makes_of_it(expression, seed):
    plain = leaves(seed)
    expected = expression(list(plain[:, None, :, None]))
    before = plain.copy()
    found = expression([Long.of(v) for v in plain])
    assert isinstance(found, Long)
    np.testing.assert_array_equal(found.array, expected)
    np.testing.assert_array_equal(found.numbers, expected[0, :, 0])  # and again
    np.testing.assert_array_equal(plain, before)  # nothing was computed into what was given


@given(expressions(), expressions())
def test_pieces_are_read_without_computing_all(one, other):
    plain = leaves(1)
    a, b = one([Long.of(v) for v in plain]), other([Long.of(v) for v in plain])
    expected = (one(list(plain)) + other(list(plain))).ravel()
    both = a + b
    for where in long.pieces(DIM):
        room = np.empty(where.stop - where.start)
        np.testing.assert_array_equal(both.piece(where, room), expected[where])


def test_for_all_else_it_is_an_array():
    (v,) = leaves(2)[:1]
    u = 2.0 * Long.of(v)
    array = (2.0 * v)[None, :, None]
    assert u.shape == array.shape
    assert u.ndim == 3
    np.testing.assert_array_equal(u.sum(1, keepdims=True), array.sum(1, keepdims=True))
    np.testing.assert_array_equal(np.sqrt(u), np.sqrt(array))
    np.testing.assert_array_equal(u**2, array**2)
    np.testing.assert_array_equal(u > 3.0, array > 3.0)
    np.testing.assert_array_equal(np.concatenate([u, u]), np.concatenate([array, array]))
    np.testing.assert_array_equal(u * np.ones((4, 1, 1)), array * np.ones((4, 1, 1)))
    np.testing.assert_array_equal(np.ones((4, 1, 1)) * u, array * np.ones((4, 1, 1)))
    np.testing.assert_array_equal(u[0, 2:4, 0], array[0, 2:4, 0])


def test_in_place_makes_another_vector():
    (v,) = leaves(3)[:1]
    u = before = Long.of(v)
    u += 1.0
    u -= before
    u *= 3.0
    u /= 2.0
    np.testing.assert_array_equal(u.numbers, ((v + 1.0) - v) * 3.0 / 2.0)
    u **= 2
    np.testing.assert_array_equal(u[0, :, 0], (((v + 1.0) - v) * 3.0 / 2.0) ** 2)
    np.testing.assert_array_equal(before.numbers, v)
