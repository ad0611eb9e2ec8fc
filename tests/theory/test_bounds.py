"""No row and no θ exceeds the bounds, and some row comes near each of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad.errors import PrivacyError
from hushgrad.problems import losses
from hushgrad.theory import RowBound, huber_row, logistic_row, mean_row, ridge_row

NORM, TARGET, DELTA = 2.0, 3.0, 1.35


def row_data(x, y):
    return {"X": x[None], "y": np.array([y]), "weight": np.ones(1), "penalty": 0 * x,
            "delta": DELTA}  # fmt: skip


def huber_hessian(x, y, theta):
    return np.outer(x, x) * (abs(x @ theta - y) < DELTA)


def logistic_hessian(x, y, theta):
    s = 1 / (1 + math.exp(-min(max(x @ theta, -500), 500)))
    return s * (1 - s) * np.outer(x, x)


CASES = {
    "ridge": (losses.squares_gradient, lambda x, y, theta: np.outer(x, x),
              ridge_row(NORM, TARGET)),
    "logistic": (losses.logistic_gradient, logistic_hessian, logistic_row(NORM)),
    "huber": (losses.huber_gradient, huber_hessian, huber_row(NORM, TARGET, DELTA)),
}  # fmt: skip


def parts(kind, x, y, theta):
    """‖Δq‖ and ‖ΔH‖ of one row, from the package's gradients and a Hessian by hand."""
    gradient, hessian, _ = CASES[kind]
    H = hessian(x, y, theta)
    q = gradient(theta, row_data(x, y)) - H @ theta
    return np.linalg.norm(q), np.linalg.norm(H[np.triu_indices(len(x))])


@pytest.mark.parametrize("kind", CASES)
@given(seed=st.integers(0, 10**6), far=st.floats(0.0, 300.0))
def test_no_row_exceeds_its_bound_at_any_theta(kind, seed, far):
    rng = np.random.default_rng(seed)
    x, theta = rng.normal(size=(2, 3))
    x *= NORM * rng.uniform() / np.linalg.norm(x)
    y = rng.choice([-1.0, 1.0]) if kind == "logistic" else rng.uniform(-TARGET, TARGET)
    linear, quadratic = parts(kind, x, y, far * theta)
    bound = CASES[kind][2]
    assert linear <= bound.linear * (1 + 1e-9) + 1e-9
    assert quadratic <= bound.quadratic * (1 + 1e-9)


@pytest.mark.parametrize("kind", CASES)
def test_a_row_along_an_axis_reaches_each_bound(kind):
    x, bound = np.array([NORM, 0.0]), CASES[kind][2]
    y = 1.0 if kind == "logistic" else TARGET
    found = [parts(kind, x, y, np.array([t, 0.0])) for t in np.linspace(-20, 20, 401)]
    assert max(f[0] for f in found) > 0.999 * bound.linear
    assert max(f[1] for f in found) > 0.999 * bound.quadratic


def test_a_mean_has_a_linear_part_alone():
    assert mean_row(2.0) == RowBound(linear=2.0, quadratic=0.0)


@pytest.mark.parametrize("wrong", [-1.0, math.inf, math.nan, "1", True])
def test_a_bound_is_a_finite_number(wrong):
    with pytest.raises(PrivacyError, match="finite public bounds"):
        logistic_row(wrong)
    with pytest.raises(PrivacyError, match="the bound linear"):
        RowBound(linear=wrong)
