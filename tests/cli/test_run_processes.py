"""`hushgrad run --engine processes` as a user runs it: output, ends, what stays behind."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from typer.testing import CliRunner

import hushgrad as hg
from hushgrad.cli import app
from hushgrad.cli.live import MOST_ROWS, table
from hushgrad.network.local.processes import AgentRow
from hushgrad.network.ops.supervision import Report
from hushgrad.network.state.samples import read_samples
from support.studies import agents_of, start_study, study_text
from support.waiting import wait_for

STUDY = study_text(
    {"PDGNDS": 0.05}, network={"graph": "path", "n_agents": 3}, problem={"kind": "estimation"},
    iterations=2500, record_every=1, seed=3,
)  # fmt: skip


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/hushgrad/unfinished"


def samples(cache):
    return [len(read_samples(path, 2)[0]) for path in cache.rglob("samples")]


def run(study, *options):
    return CliRunner().invoke(app, ["run", str(study), "--engine", "processes", *options])


@pytest.mark.slow  # of kills alone, tests/network/local/test_processes.py has a quick test
def test_a_run_that_is_killed_leaves_nobody_behind_and_is_continued_bit_for_bit(tmp_path, cache):
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    killed = start_study(study)
    wait_for(lambda: len(s := samples(cache)) == 3 and min(s) > 100)
    assert len(agents_of(cache)) == 3
    killed.kill()
    killed.communicate()
    wait_for(lambda: not agents_of(cache), 10)
    reached = max(samples(cache))
    assert 100 < reached < 2500

    interrupted = start_study(study, "--resume")
    wait_for(lambda: min(samples(cache)) > reached + 100)
    interrupted.send_signal(signal.SIGINT)
    _, err = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130
    assert "The same command with --resume continues." in err
    assert agents_of(cache) == []
    assert max(samples(cache)) < 2500

    resumed = start_study(study, "--resume", "--save", tmp_path / "resumed")
    _, err = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, err
    assert "nothing to resume" not in err
    (undisturbed,) = hg.load_study(study).with_run(engine="agents").run(progress=False)
    got = hg.load_run(tmp_path / "resumed/PDG-NDS.npz")
    assert got.iterations[-1] == 2500
    np.testing.assert_array_equal(got.x, undisturbed.x)
    np.testing.assert_array_equal(got.error, undisturbed.error)
    # the simulator's own rounding adds up over 2500 two-step iterations, the agents' does not
    assert got.metrics["difference"].max() <= 1e-11
    assert list(cache.iterdir()) == []


def test_bad_input_is_told_before_anything_is_started(tmp_path, cache):
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    result = run(study, "--trials", "4")
    assert result.exit_code == 2
    assert "Use --trials 1, or --engine stacked" in result.stderr
    study.write_text(STUDY + "[sweep]\n'run.seed' = [1, 2]\n")
    result = run(study)
    assert result.exit_code == 2
    assert "Pick a row with --row" in result.stderr
    study.write_text(STUDY.replace("n_agents = 3\n", 'n_agents = 3\nmixing = "uniform_row"\n'))
    assert "PDGNDS needs" in run(study).stderr
    assert agents_of(cache) == []


def test_the_users_code_beside_the_study_serves_the_agents(tmp_path, cache):
    (tmp_path / "helper.py").write_text("FACTOR = 2.0\n")
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nimport hushgrad as hg\nfrom helper import FACTOR\n"
        "def loss(theta, data):\n    return FACTOR * ((theta - data[0]) ** 2).sum()\n"
        "def build(n_agents):\n"
        "    p = np.arange(2.0 * n_agents).reshape(n_agents, 2)\n"
        "    return hg.Problem(loss, (p,), dim=2)\n"
        "class Mine(hg.EXTRA):\n    pass\n"
    )
    study = tmp_path / "study.toml"
    study.write_text(
        STUDY.replace('kind = "estimation"', 'function = "mine.py:build"').replace(
            "PDGNDS", "mine.py:Mine"
        )
    )
    result = run(study, "--iterations", "50", "--format", "json")
    assert result.exit_code == 0, result.stderr
    (record,) = json.loads(result.stdout)["results"]
    assert record["difference"] <= 1e-12
    assert record["median_error"] < 0.1


def test_an_engine_can_be_chosen_for_a_study_that_names_another(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(STUDY.replace("iterations = 2500", 'iterations = 20\nengine = "stacked"'))
    options = ["--engine", "agents", "--save", str(tmp_path)]
    result = CliRunner().invoke(app, ["run", str(study), *options])
    assert result.exit_code == 0, result.stderr
    assert hg.load_run(tmp_path / "PDG-NDS.npz").config["engine"] == "agents"


def test_the_live_table_shows_who_waits_for_whom():
    from rich.console import Console

    rows = [AgentRow(f"agent-{j}", 2) for j in range(3)]
    rows[1].hear(Report(iteration=7, round=14, connected=1, waiting_for=("agent-2",)))
    screen = Console(width=100)
    with screen.capture() as shown:
        screen.print(table(rows))
    line = next(line for line in shown.get().splitlines() if "agent-1" in line)
    assert line.split() == ["agent-1", "7", "14", "0", "1/2", "0", "agent-2"]
    many = [AgentRow(f"agent-{j}", 2, Report(round=100 - j)) for j in range(MOST_ROWS + 10)]
    with screen.capture() as shown:
        screen.print(table(many))
    assert f"agent-{MOST_ROWS + 9} " in shown.get()
    assert "agent-0 " not in shown.get()
    assert f"the {MOST_ROWS} of {MOST_ROWS + 10} agents" in shown.get()


ENDLESS = """
import time
def loss(theta, data):
    return ((theta - data) ** 2).sum()
def gradient(theta, data):
    if data[0] > 1 and abs(theta).max() > 0:
        time.sleep(1000)
    return 2 * (theta - data)
def build(n_agents):
    import numpy as np, hushgrad as hg
    return hg.Problem(loss, np.arange(2.0 * n_agents).reshape(n_agents, 2), gradient=gradient,
                      solution=[2.0, 3.0], smoothness=2.0)
"""


@pytest.mark.slow
def test_an_agent_in_an_endless_gradient_does_not_outlive_the_program(tmp_path, cache):
    (tmp_path / "mine.py").write_text(ENDLESS)
    study = tmp_path / "study.toml"
    study.write_text(STUDY.replace('kind = "estimation"', 'function = "mine.py:build"'))
    killed = start_study(study)
    wait_for(lambda: len(s := samples(cache)) == 3 and max(s) > 0)
    killed.kill()
    killed.communicate()
    assert agents_of(cache)
    wait_for(lambda: not agents_of(cache), 10)


def test_reports_that_nobody_reads_do_not_hold_an_agent_up(pair):
    """Its stdout is a pipe that is full before it starts."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writes, bytes(65_536))
    supervised = subprocess.Popen(
        [sys.executable, "-m", "hushgrad", "agent", str(pair.files["ann"]), "--supervised"],
        stdin=subprocess.PIPE, stdout=writes, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert pair.agent("bob").end()[0] == 0
        assert supervised.wait(timeout=30) == 0
    finally:
        supervised.kill()
        supervised.communicate()
        os.close(reads)
        os.close(writes)
