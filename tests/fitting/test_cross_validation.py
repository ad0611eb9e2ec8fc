"""The penalty by cross-validation is scikit-learn's with the same folds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

import hushgrad as hg
from hushgrad.errors import ModelError
from hushgrad.fitting import contract, contract_digest
from hushgrad.fitting.averages import longest_vector, most_averages
from hushgrad.fitting.cross_validation import CrossValidation
from hushgrad.fitting.lockstep import drive
from hushgrad.fitting.told import told_by
from support.fits import design, fit, model, pooled_columns, programmes, synthetic

SITES = synthetic((60, 90, 150))
PENALTIES = (300.0, 0.5, 6.0, 40.0)
FOLDS = 4


def validated(kind, **options):
    return model(kind, **({"penalty": "cv", "penalties": PENALTIES, "folds": FOLDS} | options))


def oracle(kind, declared):
    """Mean losses and their errors over folds, by scikit-learn, in pooled-standardised columns."""
    X, columns = design(declared, SITES)[:, 1:], pooled_columns(SITES)
    y = columns[declared.outcome]
    fold = np.concatenate([np.arange(len(s["age"])) % FOLDS for s in SITES.values()])
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    losses, sizes = np.zeros((FOLDS, len(PENALTIES))), np.bincount(fold)
    for k in range(FOLDS):
        for n, penalty in enumerate(PENALTIES):
            train, test = fold != k, fold == k
            if kind == "ridge":
                theirs = Ridge(alpha=penalty, solver="cholesky").fit(Z[train], y[train])
                losses[k, n] = np.sum((y[test] - theirs.predict(Z[test])) ** 2) / 2
            elif kind == "logistic":
                theirs = LogisticRegression(C=1 / penalty, solver="newton-cholesky", tol=1e-12)
                eta = theirs.fit(Z[train], y[train]).decision_function(Z[test])
                losses[k, n] = np.sum(np.logaddexp(0, eta) - y[test] * eta)
            else:  # its loss is a mean, and half the deviance
                theirs = PoissonRegressor(
                    alpha=penalty / train.sum(), solver="newton-cholesky", tol=1e-12, max_iter=1000
                ).fit(Z[train], y[train])
                eta = np.log(theirs.predict(Z[test]))
                losses[k, n] = np.sum(np.exp(eta) - y[test] * eta)
    mean = losses / sizes[:, None]
    return losses.sum(axis=0) / len(y), mean.std(axis=0, ddof=1) / np.sqrt(FOLDS)


@pytest.mark.parametrize(
    "kind", ["ridge", "logistic", pytest.param("poisson", marks=pytest.mark.slow)]
)
def test_the_curve_and_the_choice_are_those_of_scikit_learn(kind):
    declared = validated(kind)
    result = fit(declared, SITES)
    loss, error = oracle(kind, declared)
    assert_allclose(result.validation.loss, loss, rtol=1e-7)
    assert_allclose(result.validation.error, error, rtol=1e-5)
    best = int(np.argmin(loss))
    assert result.validation.best == result.penalty == PENALTIES[best]
    within = [p for p, v in zip(PENALTIES, loss, strict=True) if v <= loss[best] + error[best]]
    assert result.validation.simplest == max(within)
    alone = fit(model(kind, penalty=PENALTIES[best]), SITES)
    assert result.estimate.tolist() == alone.estimate.tolist()
    assert result.contract == contract_digest(contract(declared))
    simplest = fit(validated(kind, penalty_rule="one_se"), SITES)
    assert simplest.penalty == max(within)


@pytest.mark.parametrize("kind", ["ridge", "logistic"])
def test_every_number_is_counted_and_every_vector_has_room(kind):
    declared, lengths = validated(kind), []

    def pool(vectors):
        lengths.append(len(vectors[0]))
        return [np.sum(vectors, axis=0)] * len(vectors)

    result = drive(programmes(declared, SITES), pool)[0]
    p = len(result.names)
    each = 1 + p + p * (p + 1) // 2
    folds = [s for s in result.stages if "fold" in s.name or "choice" in s.name]
    points = FOLDS if kind == "ridge" else FOLDS * len(PENALTIES)
    assert folds[0].n_numbers == points * each + (FOLDS if kind == "ridge" else 0)
    assert len(folds) == 2 if kind == "ridge" else 4 <= len(folds) <= 12
    assert len(result.stages) == len(lengths) < most_averages(declared)
    assert max(lengths) <= longest_vector(declared)
    # a ridge has a second step, which confirms the first; the first tells the null loss too, and
    # the first average the digest of the contract
    assert result.numbers_pooled <= told_by(declared).numbers + each + 1 + 6


def test_on_a_network_the_bits_are_the_same_and_the_table_tells_the_curve():
    declared = validated("ridge", columns=("age", "dose"), factors={}, penalties=(1, 100))
    plain = fit(declared, SITES)
    found = hg.fit(declared, SITES, network=hg.Network(hg.graphs.complete(3)))
    assert found.estimate.tobytes() == plain.estimate.tobytes()
    assert found.validation.loss.tobytes() == plain.validation.loss.tobytes()
    text = found.table()
    assert "4-fold cross-validation, mean loss by penalty: 1: " in text
    assert f"penalty {found.penalty:g} (standardised columns)" in text
    assert found.to_json()["validation"]["chosen"] == found.penalty


def test_weights_count_in_folds():
    """By scikit-learn with weights, in raw units."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal(40), rng.standard_normal(40)
    w = np.tile([2.0, 2.0, 1.0, 1.0], 10)
    declared = {"kind": "ridge", "outcome": "y", "columns": ["x"], "penalise": "raw", "folds": 4,
                "penalty": "cv", "penalties": (0.1, 10.0)}  # fmt: skip
    weighted = fit(hg.Model(**declared, weights="w"), {"a": {"x": x, "y": y, "w": w}})
    fold = np.arange(40) % 4
    losses = np.zeros((4, 2))
    for k in range(4):
        for n, penalty in enumerate((0.1, 10.0)):
            train = fold != k
            theirs = Ridge(alpha=penalty).fit(x[train, None], y[train], sample_weight=w[train])
            rest = y[~train] - theirs.predict(x[~train, None])
            losses[k, n] = w[~train] @ rest**2 / 2
    assert_allclose(weighted.validation.loss, losses.sum(axis=0) / w.sum(), rtol=1e-9)


def test_a_far_step_is_halved():
    """Poisson with one huge count: Newton's first step overshoots."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(60)
    y = rng.poisson(np.exp(0.2 * x)).astype(float)
    y[7], x[7] = 4000.0, 6.0
    declared = hg.Model(kind="poisson", outcome="y", columns=["x"], penalty="cv", folds=3,
                        penalties=(1e-3, 1.0))  # fmt: skip
    found = fit(declared, {"a": {"x": x, "y": y}}).validation
    Z, fold = (x - x.mean()) / x.std(), np.arange(60) % 3
    for n, penalty in enumerate((1e-3, 1.0)):
        total = 0.0
        for k in range(3):
            train = fold != k
            theirs = PoissonRegressor(alpha=penalty / train.sum(), solver="newton-cholesky",
                                      tol=1e-8, max_iter=9999)  # fmt: skip
            theirs.fit(Z[train, None], y[train])
            eta = np.log(theirs.predict(Z[~train, None]))
            total += np.sum(np.exp(eta) - y[~train] * eta)
        assert_allclose(found.loss[n], total / 60, rtol=1e-6)


def test_the_simplest_is_the_largest_within_one_error():
    found = CrossValidation(np.array([1.0, 9.0, 3.0]), np.array([2.0, 2.3, 2.1]),
                            np.array([0.2, 9.0, 9.0]), 5, 0.0)  # fmt: skip
    assert (found.best, found.simplest) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("kind", "options", "part"),
    [
        ("ridge", {"penalties": ()}, "list of 2 to 20 numbers"),
        ("ridge", {"penalties": (1.0, 0.0)}, "different numbers > 0"),
        ("ridge", {"penalties": (1.0, 1.0)}, "different numbers > 0"),
        ("ridge", {"penalty": 2.0}, 'belongs to penalty = "cv"'),
        ("ridge", {"folds": 1}, "whole number from 2 to 20"),
        ("ridge", {"penalty_rule": "most"}, "one of a few words"),
        ("ridge", {"penalty": "best"}, 'number ≥ 0, or "cv"'),
        ("linear", {}, 'Use kind = "ridge"'),
        ("cox", {}, "belongs to ridge, logistic, poisson"),
        ("logistic", {"standard_errors": "sandwich"}, "without penalty"),
    ],
)
def test_wrong_declarations_are_refused(kind, options, part):
    with pytest.raises(ModelError) as refused:
        validated(kind, **options)
    assert part in str(refused.value)
