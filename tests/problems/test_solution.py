"""Newton on custom losses: where it must arrive, and where it must say that it did not."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrad.errors import ProblemError
from hushgrad.problems import Problem, logistic


def squares(theta, data):
    return jnp.sum((data["X"] @ theta - data["y"]) ** 2)


# every list of sizes is compiled: fewer and more rows than dimensions, equal and unequal agents
SIZES = [[2], [1, 3], [4, 4, 4]]


@settings(max_examples=9, deadline=None)
@given(seed=st.integers(0, 10**6), sizes=st.sampled_from(SIZES))
def test_newton_equals_least_squares_of_least_norm(seed, sizes):
    rng = np.random.default_rng(seed)
    data = [{"X": rng.normal(size=(n, 5)), "y": rng.normal(size=n)} for n in sizes]
    expected = np.linalg.lstsq(
        np.concatenate([agent["X"] for agent in data]), np.concatenate([a["y"] for a in data])
    )[0]
    np.testing.assert_allclose(
        Problem(squares, data, dim=5).solution(), expected, rtol=1e-8, atol=1e-10
    )


def test_newton_reaches_rounding_level_on_a_loss_without_closed_form():
    rng = np.random.default_rng(0)
    X = 5 * rng.normal(size=(3, 10, 2))

    def poisson(theta, rows):
        return jnp.sum(jnp.exp(rows @ theta) - 3 * (rows @ theta))

    problem = Problem(poisson, X, dim=2)
    theta = problem.solution()
    pooled = X.reshape(-1, 2)
    gradient = pooled.T @ (np.exp(pooled @ theta) - 3)
    assert np.linalg.norm(gradient) < 1e-12


def test_newton_meets_a_degenerate_minimum():
    quartic = Problem(lambda t, p: ((t - p) ** 4).sum(), np.ones((3, 1)))
    assert quartic.solution() == pytest.approx(1.0, abs=1e-12)


def test_newton_accepts_a_gradient_that_is_rounding_of_large_residuals():
    X = np.full((2, 3, 2), 0.1)
    y = np.tile([1e8 / 3, -1e7 / 3, -9e7 / 3], (2, 1))  # orthogonal to the columns
    problem = Problem(squares, {"X": X, "y": y}, dim=2)
    assert np.abs(problem.solution()).max() < 1e-5


def test_a_large_constant_in_the_value_does_not_hide_the_minimum():
    p = np.random.default_rng(0).normal(size=(4, 3))
    problem = Problem(lambda t, a: ((t - a) ** 2).sum() + 1e20, p)
    np.testing.assert_allclose(problem.solution(), p.mean(axis=0), rtol=1e-14)


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        (lambda t, a: jnp.exp(a * t).sum() + 1, "no minimiser"),
        (lambda t, a: (a * t).sum(), "no minimiser"),
        (lambda t, a: jnp.abs(t - a).sum() + jnp.abs(t - 2 * a).sum() * 2, "not smooth"),
        (lambda t, a: -((t - a) ** 2).sum(), "not convex"),
        (lambda t, a: ((t**2 - a) ** 2).sum(), "not convex"),
        (lambda t, a: -jnp.log(a * t).sum(), "finite at 0"),
    ],
)
def test_newton_says_the_gradient_norm_it_reached_where_there_is_no_minimum(loss, why):
    with pytest.raises(ProblemError, match=r"gradient norm") as caught:
        Problem(loss, np.ones((3, 1))).solution()
    assert why in str(caught.value)
    assert "solution=" in str(caught.value)


def test_separable_classes_without_regulariser_have_no_solution():
    X = np.random.default_rng(0).normal(size=(4, 10, 3))
    with pytest.raises(ProblemError, match="no minimiser"):
        logistic(X, np.sign(X @ [1.0, 2.0, 3.0]), regularisation=0.0).solution()


def test_newton_with_a_few_hundred_dimensions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 400, 300))
    y = rng.normal(size=(3, 400))
    generic = Problem(squares, {"X": X, "y": y}, dim=300).solution()
    expected = np.linalg.lstsq(X.reshape(-1, 300), y.ravel())[0]
    np.testing.assert_allclose(generic, expected, atol=1e-13)
