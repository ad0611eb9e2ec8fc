"""How much of a row the sums of a fit determine: derivatives, the rule of stages, an attack."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.fitting import programme, rows_of, table_of
from hushgrad.fitting.determined import (
    DIAGONAL,
    TRIANGLE,
    VECTOR,
    SecretRows,
    SumsOfRows,
    ToldRows,
    Weighed,
)
from hushgrad.fitting.lockstep import drive
from hushgrad.fitting.plan import expected_share
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.rows import Rows, needed
from hushgrad.fitting.site_sums import Coordinates, SiteSums
from hushgrad.fitting.sums import narrow
from hushgrad.problems.determined import OwnRows, SecretsOfRows, largest_share
from hushgrad.theory.pooled import Pooled
from hushgrad.theory.revealed import MOST_OF_ROW
from support import fits

EXPONENT = 4
AS_THEY_ARE = Coordinates(np.zeros(3), np.ones(3), np.ones(3), 0.0, 1.0, False)


def few_rows(kind, n=12):
    rng = np.random.default_rng(3)
    y = {"logistic": rng.integers(0, 2, n), "poisson": rng.poisson(1.0, n),
         "cox": rng.integers(1, 6, n)}.get(kind, rng.standard_normal(n))  # fmt: skip
    weights = np.ones(n) if kind == "cox" else rng.uniform(0.5, 2.0, n)
    offset = 0.3 * rng.standard_normal(n) if kind == "poisson" else np.zeros(n)
    event = (rng.uniform(size=n) < 0.7).astype(float)
    return Rows(rng.standard_normal((n, 3)), y.astype(float), event, offset, weights, 0)


def declared(kind, **options):
    more = {"huber": {"delta": 0.7}, "cox": {"event": "e"}}.get(kind, {})
    more |= {} if kind == "cox" else {"intercept": False}
    return hg.Model(kind=kind, outcome="y", columns=("a", "b", "c"), **(more | options))


SENT = {
    "point": lambda sums, at: sums.at(at, EXPONENT),
    "bound": lambda sums, at: sums.at(at, EXPONENT, bounding=True),
    "diagonal": lambda sums, at: sums.first_order(at, EXPONENT),
    "product": lambda sums, at: (sums.stand(at), sums.product(at[::-1], EXPONENT))[1],
    "loss": lambda sums, at: sums.loss(at, EXPONENT),
    "scores": lambda sums, at: sums.meat(at, EXPONENT, by_site=False),
}
CASES = [(kind, {}, what) for kind in ("logistic", "poisson", "huber") for what in SENT]
CASES += [("cox", {"ties": ties}, "point") for ties in ("efron", "breslow")]


@pytest.mark.parametrize(("kind", "options", "what"), CASES)
def test_derivatives_are_those_of_the_sums_that_are_sent(kind, options, what):
    """Against differences of the limbs themselves, entry by entry and outcome by outcome."""
    model, rows = declared(kind, **options), few_rows(kind)
    at, step = np.array([0.4, -0.3, 0.5]), 2.0**-14

    def sent(changed):
        limbs = SENT[what](SiteSums(model, changed, AS_THEY_ARE, 12), at)[1]
        return narrow(EXPONENT).join(limbs)

    local = SiteSums(model, rows, AS_THEY_ARE, 12)
    SENT[what](local, at)
    parts = [n.derivatives(local.told.rows, np.eye(3)) for n in local.told._entries[-1]()]
    of_z = np.concatenate([part[0] for part in parts], axis=1)
    of_y = np.concatenate([part[1] for part in parts], axis=1)
    for r in (0, 5, 11):
        for j in range(4 if local.told.rows.is_measured else 3):
            ends = []
            for sign in (1, -1):
                X, y = rows.X.copy(), rows.y.copy()
                (X[r : r + 1, j] if j < 3 else y[r : r + 1])[...] += sign * step
                ends.append(sent(Rows(X, y, rows.event, rows.offset, rows.weights, 0)))
            found = of_z[r, :, j] if j < 3 else of_y[r]
            np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * step), atol=2e-7)


def test_the_share_is_that_of_stages_where_both_know_the_numbers():
    """problems/determined.py by another way: gradients and Hessians of logistic rows."""
    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((70, 4)), np.where(rng.uniform(size=70) < 0.5, 1.0, -1.0)
    X[:, 0] = 1.0
    X[7] *= 3
    starts = [np.zeros(4), np.array([0.1, 0.5, -0.4, 0.2]), np.array([0.1, 0.7, -0.5, 0.3])]
    told = ToldRows(SecretRows(X, y, is_measured=False))

    def row(t, last, y, delta):
        p = 1 / (1 + np.exp(-t))
        return p * (1 - p), p - (y > 0) - p * (1 - p) * t

    newton = SecretsOfRows(row, row, is_measured=False)
    for count in range(1, 4):
        at = starts[count - 1]
        p = 1 / (1 + np.exp(-X @ at))
        h = p * (1 - p)
        lengths = np.linalg.norm(X, axis=1)
        g = SumsOfRows(VECTOR, Weighed(p - (y > 0), h, 0 * h), at, lengths)
        H = SumsOfRows(TRIANGLE, Weighed(h, h * (1 - 2 * p), 0 * h), at, lengths)
        told.add(4 + 10, lambda g=g, H=H: [g, H])
        for times in (1.0, 3.0):
            own = [OwnRows(X, y, 0.0)]
            expected = largest_share(newton, own, starts[:count], times=times)
            assert told.largest_share(times) == pytest.approx(expected, rel=2e-3)
    assert 0.2 < told.largest_share(3.0) < 1.0


@pytest.mark.parametrize("kind", ["logistic", "poisson", "huber", "cox"])
def test_shares_grow_with_averages_and_fall_with_honest_rows(kind):
    sites = fits.synthetic((60, 90, 100))
    model, progress = fits.model(kind, columns=("age", "year"), factors={}), FitProgress()
    shares = []
    gens = [
        programme(model, rows_of(model, table_of(site, needed(model), site=name)),
                  progress if name == "south" else None)
        for name, site in sites.items()
    ]  # fmt: skip

    def pool(vectors):
        if progress.told is not None:
            shares.append((progress.told.largest_share(1.0), progress.told.largest_share(9.0)))
        return fits.add(vectors)

    drive(gens, pool)
    alone, among = np.array(shares).T
    assert (np.diff(alone) >= -1e-9).all()
    assert (among <= alone).all()
    assert among[0] < alone[0]
    assert alone[0] < 0.6


@pytest.mark.parametrize("kind", ["logistic", "poisson", "huber", "cox"])
def test_a_site_expects_what_a_fit_of_its_own_rows_determines(kind):
    """Many honest rows hide those of a site; a plan is judged by its worst fit."""
    site = fits.synthetic((500, 600, 700))["north"]
    model = fits.model(kind, columns=("age", "year"), factors={},
                       **({"delta": 40.0} if kind == "huber" else {}))  # fmt: skip
    rows = rows_of(model, table_of(site, needed(model), site="north"))
    alone, hidden = (expected_share(model, rows, times) for times in (1.0, 1e4))
    assert hidden < MOST_OF_ROW
    assert hidden < alone - 0.1
    linear = fits.model("linear", columns=("age",), factors={})
    of_linear = rows_of(linear, table_of(site, needed(linear), site="north"))
    assert expected_share(linear, of_linear, 1.0) is None
    plan = hg.FitPlan(stages={"one": linear, "two": model})
    assert expected_share(plan, (of_linear, rows), 1.0) == alone


# ---- an attack


def hospitals(outlier):
    """x is −1 or 1, but in one row of the first site; the target's other values are its secret."""
    rng = np.random.default_rng(21)
    sites = {}
    for name in ("north", "south", "forger"):
        x = np.where(rng.uniform(size=900) < 0.5, 1.0, -1.0)
        a, b, c = rng.standard_normal((3, 900))
        died = (rng.uniform(size=900) < 1 / (1 + np.exp(0.5 - 1.5 * x))).astype(float)
        sites[name] = {"x": x, "a": a, "b": b, "c": c, "died": died}
    sites["north"]["x"][17] = outlier
    return sites


def steered(outlier, limit):
    """A fit whose third site adds a large curvature to all columns but x, so that steps stay in it.

    Returns what it learns, H of the other two at every γ, and the shares that north computes. With
    a limit north sends nothing past it.
    """
    model = hg.Model(kind="logistic", outcome="died", columns=["x", "a", "b", "c"])
    sites, progress, points = hospitals(outlier), FitProgress(), []
    every = {n: rows_of(model, table_of(s, needed(model), site=n)) for n, s in sites.items()}
    gens = [programme(model, rows, progress if n == "north" else None) for n, rows in every.items()]
    pairs = list(zip(*np.triu_indices(5), strict=True))
    large = [2 + 1 + 5 + pairs.index((n, n)) for n in (2, 3, 4)]
    learned, shares = [], []

    def pool(vectors):
        if progress.told is None:
            return fits.add(vectors)
        shares.append(progress.told.largest_share(2.0))
        if shares[-1] > limit or len(learned) == 5:
            raise PermissionError
        told = Pooled(dim=5, stages=len(shares), rows=2 * progress.told.effective,
                      told=progress.numbers)  # fmt: skip
        assert told.objection() is None  # counted by effective rows, all is well
        own = vectors[2].copy()
        own[large] += 2.0**44
        pooled = vectors[0] + vectors[1] + own
        honest = narrow(12).join((pooled - own)[2:])
        learned.append(honest[6 : 6 + 15])
        return [pooled] * 3

    exact = SiteSums.at

    def watched(sums, gamma, exponent, **options):
        assert exponent == 12  # 2700 rows
        points.append(gamma)
        return exact(sums, gamma, exponent, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SiteSums, "at", watched)
        with contextlib.suppress(PermissionError):
            drive(gens, pool)
    x = np.concatenate([site["x"] for site in sites.values()])
    scaled = (np.array([-1.0, 1.0, outlier]) - x.mean()) / x.std()
    return np.array(points[::3])[: len(learned)], np.array(learned), scaled, shares, sites


def recovered(points, learned, scaled):
    """The outlier's z: every H is a sum of three matrices with known weights."""
    t = points[:, :1] + points[:, 1:2] * scaled
    weights = 1 / (1 + np.exp(-t)) / (1 + np.exp(t))
    matrices = np.linalg.lstsq(weights, learned, rcond=1e-12)[0]
    return matrices[2][:5]  # the first row of z zᵀ, whose first entry is 1


def test_differences_of_steps_give_a_row_away_and_the_rule_refuses_them():
    points, learned, scaled, shares, sites = steered(3.0, limit=np.inf)
    assert len(learned) == 5
    found = recovered(points, learned, scaled)
    columns = fits.pooled_columns(sites)
    true = [(sites["north"][n][17] - columns[n].mean()) / columns[n].std() for n in "xabc"]
    np.testing.assert_allclose(found, [1.0, *true], atol=1e-3)
    assert max(shares) > 0.99

    points, learned, scaled, shares, _ = steered(3.0, limit=MOST_OF_ROW)
    assert shares[-1] > MOST_OF_ROW
    assert len(learned) < 3  # unknown matrices
    assert np.linalg.matrix_rank(points[:, :2]) <= 2


def test_without_the_rare_value_the_same_steps_are_not_refused():
    _, learned, _, shares, _ = steered(1.0, limit=MOST_OF_ROW)
    assert len(learned) == 5
    assert max(shares) < MOST_OF_ROW


def test_many_numbers_are_not_judged_and_many_rows_are_chosen(monkeypatch):
    rows = few_rows("logistic", 400)
    model = declared("logistic")
    whole = SiteSums(model, rows, AS_THEY_ARE, 400)
    for size in (0.0, 0.5, 1.0):
        whole.at(size * np.ones(3), 12)
    share = whole.told.largest_share(1.0)
    monkeypatch.setattr("hushgrad.fitting.determined._ROOM", 1000 * 4 * 150)
    some = SiteSums(model, rows, AS_THEY_ARE, 400)
    for size in (0.0, 0.5, 1.0):
        some.at(size * np.ones(3), 12)
    heaviest, chosen, stands_for = some.told._chosen()
    assert set(heaviest) < set(chosen)
    assert len(chosen) == 150
    assert stands_for.sum() == pytest.approx(400)
    assert some.told.largest_share(1.0) == pytest.approx(share, abs=0.05)
    monkeypatch.setattr("hushgrad.fitting.determined.MOST_JUDGED", some.told.n_numbers - 1)
    assert some.told.largest_share(1.0) is None


def test_a_row_that_stands_apart_is_judged_although_it_is_not_long(monkeypatch):
    """Two columns are nearly the same in all rows but one, which is as long as the others."""
    rows = few_rows("logistic", 400)
    X = rows.X.copy()
    X[:, 1] = X[:, 0] + 1e-2 * X[:, 1]
    X[17] = 0.5, -0.5, 0.0
    told = []
    for room in (2**23, 1000 * 4 * 40):
        monkeypatch.setattr("hushgrad.fitting.determined._ROOM", room)
        sums = SiteSums(declared("logistic"), replace(rows, X=X), AS_THEY_ARE, 400)
        for size in (0.0, 0.5, 1.0):
            sums.at(size * np.ones(3), 12)
        told.append(sums.told)
    assert 17 in told[1]._chosen()[0]
    assert told[1].largest_share(1.0) == pytest.approx(told[0].largest_share(1.0), abs=0.05)


def test_a_far_point_counts_as_all_of_a_row():
    told = ToldRows(SecretRows(np.eye(3), np.zeros(3), is_measured=False))
    huge = np.full(3, 1e200)
    told.add(6, lambda: [SumsOfRows(DIAGONAL, Weighed(huge, huge, huge), huge, huge)])
    assert told.largest_share(1.0) == 1.0
