"""The check of one site's rows: against scikit-learn, SciPy, and the rows themselves."""

import math
import re

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import hushgrad as hg
from hushgrad.fitting import rows_of, table_of
from hushgrad.fitting.rows import needed
from hushgrad.fitting.site_check import byar, wilson
from support import fits

SITES = fits.synthetic((200, 800, 900))


def fitted(kind, **options):
    return hg.fit(fits.model(kind, **options), SITES)


def eta_of(result, site):
    return fits.design(result.model, {"one": SITES[site]}) @ result.estimate


def test_log_loss_and_calibration_of_a_logistic_fit_are_scikit_learns():
    result = fitted("logistic")
    for site, columns in SITES.items():
        check, y, eta = result.checks[site], columns["death"], eta_of(result, site)
        p = 1 / (1 + np.exp(-eta))
        assert check.own == pytest.approx(log_loss(y, p), rel=1e-9)
        assert check.constant == pytest.approx(log_loss(y, np.full(len(y), y.mean())), rel=1e-9)
        assert check.expected == pytest.approx(p.sum(), rel=1e-9)
        assert check.observed == y.sum()
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12)
        model.fit(eta[:, None], y)
        assert check.slope == pytest.approx(model.coef_[0, 0], rel=1e-5)
        gain = len(y) * (log_loss(y, p) - log_loss(y, model.predict_proba(eta[:, None])[:, 1]))
        assert check.p_value == pytest.approx(stats.chi2(2).sf(2 * gain), rel=1e-4)
    everyone = sum(check.own * check.n_rows for check in result.checks.values())
    assert result.checks["north"].pooled == pytest.approx(everyone / result.n_rows, rel=1e-9)


def test_groups_are_tenths_in_the_order_of_the_risk_and_add_up():
    check = fitted("logistic").checks["middle"]
    assert [group.n_rows for group in check.groups] == [80] * 10
    predicted = [group.predicted for group in check.groups]
    assert predicted == sorted(predicted)
    assert sum(g.predicted * g.n_rows for g in check.groups) == pytest.approx(check.expected)
    assert sum(g.observed * g.n_rows for g in check.groups) == pytest.approx(check.observed)
    for group in check.groups:
        test = stats.binomtest(round(group.observed * group.n_rows), group.n_rows)
        interval = test.proportion_ci(method="wilson")
        assert (group.low, group.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


@pytest.mark.parametrize(("kind", "options"), [
    ("linear", {}), ("ridge", {}), ("huber", {}), ("poisson", {"offset": "log_exposure"}),
])  # fmt: skip
def test_the_losses_of_all_sites_make_the_pooled_one(kind, options):
    result = fitted(kind, **options)
    total = sum(check.own * check.n_rows for check in result.checks.values())
    assert result.checks["south"].pooled == pytest.approx(total / result.n_rows, rel=1e-7)
    if kind == "poisson":
        columns = SITES["south"]
        eta = eta_of(result, "south") + columns["log_exposure"]
        y, mean = columns["visits"], np.exp(eta)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(y > 0, y * np.log(y / mean), 0.0) - (y - mean)
        assert result.checks["south"].own == pytest.approx(2 * parts.mean(), rel=1e-9)
    if kind == "linear":
        y, eta = SITES["south"]["pressure"], eta_of(result, "south")
        line = stats.linregress(eta, y)
        check = result.checks["south"]
        assert check.slope == pytest.approx(line.slope, rel=1e-8)
        assert check.own == pytest.approx(((y - eta) ** 2).mean(), rel=1e-9)
        assert (check.expected, check.observed) == pytest.approx((eta.mean(), y.mean()))
        assert check.slope_error == pytest.approx(line.stderr, rel=0.01)


def test_the_events_that_cox_expects_add_up_to_those_observed():
    result = fitted("cox")
    check = result.checks["middle"]
    events = sum(group.observed for group in check.groups)
    assert events == SITES["middle"]["event"].sum()
    assert sum(group.predicted for group in check.groups) == pytest.approx(events, rel=1e-9)
    total = sum(c.own * SITES[n]["event"].sum() for n, c in result.checks.items())
    assert check.pooled == pytest.approx(total / result.n_events, rel=1e-6)
    assert check.slope == pytest.approx(1.0, abs=4 * check.slope_error)


def test_rows_that_contradict_the_fit_are_told_and_others_are_not():
    """North's outcomes are turned round by somebody: middle sees it on its own rows."""
    honest = fitted("logistic")
    assert not any(check.is_doubtful for check in honest.checks.values())
    forged = {**SITES, "south": SITES["south"] | {"death": 1 - SITES["south"]["death"]}}
    poisoned = hg.fit(fits.model("logistic"), forged)
    check = poisoned.checks["middle"]
    assert check.is_doubtful
    assert check.own > check.constant  # worse than its own mean alone
    assert check.verdict.startswith("the fit does not describe the rows of middle")
    assert check.own > honest.checks["middle"].own


@pytest.mark.parametrize(("share", "n"), [(0.0, 12), (0.3, 50), (1.0, 7)])
def test_wilsons_interval_solves_its_equation(share, n):
    z = stats.norm.ppf(0.975)
    for bound in wilson(share, n, 0.95):
        if 0 < bound < 1:
            off = (share - bound) ** 2 - z * z * bound * (1 - bound) / n
            assert off == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("count", [1, 5, 40])
def test_byars_interval_is_near_the_exact_one(count):
    low, high = byar(count, 0.95)
    exact = stats.chi2(2 * count).ppf(0.025) / 2, stats.chi2(2 * count + 2).ppf(0.975) / 2
    assert (low, high) == pytest.approx(exact, rel=0.08, abs=0.02)


def test_a_site_whose_rows_tell_no_slope_has_none():
    sites = {name: dict(columns) for name, columns in SITES.items()}
    few = {name: values[:5] for name, values in SITES["north"].items()}
    few["death"] = np.zeros(5)
    sites["north"] = few
    check = hg.fit(fits.model("logistic"), sites).checks["north"]
    assert check.slope is None
    assert check.p_value is None
    assert check.constant == 0.0
    assert len(check.groups) == 1
    assert math.isfinite(check.own)


# ---- the page


def test_the_page_needs_nothing_else_and_tells_every_number(tmp_path):
    result = hg.fit(
        fits.model("logistic", units={"age": "years"}), SITES,
        network=hg.Network(hg.graphs.complete(3)), accept_exposure=["sums"],
    )  # fmt: skip
    text = result.page(tmp_path / "page.html").read_text()
    assert not re.search(r"<script|https?://|<link|@import|src=", text)
    for name in (*result.names, *SITES, result.contract, "log odds / years", "against low"):
        assert name in text
    for check in result.checks.values():
        assert f"{check.own:.5g}" in text
    assert text.count("local: not for others") == 3
    forest = re.search(r"<svg[^>]*Forest.*?</svg>", text, re.DOTALL)[0]
    assert forest.count('class="point"') == len(result.names) - 1
    assert text.count("<circle") == 30
    numbers = sum(stage.n_numbers for stage in result.stages)
    assert f"{numbers} pooled numbers" in text


def test_names_from_outside_cannot_write_into_the_page(tmp_path):
    evil = "<script>alert(1)</script>"
    rng = np.random.default_rng(0)
    sites = {f"{evil}{n}": {evil: rng.normal(size=40), "y": rng.normal(size=40)} for n in range(2)}
    model = hg.Model(kind="linear", outcome="y", columns=[evil], units={evil: evil})
    text = hg.fit(model, sites).page(tmp_path / "page.html").read_text()
    assert "<script" not in text


def test_a_page_of_every_kind_is_written(tmp_path):
    for kind in ("ridge", "huber", "cox", "poisson"):
        text = fitted(kind).page(tmp_path / f"{kind}.html").read_text()
        assert "nan" not in re.sub(r"<style.*?</style>|<pre.*?</pre>", "", text, flags=re.DOTALL)
        assert "<svg" in text


def test_the_result_comes_back_from_its_json():
    result = fitted("linear")
    back = hg.fitting.FitResult.from_json(result.model, result.to_json())
    assert back.table() == result.table()


def test_checks_are_of_the_rows_that_are_given():
    result = fitted("logistic")
    rows = rows_of(result.model, table_of(SITES["north"], needed(result.model), site="north"))
    assert result.checked("north", rows) == result.checks["north"]
