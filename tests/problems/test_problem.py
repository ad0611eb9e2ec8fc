"""`Problem`: groups, data, autodiff, trials, and what it leaves alone."""

import threading
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hushgrad.problems import Problem, estimation, ridge


class Rows(NamedTuple):
    X: object
    y: object


def squares(theta, data):
    return jnp.sum((data["X"] @ theta - data["y"]) ** 2)


def unequal(sizes=(2, 5, 2, 3), d=4, seed=0):
    rng = np.random.default_rng(seed)
    return [{"X": rng.normal(size=(n, d)), "y": rng.normal(size=n)} for n in sizes]


def test_agents_of_equal_shape_are_stacked_into_groups():
    data = unequal()
    problem = Problem(squares, data)
    assert [group.agents.tolist() for group in problem.groups] == [[0, 2], [1], [3]]
    assert [group.data["X"].shape for group in problem.groups] == [(2, 2, 4), (1, 5, 4), (1, 3, 4)]
    for group in problem.groups:
        for place, i in enumerate(group.agents):
            np.testing.assert_array_equal(group.data["X"][place], data[i]["X"])
            np.testing.assert_array_equal(problem.agent_data(int(i))["y"], data[i]["y"])
    assert [agent["y"].size for agent in problem.data] == [2, 5, 2, 3]


def test_equal_shapes_are_one_group_in_the_agents_order():
    problem = Problem(squares, {"X": np.ones((3, 2, 4)), "y": np.arange(6.0).reshape(3, 2)})
    (group,) = problem.groups
    assert group.agents.tolist() == [0, 1, 2]
    assert problem.agent_data(2)["y"].tolist() == [4.0, 5.0]


@pytest.mark.parametrize(
    ("loss", "data"),
    [
        (lambda t, a: ((a[0] @ t - a[1]) ** 2).sum(), (np.ones((3, 2, 4)), np.ones((3, 2)))),
        (lambda t, a: ((a.X @ t - a.y) ** 2).sum(), Rows(np.ones((3, 2, 4)), np.ones((3, 2)))),
        (lambda t, a: ((a @ t) ** 2).sum(), np.ones((3, 2, 4))),
        (lambda t, a: ((a["n"]["X"] @ t) ** 2).sum(), {"n": {"X": np.ones((3, 2, 4)), "z": None}}),
    ],
)
def test_data_may_be_any_pytree_and_dim_follows(loss, data):
    problem = Problem(loss, data)
    assert (problem.n_agents, problem.dim) == (3, 4)
    assert problem.local_gradient(1)(np.zeros(4)).shape == (4,)


def test_autodiff_gradients_are_float64_numpy():
    problem = Problem(squares, unequal())
    theta = np.random.default_rng(1).normal(size=4)
    for i in range(4):
        X, y = problem.agent_data(i)["X"], problem.agent_data(i)["y"]
        gradient = problem.local_gradient(i)(theta)
        assert type(gradient) is np.ndarray
        assert gradient.dtype == np.float64
        np.testing.assert_allclose(gradient, 2 * X.T @ (X @ theta - y), rtol=1e-14, atol=1e-14)
        assert problem.local_value(i)(theta) == pytest.approx(
            np.sum((X @ theta - y) ** 2), rel=1e-14
        )
    parts = [problem.local_gradient(i)(theta) for i in range(4)]
    np.testing.assert_allclose(problem.gradient_sum(theta), sum(parts), rtol=1e-13)
    assert problem.value(theta) == pytest.approx(
        sum(problem.local_value(i)(theta) for i in range(4)), rel=1e-13
    )


def test_local_gradient_is_float64_in_another_thread():
    gradient = Problem(squares, unequal()).local_gradient(0)
    found = []
    worker = threading.Thread(target=lambda: found.append(gradient(np.full(4, 1 / 3))))
    worker.start()
    worker.join(timeout=60)
    np.testing.assert_array_equal(found[0], gradient(np.full(4, 1 / 3)))


def test_callers_jax_stays_in_float32():
    problem = Problem(squares, unequal())
    problem.solution()
    problem.smoothness()
    problem.local_gradient(0)(np.zeros(4))
    assert not jax.config.jax_enable_x64
    assert jnp.zeros(1).dtype == jnp.float32


def test_data_is_a_read_only_copy_and_the_callers_stays_as_it_was():
    X = np.ones((3, 2, 4), np.float32)
    counts = np.arange(3)
    problem = Problem(lambda t, a: a["n"] * ((a["X"] @ t) ** 2).sum(), {"X": X, "n": counts})
    X[:] = 7
    counts[:] = 7
    assert problem.data["n"].tolist() == [0, 1, 2]
    assert problem.data["X"].dtype == np.float64
    assert (problem.data["X"] == 1).all()
    assert problem.data["n"].dtype == counts.dtype
    with pytest.raises(ValueError, match="read-only"):
        problem.data["X"][0] = 0
    with pytest.raises(ValueError, match="read-only"):
        problem.solution()[0] = 0


@pytest.mark.parametrize("form", [lambda X: X, list])
def test_float64_data_is_copied_too(form):
    X = np.ones((3, 2, 4))
    problem = Problem(lambda t, a: ((a @ t) ** 2).sum(), form(X), dim=4)
    X[:] = 7
    assert (problem.groups[0].data == 1).all()


def test_a_hand_written_gradient_is_used():
    calls = []

    def gradient(theta, data):
        calls.append(type(theta))
        return 2 * (theta - data)

    problem = Problem(lambda t, p: ((t - p) ** 2).sum(), np.eye(3), gradient=gradient)
    assert problem.gradient_function is gradient
    calls.clear()
    np.testing.assert_array_equal(problem.local_gradient(0)(np.zeros(3)), [-2, 0, 0])
    assert calls == [np.ndarray]


def test_a_gradient_and_loss_written_with_jax_numpy_are_run_in_float64():
    problem = Problem(
        lambda t, p: jnp.sum((t - p) ** 2),
        np.full((1, 2), 1 / 3),
        gradient=lambda t, p: 2 * jnp.subtract(t, p),
    )
    np.testing.assert_array_equal(problem.local_gradient(0)(np.zeros(2)), [-2 / 3, -2 / 3])
    assert problem.local_value(0)(np.zeros(2)) == pytest.approx(2 / 9, rel=1e-15)


def test_every_trial_has_its_own_problem():
    p = np.random.default_rng(0).normal(size=(6, 3, 2))
    problem = Problem(lambda t, a: ((t - a) ** 2).sum(), p, per_trial=True)
    assert (problem.n_trials, problem.n_agents, problem.dim) == (6, 3, 2)
    assert problem.groups[0].data.shape == (6, 3, 2)
    np.testing.assert_array_equal(problem.agent_data(1, trial=4), p[4, 1])
    np.testing.assert_allclose(problem.solution(), p.mean(axis=1), atol=1e-15)
    np.testing.assert_allclose(problem.gradient_sum(np.zeros(2), trial=5), -2 * p[5].sum(axis=0))


def test_trial_is_ignored_where_all_trials_share_the_problem():
    problem = estimation()
    assert problem.value([0.0, 0.0], trial=9) == problem.value([0.0, 0.0])


def test_given_solutions_are_taken_as_they_are():
    data = np.eye(2)
    assert Problem(lambda t, p: ((t - p) ** 2).sum(), data, solution=[5, 6]).solution()[1] == 6
    by_function = Problem(lambda t, p: ((t - p) ** 2).sum(), data, solution=lambda p: p.sum(0))
    np.testing.assert_array_equal(by_function.solution(), [1, 1])


def test_given_curvatures_are_taken_over_all_trials():
    problem = Problem(
        lambda t, a: a[0] * (t @ t),
        np.array([[[1.0]], [[3.0]]]),
        per_trial=True,
        smoothness=lambda a: 2 * a.max(),
        strong_convexity=lambda a: 2 * a.min(),
    )
    assert (problem.smoothness(), problem.strong_convexity()) == (6.0, 2.0)


@pytest.mark.parametrize("d", [3, 230])
def test_measured_smoothness_is_the_largest_eigenvalue_over_agents(d):
    data = unequal(sizes=(d + 3, 5, d + 3), d=d)
    expected = max(2 * np.linalg.norm(agent["X"], 2) ** 2 for agent in data)
    assert Problem(squares, data, dim=d).smoothness() == pytest.approx(expected, rel=1e-6)


def test_measured_smoothness_agrees_with_the_closed_form_over_trials():
    known = estimation(trials=5)
    measured = Problem(known.loss, known.data, dim=2, per_trial=True)
    assert measured.smoothness() == pytest.approx(known.smoothness(), rel=1e-12)


def test_repr_names_the_sizes():
    assert repr(estimation(trials=3)) == "Problem('estimation', n_agents=5, dim=2, n_trials=3)"
    assert repr(ridge([[[1.0]]], [[1.0]])) == "Problem('ridge', n_agents=1, dim=1)"
