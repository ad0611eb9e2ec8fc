"""`hushgrad run` refuses a study whose sums reveal too much, and tells the count of the others."""

import json

import pytest
from typer.testing import CliRunner

from hushgrad.cli import app
from hushgrad.schema.toml import to_toml

ROWS = [[0.5], [-0.5]] * 2  # of one length: all are effective


def study(rows, **run):
    return {
        "network": {"graph": "ring", "n_agents": 3},
        "problem": {"kind": "logistic", "X": [rows] * 3, "y": [[0, 1] * (len(rows) // 2)] * 3},
        "algorithm": [
            {
                "name": "PDGNDS",
                "design": "recommended",
                "stages": 2,
                "stepsize": {"kind": "constant", "value": 0.02},
            }
        ],
        "run": {"iterations": 40, "engine": "agents", **run},
    }


@pytest.fixture
def hushgrad(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(tables, *options):
        (tmp_path / "study.toml").write_text(to_toml(tables), encoding="utf-8")
        return CliRunner().invoke(app, ["run", "study.toml", *options])

    return call


def test_a_study_whose_sums_reveal_too_much_ends_with_code_2_unless_it_is_accepted(hushgrad):
    few = study(ROWS)  # two stages, 4 numbers about 8 rows of one entry
    refused = hushgrad(few)
    assert refused.exit_code == 2
    assert "4 numbers about 8 effective honest rows of 1 entry, 50 %" in refused.stderr
    accepted = hushgrad(few, "--accept-exposure", "sums", "--format", "json")
    assert accepted.exit_code == 0, accepted.output
    assert json.loads(accepted.stdout)["warnings"] == []
    assert hushgrad(study(ROWS, accept_exposure=["sums"]), "--quiet").exit_code == 0


def test_an_admitted_study_tells_its_count_once(hushgrad):
    told = hushgrad(study(ROWS * 6))  # 48 rows in two agents
    assert told.exit_code == 0, told.output
    line = "note: 2 stages reveal 4 numbers about 48 effective honest rows of 1 entry, 8.33 %."
    assert " ".join(told.stderr.split()).count(line) == 1
    assert "reveal" not in hushgrad(study(ROWS * 6), "--quiet").stderr


@pytest.mark.parametrize("options", [["--accept-exposure", "sum"], []])
def test_an_unknown_name_ends_with_code_2_and_the_list(hushgrad, options):
    told = hushgrad(study(ROWS) if options else study(ROWS, accept_exposure=["sum"]), *options)
    assert told.exit_code == 2
    assert "design, seed, eta" in " ".join(told.stderr.split())
