"""Where an agent stands, asked from outside, whether it runs or not."""

import asyncio
import json
import signal
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from hushgrad.cli import app
from hushgrad.errors import StateError
from hushgrad.network.config.file import load_config
from hushgrad.network.deployed import Agent
from hushgrad.network.state.position import read_position
from hushgrad.network.transport import watching
from support.waiting import wait_for


def asked(*arguments, code=0):
    result = CliRunner().invoke(app, ["status", *map(str, arguments), "--format", "json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else result.stderr


def shown(*arguments):
    result = CliRunner().invoke(app, ["status", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return {line[:14].strip(): line[14:].strip() for line in result.stdout.splitlines()}


def test_an_agent_that_was_never_started_says_so(pair):
    assert asked(pair.files["ann"]) == {"agent": "ann", "run": "r1", "started": False}
    assert shown(pair.files["ann"])["status"] == "never started"
    assert "no agent was ever started there" in asked(pair.directory, code=2)
    assert "hushgrad new --agent" in asked(pair.directory / "none.toml", code=2)


def test_a_life_is_told_from_waiting_to_the_result(pair):
    state = pair.directory / "ann/state"
    ann = pair.agent("ann")

    def is_waiting():
        told = asked(pair.files["ann"])
        live = told.get("live") or {"disconnected": []}
        return live["disconnected"] == ["bob"] and told

    waiting = wait_for(is_waiting)
    assert waiting["live"]["waiting_for"] == ["bob"]
    assert waiting["is_running"]
    assert (waiting["iteration"], waiting["round"], waiting["starts"]) == (0, None, 1)
    assert waiting["summary"] == "runs, before its first round"
    assert shown(pair.files["ann"])["not connected"] == "bob"
    assert pair.agent("bob").end()[0] == 0
    assert ann.end()[0] == 0
    done = asked(state)
    assert not done["is_running"]
    assert (done["status"], done["iteration"], done["round"]) == ("done", 60, 59)
    assert done["is_settled"]
    assert done["result"]["theta"] == pytest.approx([1, 2], abs=1e-6)
    rows = shown(pair.files["ann"])
    assert rows["status"] == "done after 60 iterations"
    assert rows["result"] == "done, 60 iterations"
    assert rows["θ"] == "[1, 2]"


def test_an_agent_that_goes_on_has_no_result_yet(pair):
    tables = pair.tables("ann")
    tables["agent"] |= {"max_wait": 0.5, "heartbeat": 0.2}
    pair.write("ann", tables)
    assert pair.agent("ann").end()[0] == 3
    assert asked(pair.files["ann"])["result"]["summary"] == "peer lost: bob at round 0"
    pair.write("ann", pair.tables("ann"))
    pair.agent("ann")
    told = wait_for(lambda: (told := asked(pair.files["ann"]))["starts"] == 2 and told)
    assert told["is_running"]
    assert "result" not in told


def test_an_agent_that_was_killed_stands_where_its_journal_ends(pair):
    for name in pair.files:
        pair.write(name, pair.tables(name, iterations=100_000))
    pair.agent("ann")
    bob = pair.agent("bob")
    state = pair.directory / "bob/state"
    wait_for(lambda: (s := read_position(state)) and (s.round or 0) > 10)
    bob.signal(signal.SIGKILL)
    assert bob.end()[0] == -signal.SIGKILL
    first = asked(state)
    assert not first["is_running"]
    assert first["status"] is None
    assert first["iteration"] >= 10
    assert asked(state) == first  # asking changes nothing
    assert shown(state)["status"] == (
        f"stopped, in iteration {first['iteration']}, round {first['round']}"
    )


def test_what_is_no_state_is_said(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(StateError, match="is no state directory of an agent"):
        read_position(tmp_path)
    assert read_position(tmp_path / "none") is None


def test_an_agent_without_metrics_tells_for_whom_it_waits_and_since_when(pair, monkeypatch):
    monkeypatch.setattr(watching, "PATIENCE", 0.1)
    tables = pair.tables("ann")
    del tables["agent"]["metrics"]
    tables["agent"]["heartbeat"] = 0.1
    pair.write("ann", tables)
    file, state = pair.files["ann"], pair.directory / "ann/state"

    async def wait():
        agent = Agent(load_config(file))
        run = asyncio.create_task(agent.run())
        async with asyncio.timeout(30):
            while not (state / "waiting").exists():
                await asyncio.sleep(0.02)
            told = await asyncio.to_thread(asked, file), await asyncio.to_thread(shown, state)
            agent.stop()
            await run
        return told

    document, rows = asyncio.run(wait())
    assert "live" not in document
    assert document["waiting"]["names"] == ["bob"]
    since = datetime.fromisoformat(document["waiting"]["since"])
    assert abs((datetime.now(UTC) - since).total_seconds()) < 60
    assert rows["waiting for"] == f"bob since {document['waiting']['since']}"
    assert not (state / "waiting").exists()  # the wait is over
    assert "waiting" not in asked(file)
