"""A fit from agents' files, over TLS with secret masks: its numbers, its refusals, its secrets."""

import asyncio
import re
import tomllib
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import ConfigError, ExposureError, FitError, PrivacyError
from hushgrad.fitting import contract, contract_digest
from hushgrad.fitting.averages import longest_vector
from hushgrad.fitting.progress import FitProgress
from hushgrad.network.config.file import parse_config, write_config
from hushgrad.network.deployed import Agent
from hushgrad.network.exposure import check_average
from hushgrad.network.keys.identity import mint
from hushgrad.network.objective.objectives import load_objective
from hushgrad.network.ops.doctor.examination import examine
from hushgrad.network.ops.doctor.exposure import verdicts
from hushgrad.network.ops.result import Status, read_result, write_result
from hushgrad.network.programme import Programme
from hushgrad.network.promise import missing
from hushgrad.network.protocol.hello import differences, public_parts
from hushgrad.network.state.ledger import mus
from hushgrad.network.state.stages import read_stages
from hushgrad.schema.toml import to_toml
from support import agent_network, fit_network, fits

SITES = fits.synthetic((25, 40, 60))
NAMES = list(SITES)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    home = tmp_path_factory.mktemp("keys")
    for name in NAMES:
        mint(home, name)
    return home


def tables(directory, keys, ports, j, **changed):
    """The file of one of three sites that are all linked."""
    others = [
        {"name": name, "number": i, "certificate": str(keys / f"{name}.crt")}
        for i, name in enumerate(NAMES)
        if i != j
    ]
    return {
        "agent": {
            "name": NAMES[j], "number": j, "listen": f"127.0.0.1:{ports[j]}",
            "key": str(keys / f"{NAMES[j]}.key"), "certificate": str(keys / f"{NAMES[j]}.crt"),
            "state": f"state-{j}", "result": f"result-{j}/result", "durability": "process",
            "max_wait": 3.0, "heartbeat": 0.5, "accept_exposure": ["sums"],
        },
        "run": {"id": agent_network.run_id(directory), "n_agents": 3},
        "fit": {"model": "model.toml", "file": f"{NAMES[j]}.csv"},
        "neighbour": [p | {"address": f"127.0.0.1:{ports[p['number']]}"} for p in others],
        "partner": others,
    } | changed  # fmt: skip


def files(directory, keys, **changed):
    """The model, the rows and the agents' files of three sites; returns the configurations."""
    (directory / "model.toml").write_text(to_toml({"model": fits.MODEL}))
    ports = agent_network.free_ports(3)
    found = []
    for j, name in enumerate(NAMES):
        fit_network.write_rows(directory / f"{name}.csv", SITES[name])
        given = tables(directory, keys, ports, j, **changed)
        found.append(write_config(directory / f"{name}.toml", given))
    return found


def run(configs):
    agents = [Agent(config) for config in configs]
    return agents, asyncio.run(agent_network.ends(agents))


def test_three_sites_fit_from_their_files_and_keep_the_result(tmp_path, keys):
    configs = files(tmp_path, keys)
    agents, results = run(configs)
    assert {r.status for r in results} == {Status.DONE}, [r.summary for r in results]
    plain = fits.fit(configs[0].run.model, SITES)
    assert {fit_network.bits(agent.fitted) for agent in agents} == {fit_network.bits(plain)}
    assert {r.rounds for r in results} == {plain.n_averages}
    written = write_result(configs[0].result, results[0])
    assert [file.name for file in written] == ["result.json", "result.npz", "coefficients.csv"]
    assert written[2].read_text() == plain.to_csv()
    again = read_result(configs[0].result)
    assert again.fit["names"] == list(plain.names)
    assert again.fit["estimate"] == plain.estimate.tolist() == again.theta.tolist()
    masked = read_stages(configs[0].state)[plain.n_averages - 1].statistic
    assert np.median(np.abs(masked.q)) > 1e10  # masks of 10⁴ · 2²⁴


def test_a_false_sum_told_to_one_agent_isolates_nothing(tmp_path, keys, monkeypatch):
    """Site 1 sees another number of dropped rows, which changes no vector but all of its masks."""
    configs = files(tmp_path, keys)
    original, dropped = Programme.pool, 7  # the place of this count in the first vector

    def pool(stages, stage, average):
        if stage == 0 and stages.config.number == 1:
            average = average + np.eye(len(average))[dropped]
        original(stages, stage, average)

    sums = {}

    def masked(stages, stage, start, own, masked=Programme._masked):
        sums[stages.config.number, stage] = stages.statistic(stage, start).q
        return masked(stages, stage, start, own)

    monkeypatch.setattr(Programme, "pool", pool)
    monkeypatch.setattr(Programme, "_masked", masked)
    _, results = run(configs)
    assert {r.status for r in results} == {Status.REFUSED}
    assert "went on with other sums" in results[0].detail
    kept = [read_stages(config.state)[1].statistic.q for config in configs]
    for honest in ([0, 1], [1, 2], [0, 1, 2]):
        off = sum(kept[j] for j in honest) - sum(sums[j, 1] for j in honest)
        assert np.median(np.abs(off)) > 1e10
    both = kept[0] + kept[2] - sums[0, 1] - sums[2, 1]  # each still lacks the other's share
    assert np.median(np.abs(both)) > 1e10


def test_a_false_sum_in_the_last_average_leaves_nobody_with_a_table(tmp_path, keys, monkeypatch):
    configs = files(tmp_path, keys)
    last, original = fits.fit(configs[0].run.model, SITES).n_averages - 1, Programme.pool

    def pool(stages, stage, average):
        if stage == last and stages.config.number == 1:
            average = average + np.eye(len(average))[-1] / 3  # in a limb that the fit ignores
        original(stages, stage, average)

    monkeypatch.setattr(Programme, "pool", pool)
    agents, results = run(configs)
    assert {r.status for r in results} == {Status.REFUSED}
    assert [agent.fitted for agent in agents] == [None] * 3


def test_a_site_that_alone_goes_on_does_not_tell_its_vector(tmp_path, keys, monkeypatch):
    """Two programmes end, say by their last bits; one does not, and its masks stay."""
    configs, site = files(tmp_path, keys), 1
    vectors = {}

    def advance(stages, pooled, original=Programme._advance):
        original(stages, pooled)
        vectors[stages.config.number, len(stages._sums)] = stages._own
        if len(stages._sums) == 3 and stages.config.number != site:
            stages._own, stages._outcome = None, FitError("too flat")

    monkeypatch.setattr(Programme, "_advance", advance)
    _, results = run(configs)
    assert {r.status for r in results} == {Status.REFUSED}
    begun = [read_stages(config.state) for config in configs]
    assert [3 in stages for stages in begun] == [False, True, False]
    alone = vectors[site, 3]
    assert np.median(np.abs(begun[site][3].statistic.q[: len(alone)] + alone)) > 1e10


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"penalty": 2.0}, "model.penalty: 0.0 here, 2.0 there"),
        ({"columns": ["stage", "age"]}, "model.columns[0]: 'age' here, 'stage' there"),
        (
            {"factors": {"stage": [*fits.LEVELS, "extra"]}},
            "model.factors.stage[3]: nothing here, 'extra' there",
        ),
        ({"units": {"age": "months"}}, "model.units.age: nothing here, 'months' there"),
        ({"missing": "drop"}, "model.missing: 'refuse' here, 'drop' there"),
    ],
)
def test_another_model_at_one_site_is_named_by_field_and_both_values(tmp_path, keys, change, words):
    configs = files(tmp_path, keys)
    (tmp_path / "other.toml").write_text(to_toml({"model": fits.MODEL | change}))
    given = tomllib.loads((tmp_path / f"{NAMES[1]}.toml").read_text())
    given["fit"]["model"] = "other.toml"
    other = parse_config(given, directory=tmp_path)
    said = differences(public_parts(configs[0].run), public_parts(other.run))
    assert words in said
    assert "contract: " in said


def test_agents_refuse_a_site_with_another_penalty_before_the_first_round(tmp_path, keys):
    configs = files(tmp_path, keys)
    given = tomllib.loads((tmp_path / f"{NAMES[1]}.toml").read_text())
    (tmp_path / "other.toml").write_text(to_toml({"model": fits.MODEL | {"penalty": 2.0}}))
    given["fit"]["model"] = "other.toml"
    configs[1] = parse_config(given, directory=tmp_path)
    _, results = run([replace(config, max_wait=1.0) for config in configs])
    assert {r.status for r in results} == {Status.PEER_LOST}
    assert all(r.rounds == 0 for r in results)
    assert "model.penalty: 0.0 here, 2.0 there" in results[0].detail


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"objective": {"kind": "average", "values": [1.0]}}, "does not stand beside [fit]"),
        ({"run": {"id": "a", "n_agents": 4}}, "needs the key eta"),
        ({"run": {"id": "a", "n_agents": 3, "dim": 4}}, "dim"),
        ({"fit": {"model": "none.toml", "file": "a.csv"}}, "there is no model file"),
        ({"fit": {"file": "a.csv"}}, "model"),
        ({"fit": {"model": "model.toml", "file": "a.csv", "decimal": "·"}}, "decimal"),
        ({"partner": []}, "lacks numbers 1, 2"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, keys, changed, words):
    (tmp_path / "model.toml").write_text(to_toml({"model": fits.MODEL}))
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse_config(tables(tmp_path, keys, [1, 2, 3], 0, **changed), directory=tmp_path)


def test_a_contract_that_no_hello_can_carry_is_refused(tmp_path, keys):
    wide = {
        "kind": "ridge",
        "penalty": 1.0,
        "outcome": "y",
        "columns": [f"a_long_name_{n:050}" for n in range(999)],
    }
    (tmp_path / "model.toml").write_text(to_toml({"model": wide}))
    with pytest.raises(ConfigError, match=r"has a contract of \d+ bytes, and agents compare up to"):
        parse_config(tables(tmp_path, keys, [1, 2, 3], 0), directory=tmp_path)


def test_the_vectors_of_every_kind_fit_into_the_dimension_of_the_run():
    for kind in ("linear", "ridge", "logistic", "poisson", "huber", "cox"):
        for errors in ("model", "sandwich"):
            if errors == "sandwich" and kind in ("cox", "ridge"):
                continue
            declared = fits.model(kind, standard_errors=errors)
            lengths = []

            def pool(vectors, lengths=lengths):
                lengths.append(len(vectors[0]))
                return fits.add(vectors)

            fits.fit(declared, fits.synthetic((60, 90, 100)), pool)
            assert max(lengths) == longest_vector(declared)


# ---- exposure


def judged(config):
    objective = load_objective(config.objective, config.run.dim)
    return {found.name: found for found in verdicts(config, objective)}


def test_a_fit_counts_what_its_averages_reveal(tmp_path, keys):
    """d = 4: 18 numbers of counts and moments, and 15 for each of eight steps."""
    config = files(tmp_path, keys)[0]
    found = judged(config)
    assert found["sums"].verdict == "accepted"
    assert "8 stages reveal 138 numbers" in found["sums"].text
    assert "Have 345 effective rows or more" in found["sums"].text
    assert {name for name, v in found.items() if v.verdict != "held"} == {"sums"}
    many = replace(config, run=replace(config.run, honest_rows=1000))
    assert judged(many)["sums"].verdict == "held"
    with pytest.raises(PrivacyError, match="sums: the averages of a fit may reveal at most 10 %"):
        asyncio.run(Agent(replace(config, accept_exposure=frozenset())).run())
    assert not config.state.exists()


def test_an_agent_ends_before_the_average_that_tells_too_much(tmp_path, keys):
    """An agent counts again before every average: a fit takes as many steps as it needs."""
    configs = files(tmp_path, keys)
    config = replace(configs[0], run=replace(configs[0].run, honest_rows=400))
    objective = load_objective(config.objective, config.run.dim)
    part = objective.effective_lengths / objective.n_rows
    allowed = int((0.1 * 400 * part * 4 - 18) / 15)
    strict = replace(config, accept_exposure=frozenset())
    for stage in range(1, 9):
        numbers = 18 + 15 * stage
        if stage <= allowed:
            check_average(strict, objective, stage, FitProgress(numbers=numbers))
        else:
            with pytest.raises(ExposureError, match=f"sends nothing of stage {stage + 1}"):
                check_average(strict, objective, stage, FitProgress(numbers=numbers))
    assert 0 < allowed < 8


def test_an_agent_sends_no_vector_that_exceeds_its_masks(tmp_path, keys):
    config = files(tmp_path, keys)[0]  # it accepts "sums"
    objective = load_objective(config.objective, config.run.dim)
    check_average(config, objective, 1, FitProgress(), 600 * 2.0**24)
    with pytest.raises(ExposureError, match=r"an entry of this site is 1.2e\+10 and masks have"):
        check_average(config, objective, 1, FitProgress(), 700 * 2.0**24)


def larger(directory):
    """Other rows for the same files: sites that hide their rows."""
    for name, columns in fits.synthetic((500, 600, 700)).items():
        fit_network.write_rows(directory / f"{name}.csv", columns)


def test_a_fit_that_would_determine_a_row_is_refused_before_it_starts(tmp_path, keys):
    """Judged by a fit of the site's rows alone; many honest rows hide each of them."""
    config = replace(files(tmp_path, keys)[0], accept_exposure=frozenset())
    model = fits.model("logistic", columns=("age", "year"), factors={})
    spec = replace(config.objective, model=model)
    few, many = (replace(config.run, model=model, honest_rows=n) for n in (5000, 10**6))
    refused = judged(replace(config, run=few, objective=spec))["sums"]
    assert refused.verdict == "refused"
    assert "in a fit like one of these rows alone the sums would tell" in refused.text
    assert judged(replace(config, run=many, objective=spec))["sums"].verdict == "held"


def test_an_agent_ends_before_an_average_at_a_point_where_few_rows_count(
    tmp_path, keys, monkeypatch
):
    """A site sends a false gradient, which leads the others far away."""
    configs = files(tmp_path, keys)
    larger(tmp_path)
    setting = [
        replace(c, run=replace(c.run, honest_rows=100_000), accept_exposure=frozenset())
        for c in configs
    ]

    def statistic(stages, stage, start, original=Programme.statistic):
        found = original(stages, stage, start)
        if stages.config.number == 2 and stage == 1:
            found.q[4] -= 2.0**24 * 40  # g of age: 40 times all rows
        return found

    monkeypatch.setattr(Programme, "statistic", statistic)
    _, results = run(setting)
    assert {r.status for r in results} <= {Status.REFUSED, Status.PEER_ENDED}
    assert any("would tell too much about a single row" in r.detail for r in results)


def test_a_linear_fit_has_no_limit_and_the_guarantee_is_said_to_be_missing(tmp_path, keys):
    config = files(tmp_path, keys)[0]
    assert missing(config) == "no bound declared: ranges in [model] lacks age"
    linear = hg.Model(kind="linear", outcome="pressure", columns=["age"])
    spec = replace(config.objective, model=linear)
    assert (
        judged(replace(config, run=replace(config.run, model=linear), objective=spec))[
            "sums"
        ].verdict
        == "held"
    )


def test_declared_ranges_give_a_guarantee_before_and_after_and_in_the_ledger(
    tmp_path, keys, monkeypatch
):
    monkeypatch.setitem(fits.MODEL, "ranges", {"age": [0.0, 120.0]})
    configs = files(tmp_path, keys)
    before = [c for c in examine(configs[0], timeout=0.2) if c.check == "guarantee"]
    assert [c.is_good for c in before] == [True, True]
    assert "about, in at most 60 averages" in before[1].text
    agents, results = run(configs)
    assert {r.status for r in results} == {Status.DONE}
    spent = agents[0].fitted.mu
    parts = [stage.row_part for stage in agents[0].fitted.stages]
    assert spent == pytest.approx(np.linalg.norm(parts) / (1e4 * 2.0**24))
    assert f"masks: μ = {spent:.2g}" in agents[0].fitted.table()
    for config in configs:
        assert mus(config.key)[config.run.id] == pytest.approx(spent)
    assert spent < before[1].data["mu"] < 20 * spent  # against one other site: resistance 1


def test_the_doctor_names_the_contract_and_the_rows(tmp_path, keys):
    config = files(tmp_path, keys)[0]
    checks = {c.check: c for c in examine(config, timeout=0.2)}
    digest = contract_digest(contract(config.run.model))
    assert checks["contract"].text == digest
    assert checks["objective"].text == "logistic fit on north.csv: 25 rows, 4 coefficients"
    assert checks["guarantee"].is_good is None
    config.objective.file.write_text("death,age,stage\n1,fifty,low\n")
    checks = {c.check: c for c in examine(config, timeout=0.2)}
    assert checks["objective"].is_good is False
    assert "column age is 'fifty'" in checks["objective"].text
    assert checks["exposure sums"].verdict == "not judged"
