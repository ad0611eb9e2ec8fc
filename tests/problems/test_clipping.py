"""Long rows are shortened to a public length, with the same bits wherever a row is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import hushgrad as hg
from hushgrad.errors import ProblemError
from hushgrad.problems.clipping import clip_rows
from hushgrad.problems.determined import largest_share, row_loss, rows_of
from hushgrad.problems.rows import logistic

SIZES = st.floats(-1e200, 1e200).filter(lambda v: v == 0 or abs(v) > 1e-200)
TABLES = arrays(np.float64, st.tuples(st.integers(0, 6), st.integers(1, 5)), elements=SIZES)


@given(TABLES, st.sampled_from([1e-3, 1.0, 2.5, 1e6]))
def test_no_row_is_longer_and_directions_and_short_rows_stay(X, clip):
    clipped = clip_rows(X, clip)
    for row, short in zip(X, clipped, strict=True):
        unit = np.abs(row).max() or 1.0
        length = unit * np.linalg.norm(row / unit)
        assert np.linalg.norm(short) <= clip * (1 + 1e-12)
        if length <= clip * (1 - 1e-12):
            assert np.array_equal(short, row)
        else:
            np.testing.assert_allclose(short, row / unit * (clip / (length / unit)), rtol=1e-12)


@given(TABLES)
def test_a_row_gives_the_same_bits_whoever_holds_it(X):
    clipped = clip_rows(X, 1.0)
    for n in range(len(X)):
        assert clip_rows(X[n : n + 1], 1.0).tobytes() == clipped[n : n + 1].tobytes()
    assert clip_rows(np.asfortranarray(X), 1.0).tobytes() == clipped.tobytes()


def rows():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(400, 2)) for _ in range(3)]
    return X, [np.where(rng.random(400) < 0.5, 1.0, -1.0) for _ in range(3)]


@pytest.mark.parametrize("build", [hg.problems.ridge, hg.problems.logistic, hg.problems.huber])
def test_a_regression_of_clipped_rows_keeps_its_intercept(build):
    X, y = rows()
    short = [x * np.minimum(1, 1.2 / np.linalg.norm(x, axis=1))[:, None] for x in X]
    problem = build(X, y, clip=1.2, intercept=True)
    np.testing.assert_allclose(
        problem.solution(), build(short, y, intercept=True).solution(), atol=1e-9
    )
    assert np.array_equal(problem.agent_data(0)["X"][:, -1], np.ones(400))
    assert not np.allclose(problem.solution(), build(X, y, intercept=True).solution(), atol=1e-6)


def test_the_sums_of_stages_tell_less_of_clipped_rows():
    X, y = rows()
    starts = [np.zeros(2), np.array([0.2, -0.1])]

    def share(**given):
        problem = hg.problems.logistic(X, y, **given)
        own = [rows_of(problem.agent_data(i)) for i in range(3)]
        return largest_share(row_loss(logistic), own, starts)

    assert share(clip=1.5) < 0.5 * share()


@pytest.mark.parametrize("clip", [0, -1.0, np.inf, "far", True])
def test_a_length_that_is_none_is_refused(clip):
    with pytest.raises(ProblemError, match="clip is a finite number above 0"):
        hg.problems.logistic(*rows(), clip=clip)
