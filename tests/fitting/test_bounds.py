"""The bound of one row's part in a fit, against rows within their ranges and against the best test.

Two worlds: a row lies at one site, or at another. All pooled sums are the same in both, and the
masked vectors of the sites differ by the row's part alone.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.fitting import rows_of, table_of
from hushgrad.fitting.bounds import RowParts, table_part, undeclared, undeclared_tables
from hushgrad.fitting.counts import count
from hushgrad.fitting.lockstep import add, drive
from hushgrad.fitting.pooled_sums import sum_rows, sums_programme
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.rows import Rows, needed
from hushgrad.fitting.site_sums import Coordinates, SiteSums
from hushgrad.fitting.sums import SIZE
from hushgrad.theory import advantage
from support.fits import model, pooled_columns, programmes, synthetic

RANGES = {
    "age": (0.0, 120.0),
    "year": (2000.0, 2030.0),
    "pressure": (-100.0, 400.0),
    "visits": (0.0, 60.0),
    "weight": (0.3, 2.5),
    "log_exposure": (-1.0, 2.0),
}
KINDS = {
    "linear": {"weights": "weight"},
    "ridge": {},
    "logistic": {"weights": "weight"},
    "poisson": {"offset": "log_exposure"},
    "huber": {},
}


def declared(kind, **more):
    plain = {"columns": ("age", "year"), "factors": {}}
    given = model(kind, **(plain | KINDS[kind] | more))
    named = (*given.columns, given.outcome, given.weights, given.offset)
    return replace(given, ranges={k: v for k, v in RANGES.items() if k in named})


def one_row(chosen, draw):
    """A row anywhere within the ranges, often at their ends."""

    def number(name, without):
        return without if name not in chosen.ranges else draw(st.floats(*chosen.ranges[name]))

    y = number(chosen.outcome, float(draw(st.booleans())))
    y = math.floor(y) if chosen.kind == "poisson" else y
    X = np.array([[number(name, 0.0) for name in chosen.columns]])
    offset, weight = number(chosen.offset, 0.0), number(chosen.weights, 1.0)
    return Rows(X, *(np.array([float(v)]) for v in (y, 0.0, offset, weight)), 0)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_no_row_within_the_ranges_has_a_larger_part(kind, data):
    chosen = declared(kind)
    rows = one_row(chosen, data.draw)
    parts = RowParts(chosen)
    sent = next(count(chosen, rows, "0" * 64, RowParts(chosen)))
    rest = sent[6:]  # without the site itself and the digest of its contract
    assert np.linalg.norm(rest) <= parts.counts()
    is_linear = kind in ("linear", "ridge", "huber")
    at = Coordinates(
        np.array([60.0, 2012.0]), np.array([11.0, 3.0]), np.array([11.0, 3.0]),
        130.0 if is_linear else 0.0, 20.0 if is_linear else 1.0, has_intercept=True,
    )  # fmt: skip
    gamma = np.array(data.draw(st.lists(st.floats(-2, 2), min_size=3, max_size=3)))
    exponent, n_rows = 12, 4000
    parts.enter(at, exponent, n_rows)
    local = SiteSums(chosen, rows, at, n_rows)
    for null in (None, 0.5):
        far, limbs = local.at(gamma, exponent, null=null)
        assert far or np.linalg.norm(limbs) <= parts.newton(gamma, null)
    far, limbs = local.meat(gamma, 2 * exponent, by_site=False)
    assert far or np.linalg.norm(limbs) <= parts.sandwich(gamma)


@pytest.mark.parametrize("kind", ["ridge", "logistic", "poisson"])
@settings(max_examples=30)
@given(data=st.data())
def test_no_row_within_the_ranges_has_a_larger_part_of_products(kind, data):
    chosen = declared(kind)
    rows, vector = one_row(chosen, data.draw), st.lists(st.floats(-1, 1), min_size=3, max_size=3)
    is_linear = kind == "ridge"
    scale = np.array([11.0, 3.0])
    at = Coordinates(
        np.array([60.0, 2012.0]), scale, scale,
        130.0 if is_linear else 0.0, 20.0 if is_linear else 1.0, has_intercept=True,
    )  # fmt: skip
    gamma, v = (np.array(data.draw(vector)) for _ in range(2))
    parts, local = RowParts(chosen), SiteSums(chosen, rows, at, 4000)
    parts.enter(at, 12, 4000)
    for null in (None, 0.5):
        far, limbs = local.first_order(gamma, 12, null=null)
        assert far or np.linalg.norm(limbs) <= parts.first_order(gamma, null)
    far, limbs = local.product(v, 16)
    assert far or np.linalg.norm(limbs) <= parts.product(gamma, v, 16)


TERMS = ("log(age)", "stage", "age^2:stage", "year^3", "log(age):year")


@settings(max_examples=40)
@given(data=st.data())
def test_no_row_within_the_ranges_has_a_larger_part_of_terms(data):
    """Through the reader, from columns to products, powers and logarithms of them."""
    ranges = {"age": (0.5, 3.0), "year": (-2.0, 3.0), "pressure": (-1.0, 4.0)}
    chosen = hg.Model(kind="linear", outcome="pressure", columns=("age", "year", "stage"),
                      terms=TERMS, factors={"stage": ("a", "b", "c")}, ranges=ranges)  # fmt: skip
    assert undeclared(chosen) is None
    site = {name: np.array([data.draw(st.floats(*pair))]) for name, pair in ranges.items()}
    site["stage"] = np.array([data.draw(st.sampled_from("abc"))])
    rows = rows_of(chosen, table_of(site, needed(chosen), site="north"))
    parts = RowParts(chosen)
    sent = next(count(chosen, rows, "0" * 64, RowParts(chosen)))
    assert np.linalg.norm(sent[6:]) <= parts.counts()
    width = rows.X.shape[1]
    centre, scale = np.linspace(-1, 2, width), np.linspace(0.5, 2, width)
    at = Coordinates(centre, scale, scale, 0.3, 1.2, has_intercept=True)
    parts.enter(at, 12, 4000)
    gamma = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=width + 1, max_size=width + 1)))
    far, limbs = SiteSums(chosen, rows, at, 4000).at(gamma, 12)
    assert far or np.linalg.norm(limbs) <= parts.newton(gamma, None)


@settings(max_examples=40)
@given(data=st.data())
def test_no_row_within_the_ranges_has_a_larger_part_of_tables(data):
    tables = hg.PooledTables(
        means=["age", "year"], counts=["stage"], tables=[["stage", "died"]],
        histograms={"age": [0, 50, 120]}, ranges={"year": (2000, 2030)},
        factors={"stage": ["a", "b"], "died": ["no", "yes"]},
    )  # fmt: skip
    site = {
        "age": np.array([data.draw(st.floats(0, 120))]),
        "year": np.array([data.draw(st.floats(2000, 2030))]),
        "stage": np.array([data.draw(st.sampled_from("ab"))]),
        "died": np.array([data.draw(st.sampled_from(["no", "yes"]))]),
    }
    rows = sum_rows(tables, table_of(site, tables.columns, site="north"))
    progress = FitProgress()
    sent = next(sums_programme(tables, rows, "0" * 64, progress))
    assert progress.row_parts == [table_part(tables)]
    assert np.linalg.norm(sent[6:]) <= table_part(tables)
    counts = hg.PooledTables(counts=["stage"], factors={"stage": ["a", "b"]})
    assert table_part(counts) == 2.0  # the row, its cell, and room for dropped rows and events
    assert "lack age" in undeclared_tables(hg.PooledTables(means=["age"]))


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_the_bound_is_nearly_reached_in_a_corner_of_the_ranges(kind):
    """So it is not merely a large number."""
    chosen = declared(kind, weights=None)
    scale = np.array([11.0, 3.0])
    y = (130.0, 20.0) if kind == "linear" else (0.0, 1.0)
    at = Coordinates(np.array([60.0, 2012.0]), scale, scale, *y, has_intercept=True)
    parts, most = RowParts(chosen), 0.0
    parts.enter(at, 12, 4000)
    for corner in np.array(np.meshgrid(*(RANGES[n] for n in chosen.columns))).reshape(2, -1).T:
        for outcome in RANGES["pressure"] if kind == "linear" else (0.0, 1.0):
            row = Rows(corner[None], np.array([outcome]), *np.zeros((2, 1)), np.ones(1), 0)
            limbs = SiteSums(chosen, row, at, 4000).at(np.array([0.1, 0.2, -0.1]), 12)[1]
            most = max(most, float(np.linalg.norm(limbs)))
    bound = parts.newton(np.array([0.1, 0.2, -0.1]), None)
    assert 0.5 * bound < most <= bound


def test_what_has_no_bound_says_why():
    for chosen, word in (
        (model("cox"), "no sum over rows"),
        (declared("linear", standard_errors="site"), "errors by site"),
        (replace(declared("linear"), ranges={"age": (0, 120)}), "lacks year, weight, pressure"),
    ):
        assert word in undeclared(chosen)
        assert RowParts(chosen).counts() is None
    logarithm = hg.Model(kind="logistic", formula="b ~ log(age)", ranges={"age": (0, 120)})
    assert "log(age) has no bound: ranges.age in [model] must begin above 0" in undeclared(
        logarithm
    )
    assert undeclared(declared("logistic", columns=("age", "stage"), factors={
        "stage": ("low", "middle", "high")})) is None  # fmt: skip


# ---- the two worlds

SITES = synthetic((25, 40, 60))


def vectors_of(chosen, sites):
    """(averages, (sites, numbers)) the vectors of a fit; and its result."""
    seen = []

    def pool(vectors):
        seen.append(np.array(vectors))
        return add(vectors)

    return seen, drive(programmes(chosen, sites), pool)[0]


def moved(sites, row):
    """The last of these rows of north goes to middle."""
    every = pooled_columns(sites)
    north, middle = ([*range(25)], [*range(25, 65)])
    north.remove(row)
    places = {"north": north, "middle": [*middle, row], "south": range(65, 125)}
    return {
        name: {column: v[list(place)] for column, v in every.items()}
        for name, place in places.items()
    }


def worlds(kind, **more):
    """(Δ of all averages as one vector, the bound of the fit)."""
    chosen = declared(kind, **more)
    here, result = vectors_of(chosen, SITES)
    there, _ = vectors_of(chosen, moved(SITES, 24))
    shifts = []
    for one, other in zip(here, there, strict=True):
        assert (one.sum(axis=0) == other.sum(axis=0)).all()  # nobody sees a difference in the sums
        assert ((one - other).sum(axis=0) == 0).all()
        assert (one[2] == other[2]).all()
        shifts.append((one - other)[0])
    return np.concatenate(shifts), math.hypot(*(stage.row_part for stage in result.stages))


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_moves_shifts_two_sites_by_less_than_the_bound(kind):
    shift, bound = worlds(kind)
    assert 0 < np.linalg.norm(shift) <= bound


@pytest.mark.parametrize("more", [
    {"terms": ("age", "year", "age:year", "age^2")},
    {"penalty": 3.0, "hessian": "products"},
])  # fmt: skip
def test_a_row_that_moves_shifts_terms_and_products_by_less_than_the_bound(more):
    """The sums are the same in both worlds, and so are the steps and the vectors v."""
    shift, bound = worlds("logistic", **more)
    assert 0 < np.linalg.norm(shift) <= bound
    assert math.isfinite(bound)


def test_the_best_test_finds_the_row_as_often_as_the_formula_says():
    """The likelihood ratio of all masked vectors of a fit, with masks as small as the row's part:
    real ones are 10⁴ times as large as an entry, and no simulation could see anything.
    """
    shift, bound = worlds("logistic")
    sigma, n, rng = float(np.linalg.norm(shift)), 1500, np.random.default_rng(1)
    B = np.array([[1, 1, 0], [-1, 0, 1], [0, -1, -1]])  # sites times pairs
    place = np.array([1.0, -1.0, 0.0])
    inverse = np.linalg.pinv(sigma**2 * B @ B.T, rcond=1e-9)
    weights = place @ inverse  # of y − shift/2 in the log ratio of an entry
    right = 0
    for world in (0.0, 1.0):
        for _ in range(n):
            seen = sigma * B @ rng.standard_normal((3, len(shift))) + world * np.outer(place, shift)
            ratio = float(weights @ (seen - np.outer(place, shift) / 2) @ shift)
            right += (ratio > 0) == bool(world)
    found = right / n - 1
    mu = math.sqrt(place @ np.linalg.pinv(B @ B.T) @ place) * np.linalg.norm(shift) / sigma
    slack = 4 * math.sqrt(0.5 / n)
    assert abs(found - advantage(mu)) < slack
    assert found < advantage(math.sqrt(2 / 3) * bound / sigma) + slack


def test_a_result_tells_what_was_spent():
    network = hg.Network(hg.graphs.complete(3))
    result = hg.fit(declared("logistic"), SITES, network=network, accept_exposure=["sums"])
    _, bound = worlds("logistic")
    assert result.mu == pytest.approx(bound / (1e4 * SIZE))
    assert f"masks: μ = {result.mu:.2g}, ε = " in result.table()
    assert result.to_json()["mu"] == result.mu
    without = hg.fit(model("logistic"), SITES, network=network, accept_exposure=["sums"])
    assert without.mu is None
    assert "masks: no guarantee, no bound declared: ranges in [model] lacks age" in without.table()
    assert hg.fit(declared("logistic"), SITES).mu is None  # no network, no masks


def test_an_average_with_a_row_that_is_too_far_has_no_bound():
    """Noise in place of a site's sums tells which site has the row."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal(300)
    y = rng.poisson(np.exp(-4 + 3.5 * x)).astype(float)
    sites = {"a": {"x": x[:90], "y": y[:90]}, "b": {"x": x[90:], "y": y[90:]}}
    chosen = hg.Model(
        kind="poisson", outcome="y", columns=["x"], ranges={"x": (-9, 9), "y": (0, 1e6)}
    )
    told = []

    def pool(vectors):
        told.append([int(v[1]) for v in vectors])
        got = add(vectors)
        return [got[0] - np.eye(len(got[0]))[4] * 2.0**30] * 2 if len(told) == 2 else got

    result = drive(programmes(chosen, sites), pool)[0]
    far = [math.isinf(stage.row_part) for stage in result.stages]
    assert far == [False, *(sum(flags) > 0 for flags in told[1:])]
    assert any(far)
    assert "no guarantee, since a step led too far" in replace(result, masks=1.0).table()
