"""The built-in problems: gradients, closed forms and curvatures against independent oracles."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge

from hushgrad.problems import (
    Problem,
    estimation,
    estimation_from,
    huber,
    logistic,
    rendezvous,
    ridge,
)
from support.tables import combinations, some

KINDS = ["estimation", "rendezvous", "ridge", "logistic", "huber"]


def rows(rng, sizes, d):
    """Unequal amounts of data from one linear model."""
    X = [rng.normal(size=(n, d)) for n in sizes]
    truth = rng.normal(size=d)
    return X, [part @ truth + rng.normal(size=len(part)) for part in X]


def example(kind, seed=0, m=3, n=4, d=2, **options):
    rng = np.random.default_rng(seed)
    if kind == "estimation":
        return estimation(m, n, d, seed=seed, **options)
    if kind == "rendezvous":
        return rendezvous(n_agents=m, d=d, seed=seed)
    X, y = rows(rng, [n + i for i in range(m)], d)
    if kind == "ridge":
        return ridge(X, y, **options)
    if kind == "huber":
        return huber(X, y, delta=0.8, **options)
    return logistic(X, [(part > 0).astype(int) for part in y], **options)


shapes = {
    "kind": st.sampled_from(KINDS),
    "seed": st.integers(0, 10**6),
    "m": st.integers(1, 4),
    "n": st.integers(1, 5),
    "d": st.integers(1, 4),
}


@settings(max_examples=60, deadline=None)
@given(**shapes)
def test_gradient_is_the_central_difference_of_the_value(kind, seed, m, n, d):
    problem = example(kind, seed, m, n, d)
    theta = np.random.default_rng(seed + 1).normal(size=d)
    for i in range(m):
        value = problem.local_value(i)
        steps = 1e-6 * np.eye(d)
        central = [(value(theta + h) - value(theta - h)) / 2e-6 for h in steps]
        # Huber's second derivative jumps, which costs the difference one order: hence 1e-5
        np.testing.assert_allclose(
            problem.local_gradient(i)(theta),
            central,
            rtol=1e-6,
            atol=1e-5 if kind == "huber" else 1e-7,
        )


# every shape is compiled
@pytest.mark.parametrize(
    ("kind", "seed", "shape"), combinations(KINDS, [0, 1, 2], [(3, 4, 2), (1, 1, 1)])
)
def test_gradient_in_numpy_in_jax_and_by_autodiff_agree(kind, seed, shape):
    m, n, d = shape
    problem = example(kind, seed, m, n, d)
    theta = np.random.default_rng(seed + 1).normal(size=(m, d))
    (group,) = problem.groups
    with jax.enable_x64(True):
        x = jax.device_put(theta)
        by_hand = np.asarray(jax.jit(jax.vmap(problem.gradient_function))(x, group.data))
        by_autodiff = np.asarray(jax.jit(jax.vmap(jax.grad(problem.loss)))(x, group.data))
    assert by_hand.dtype == by_autodiff.dtype == np.float64
    in_numpy = np.stack([problem.local_gradient(i)(theta[i]) for i in range(m)])
    np.testing.assert_allclose(in_numpy, by_hand, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(in_numpy, by_autodiff, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_sums_over_agents(kind):
    problem = example(kind)
    theta = np.array([0.3, -0.7])
    values = [problem.local_value(i)(theta) for i in range(3)]
    gradients = [problem.local_gradient(i)(theta) for i in range(3)]
    assert problem.value(theta) == pytest.approx(sum(values), rel=1e-14)
    np.testing.assert_allclose(problem.gradient_sum(theta), sum(gradients), rtol=1e-13)


def test_estimation_is_the_papers_objective():
    problem = estimation(4, 3, 2, regularisation=0.2, seed=7)
    M, z = problem.data["M"], problem.data["z"]
    theta = np.array([0.4, -1.1])
    paper = [np.linalg.norm(z[i] - M[i] @ theta) ** 2 + 0.2 * theta @ theta for i in range(4)]
    np.testing.assert_allclose([problem.local_value(i)(theta) for i in range(4)], paper, rtol=1e-13)


@pytest.mark.parametrize("regularisation", [0.0, 0.1, 3.0])
def test_estimation_solution_solves_the_normal_equations(regularisation):
    problem = estimation(6, 3, 4, regularisation=regularisation, seed=2)
    M, z = problem.data["M"], problem.data["z"]
    normal = sum(M[i].T @ M[i] for i in range(6)) + 6 * regularisation * np.eye(4)
    expected = np.linalg.solve(normal, sum(M[i].T @ z[i] for i in range(6)))
    np.testing.assert_allclose(problem.solution(), expected, rtol=1e-11)


def test_estimation_measures_the_true_parameter_when_there_is_no_noise():
    problem = estimation(5, 3, 2, noise=0.0, regularisation=0.0, seed=3)
    assert problem.value(problem.solution()) < 1e-28


def test_estimation_trial_t_is_the_problem_of_the_seed_pair():
    many = estimation(seed=5, trials=4)
    single = estimation(seed=5)
    assert (many.n_trials, single.n_trials) == (4, None)
    for name in ("M", "z", "sigma"):
        np.testing.assert_array_equal(many.data[name][0], single.data[name])
    rng = np.random.default_rng(np.random.SeedSequence((5, 3)))
    np.testing.assert_array_equal(many.data["M"][3], rng.normal(size=(5, 3, 2)) / np.sqrt(3))
    np.testing.assert_array_equal(estimation(seed=5, trials=2).data["z"], many.data["z"][:2])
    alone = estimation_from(many.data["M"][3], many.data["z"][3], sigma=0.1)
    theta = np.array([0.2, 0.5])
    assert many.value(theta, trial=3) == alone.value(theta)
    np.testing.assert_array_equal(
        many.local_gradient(1, trial=3)(theta), alone.local_gradient(1)(theta)
    )
    np.testing.assert_allclose(many.solution()[3], alone.solution(), rtol=1e-14)
    assert many.solution().shape == (4, 2)


def test_neighbouring_seeds_share_no_trials():
    first, second = estimation(seed=0, trials=5).data["M"], estimation(seed=1, trials=5).data["M"]
    assert not np.isin(first, second).any()


def test_estimation_at_the_papers_size_is_smooth_enough_for_the_papers_stepsize():
    # with 1/k the iterates first grow by about 2^L
    assert estimation(trials=100).smoothness() < 14


def test_estimation_from_pads_unequal_measurements_with_nothing():
    rng = np.random.default_rng(0)
    M, z = rows(rng, [1, 4, 2], 2)
    sigma = np.array([0.1, 0.0, 2.0])
    problem = estimation_from(M, z, sigma=sigma)
    theta = rng.normal(size=2)
    for i in range(3):
        expected = np.sum((z[i] - M[i] @ theta) ** 2) + sigma[i] * theta @ theta
        assert problem.local_value(i)(theta) == pytest.approx(expected, rel=1e-14)


def test_rendezvous_is_at_the_mean_of_the_positions():
    positions = np.random.default_rng(0).normal(size=(7, 3))
    problem = rendezvous(positions)
    np.testing.assert_allclose(problem.solution(), positions.mean(axis=0), rtol=1e-15)
    assert problem.local_value(2)(np.zeros(3)) == pytest.approx(positions[2] @ positions[2])
    assert problem.smoothness() == problem.strong_convexity() == 2.0


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("regularisation", [0.01, 1.0, 30.0])
def test_ridge_solution_is_scikit_learns_on_pooled_data(regularisation, intercept):
    X, y = rows(np.random.default_rng(1), [4, 9, 6], 3)
    y = [part + 2.0 for part in y]
    fitted = Ridge(alpha=regularisation, fit_intercept=intercept, solver="cholesky").fit(
        np.concatenate(X), np.concatenate(y)
    )
    expected = np.append(fitted.coef_, fitted.intercept_) if intercept else fitted.coef_
    problem = ridge(X, y, regularisation=regularisation, intercept=intercept)
    np.testing.assert_allclose(problem.solution(), expected, rtol=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("regularisation", [0.1, 1.0, 10.0])
def test_logistic_solution_is_scikit_learns_on_pooled_data(regularisation, intercept):
    X, y = rows(np.random.default_rng(2), [14, 29, 26], 3)
    labels = [(part > 0.5).astype(int) for part in y]
    fitted = LogisticRegression(
        C=1 / regularisation, fit_intercept=intercept, solver="newton-cholesky", tol=1e-12
    ).fit(np.concatenate(X), np.concatenate(labels))
    coefficients = fitted.coef_[0]
    expected = np.append(coefficients, fitted.intercept_) if intercept else coefficients
    problem = logistic(X, labels, regularisation=regularisation, intercept=intercept)
    np.testing.assert_allclose(problem.solution(), expected, rtol=1e-8)


def test_logistic_value_is_the_negative_log_likelihood_and_ridge():
    X, y = rows(np.random.default_rng(3), [5, 3], 2)
    labels = [np.where(part > 0, 1, -1) for part in y]
    theta = np.array([0.7, -0.2])
    pooled, signs = np.concatenate(X), np.concatenate(labels)
    chance = 1 / (1 + np.exp(-(pooled @ theta)))
    likelihood = np.where(signs == 1, chance, 1 - chance)
    expected = -np.log(likelihood).sum() + 0.3 / 2 * theta @ theta
    problem = logistic(X, labels, regularisation=0.3)
    assert problem.value(theta) == pytest.approx(expected, rel=1e-13)


def test_logistic_takes_either_coding_of_labels():
    X, y = rows(np.random.default_rng(3), [5, 3], 2)
    booleans = [part > 0 for part in y]
    coded = [
        logistic(X, booleans),
        logistic(X, [part.astype(int) for part in booleans]),
        logistic(X, [np.where(part, 1.0, -1.0) for part in booleans]),
    ]
    for problem in coded[1:]:
        np.testing.assert_array_equal(problem.data["y"], coded[0].data["y"])


def test_logistic_is_finite_and_exact_at_huge_margins():
    problem = logistic([[[1.0]], [[1.0]]], [[1], [1]], regularisation=0.0)
    assert problem.local_value(0)([-1e4]) == 1e4
    assert problem.local_gradient(0)([-1e4]) == -1.0
    assert problem.local_gradient(0)([40.0])[0] == pytest.approx(-np.exp(-40.0), rel=1e-14)


def test_huber_is_quadratic_inside_delta_and_linear_outside():
    problem = huber([[[1.0]]], [[0.0]], delta=2.0, regularisation=0.0)
    value, gradient = problem.local_value(0), problem.local_gradient(0)
    assert [value([r]) for r in (-3.0, -1.0, 2.0, 5.0)] == [4.0, 0.5, 2.0, 8.0]
    assert [gradient([r])[0] for r in (-3.0, -1.0, 2.0, 5.0)] == [-2.0, -1.0, 2.0, 2.0]


def test_huber_with_a_wide_delta_is_ridge():
    X, y = rows(np.random.default_rng(4), [5, 8], 3)
    wide = huber(X, y, delta=1e9, regularisation=0.4).solution()
    np.testing.assert_allclose(wide, ridge(X, y, regularisation=0.4).solution(), rtol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_huber_solution_is_stationary_even_where_most_rows_are_outliers(scale):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(5, 8, 3))
    problem = huber(X, scale * rng.standard_cauchy(size=(5, 8)), delta=0.5, regularisation=0.0)
    assert np.linalg.norm(problem.gradient_sum(problem.solution())) < 1e-13 * scale


@pytest.mark.parametrize("kind", some(["huber", "ridge", "logistic"]))
def test_padded_rows_equal_an_unpadded_list_of_data(kind):
    padded = example(kind, m=2, regularisation=0.7)
    sizes = [4, 5]
    ragged = [
        {
            key: leaf[:n] if key in ("X", "y", "weight") else leaf
            for key, leaf in padded.agent_data(i).items()
        }
        for i, n in enumerate(sizes)
    ]
    assert all((agent["weight"] == 1).all() for agent in ragged)
    listed = Problem(padded.loss, ragged, dim=2)
    assert (len(padded.groups), len(listed.groups)) == (1, 2)
    theta = np.array([1.3, -0.4])
    for i in range(2):
        assert listed.local_value(i)(theta) == pytest.approx(
            padded.local_value(i)(theta), rel=1e-13
        )
        np.testing.assert_allclose(
            listed.local_gradient(i)(theta), padded.local_gradient(i)(theta), rtol=1e-12
        )
    np.testing.assert_allclose(listed.solution(), padded.solution(), rtol=1e-12)


@pytest.mark.parametrize("kind", some(KINDS, 2))
def test_generic_newton_finds_the_built_in_solution(kind):
    problem = example(kind, seed=8)
    generic = Problem(problem.loss, problem.data, dim=2)
    np.testing.assert_allclose(generic.solution(), problem.solution(), rtol=1e-12, atol=1e-14)


def agent_hessians(problem, theta):
    """∇²f_i(θ), (m, d, d), by central differences of the gradient."""
    steps = 1e-5 * np.eye(problem.dim)
    return np.stack(
        [
            [(g(theta + h) - g(theta - h)) / 2e-5 for h in steps]
            for g in map(problem.local_gradient, range(problem.n_agents))
        ]
    )


@pytest.mark.parametrize("kind", ["estimation", "rendezvous", "ridge", "logistic"])
def test_smoothness_is_the_largest_curvature_of_an_agent(kind):
    problem = example(kind, seed=3, m=4, n=3, d=3)
    measured = np.linalg.eigvalsh(agent_hessians(problem, np.zeros(3))).max()
    assert problem.smoothness() == pytest.approx(measured, rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_curvatures_bound_the_hessians_everywhere(kind, seed):
    problem = example(kind, seed, m=4, n=3, d=3)
    theta = np.random.default_rng(seed).normal(size=3)
    hessians = agent_hessians(problem, theta)
    assert np.linalg.eigvalsh(hessians).max() <= problem.smoothness() * (1 + 1e-7)
    mean = np.linalg.eigvalsh(hessians.mean(axis=0))[0]
    assert problem.strong_convexity() <= mean * (1 + 1e-7)
    if kind in ("estimation", "rendezvous", "ridge"):
        assert problem.strong_convexity() == pytest.approx(mean, rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_problem(kind):
    first, again, other = example(kind, 1), example(kind, 1), example(kind, 2)
    np.testing.assert_array_equal(first.solution(), again.solution())
    assert not np.array_equal(first.solution(), other.solution())
