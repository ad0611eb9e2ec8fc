"""Pooled sums give the fit of the pooled rows: oracles in NumPy and SciPy, for every kind."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats
from scipy.special import gammaln

from hushgrad.errors import FitError
from support.fits import (
    cancer,
    design,
    fit,
    model,
    pooled_columns,
    reweighted,
    synthetic,
    weighted_least_squares,
)

CLOSE = 1e-9
NORMAL = stats.norm.ppf(0.975)


@pytest.fixture(scope="module")
def rows():
    return pooled_columns(synthetic())


def check_table(result, b, covariance, *, df=None, rtol=CLOSE):
    se = np.sqrt(np.diag(covariance))
    reach = NORMAL if df is None else stats.t.ppf(0.975, df)
    tail = stats.norm.sf(abs(b / se)) if df is None else stats.t.sf(abs(b / se), df)
    assert_allclose(result.estimate, b, rtol=rtol)
    assert_allclose(result.covariance, covariance, rtol=1e-7, atol=rtol * abs(covariance).max())
    assert_allclose(result.standard_error, se, rtol=rtol)
    assert_allclose(result.statistic, b / se, rtol=rtol)
    assert_allclose(result.low, b - reach * se, rtol=rtol * 10)
    assert_allclose(result.high, b + reach * se, rtol=rtol * 10)
    assert_allclose(result.p_value, 2 * tail, rtol=1e-7)
    assert result.distribution == ("z" if df is None else "t")


@pytest.mark.parametrize("weights", [None, "weight"])
def test_a_linear_fit_is_least_squares_on_the_pooled_rows(rows, weights):
    declared = model("linear", weights=weights)
    X, y = design(declared, synthetic()), rows["pressure"]
    w = np.ones(len(y)) if weights is None else rows[weights]
    b, inverse = weighted_least_squares(X, y, w)
    n, p = X.shape
    rss = w @ (y - X @ b) ** 2
    result = fit(declared, synthetic())
    check_table(result, b, inverse * rss / (n - p), df=n - p)
    likelihood = stats.norm.logpdf(y, X @ b, np.sqrt(rss / n / w)).sum()
    assert_allclose(result.variance, rss / (n - p), rtol=CLOSE)
    assert_allclose(result.deviance, rss, rtol=CLOSE)
    assert_allclose(result.null_deviance, w @ (y - w @ y / w.sum()) ** 2, rtol=CLOSE)
    assert_allclose(result.log_likelihood, likelihood, rtol=CLOSE)
    assert_allclose(result.aic, 2 * p - 2 * likelihood, rtol=CLOSE)
    assert (result.n_rows, result.n_sites, result.n_averages) == (4000, 3, 3)


def test_a_nearly_perfect_linear_fit_keeps_the_digits_of_its_residuals():
    rng = np.random.default_rng(2)
    x, noise = rng.standard_normal(90), rng.standard_normal(90)
    y = 1e6 * x + 0.1 * noise  # R² = 1 − 1e-14
    sites = {name: {"x": x[part], "y": y[part]} for name, part in
             (("a", slice(20)), ("b", slice(20, None)))}  # fmt: skip
    declared = model("linear", outcome="y", columns=["x"], factors={})
    X = design(declared, sites)
    b, inverse = weighted_least_squares(X, y, np.ones(90))
    variance = np.sum((y - X @ b) ** 2) / 88
    result = fit(declared, sites)
    assert_allclose(result.variance, variance, rtol=1e-7)  # y itself has 1e-9 of it
    assert_allclose(result.standard_error, np.sqrt(np.diag(inverse) * variance), rtol=1e-7)


def test_a_linear_fit_without_intercept_is_least_squares_through_zero(rows):
    declared = model("linear", intercept=False)
    b, _ = weighted_least_squares(design(declared, synthetic()), rows["pressure"], np.ones(4000))
    result = fit(declared, synthetic())
    assert "intercept" not in result.names
    assert_allclose(result.estimate, b, rtol=CLOSE)


@pytest.mark.parametrize("penalise", ["standardised", "raw"])
def test_a_ridge_is_its_closed_form(rows, penalise):
    declared = model("ridge", penalise=penalise, penalty=7.0)
    X, y = design(declared, synthetic()), rows["pressure"]
    size = X.std(axis=0) if penalise == "standardised" else np.ones(X.shape[1])
    size[0] = 0.0
    # rows of the penalty below the data: the closed form without squared condition
    b = np.linalg.lstsq(np.vstack([X, np.sqrt(7.0) * np.diag(size)]),
                        np.append(y, np.zeros(len(size))), rcond=1e-16)[0]  # fmt: skip
    result = fit(declared, synthetic())
    assert_allclose(result.estimate, b, rtol=1e-8)
    assert result.standard_error is None


@pytest.mark.parametrize("weights", [None, "weight"])
def test_a_logistic_fit_is_the_pooled_maximum_of_likelihood(rows, weights):
    declared = model("logistic", weights=weights)
    y, w = rows["death"], 1.0 if weights is None else rows[weights]
    b, covariance, mean = reweighted("logistic", design(declared, synthetic()), y, weights=w)
    result = fit(declared, synthetic())
    check_table(result, b, covariance)
    likelihood = (w * stats.bernoulli.logpmf(y, mean)).sum()
    null = (w * stats.bernoulli.logpmf(y, np.average(y, weights=w + 0 * y))).sum()
    assert_allclose(result.log_likelihood, likelihood, rtol=CLOSE)
    assert_allclose(result.deviance, -2 * likelihood, rtol=CLOSE)
    assert_allclose(result.null_deviance, -2 * null, rtol=CLOSE)
    assert_allclose(result.aic, 2 * len(b) - 2 * likelihood, rtol=CLOSE)
    assert result.n_events == y.sum()


def test_a_poisson_fit_with_offset_is_the_pooled_maximum_of_likelihood(rows):
    declared = model("poisson", offset="log_exposure", weights="weight")
    y, offset, w = rows["visits"], rows["log_exposure"], rows["weight"]
    X = design(declared, synthetic())
    b, covariance, mean = reweighted("poisson", X, y, offset=offset, weights=w)
    result = fit(declared, synthetic())
    check_table(result, b, covariance)
    null = np.exp(offset) * (w @ y) / (w @ np.exp(offset))

    def deviance(mean):
        return 2 * w @ (y * np.log(np.maximum(y, 1e-300) / mean) - (y - mean))

    likelihood = w @ (y * np.log(mean) - mean - gammaln(y + 1))
    assert_allclose(result.deviance, deviance(mean), rtol=CLOSE)
    assert_allclose(result.null_deviance, deviance(null), rtol=CLOSE)
    assert_allclose(result.log_likelihood, likelihood, rtol=CLOSE)
    assert_allclose(result.aic, 2 * len(b) - 2 * likelihood, rtol=CLOSE)


@pytest.mark.parametrize("delta", [12.0, 0.5])
def test_a_huber_fit_is_the_minimum_that_another_solver_finds(rows, delta):
    declared = model("huber", delta=delta)
    X, y = design(declared, synthetic()), rows["pressure"]
    size = np.linalg.norm(X, axis=0)
    start = weighted_least_squares(X, y, np.ones(len(y)))[0] * size
    found = optimize.least_squares(  # Σ of SciPy's huber loss, scaled by delta
        lambda b: X / size @ b - y, start, lambda b: X / size, loss="huber", f_scale=delta,
        xtol=1e-15, ftol=1e-15, gtol=1e-12, max_nfev=2000,
    )  # fmt: skip
    result = fit(declared, synthetic())
    assert_allclose(result.loss, found.cost, rtol=1e-12)
    # the minimum is where the gradient vanishes: Huber's psi, summed over the pooled rows
    slope = np.clip(X @ result.estimate - y, -delta, delta)
    assert_allclose(X.T @ slope / (size * np.sqrt(slope @ slope)), 0, atol=1e-11)
    assert_allclose(result.estimate * size, found.x, rtol=1e-4, atol=1e-4 * abs(found.x).max())
    inside = abs(X @ result.estimate - y) <= delta
    bread = weighted_least_squares(X, y, inside + 1e-30)[1]
    middle = (X * slope[:, None]).T @ (X * slope[:, None])
    assert_allclose(result.standard_error, np.sqrt(np.diag(bread @ middle @ bread)), rtol=1e-8)
    assert result.aic is None


def partial_likelihood(X, time, event, site, b, ties):
    """Cox's logarithm, straight from its definition; complex b give derivatives."""
    total = 0.0
    eta = X @ b
    for s in np.unique(site):
        here = site == s
        for t in np.unique(time[here & (event > 0)]):
            dead = here & (time == t) & (event > 0)
            d = dead.sum()
            at_risk, tied = np.exp(eta[here & (time >= t)]).sum(), np.exp(eta[dead]).sum()
            total += eta[dead].sum()
            for place in range(d):
                total -= np.log(at_risk - (place / d if ties == "efron" else 0.0) * tied)
    return total


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_a_cox_fit_is_the_maximum_of_the_partial_likelihood_with_sites_as_strata(ties):
    sites = synthetic((25, 40, 60))
    declared = model("cox", columns=("age", "dose"), factors={}, ties=ties)
    rows = pooled_columns(sites)
    site = np.repeat([0, 1, 2], [25, 40, 60])
    X = design(declared, sites)
    result = fit(declared, sites)
    size = 1 / X.std(axis=0)
    X = (X - X.mean(axis=0)) * size  # the likelihood does not depend on the centre

    def score(b):
        steps = 1e-20j * np.eye(len(b))
        return np.array([
            partial_likelihood(X, rows["time"], rows["event"], site, b + h, ties).imag / 1e-20
            for h in steps
        ])  # fmt: skip

    b = result.estimate / size
    H = -np.array([(score(b + h) - score(b - h)) / 2e-5 for h in 1e-5 * np.eye(len(b))])
    covariance = np.linalg.inv(H)
    assert_allclose(score(b) @ covariance @ score(b), 0, atol=1e-20)  # squared standard errors
    assert_allclose(result.standard_error / size, np.sqrt(np.diag(covariance)), rtol=1e-8)
    at = [partial_likelihood(X, rows["time"], rows["event"], site, v, ties) for v in (b, 0 * b)]
    assert_allclose([result.log_likelihood, result.null_log_likelihood], at, rtol=1e-11)
    assert_allclose(result.aic, 2 * len(b) - 2 * at[0], rtol=1e-11)
    assert result.n_events == rows["event"].sum()


def test_sandwich_errors_are_those_of_the_pooled_scores(rows):
    sites = synthetic()
    for kind, weights in (("logistic", None), ("poisson", "weight"), ("linear", "weight")):
        declared = model(kind, standard_errors="sandwich", weights=weights)
        X, y = design(declared, sites), rows[declared.outcome]
        w = np.ones(len(y)) if weights is None else rows[weights]
        if kind == "linear":
            b, bread = weighted_least_squares(X, y, w)
            mean = X @ b
        else:
            b, bread, mean = reweighted(kind, X, y, weights=w)
        scores = X * (w * (y - mean))[:, None]
        covariance = bread @ (scores.T @ scores) @ bread
        check_table(fit(declared, sites), b, covariance)
        clusters = np.add.reduceat(scores, [0, 200, 1000])
        covariance = bread @ (clusters.T @ clusters) @ bread * 3 / 2 * 3999 / (4000 - X.shape[1])
        result = fit(model(kind, standard_errors="site", weights=weights), sites)
        assert_allclose(result.standard_error, np.sqrt(np.diag(covariance)), rtol=1e-7)


def test_thirty_raw_columns_nearly_separable_end_within_1e_9_of_the_pooled_fit():
    names, sites = cancer()
    declared = model("logistic", outcome="benign", columns=names, factors={}, penalty=1.0)
    result = fit(declared, sites)
    X, y = design(declared, sites), pooled_columns(sites)["benign"]
    Z = np.column_stack([np.ones(len(y)), (X[:, 1:] - X[:, 1:].mean(0)) / X[:, 1:].std(0)])
    P = np.diag([0.0, *np.ones(30)])

    def slope(b):
        return Z.T @ (1 / (1 + np.exp(-Z @ b)) - y) + P @ b

    def curvature(b):
        mean = 1 / (1 + np.exp(-Z @ b))
        return (Z * (mean * (1 - mean))[:, None]).T @ Z + P

    found = optimize.root(slope, np.zeros(31), jac=curvature, method="hybr", tol=1e-15).x
    found = found - np.linalg.solve(curvature(found), slope(found))
    b = found[1:] / X[:, 1:].std(0)
    assert_allclose(result.estimate, [found[0] - b @ X[:, 1:].mean(0), *b], rtol=1e-9)
    assert result.n_averages <= 11


@pytest.mark.parametrize(("n_columns", "is_separated"), [(29, False), (30, True)])
def test_thirty_raw_columns_separate_the_outcomes_and_twenty_nine_nearly(n_columns, is_separated):
    """Linear programming: is there a b with ±(1, z)ᵀb ≥ 0 in all rows, and > 0 in one?"""
    names, sites = cancer(n_columns)
    declared = model("logistic", outcome="benign", columns=names, factors={})
    X, y = design(declared, sites), pooled_columns(sites)["benign"]
    sides = (2 * y - 1)[:, None] * X / np.abs(X).max(axis=0)
    bounds = [(-1, 1)] * X.shape[1]
    found = optimize.linprog(-sides.sum(axis=0), -sides, np.zeros(len(y)), bounds=bounds)
    assert found.status == 0
    assert (-found.fun > 1e-6) == is_separated
    if is_separated:
        with pytest.raises(FitError, match=r"no curvature left.*separation"):
            fit(declared, sites)
    else:
        assert fit(declared, sites).n_averages <= 22
