"""`hushgrad audit`: the same findings as hg.audit, as a table, as JSON and as a page."""

import json
import re

import pytest
from typer.testing import CliRunner

import hushgrad as hg
from hushgrad.cli import app
from hushgrad.privacy.result import Audit
from hushgrad.studies import load_study
from support.studies import study_text

STUDY = study_text(
    {"PDGNDS": 0.1, "EXTRA": 0.1}, network={"graph": "ring", "n_agents": 5}, iterations=300,
    trials=2, engine="agents",
)  # fmt: skip


@pytest.fixture
def study(tmp_path):
    return written(tmp_path, STUDY)


def written(directory, text):
    path = directory / "study.toml"
    path.write_text(text)
    return path


def call(*arguments, code=0):
    result = CliRunner().invoke(app, ["audit", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def refuse(name):
    raise AssertionError(f"{name} is not JSON")


def document(*arguments):
    return json.loads(call(*arguments, "--format", "json").stdout, parse_constant=refuse)


def test_the_table_has_the_methods_the_agents_and_who_exposes_them(study):
    out = call(study).stdout
    for part in ("PDG-NDS", "EXTRA", "eavesdropper", "one neighbour", "all neighbours"):
        assert part in out
    assert "5 of 5 exposed" in out
    assert "inversion of EXTRA" in out
    assert "agents 1, 4" in out  # the two neighbours of agent 0


def test_json_is_one_document_with_the_findings_of_the_library(study):
    said = document(study, "--iterations", 60)
    built = load_study(study).build()
    for stored, (label, algorithm) in zip(said["audits"], built.algorithms.items(), strict=True):
        run = hg.run(
            algorithm, built.problem, built.network, label=label, iterations=60, engine="agents"
        )
        assert Audit.from_json(json.dumps(stored)) == hg.audit(run)
    assert said["study"] == str(study)
    assert said["files"] == []


def test_adversaries_agents_seed_and_length_can_be_chosen(study):
    options = ("--adversary", "2,3", "--adversary", "neighbour", "--agent", 1, "--agent", 2)
    audits = document(study, *options, "--iterations", 50, "--seed", 9)["audits"]
    assert {(a["iterations"], a["seed"], a["trial"]) for a in audits} == {(50, 9, 0)}
    asked = [(f["agent"], f["adversary"]) for f in audits[0]["findings"]]
    assert asked == [
        (1, "curious agents 2, 3"), (1, "curious agent 0"), (1, "curious agent 2"),
        (2, "curious agent 1"), (2, "curious agent 3"),
    ]  # fmt: skip


def test_out_writes_the_page_and_the_json(study, tmp_path):
    options = ("--out", tmp_path / "out", "--iterations", 60)
    result = call(study, *options)
    page = (tmp_path / "out" / "study-audit.html").read_text(encoding="utf-8")
    stored = json.loads((tmp_path / "out" / "study-audit.json").read_text(encoding="utf-8"))
    assert "Where the agents stand" in page
    assert [a["label"] for a in stored] == ["PDG-NDS", "EXTRA"]
    assert "study-audit.html" in result.stderr
    assert call(study, *options, "--quiet").stderr == ""


def test_compare_puts_the_designs_side_by_side(study):
    options = ("--compare", "--adversary", "eavesdropper", "--agent", 0, "--agent", 2)
    audits = {a["label"]: a for a in document(study, *options)["audits"]}
    assert list(audits) == [
        "paper", "constant splits", "isotropic splits", "bursts", "linear masks",
        "linear and quadratic masks", "recommended",
    ]  # fmt: skip
    worst = {label: {f["verdict"] for f in a["findings"]} for label, a in audits.items()}
    for label in ("paper", "constant splits", "isotropic splits", "bursts"):
        assert worst[label] == {"exposed"}, label
    for label in ("linear masks", "linear and quadratic masks", "recommended"):
        assert not any("exposed" in verdict for verdict in worst[label]), label
    assert all(a["accuracy"] < 1e-3 for a in audits.values())
    table = call(study, "--compare", "--quiet", "--iterations", 60, "--agent", 0).stdout
    assert len(re.findall(r"of 1 (?:direction )?exposed", table)) >= 7 * 3


def test_repeats_attack_several_runs_together(tmp_path):
    ring = {"graph": "ring", "n_agents": 5}
    text = study_text({"PDGNDS": 0.1}, network=ring, iterations=60, engine="agents")
    path = written(tmp_path, text)
    (audit,) = document(path, "--repeats", 3, "--adversary", "eavesdropper")["audits"]
    assert audit["label"] == "PDG-NDS, 3 runs"
    assert audit["seed"] == 2
    assert all("average of runs" in {*f["tried"], *f["refused"]} for f in audit["findings"])
    assert "3 runs" in call(path, "--repeats", 3, "--adversary", "eavesdropper").stdout


def test_a_design_that_diverges_is_left_out_and_only_if_all_do_it_is_an_error(tmp_path):
    first, second = STUDY.split('name = "EXTRA"')
    wild = second.replace("value = 0.1", "value = 50")
    path = written(tmp_path, f'{first}name = "EXTRA"{wild}')
    result = call(path, "--adversary", "eavesdropper")
    assert "EXTRA diverged at" in result.stderr
    assert "PDG-NDS" in result.stdout
    assert "EXTRA" not in result.stdout
    path = written(tmp_path, path.read_text().replace("value = 0.1", "value = 50"))
    assert "nothing is left to audit" in call(path, code=1).stderr


def test_what_cannot_be_audited_is_bad_input_with_the_way_out(study, tmp_path):
    assert "or agents' numbers as 2,3" in call(study, "--adversary", "spy", code=2).stderr
    assert "agent 9 is asked for" in call(study, "--agent", 9, code=2).stderr
    assert "numbered from 0 to 4" in call(study, "--adversary", "2,7", code=2).stderr
    assert "there is no study" in call(tmp_path / "none.toml", code=2).stderr
    only_extra = STUDY.replace('name = "PDGNDS"', 'name = "DIGing"')
    assert "PDGDS and PDGNDS" in call(written(tmp_path, only_extra), "--compare", code=2).stderr
    sweep = written(tmp_path, STUDY + '[sweep]\n"run.seed" = [1, 2]\n')
    assert "Pick one with --row" in call(sweep, code=2).stderr
    assert document(sweep, "--row", 1, "--agent", 0)["audits"][0]["seed"] == 2
