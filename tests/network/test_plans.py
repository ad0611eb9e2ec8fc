"""Deployed agents run a plan: the bits of plain sums after kills, the status, small cells."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import PrivacyError
from hushgrad.network.deployed import Agent
from hushgrad.network.ops.result import Status, write_result
from hushgrad.network.state.journal import Slot
from hushgrad.network.state.position import read_position
from support import fit_network, fits
from support.fit_network import KilledError

SITES = {
    name: site | {"fate": np.where(site["death"] > 0, "dead", "alive")}
    for name, site in fits.synthetic((25, 40, 60)).items()
}
PLAN = hg.FitPlan(
    stages={
        "who": hg.PooledTables(
            means=["age"], tables=[["stage", "fate"]], min_cell=1,
            factors={"stage": fits.LEVELS, "fate": ["alive", "dead"]},
        ),
        "deaths": hg.Model(kind="logistic", formula="death ~ age"),
        "pressure": hg.Model(kind="linear", formula="pressure ~ age + dose"),
    }
)  # fmt: skip
NETWORK = hg.Network(hg.graphs.complete(3))


def numbers(result):
    """Everything but what the network adds: rounds, and masks with their μ."""
    document = result.to_json()
    for part in (document, *document.get("results", {}).values()):
        for name in ("rounds", "masks", "mu"):
            part.pop(name, None)
    return json.dumps(document, default=list)


def test_agents_end_with_the_bits_of_plain_sums_after_kills_in_every_stage(tmp_path, monkeypatch):
    seen, original, places = set(), Slot.write, set()

    def killed(slot, section, *, afresh):
        key = slot._path, section.k, len(section.arrays)
        position = read_position(slot._path.parent)
        if position is not None:
            places.add(position.summary)
        original(slot, section, afresh=afresh)
        if slot._path.name == "sums" and key not in seen:
            seen.add(key)
            raise KilledError

    monkeypatch.setattr(Slot, "write", killed)
    setting = fit_network.configs(tmp_path, PLAN, SITES, NETWORK, seed=3)
    agents, results, deaths = fit_network.run(setting)
    assert {r.status for r in results} == {Status.DONE}, [r.summary for r in results]
    plain = hg.fit(PLAN, SITES)
    assert {numbers(agent.fitted) for agent in agents} == {numbers(plain)}
    assert deaths >= 3 * plain.n_averages
    most = 1 + 2 * 60
    for part in ("1 of 3 (who), average 1", "2 of 3 (deaths), average 3", "3 of 3 (pressure)"):
        assert any(f"in stage {part}" in place for place in places), places
    assert any(f"of at most {most}, iteration" in place for place in places)
    ended = read_position(setting[0].state)
    assert ended.summary.startswith(f"done after {plain.n_averages} averages")
    (tmp_path / "out").mkdir()
    written = write_result(tmp_path / "out" / "result", results[0])
    assert {path.name for path in written} == {
        "result.json", "result.npz", "who.csv", "deaths.csv", "pressure.csv"
    }  # fmt: skip
    document = json.loads((tmp_path / "out" / "result.json").read_text())
    cells = document["fit"]["results"]["who"]["tables"][0]["rows"]
    rows = fits.pooled_columns(SITES)
    assert cells == [
        [int(np.sum((rows["stage"] == s) & (rows["death"] == v))) for v in (0, 1)]
        for s in fits.LEVELS
    ]


PRESSURE = {"formula": "pressure ~ age + stage", "factors": {"stage": fits.LEVELS}}


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "linear", "factors": {"stage": "agreed"}, "most_levels": 4},
        {"kind": "ridge", "penalty": "cv", "penalties": (1, 30), "folds": 3},
        {"kind": "ridge", "penalty": 2.0, "hessian": "products"},
    ],
    ids=["agreed levels", "cross-validation", "products"],
)
def test_agents_fit_with_the_bits_of_plain_sums(tmp_path, options):
    declared = hg.Model(**(PRESSURE | options))
    setting = fit_network.configs(tmp_path, declared, SITES, NETWORK, seed=3)
    agents, results, _ = fit_network.run(setting)
    assert {r.status for r in results} == {Status.DONE}, [r.summary for r in results]
    assert {numbers(agent.fitted) for agent in agents} == {numbers(hg.fit(declared, SITES))}


def test_an_agent_with_a_small_cell_does_not_start_unless_it_accepts_it(tmp_path):
    stage = replace(PLAN.stages["who"], min_cell=5)
    plan = hg.FitPlan(stages={"who": stage})
    config = fit_network.configs(tmp_path, plan, SITES, NETWORK, seed=3)[0]
    strict = replace(config, accept_exposure=config.accept_exposure - {"cells"})
    with pytest.raises(PrivacyError, match=r"cells: an agent adds no row .* who: stage"):
        asyncio.run(Agent(strict).run())
    assert not config.state.exists()
