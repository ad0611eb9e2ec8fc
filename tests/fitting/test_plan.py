"""Plans: pooled tables are those of all rows, and stages run one after another."""

import csv
import io
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import hushgrad as hg
from hushgrad.errors import FitError, ModelError, PrivacyError, ProblemError
from hushgrad.fitting import contract, contract_digest, first_difference, load_model, table_of
from hushgrad.fitting.averages import longest_vector, most_averages
from hushgrad.fitting.lockstep import drive
from hushgrad.fitting.plan import columns_of, data_of, programme_of
from hushgrad.fitting.pooled_sums import small_cell, sum_rows
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.told import told_by
from support.fits import LEVELS, fit, model, pooled_columns, synthetic

SITES = {
    name: site | {"arm": np.where(np.arange(len(site["age"])) % 3 == 0, "new", "control")}
    for name, site in synthetic((200, 300, 500)).items()
}
ROWS = pooled_columns(SITES)
EDGES = [-100, 40, 50, 60.5, 200]
WHO = hg.PooledTables(
    means=["age", "dose"],
    counts=["stage"],
    tables=[["stage", "arm"]],
    histograms={"age": EDGES},
    factors={"stage": LEVELS, "arm": ["control", "new"]},
    units={"age": "years"},
)
DEATHS = model("logistic")
PLAN = hg.FitPlan(stages={"who": WHO, "deaths": DEATHS, "pressure": model("linear")})


def programmes(declared, sites, progress=None):
    names = columns_of(declared)
    data = {name: data_of(declared, table_of(s, names, site=name)) for name, s in sites.items()}
    return [programme_of(declared, rows, progress) for rows in data.values()]


@pytest.fixture(scope="module")
def result():
    return hg.fit(PLAN, SITES)


def test_pooled_tables_are_those_of_all_rows(result):
    found = result["who"]
    assert (found.n_sites, found.n_rows, found.n_dropped) == (3, 1000, 0)
    for n, name in enumerate(WHO.means):
        assert_allclose(found.mean[n], ROWS[name].mean(), rtol=1e-12)
        assert_allclose(found.deviation[n], ROWS[name].std(ddof=1), rtol=1e-12)
    wanted = [[np.sum((ROWS["stage"] == s) & (ROWS["arm"] == a)) for a in ("control", "new")]
              for s in LEVELS]  # fmt: skip
    assert found.counts("stage", "arm").tolist() == wanted
    assert found.counts("stage").tolist() == [sum(row) for row in wanted]
    inside = [np.sum((ROWS["age"] >= a) & (ROWS["age"] < b))
              for a, b in pairwise(EDGES)]  # fmt: skip
    assert found.histogram("age").tolist() == inside
    assert found.numbers_pooled == 3 + (3 + 6 + 4) + 2 * 2


def test_fits_of_a_plan_are_the_fits_alone_and_every_number_is_counted(result):
    for name, alone in (("deaths", fit(DEATHS, SITES)), ("pressure", fit(model("linear"), SITES))):
        assert result[name].estimate.tolist() == alone.estimate.tolist()
        assert result[name].numbers_pooled == alone.numbers_pooled
    assert result.numbers_pooled == sum(found.numbers_pooled for found in result.results.values())
    assert result.n_averages == sum(len(found.stages) for found in result.results.values())
    assert result.estimate.tolist() == [
        *result["deaths"].estimate, *result["pressure"].estimate
    ]  # fmt: skip


def test_progress_names_the_stage_and_counts_what_the_result_counts(result):
    progress, seen = FitProgress(), []
    runs = programmes(PLAN, {"a": SITES["north"]}, progress)

    def pool(vectors):
        seen.append((progress.stage, progress.name, progress.numbers, len(vectors[0])))
        return vectors

    (alone,) = drive(runs, pool)
    assert progress.numbers == alone.numbers_pooled
    stages = [stage for found in alone.results.values() for stage in found.stages]
    assert [numbers for _, _, numbers, _ in seen] == np.cumsum(
        [s.n_numbers for s in stages]
    ).tolist()
    assert [name for _, name, _, _ in seen] == [
        name for name, found in alone.results.items() for _ in found.stages
    ]
    assert {(n, name) for n, name, _, _ in seen} == {(1, "who"), (2, "deaths"), (3, "pressure")}
    assert max(length for *_, length in seen) <= longest_vector(PLAN)
    assert len(seen) < most_averages(PLAN) == 1 + 60 + 60


def test_on_a_network_the_bits_are_the_same(result):
    found = hg.fit(PLAN, SITES, network=hg.Network(hg.graphs.complete(3)), accept_exposure=["sums"])
    assert found.rounds == found.n_averages
    assert found.estimate.tobytes() == result.estimate.tobytes()
    assert found["who"].table() == result["who"].table()


def test_every_table_is_printed_and_written(result, tmp_path):
    text = result.table()
    for part in ("stage 1 of 3: who", "stage by arm", "[60.5, 200]", "age (years)",
                 "stage 2 of 3: deaths", "stage[high]", f"contract {result.contract}"):  # fmt: skip
        assert part in text
    assert text.count("contract") == 1
    result.save(tmp_path)
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["contract_digest"] == contract_digest(contract(PLAN))
    assert (
        document["results"]["who"]["tables"][1]["rows"]
        == result["who"].counts("stage", "arm").tolist()
    )
    rows = list(csv.DictReader(io.StringIO((tmp_path / "who.csv").read_text())))
    cells = {(row["table"], row["cell"]): float(row["value"]) for row in rows}
    assert cells["stage by arm", "high, new"] == result["who"].counts("stage", "arm")[2, 1]
    assert cells["mean", "age"] == result["who"].mean[0]
    assert cells["histogram of age", "[60.5, 200]"] == result["who"].histogram("age")[3]
    assert (tmp_path / "deaths.csv").read_text() == result["deaths"].to_csv()


# ---- small cells


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 12), min_size=4, max_size=4), min_size=2, max_size=4))
def test_no_sum_over_some_sites_has_a_small_cell_if_every_site_is_admitted(parts):
    """By all subsets of sites: a coalition computes the sum over the others."""
    declared = hg.PooledTables(tables=[["a", "b"]], factors={"a": ["0", "1"], "b": ["0", "1"]})
    admitted = []
    for part in parts:
        codes = np.repeat(np.arange(4), part)
        if not len(codes):
            continue
        table = table_of({"a": (codes // 2).astype(str), "b": (codes % 2).astype(str)},
                         ["a", "b"], site="x")  # fmt: skip
        rows = sum_rows(declared, table)
        assert rows.cells.tolist() == part
        if small_cell(declared, rows) is None:
            admitted.append(part)
        else:
            assert sum(part) < 5 or any(0 < n < 5 for n in part)
    for chosen in range(1, 2 ** len(admitted)):
        total = np.sum([p for n, p in enumerate(admitted) if chosen >> n & 1], axis=0)
        assert not ((total > 0) & (total < 5)).any()


def rare(count):
    site = {k: v.copy() for k, v in SITES["north"].items()}
    site["stage"] = np.array(["low"] * (200 - count) + ["high"] * count)
    return site


def test_a_site_with_few_rows_in_a_cell_is_refused_before_anything_is_pooled():
    declared = hg.FitPlan(
        stages={"who": hg.PooledTables(counts=["stage"], factors={"stage": LEVELS})}
    )
    network = hg.Network(hg.graphs.complete(3))
    sites = SITES | {"north": rare(2)}
    with pytest.raises(PrivacyError, match=r"site north .* who: stage high: 2 of at least 5 rows"):
        hg.fit(declared, sites, network=network)
    accepted = hg.fit(declared, sites, network=network, accept_exposure=["cells"])
    assert accepted["who"].small_cells == []  # other sites add many
    hg.fit(declared, SITES | {"north": rare(5)}, network=network)
    three = {"a": rare(1), "b": rare(0), "c": rare(0)}
    found = hg.fit(declared, three, network=network, accept_exposure=["cells"])["who"]
    assert found.small_cells == ["stage high"]
    assert "fewer than 5 rows: stage high" in found.table()


# ---- declarations


def test_a_plan_file_is_the_plan(tmp_path):
    file = tmp_path / "model.toml"
    file.write_text("""
[[stage]]
name = "who"
kind = "sum"
means = ["age", "dose"]
counts = ["stage"]
tables = [["stage", "arm"]]
histograms = { age = [-100, 40, 50, 60.5, 200] }
units = { age = "years" }
factors = { stage = ["low", "middle", "high"], arm = ["control", "new"] }

[[stage]]
name = "deaths"
kind = "fit"
[stage.model]
kind = "logistic"
formula = "death ~ age + dose + year + stage"
factors = { stage = ["low", "middle", "high"] }
""")
    plan = hg.FitPlan(stages={"who": WHO, "deaths": DEATHS})
    assert contract(load_model(file)) == contract(plan)
    other = hg.FitPlan(stages={"deaths": DEATHS, "who": WHO})
    assert first_difference(contract(plan), contract(other))[0] == "stages[0].name"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('[[stage]]\nname = "a"\nkind = "sums"', 'kind = "sums" is not a kind of stage'),
        ('[[stage]]\nkind = "sum"\nmeans = ["x"]', "needs the key name"),
        ('[[stage]]\nname = "a"\nkind = "sum"\nmean = ["x"]', 'Did you mean "means"'),
        ('[[stage]]\nname = "a"\nkind = "fit"', "[stage.model]"),
        ('[[stage]]\nname = "a"\nkind = "fit"\noutcome = "y"', "is not a key of a fit"),
        ('[stage]\nname = "a"', "write [[stage]]"),
        ('[model]\nkind = "linear"\n[[stage]]\nname = "a"\nkind = "sum"\nmeans = ["x"]', "beside"),
        ('[[stage]]\nname = "a b"\nkind = "sum"\nmeans = ["x"]', "letters, digits"),
        ('[[stage]]\nname = "a"\nkind = "sum"', "declare at least one"),
        (2 * '[[stage]]\nname = "a"\nkind = "sum"\nmeans = ["x"]\n', "two stages have the name"),
    ],
)  # fmt: skip
def test_a_wrong_plan_file_is_refused_by_name(tmp_path, text, part):
    file = tmp_path / "model.toml"
    file.write_text(text)
    with pytest.raises(ModelError) as refused:
        load_model(file)
    assert part in str(refused.value)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"counts": ["stage"]}, "factors.stage is a list of two or more levels"),
        ({"tables": [["a", "b", "c", "d"]]}, "up to 3 factors"),
        ({"tables": [["a", "a"]], "factors": {"a": ["0", "1"]}}, "up to 3 factors"),
        ({"means": ["a"], "counts": ["a"], "factors": {"a": ["0", "1"]}}, "numbers are asked for"),
        ({"histograms": {"x": [1]}}, "two or more growing numbers"),
        ({"histograms": {"x": [1, 3, 2]}}, "two or more growing numbers"),
        ({"means": "x"}, "means is a list"),
        ({"means": ["x"], "min_cell": 0}, "whole number ≥ 1"),
        ({"means": ["x"], "factors": {"a": ["0", "1"]}}, "is in no table"),
        ({"counts": ["a"], "factors": {"a": [str(n) for n in range(10_001)]}}, "at most 10000"),
    ],
)
def test_wrong_tables_are_refused_by_name(options, part):
    with pytest.raises(ModelError, match="sum: ") as refused:
        hg.PooledTables(**options)
    assert part in str(refused.value)


def test_a_value_beyond_the_edges_is_refused_by_row():
    declared = hg.FitPlan(stages={"who": hg.PooledTables(histograms={"x": [0, 1, 2]})})
    with pytest.raises(ProblemError, match=r"site a: row 1: column x is 2\.5, but the edges reach"):
        hg.fit(declared, {"a": {"x": [0.5, 2.5]}})
    found = hg.fit(declared, {"a": {"x": [0.0, 1.0, 2.0, 1.5]}})
    assert found["who"].histogram("x").tolist() == [1, 3]


def test_dropped_rows_are_counted():
    declared = hg.FitPlan(stages={"who": hg.PooledTables(means=["x"], missing="drop")})
    found = hg.fit(declared, {"a": {"x": ["1", "NA", "4"]}, "b": {"x": [4.0, np.nan]}})["who"]
    assert (found.n_rows, found.n_dropped, found.mean.tolist()) == (3, 2, [3.0])
    assert "3 rows (2 dropped)" in found.table()


def test_sites_with_other_plans_do_not_pool():
    one = hg.FitPlan(stages={"who": hg.PooledTables(means=["age"])})
    two = hg.FitPlan(stages={"whom": hg.PooledTables(means=["age"])})
    with pytest.raises(ModelError, match=r"stages\[0\]\.name is 'who' at site north"):
        hg.fit({"north": one, "south": two}, {n: SITES[n] for n in ("north", "south")})
    runs = programmes(one, {"a": SITES["north"]}) + programmes(two, {"b": SITES["south"]})
    with pytest.raises(FitError, match="digests of their contracts differ"):
        drive(runs)


def test_a_false_count_ends_the_stage():
    declared = hg.FitPlan(
        stages={"who": hg.PooledTables(counts=["stage"], factors={"stage": LEVELS})}
    )

    def false(vectors):
        total = np.sum(vectors, axis=0)
        total[9] = 0.0  # a cell
        return [total] * len(vectors)

    with pytest.raises(FitError, match="a site has sent a false count"):
        drive(programmes(declared, SITES), false)


def test_the_expected_count_is_that_of_a_plan():
    told = told_by(PLAN)
    p = len(DEATHS.names)
    step = p * (p + 3) // 2 + 1
    assert told.width == p
    assert told.numbers == (3 + 13 + 4) + (10 + 2 * p + 8 * step) + (10 + 2 * p + step)
    assert not told.is_quadratic
    alone = told_by(hg.FitPlan(stages={"who": WHO}))
    assert (alone.width, alone.numbers, alone.averages) == (4, 20, 1)
