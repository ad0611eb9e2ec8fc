"""The doctor tells what masks promise about the rows of an agent, from the bound in its file."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import hushgrad as hg
from hushgrad.cli import app
from hushgrad.network import mint, write_config
from hushgrad.network.config.file import load_config
from hushgrad.network.objective.objectives import load_objective
from hushgrad.network.ops.doctor.guarantee import guarantees
from hushgrad.network.promise import missing, mu_of
from hushgrad.network.state.ledger import BEGUN, ledger_of, mus

ETA, LAM, M, DIM = 0.5, 0.01, 5, 2


def agent(tmp_path, *, kind="logistic", design="recommended", run=None, objective=None):
    """The file of agent 1 of a ring of five, with its rows; the longest row is (3, 4)."""
    home = tmp_path / "ann"
    if not home.exists():
        mint(home, "ann")
    rows = np.array([[3.0, 4.0, 1.0], [0.5, -1.0, -1.0], [1.0, 1.0, 1.0]])
    np.savetxt(home / "rows.csv", rows, delimiter=",", header="a,b,y", comments="")
    others = [{"name": f"org-{i}", "number": i} for i in range(M) if i != 1]
    near = [dict(o, address=f"127.0.0.1:{9000 + o['number']}") for o in others[:2]]
    partners = {"partner": others} if design == "recommended" else {}
    common = {"id": "r1", "n_agents": M, "dim": DIM, "iterations": 4000, "eta": ETA}
    write_config(home / "agent.toml", {
        "agent": {"name": "ann", "number": 1},
        "run": common | (run or {}),
        "algorithm": {"name": "PDGNDS", "design": design,
                      "stepsize": {"kind": "constant", "value": LAM}},
        "objective": {"kind": kind, "file": "rows.csv", "columns": ["a", "b"], "target": "y"}
        | (objective or {}),
        "neighbour": near, **partners,
    })  # fmt: skip
    return load_config(home / "agent.toml")


def told(config):
    return list(guarantees(config, load_objective(config.objective, DIM)))


def test_the_doctor_tells_mu_epsilon_and_the_worst_coalition_of_each_size(tmp_path):
    config = agent(tmp_path, run={"row_norm": 5.0})
    lines = told(config)
    masks = hg.masks.zero_sum()
    oracle = hg.guarantee(
        masks, M, sizes=masks.sizes(DIM, lam=LAM, eta=ETA, scale=128.0),  # above 1/λ
        bound=hg.theory.logistic_row(5.0), stages=8, agent=1,
    )  # fmt: skip
    assert [line.check for line in lines] == ["guarantee"] * len(oracle.exposures)
    for line, exposure in zip(lines, oracle.exposures, strict=True):
        assert line.data["coalition"] == list(exposure.coalition)
        assert line.data["advantage"] == exposure.advantage
        if exposure.is_alone:
            assert line.data["mu"] is None
            assert line.is_good is None
            assert line.text.endswith("nothing is hidden; have an honest partner")
        else:
            assert line.data["mu"] == exposure.mu
            assert line.data["epsilon"] == exposure.epsilon
            assert f"μ = {exposure.mu:.3g}, ε = {exposure.epsilon:.3g} at δ = 1e-06" in line.text
    assert lines[0].text.startswith("against an outsider: ")


def test_mu_of_a_run_is_the_formula_for_one_honest_partner(tmp_path):
    config = agent(tmp_path, run={"row_norm": 5.0, "scale": 1000.0})
    white = 0.1 * (1 - ETA) / LAM * math.sqrt((1 - 0.7**2) / DIM)
    by_hand = math.sqrt(8 * ((5.0 / 1024) ** 2 + (5.0**2 / 4 / white) ** 2))
    assert mu_of(config) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, r"declare row_norm in \[run\], a public bound above every ‖x‖$"),
        ({"kind": "ridge"}, r"row_norm in \[run\], .* and row_target, above every \|y\|$"),
        ({"kind": "huber", "run": {"row_norm": 5.0}}, r"declare row_target in \[run\]"),
        ({"run": {"row_norm": 5.0, "seed": 3}}, "a seed is no secret"),
        ({"design": "paper", "run": {"row_norm": 5.0}}, 'Use design = "recommended"'),
    ],
)
def test_without_a_bound_one_line_says_what_to_declare(tmp_path, changes, said):
    config = agent(tmp_path, **changes)
    (line,) = told(config)
    assert line.is_good is None
    assert mu_of(config) is None
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(missing(config))


def test_a_row_outside_of_the_declared_bound_is_in_the_way(tmp_path):
    (line,) = told(agent(tmp_path, run={"row_norm": 4.9}))
    assert line.is_good is False
    assert "row_norm = 4.9 and a row of this agent has 5." in line.text
    lines = told(agent(tmp_path, kind="huber", run={"row_norm": 5.0, "row_target": 0.5}))
    assert "row_target = 0.5 and a row of this agent has 1." in lines[0].text
    lines = told(agent(tmp_path, run={"row_norm": 5.0}, objective={"intercept": False}))
    assert lines[0].is_good


def test_masks_without_eta_promise_nothing(tmp_path):
    config = agent(tmp_path, run={"row_norm": 5.0, "eta": 0.5})
    without = load_config(write_without_eta(config, tmp_path))
    (line,) = told(without)
    assert line.data["mu"] is None
    assert line.text.endswith("a part of a row has no mask; set eta in [run]")


def write_without_eta(config, tmp_path):
    file = tmp_path / "ann" / "agent.toml"
    text = file.read_text()
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("eta")))
    assert config.run.eta == 0.5
    return file


def remember(key, run, mu):
    ledger = ledger_of(key)
    if not ledger.exists:
        ledger.create()
    with ledger.locked():
        ledger.append(BEGUN, {"run": run, "mu": mu if mu is None or math.isfinite(mu) else "inf"})


def test_the_runs_of_a_key_compose_in_the_ledger(tmp_path):
    config = agent(tmp_path, run={"row_norm": 5.0})
    for run, mu in (("a", 0.3), ("b", None), ("c", 0.4)):
        remember(config.key, run, mu)
    assert mus(config.key) == {"a": 0.3, "b": None, "c": 0.4}
    ledger = told(config)[-1]
    assert ledger.check == "ledger"
    assert ledger.data["mu"] == pytest.approx(0.5)
    assert ledger.data["epsilon"] == pytest.approx(hg.theory.epsilon(1e-6, 0.5))
    assert ledger.text.startswith("2 runs of this key, if all but one partner collude: μ = 0.5")
    assert ledger.text.endswith("1 without a declared bound are not counted")
    remember(config.key, "d", math.inf)
    assert told(config)[-1].data["mu"] is None


def test_the_numbers_are_in_the_doctors_json(tmp_path):
    config = agent(tmp_path, run={"row_norm": 5.0})
    file = tmp_path / "ann" / "agent.toml"
    result = CliRunner().invoke(app, ["doctor", str(file), "--timeout", "0.1", "--format", "json"])
    checks = json.loads(result.stdout)["checks"]
    found = [check["data"] for check in checks if check["check"] == "guarantee"]
    assert found[0]["mu"] == told(config)[0].data["mu"]
    assert found[0]["delta"] == 1e-6
    text = CliRunner().invoke(app, ["doctor", str(file), "--timeout", "0.1"])
    assert "against an outsider: μ = " in text.stdout
