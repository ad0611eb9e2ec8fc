"""A programme is a function of its rows and of the pooled sums; all sites decide alike."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hushgrad.fitting import newton
from hushgrad.fitting.lockstep import add, drive
from hushgrad.fitting.site_sums import SiteSums
from hushgrad.fitting.sums import SIZE
from support.fits import design, fit, model, pooled_columns, programmes, reweighted, synthetic

SITES = synthetic((30, 40, 50))
KINDS = ("linear", "ridge", "logistic", "poisson", "huber", "cox")


def smaller(kind, **options):
    return model(kind, columns=("age", "year"), factors={}, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_all_sites_end_with_the_same_bits(kind):
    results = drive(programmes(smaller(kind), SITES))
    assert len({result.table() for result in results}) == 1
    assert len({result.estimate.tobytes() for result in results}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_that_starts_again_repeats_its_sums_from_the_pooled_ones(kind):
    """So an agent that keeps the pooled sums can be killed at any time."""
    kept = []

    def keeping(vectors):
        kept.append((vectors[1], add(vectors)[1]))
        return add(vectors)

    first = drive(programmes(smaller(kind), SITES), keeping)[1]
    again = programmes(smaller(kind), SITES)[1]
    assert next(again).tobytes() == kept[0][0].tobytes()
    for (_, pooled), (sent, _) in pairwise(kept):
        assert again.send(pooled).tobytes() == sent.tobytes()
    with pytest.raises(StopIteration) as end:
        again.send(kept[-1][1])
    assert end.value.value.estimate.tobytes() == first.estimate.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_is_a_whole_number_of_about_the_size_that_masks_cover(kind):
    def checked(vectors):
        for vector in vectors:
            assert vector.dtype == np.float64
            assert (vector == np.rint(vector)).all()
            assert np.abs(vector).max() <= 4 * SIZE  # of few rows; below 2⁸ SIZE of the most
        return add(vectors)

    drive(programmes(smaller(kind), SITES), checked)


class _Fickle(float):
    """A threshold about which sites disagree: of three comparisons, one says yes."""

    asked = 0

    def __gt__(self, other):
        self.asked += 1
        return bool(self.asked % 3 == 2 and float(self) > other)


def test_one_vote_for_the_last_step_ends_the_method_at_all_sites(monkeypatch):
    plain = fit(smaller("logistic"), SITES)
    monkeypatch.setattr(newton, "LAST_STEP", _Fickle(newton.LAST_STEP))
    results = drive(programmes(smaller("logistic"), SITES))
    assert newton.LAST_STEP.asked > 3
    assert [result.n_averages for result in results] == [plain.n_averages] * 3


def test_the_last_step_is_taken_after_the_last_average(monkeypatch):
    """Its Hessian is that of the point before; the estimate is as good as after one more."""
    plain = fit(smaller("logistic"), SITES)
    monkeypatch.setattr(newton, "LAST_STEP", 1e-3)
    monkeypatch.setattr(newton, "_AT_END", 1e-3)
    early = fit(smaller("logistic"), SITES)
    assert early.n_averages < plain.n_averages
    assert_allclose(early.estimate, plain.estimate, rtol=1e-9)


def test_sites_whose_processors_round_differently_end_together_and_agree(monkeypatch):
    plain, exact = fit(smaller("poisson"), SITES), SiteSums.at
    rng = np.random.default_rng(0)

    def rounded(self, gamma, *given, **options):
        noise = 1 + 4e-16 * rng.integers(-2, 3, len(gamma))
        return exact(self, gamma * noise, *given, **options)

    monkeypatch.setattr(SiteSums, "at", rounded)
    for result in drive(programmes(smaller("poisson"), SITES)):
        assert_allclose(result.estimate, plain.estimate, rtol=1e-11)
        assert_allclose(result.standard_error, plain.standard_error, rtol=1e-11)


@pytest.mark.parametrize(("factor", "shift"), [(1e-12, 0.0), (1e12, 0.0), (1.0, 1e7), (1e-9, 1e-3)])
def test_units_of_any_size_give_the_same_fit(factor, shift):
    """Sums of raw data have no known size; digits that the shift took from x itself are lost."""
    other = {name: {**site, "age": factor * site["age"] + shift} for name, site in SITES.items()}
    base, found = fit(smaller("logistic"), SITES), fit(smaller("logistic"), other)
    lost = 1e-16 * max(1.0, shift / factor)
    assert_allclose(found["age"] * factor, base["age"], rtol=1e-9 + 10 * lost)
    assert_allclose(found["year"], base["year"], rtol=1e-8 + 10 * lost)
    assert_allclose(found.deviance, base.deviance, rtol=1e-11 + lost)


def test_a_step_that_is_too_long_is_halved():
    """From the mean of all counts Newton's first step overshoots by far."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal(300)
    columns = {"x": x, "y": rng.poisson(np.exp(-4 + 3.5 * x)).astype(float)}
    sites = {
        "a": {k: v[:90] for k, v in columns.items()},
        "b": {k: v[90:] for k, v in columns.items()},
    }
    declared = model("poisson", outcome="y", columns=["x"], factors={})
    result = fit(declared, sites)
    X, y = design(declared, sites), pooled_columns(sites)["y"]
    assert_allclose(result.estimate, reweighted("poisson", X, y)[0], rtol=1e-9)
    assert "halved step" in {stage.name for stage in result.stages}
    losses = [s.loss for s in result.stages if s.name == "step"]
    assert losses == sorted(losses, reverse=True)


def test_large_counts_have_a_sandwich():
    """Scores grow with the counts, and their squares with the squares."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal(80)
    y = np.floor(1e9 * np.exp(0.3 * x + 0.2 * rng.standard_normal(80)))
    sites = {"a": {"x": x[:30], "y": y[:30]}, "b": {"x": x[30:], "y": y[30:]}}
    options = {"outcome": "y", "columns": ["x"], "factors": {}, "standard_errors": "sandwich"}
    declared = model("poisson", **options)
    result = fit(declared, sites)
    X = design(declared, sites)
    b, bread, mean = reweighted("poisson", X, y)
    scores = X * (y - mean)[:, None]
    assert_allclose(result.estimate, b, rtol=1e-9)
    covariance = bread @ (scores.T @ scores) @ bread
    assert_allclose(result.standard_error, np.sqrt(np.diag(covariance)), rtol=1e-9)


def test_a_site_may_lack_events_levels_and_spread():
    """A fit needs them of all sites together, not of each."""
    sites = {name: dict(site) for name, site in SITES.items()}
    north = sites["north"]
    north |= {"death": np.zeros(30), "stage": np.full(30, "low"), "year": np.full(30, 2011.0)}
    declared = model("logistic")
    result = fit(declared, sites)
    b, _, _ = reweighted("logistic", design(declared, sites), pooled_columns(sites)["death"])
    assert_allclose(result.estimate, b, rtol=1e-8)
    result = fit(model("cox"), sites | {"north": north | {"event": np.zeros(30)}})
    assert result.n_events == sum(s["event"].sum() for n, s in sites.items() if n != "north")
