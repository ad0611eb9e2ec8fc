"""Datasets divided among agents: partitions of scikit-learn's rows."""

import sys

import numpy as np
import pytest
import sklearn.datasets

from hushgrad.errors import MissingExtra
from hushgrad.problems import dataset, huber, logistic, ridge

LOADERS = {
    "diabetes": sklearn.datasets.load_diabetes,
    "breast_cancer": sklearn.datasets.load_breast_cancer,
    "digits": sklearn.datasets.load_digits,
}


def pooled(data):
    """All rows with their targets, sorted."""
    table = np.column_stack([np.concatenate(data.X), np.concatenate(data.y)])
    return table[np.lexsort(table.T)]


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("split", ["even", "label_skew"])
@pytest.mark.parametrize("sizes", [None, [1, 2, 3, 0.5, 9]])
def test_every_row_is_dealt_exactly_once(name, split, sizes):
    loaded = LOADERS[name]()
    y = loaded.target % 2 == 0 if name == "digits" else loaded.target
    data = dataset(name, 5, split=split, sizes=sizes, standardise=False, seed=3)
    table = np.column_stack([loaded.data, y])
    np.testing.assert_array_equal(pooled(data), table[np.lexsort(table.T)])


@pytest.mark.parametrize("name", LOADERS)
def test_standardised_columns_have_mean_0_and_deviation_1(name):
    data = dataset(name, 4)
    X = np.concatenate(data.X)
    raw = LOADERS[name]().data
    varies = raw.std(axis=0) > 0
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X[:, varies].std(axis=0), 1, rtol=1e-12)
    assert (X[:, ~varies] == 0).all()
    if name == "diabetes":
        assert np.concatenate(data.y).std() == pytest.approx(1)


def test_sizes_are_proportional():
    counts = [len(y) for y in dataset("digits", 3, sizes=[1, 2, 7]).y]
    np.testing.assert_allclose(counts, 1797 * np.array([0.1, 0.2, 0.7]), atol=1)
    even = [len(y) for y in dataset("digits", 7).y]
    assert max(even) - min(even) <= 1


@pytest.mark.parametrize("name", LOADERS)
def test_label_skew_grows_from_none_to_sorted(name):
    def spread(skew):
        data = dataset(name, 6, split="label_skew", skew=skew, seed=1)
        return np.std([y.mean() for y in data.y])

    levels = [spread(skew) for skew in (0.0, 0.4, 0.8, 1.0)]
    assert levels == sorted(levels)
    assert levels[-1] > 4 * levels[0]
    data = dataset(name, 6, split="label_skew", skew=1.0)
    highest, lowest = [y.max() for y in data.y], [y.min() for y in data.y]
    assert all(high <= low for high, low in zip(highest[:-1], lowest[1:], strict=True))


def test_no_skew_is_the_even_split():
    skewed, even = dataset("diabetes", 3, split="label_skew", skew=0.0), dataset("diabetes", 3)
    for part, expected in zip(skewed.X, even.X, strict=True):
        np.testing.assert_array_equal(part, expected)


def test_seeds_decide_the_split():
    first, again, other = (dataset("diabetes", 3, seed=seed).y[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_positive_names_the_classes_labelled_1():
    target = sklearn.datasets.load_digits().target
    assert (
        np.concatenate(dataset("digits", 2, positive=[3, 7]).y).sum()
        == np.isin(target, [3, 7]).sum()
    )
    assert np.concatenate(dataset("breast_cancer", 2).y).sum() == 357  # benign


@pytest.mark.parametrize(
    ("builder", "name"),
    [(logistic, "breast_cancer"), (logistic, "digits"), (ridge, "diabetes"), (huber, "diabetes")],
)
def test_problems_on_a_named_dataset_do_not_depend_on_the_split_in_their_solution(builder, name):
    even = builder(dataset=name, n_agents=4)
    skewed = builder(dataset=name, n_agents=7, split="label_skew", skew=1.0, sizes=range(1, 8))
    assert (even.n_agents, skewed.n_agents) == (4, 7)
    np.testing.assert_allclose(even.solution(), skewed.solution(), atol=1e-10)
    same = builder(*dataset(name, 4))
    np.testing.assert_array_equal(same.solution(), even.solution())


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtra, match=r"hushgrad\[sim\]"):
        dataset("diabetes", 3)
