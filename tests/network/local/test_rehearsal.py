"""A rehearsal runs the whole fit on drawn rows, reads no site's file, and asks no policy."""

import asyncio
import json
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import hushgrad as hg
from hushgrad.cli import app
from hushgrad.errors import AgentError, InputError
from hushgrad.fitting.drawn_rows import draw_columns
from hushgrad.fitting.model_file import load_model
from hushgrad.network.local.rehearsal import plan_of, rehearse
from hushgrad.network.local.slow_links import SlowLink
from hushgrad.privacy.programme_audit import audit_programme
from hushgrad.schema.toml import to_toml
from support import fits

MODEL = {
    "kind": "logistic", "outcome": "died", "positive": "yes", "negative": "no",
    "columns": ["age", "stage"], "factors": {"stage": ["I", "II"]}, "ranges": {"age": [18, 100]},
}  # fmt: skip


@pytest.fixture
def model_file(tmp_path):
    file = tmp_path / "model.toml"
    file.write_text(to_toml({"model": MODEL}))
    return file


def made(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return home


def declared(**changes):
    return hg.Model(**(MODEL | changes))


def test_all_sites_run_as_processes_and_end_with_the_fit_of_the_drawn_rows(
    model_file, tmp_path, monkeypatch
):
    (tmp_path / "policy.toml").write_text("[policy]\nmin_rows = 1000000\n")
    monkeypatch.setenv("HUSHGRAD_POLICY", str(tmp_path / "policy.toml"))  # for real rows only
    rows = [2000, 2500, 3000]
    options = [text for n in rows for text in ("--rows", str(n))]
    result = CliRunner().invoke(
        app, ["rehearse", str(model_file), *options, "--latency", "100ms", "--format", "json"]
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    plain = hg.fit(declared(), {str(j): draw_columns(declared(), n, j) for j, n in enumerate(rows)})
    assert document["fit"]["estimate"] == plain.estimate.tolist()
    assert [site["rows"] for site in document["sites"]] == rows
    assert {site["status"] for site in document["sites"]} == {"done"}
    assert {site["rounds"] for site in document["sites"]} == {plain.n_averages}
    # each round waits half a round trip at least
    assert document["seconds"] > 0.05 * (plain.n_averages + 1)
    vector = 8 * 9  # bytes of a vector of the first average, at the very least
    assert min(site["bytes"] for site in document["sites"]) > 2 * vector * plain.n_averages


PLAN = {
    "stage": [
        {"name": "who", "kind": "sum", "means": ["age"], "tables": [["stage", "died"]],
         "histograms": {"age": [20, 50, 90]},
         "factors": {"stage": ["I", "II"], "died": ["no", "yes"]}},
        {"name": "deaths", "kind": "fit", "model": MODEL},
        {"name": "ages", "kind": "fit", "model": {
            "kind": "linear", "outcome": "age", "columns": ["died"],
            "factors": {"died": ["no", "yes"]}, "ranges": {"age": [18, 100]}}},
    ]
}  # fmt: skip


@pytest.mark.slow  # processes of one fit are rehearsed, and plans run in test_plans.py
def test_a_plan_is_rehearsed_with_rows_that_keep_the_rules_of_all_stages(tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text(to_toml(PLAN))
    result = CliRunner().invoke(app, ["rehearse", str(file), "--rows", "1500", "--quiet"])
    assert result.exit_code == 0, result.output
    plan = load_model(file)
    sites = {str(j): draw_columns(plan, 1500, j) for j in range(3)}
    assert max(site["age"].max() for site in sites.values()) <= 90
    plain = hg.fit(plan, sites)
    for found in (plain["who"], plain["ages"]):
        assert (
            found.table() if found is plain["who"] else found.table(alone=False)
        ) in result.output
    assert "stage 3 of 3: ages" in result.output
    assert f"{plain.numbers_pooled} pooled numbers" in result.output
    assert "masks: μ = " in result.output  # every stage has its ranges


def test_a_plan_that_no_row_can_keep_is_named(tmp_path):
    stages = hg.FitPlan(stages={
        "a": hg.PooledTables(histograms={"age": [0, 10]}),
        "b": hg.PooledTables(means=["age"], ranges={"age": (18, 90)}),
    })  # fmt: skip
    with pytest.raises(hg.errors.ModelError, match="no value of 'age' is within the ranges"):
        draw_columns(stages, 10, 0)


def test_the_programme_of_a_plan_is_audited_average_by_average():
    stages = {"who": hg.PooledTables(means=["age"]), "deaths": declared()}
    found = audit_programme(hg.FitPlan(stages=stages), [60, 70, 80], eta=0.0, agent=0)
    assert {one.averages for one in found} == {1 + 6}
    exposed = {one.adversary: one.is_exposed for one in found}
    assert exposed.pop("all other sites together")  # who know every mask
    assert not any(exposed.values())


def test_too_few_rows_are_refused_as_in_earnest(model_file, tmp_path):
    with pytest.raises(AgentError, match="reveal at most 10 %"):
        rehearse(plan_of(model_file, sites=2, rows=[30]), made(tmp_path))


def test_a_rehearsal_may_accept_weaknesses_and_has_rows_enough_by_default(model_file):
    plan = plan_of(model_file, sites=3, rows=[], accept_exposure=["sums", "cells"])
    assert plan.accept_exposure == ("cells", "sums")
    assert plan.rows == (10_000,) * 3


@pytest.mark.slow
def test_the_example_of_new_can_be_rehearsed_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(app, ["new", "--fit"]).exit_code == 0
    result = runner.invoke(app, ["rehearse", "model.toml", "--quiet"])
    assert result.exit_code == 0, result.output
    assert "3 sites, 30000 rows" in result.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": [1, 2]}, "one number or one for each of 3 sites"),
        ({"rows": [0]}, "one number or one for each"),
    ],
)
def test_a_wrong_plan_is_named(model_file, given, said):
    with pytest.raises(InputError, match=said):
        plan_of(model_file, sites=3, **given)


@pytest.mark.parametrize("text", ["50", "fast", "-3ms", "1e3s"])
def test_a_latency_has_a_unit(model_file, text):
    result = CliRunner().invoke(app, ["rehearse", str(model_file), f"--latency={text}"])
    assert result.exit_code == 2
    assert "50ms" in result.output


@pytest.mark.parametrize("kind", ["linear", "ridge", "logistic", "poisson", "huber", "cox"])
def test_drawn_rows_keep_every_rule_of_their_model(kind):
    more = {"poisson": {"offset": "log_exposure"}, "linear": {"weights": "weight"}}.get(kind, {})
    pressure = {"pressure": [60, 220]} if kind in ("linear", "ridge", "huber") else {}
    model = fits.model(kind, ranges={"age": [18, 100], **pressure}, **more)
    sites = {f"s{n}": draw_columns(model, 300, n) for n in range(3)}  # hg.fit refuses a bad cell
    result = hg.fit(model, sites)
    assert result.n_rows == 900
    again = draw_columns(model, 300, 1)
    assert all((np.asarray(again[name]) == sites["s1"][name]).all() for name in again)
    assert not (sites["s0"]["age"] == sites["s1"]["age"]).any()


def test_a_slow_link_delays_both_ways_and_counts():
    async def trip():
        async def echo(reader, writer):
            writer.write(await reader.readexactly(1000))
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        link = SlowLink(server.sockets[0].getsockname(), 0.05)
        await link.start()
        reader, writer = await asyncio.open_connection(*link.address)
        started = time.monotonic()
        for _ in range(10):  # pieces do not add up their delays
            writer.write(bytes(100))
            await asyncio.sleep(0)
        assert await reader.readexactly(1000) == bytes(1000)
        seconds = time.monotonic() - started
        writer.close()
        await writer.wait_closed()
        await link.stop()
        link.close()
        server.close()
        return seconds, link.n_bytes

    seconds, n_bytes = asyncio.run(trip())
    assert 0.1 <= seconds < 0.5
    assert n_bytes == 2000
