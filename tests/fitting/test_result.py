"""The result names every coefficient, on the terminal and in its files."""

import csv
import json

import numpy as np
import pytest

from hushgrad.fitting import contract
from support.fits import fit, model, synthetic

SITES = synthetic((30, 40, 50))


@pytest.fixture(scope="module")
def logistic():
    return fit(model("logistic", level=0.9), SITES)


def test_the_table_has_one_line_for_each_coefficient_and_the_facts_of_the_fit(logistic):
    lines = logistic.table().splitlines()
    assert lines[0] == (f"logistic fit of death: 3 sites, 120 rows, {logistic.n_events} events")
    assert "90 % low" in lines[1]
    for name, line in zip(logistic.names, lines[2:], strict=False):
        cells = line.split()
        assert cells[0] == name
        assert float(cells[1]) == pytest.approx(logistic[name], rel=1e-4)
    assert f"AIC {logistic.aic:.6g}" in lines[-3]
    assert lines[-1] == f"contract {logistic.contract}"


def test_a_fit_with_a_penalty_says_why_it_has_no_standard_errors():
    table = fit(model("ridge"), SITES).table()
    assert "penalty 40 (standardised columns): no standard errors" in table
    assert "std. error" not in table


def test_the_files_hold_all_digits_and_the_contract(logistic, tmp_path):
    directory = logistic.save(tmp_path / "out")
    found = json.loads((directory / "result.json").read_text("utf-8"))
    assert found["estimate"] == logistic.estimate.tolist()
    assert found["contract_digest"] == logistic.contract
    assert found["contract"] == json.loads(json.dumps(contract(logistic.model)))
    assert found["stages"][0]["name"] == "counts and moments"
    assert len(found["stages"]) == found["n_averages"]
    with (directory / "coefficients.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == list(logistic.names)
    assert [float(row["standard_error"]) for row in rows] == logistic.standard_error.tolist()


def test_numbers_pooled_are_the_numbers_of_all_averages(logistic):
    p, steps = len(logistic.names), logistic.n_averages - 1
    first = 9 + 7 + 2 * (p - 1)  # site, digest, counts; totals; Σx and Σx²
    assert logistic.numbers_pooled == first + steps * (1 + p + p * (p + 1) // 2) + 1


def test_one_unit_more_changes_a_coefficient_by_its_factor_and_nothing_else():
    base, grams = fit(model("linear"), SITES), {
        name: {**site, "dose": 1000 * site["dose"], "age": site["age"] - 40}
        for name, site in SITES.items()
    }  # fmt: skip
    found = fit(model("linear"), grams)
    np.testing.assert_allclose(found["dose"] * 1000, base["dose"], rtol=1e-10)
    np.testing.assert_allclose(found["age"], base["age"], rtol=1e-10)
    np.testing.assert_allclose(found["intercept"], base["intercept"] + 40 * base["age"], rtol=1e-10)
    np.testing.assert_allclose(found.aic, base.aic, rtol=1e-12)
