"""Fits without a pooled Hessian: scikit-learn's, from products with vectors."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression, Ridge

import hushgrad as hg
from hushgrad.errors import FitError, ModelError
from hushgrad.fitting import conjugate
from hushgrad.fitting.averages import longest_vector, most_averages
from hushgrad.fitting.lockstep import drive
from hushgrad.fitting.told import told_by
from support.fits import divide, fit, model, programmes, synthetic

WIDE = 300
NAMES = [f"x{n}" for n in range(WIDE)]
SITES = synthetic((60, 90, 150))


@cache
def wide():
    """Correlated columns of very different sizes."""
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((700, WIDE)) + rng.standard_normal((700, 1))
    X = 7 + Z * 10.0 ** rng.integers(-3, 4, WIDE)
    eta = Z @ (0.2 * rng.standard_normal(WIDE))
    died = (rng.uniform(size=700) < 1 / (1 + np.exp(-eta))).astype(float)
    columns = dict(zip(NAMES, X.T, strict=True)) | {"y": 3 + eta, "died": died}
    return X, columns, divide(columns, (100, 200, 400))


@pytest.mark.parametrize("kind", ["ridge", pytest.param("logistic", marks=pytest.mark.slow)])
def test_three_hundred_columns_are_fitted_as_scikit_learn_does(kind):
    X, columns, sites = wide()
    outcome = "y" if kind == "ridge" else "died"
    declared = hg.Model(kind=kind, outcome=outcome, columns=NAMES, penalty=5.0)
    lengths = []

    def pool(vectors):
        lengths.append(len(vectors[0]))
        return [np.sum(vectors, axis=0)] * len(vectors)

    result = drive(programmes(declared, sites), pool)[0]
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    if kind == "ridge":
        theirs = Ridge(alpha=5.0, solver="cholesky").fit(Z, columns["y"])
        b, constant = theirs.coef_, theirs.intercept_
    else:
        theirs = LogisticRegression(C=1 / 5.0, solver="newton-cholesky", tol=1e-12)
        theirs.fit(Z, columns["died"])
        b, constant = theirs.coef_[0], theirs.intercept_[0]
    ours = result.estimate[1:] * X.std(axis=0)
    assert_allclose(ours, b, atol=1e-8 * np.abs(b).max())
    assert_allclose(result.estimate[0] + result.estimate[1:] @ X.mean(axis=0), constant, rtol=1e-7)
    assert result.standard_error is None
    assert "no Hessian pooled, but products with vectors" in result.table()
    assert max(lengths) <= longest_vector(declared) < 301 * 302 // 2
    assert len(lengths) == result.n_averages < most_averages(declared)
    products = [stage for stage in result.stages if stage.name == "product"]
    assert {stage.n_numbers for stage in products} == {WIDE + 1}
    assert len(products) < 200


@pytest.mark.parametrize("kind", ["ridge", "logistic", "poisson"])
def test_products_and_matrices_give_one_fit(kind):
    options = {"weights": "weight", "penalty": 3.0}
    matrix = fit(model(kind, **options), SITES)
    products = fit(model(kind, hessian="products", **options), SITES)
    assert_allclose(products.estimate, matrix.estimate, rtol=1e-8)
    assert_allclose(products.loss, matrix.loss, rtol=1e-9)
    assert matrix.contract != products.contract


def test_a_far_step_is_halved():
    x = np.append(np.linspace(-1, 1, 59), 6.0)
    y = np.append(np.ones(59), 4000.0)
    declared = {"kind": "poisson", "outcome": "y", "columns": ["x"], "penalty": 1e-3}
    sites = {"a": {"x": x, "y": y}}
    products = fit(hg.Model(**declared, hessian="products"), sites)
    assert_allclose(products.estimate, fit(hg.Model(**declared), sites).estimate, rtol=1e-8)


def test_a_site_takes_the_same_decisions_whatever_the_order_of_its_sums():
    """Other machines add in another order; pooled sums are equal, so nothing else may differ."""
    declared = model("logistic", hessian="products", penalty=3.0)
    found = drive(programmes(declared, SITES))
    assert len({result.estimate.tobytes() for result in found}) == 1
    again = drive(programmes(declared, SITES), lambda v: [np.sum(v[::-1], axis=0)] * len(v))
    assert again[0].estimate.tobytes() == found[0].estimate.tobytes()


def test_on_a_network_the_bits_are_the_same():
    declared = model("ridge", hessian="products", columns=("age", "dose"), factors={})
    found = hg.fit(declared, SITES, network=hg.Network(hg.graphs.complete(3)))
    assert found.estimate.tobytes() == fit(declared, SITES).estimate.tobytes()


def test_a_fit_that_does_not_converge_is_named(monkeypatch):
    monkeypatch.setattr(conjugate, "MOST_AVERAGES", 3)
    with pytest.raises(FitError, match="not converged after 3 averages"):
        fit(model("logistic", hessian="products", penalty=3.0), SITES)


def test_the_numbers_are_expected_and_counted():
    declared = model("logistic", hessian="products", penalty=3.0)
    p = len(declared.names)
    told = told_by(declared)
    assert told.numbers == 10 + 2 * p + 8 * (2 + 22 * p)
    result = fit(declared, SITES)
    assert result.stages[1].n_numbers == 2 + 2 * p
    assert sum(stage.n_numbers for stage in result.stages) == result.numbers_pooled <= told.numbers


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "logistic", "hessian": "products"},
        {"kind": "linear", "hessian": "products"},
        {"kind": "huber", "hessian": "products", "delta": 1.0, "penalty": 1.0},
        {"kind": "logistic", "hessian": "products", "penalty": "cv", "penalties": (1.0, 2.0)},
        {"kind": "logistic", "columns": NAMES},
    ],
)
def test_without_a_penalty_a_hessian_is_asked_for(options):
    given = {"outcome": "y", "columns": ["x0", "x1"]} | options
    with pytest.raises(ModelError, match='Give a penalty, or hessian = "matrix", which pools'):
        hg.Model(**given)
    if len(given["columns"]) > 2:
        assert hg.Model(**given, hessian="matrix").pools_hessian
        assert not hg.Model(**given, penalty=1.0).pools_hessian
