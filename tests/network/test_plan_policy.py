"""Policies, μ and pages of plans: every stage keeps the rules, and no bound is claimed in vain."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.fitting.bounds import table_part
from hushgrad.fitting.plan import undeclared_by
from hushgrad.network.policy import Policy, RunFacts, rulings
from hushgrad.network.stage_facts import stage_facts
from hushgrad.simulate.fits import _rows

RANGES = {"x": (0.0, 1.0), "y": (-5.0, 5.0)}
LINEAR = hg.Model(kind="linear", outcome="y", columns=["x"], ranges=RANGES)
TABLES = hg.PooledTables(means=["x"])
BOUNDED = hg.FitPlan(stages={"one": LINEAR, "two": LINEAR})
MIXED = hg.FitPlan(stages={"who": TABLES, "one": LINEAR})
EACH = 40


def site(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=EACH)
    return {"x": x, "y": x + 0.3 * rng.standard_normal(EACH), "b": (x > 0.2) * 1.0}


SITES = {name: site(n) for n, name in enumerate("abc")}


def run(declared):
    return hg.fit(declared, SITES, network=hg.Network(hg.graphs.complete(3)))


def test_tables_within_ranges_join_the_composed_mu(tmp_path):
    tables = hg.PooledTables(means=["x"], ranges={"x": (0, 1)}, histograms={"y": [-5, 0.5, 5]})
    plan = hg.FitPlan(stages={"who": tables, "one": LINEAR, "two": LINEAR})
    found = run(plan)
    expected = np.hypot(table_part(tables), np.sqrt(2) * found["one"].mu * found.masks)
    assert found.mu == pytest.approx(expected / found.masks)
    assert found.mu > found["one"].mu
    document = found.to_json()
    assert {of["mu_of_all_stages"] for of in document["results"].values()} == {found.mu}
    found.save(tmp_path)
    assert f"masks: μ = {found.mu:.2g}" in (tmp_path / "one.html").read_text()


def test_a_plan_has_the_composed_mu_of_its_fits_and_none_with_unbounded_tables(tmp_path):
    alone, both = run(LINEAR), run(BOUNDED)
    assert both.mu == pytest.approx(np.sqrt(2) * alone.mu)
    mixed = run(MIXED)
    assert mixed.mu is None
    assert mixed["one"].mu is not None
    assert "no guarantee, stage who" in mixed.table()
    mixed.save(tmp_path)
    assert sorted(p.name for p in tmp_path.glob("*.html")) == ["one.html"]
    assert mixed.contract in (tmp_path / "one.html").read_text()


@pytest.mark.parametrize("more", [
    {"kind": "ridge", "penalty": "cv", "penalties": [1.0, 2.0]},
    {"kind": "linear", "factors": {"x": "agreed"}, "ranges": {"y": (-5.0, 5.0)}},
])  # fmt: skip
def test_sums_without_a_bound_claim_none(more):
    declared = hg.Model(**{"outcome": "y", "columns": ["x"], "ranges": RANGES} | more)
    assert undeclared_by(LINEAR) is None
    assert undeclared_by(declared) is not None
    assert undeclared_by(hg.FitPlan(stages={"a": LINEAR, "b": declared})).startswith("stage b: ")


def test_every_stage_of_a_plan_keeps_the_rules(tmp_path):
    logistic = hg.Model(kind="logistic", outcome="b", columns=["y"])
    plan = hg.FitPlan(stages={"who": TABLES, "one": LINEAR, "rare": logistic})
    stages = stage_facts(plan, _rows(plan, "a", SITES["a"]))
    ones = int(SITES["a"]["b"].sum())
    assert [(s.kind, s.n_parameters, s.n_rows) for s in stages] == [
        ("sum", 2, EACH), ("linear", 2, EACH), ("logistic", 2, EACH),
    ]  # fmt: skip
    assert [s.n_events for s in stages] == [None, 0, min(ones, EACH - ones)]
    facts = RunFacts(
        kind="plan", design="fit", n_participants=3, n_parameters=2, n_rows=EACH, n_events=None,
        has_events=False, fingerprints={}, file=None, accepted=(), numbers=20, mu=None,
        stages=stages,
    )  # fmt: skip
    policy = Policy(
        path=tmp_path, kinds=("linear", "logistic"), min_events=EACH, max_parameters_per_row=0.01
    )
    broken = [ruling.rule for ruling in rulings(policy, facts) if not ruling.is_kept]
    assert sorted(broken) == ["kinds", *["max_parameters_per_row"] * 3, "min_events"]
