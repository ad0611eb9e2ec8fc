"""`hg.fit` on networks: masked averages give the bits that plain addition gives."""

import warnings

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import FitError, RiskWarning
from hushgrad.fitting import averages
from hushgrad.simulate import fits
from support.fits import cancer, model, synthetic

NAMES, THREE = cancer()
EIGHT = cancer(30, (60, 30, 100, 59, 80, 70, 90, 80))[1]
CANCER = model("logistic", outcome="benign", columns=NAMES, factors={}, penalty=1.0)


def same(ours, theirs):
    assert ours.estimate.tolist() == theirs.estimate.tolist()
    assert ours.loss == theirs.loss
    assert ours.stages == theirs.stages


@pytest.mark.parametrize(
    ("graph", "sites", "most"),
    [
        (hg.graphs.complete(3), THREE, 30),
        pytest.param(hg.graphs.ring(8), EIGHT, 900, marks=pytest.mark.slow),
        pytest.param(hg.graphs.star(3), THREE, 900, marks=pytest.mark.slow),
    ],
    ids=["three linked sites", "ring of eight", "star"],
)
def test_thirty_raw_columns_by_masked_averages_give_the_bits_of_plain_sums(graph, sites, most):
    plain = hg.fit(CANCER, sites)
    with pytest.warns(RiskWarning, match=r"pooled 5357, 30% of them"):
        found = hg.fit(CANCER, sites, network=hg.Network(graph), seed=4)
    same(found, plain)
    assert plain.rounds is None
    assert found.rounds <= most
    assert found.rounds % found.n_averages == 0


def test_three_linked_sites_need_one_round_for_each_average():
    sites = synthetic((25, 40, 60))
    for kind in ("linear", "poisson", "cox", "huber"):
        declared = model(kind, columns=("age", "year"), factors={})
        network = hg.Network(hg.graphs.complete(3))
        found = hg.fit(declared, sites, network=network, accept_exposure=["sums"])
        same(found, hg.fit(declared, sites))
        assert found.rounds == found.n_averages


def test_a_directed_network_with_doubly_stochastic_weights_averages_without_acceleration():
    W = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
    network = hg.Network(hg.graphs.from_edges([(1, 0), (2, 1), (0, 2)], is_directed=True), W)
    declared = model("linear", columns=("age",), factors={})
    sites = synthetic((25, 40, 60))
    same(hg.fit(declared, sites, network=network), hg.fit(declared, sites))


def test_averages_that_end_too_early_are_an_error_and_no_result(monkeypatch):
    monkeypatch.setattr(averages, "_OFF", 1e6)
    with pytest.raises(FitError, match="had not settled"):
        hg.fit(CANCER, EIGHT, network=hg.Network(hg.graphs.ring(8)))


def test_one_site_and_progress():
    told = []
    declared = model("linear", columns=("age",), factors={})
    sites = synthetic((25, 40, 60))
    hg.fit(declared, sites, network=hg.Network(hg.graphs.complete(3)), progress=told.append)
    assert told[0].startswith("average 1: ")
    assert len(told) == 3
    one = hg.fit(declared, {"all": sites["south"]})
    assert one.n_sites == 1


def test_every_number_that_a_site_sends_has_a_mask_of_its_own(monkeypatch):
    """The first message of an average is the site's vector and a mask of 10⁴ sizes per partner."""
    masks = []

    def recorded(algorithm, problem, network, **options):
        done = hg.run(algorithm, problem, network, **(options | {"transcript": True}))
        (message,) = done.transcript.messages(0, 0, 1)
        masks.append((message - problem.agent_data(0)["a"]) / fits.SIZE)
        return done

    monkeypatch.setattr(fits, "run", recorded)
    declared = model("logistic", columns=("age", "year"), factors={})
    sites, network = synthetic((25, 40, 60)), hg.Network(hg.graphs.complete(3))
    for seed in (0, 1):
        hg.fit(declared, sites, network=network, seed=seed, accept_exposure=["sums"])
    every = np.concatenate(masks)
    assert len(np.unique(every)) == len(every)  # none is used twice
    size = 1e4 * np.sqrt(2)  # two partners
    assert abs(np.std(every) / size - 1) < 5 / np.sqrt(2 * len(every))
    assert abs(np.mean(every)) < 5 * size / np.sqrt(len(every))


def test_two_sites_hide_nothing_from_each_other_and_the_fit_says_so_once():
    sites = synthetic((25, 40))
    declared = model("linear", columns=("age",), factors={})
    network = hg.Network(hg.graphs.complete(2))
    with pytest.warns(RiskWarning, match="the partner alone takes the mask off") as told:
        hg.fit(declared, sites, network=network)
    assert len(told) == 1
    hg.fit(declared, sites, network=network, accept_exposure=["partners"])


@pytest.mark.parametrize(("x", "is_told"), [([5.7], True), ([5.7, 5.5], True), ([5.7, 2.4], False)])
def test_a_linear_fit_warns_of_a_row_that_alone_has_a_value(x, is_told):
    """The pooled products of the rare column are that row's columns, or the sum of two such rows,
    which is either of them if they are nearly the same.
    """
    rare = len(x)
    rng, sites = np.random.default_rng(0), {}
    for name in ("north", "middle", "south"):
        has = (np.arange(80) < rare) & (name == "north")
        sites[name] = {"rare": has * 1.0, "x": rng.uniform(0, 9, 80), "y": rng.normal(size=80)}
    sites["north"]["x"][:rare] = x
    ranges = {"rare": (0, 1), "x": (0, 9), "y": (-9, 9)}
    model = hg.Model(kind="linear", outcome="y", columns=["rare", "x"], ranges=ranges)
    network = hg.Network(hg.graphs.complete(3))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        hg.fit(model, sites, network=network)
        told = len(found)
        hg.fit(model, sites, network=network, accept_exposure=["sums"])
    assert told == is_told
    assert len(found) == told
    assert not told or "a direction of the columns for itself" in str(found[0].message)
