"""Agents as an operator runs them: processes, signals, exit codes, files."""

import json
import re
import signal
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hushgrad.cli import app
from hushgrad.console import say
from hushgrad.network.config.file import load_config
from hushgrad.network.deployed import Agent
from hushgrad.network.ops.command import StatusLine, plain_options
from hushgrad.network.ops.result import read_result
from hushgrad.network.state.position import read_position
from support.waiting import free_port, wait_for


def test_two_processes_meet_in_the_middle_and_say_so(pair):
    ann = pair.start("agent", pair.files["ann"])
    bob = pair.start("agent", pair.files["bob"], "--format", "json")
    code, out, err = ann.end()
    assert code == 0, err
    assert out.startswith("done\n60 iterations, 60 rounds, ")
    assert out.rstrip().endswith("θ = [1, 2]")
    assert "wrote" in err
    code, out, err = bob.end()
    assert code == 0, err
    document = json.loads(out)
    np.testing.assert_allclose(document["theta"], [1, 2], atol=1e-6)
    kept = read_result(pair.directory / "bob/state/result")
    assert kept.document() == {k: v for k, v in document.items() if k != "files"}
    assert kept.peers == ("ann",)


MEASURED = """
import re, sys
from pathlib import Path
from hushgrad.__main__ import main
try:
    main()
finally:
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
    heavy = {"jax", "scipy", "sklearn", "networkx", "matplotlib", "pyarrow"} & set(sys.modules)
    print("MEASURED", peak, *heavy, file=sys.stderr)
"""


def test_an_agent_with_a_numpy_objective_stays_under_80_mb_and_loads_nothing_heavy(pair):
    ann = pair.start("agent", pair.files["ann"], code=MEASURED)
    assert pair.agent("bob").end()[0] == 0
    code, _, err = ann.end()
    assert code == 0, err
    _, peak, *heavy = err.splitlines()[-1].split()
    assert not heavy
    assert int(peak) < 80_000, peak


def test_a_closed_pipe_and_a_poor_terminal_lose_no_result(pair, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    ann = pair.start("agent", pair.files["ann"])
    bob = pair.start("agent", pair.files["bob"], "--format", "json")
    bob.popen.stdout.close()
    bob.popen.stdout = None
    code, out, err = ann.end()
    assert code == 0, err
    assert out.startswith("done\n")
    assert "? = [1, 2]" in out
    code, _, err = bob.end()
    assert code == 1
    assert "Traceback" not in err
    assert read_result(pair.directory / "bob/state/result").is_done


LONG = """
import time
import numpy as np
def gradient(theta):
    time.sleep(0.002)
    return theta - np.arange(len(theta))
"""


def test_so_does_one_with_long_vectors_that_was_killed_and_goes_on(pair, monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")  # as the files in deploy/ do
    dim, rounds = 100_000, 150
    for name in ("ann", "bob"):
        (pair.directory / name / "long.py").write_text(LONG)
        tables = pair.tables(name, dim=dim, iterations=rounds)
        tables["objective"] = {"function": "long.py:gradient"}
        masked = {"name": "PDGNDS", "design": "paper", "masks": {"kind": "zero_sum"}}
        tables["algorithm"] |= masked  # stages need d × d numbers
        tables["agent"]["accept_exposure"] += ["dimension", "gradient", "partners"]
        (other,) = tables["neighbour"]
        tables["partner"] = [{key: other[key] for key in ("name", "number")}]
        pair.write(name, tables)
    ann, bob = pair.start("agent", pair.files["ann"], code=MEASURED), pair.agent("bob")
    state = pair.directory / "ann/state"
    wait_for(lambda: (s := read_position(state)) and (s.round or 0) > 20)
    ann.signal(signal.SIGKILL)
    ann.end()
    assert read_position(state).round < rounds - 20
    ann = pair.start("agent", pair.files["ann"], "--format", "json", code=MEASURED)
    assert bob.end()[0] == 0
    code, out, err = ann.end()
    assert code == 0, err
    document = json.loads(out)
    assert (len(document["theta"]), document["incarnation"]) == (dim, 2)
    assert int(err.splitlines()[-1].split()[1]) < 90_000, err


SLOW = """
import time
def gradient(theta):
    time.sleep(0.004)
    return 2 * (theta - [2.0, 0.0])
"""


def test_a_stopped_agent_says_how_to_go_on_and_goes_on(pair):
    (pair.directory / "bob/slow.py").write_text(SLOW)
    pair.write("ann", pair.tables("ann", iterations=300))
    slow = pair.tables("bob", iterations=300) | {"objective": {"function": "slow.py:gradient"}}
    pair.write("bob", slow)
    ann, bob = pair.agent("ann"), pair.agent("bob")
    state = pair.directory / "bob/state"
    wait_for(lambda: (s := read_position(state)) and (s.round or 0) > 20)
    bob.signal(signal.SIGTERM)
    code, out, err = bob.end()
    assert code == 130, err
    assert out.startswith("stopped\n")
    assert f"To continue: hushgrad agent {pair.files['bob']}" in err
    position = read_position(state)
    assert not position.is_running
    assert 20 < position.iteration < 300
    assert pair.agent("bob").end()[0] == 0
    assert ann.end()[0] == 0
    result = read_result(state / "result")
    assert (result.incarnation, result.iterations) == (2, 300)
    np.testing.assert_allclose(result.theta, [1, 2], atol=1e-9)


def test_an_agent_that_waits_for_its_first_neighbour_can_be_stopped(pair):
    ann = pair.agent("ann")
    wait_for(lambda: read_position(pair.directory / "ann/state"))
    ann.signal(signal.SIGINT)
    code, out, _ = ann.end()
    assert code == 130
    assert out.startswith("stopped")


def test_a_neighbour_that_never_comes_is_named_and_waited_for_again(pair):
    tables = pair.tables("ann")
    tables["agent"] |= {"max_wait": 0.5, "heartbeat": 0.2}
    pair.write("ann", tables)
    code, out, err = pair.agent("ann").end()
    assert code == 3, err
    assert out.startswith("peer lost: bob at round 0")
    assert "To continue" in err
    pair.write("ann", pair.tables("ann"))  # a process takes its time to start
    ann, bob = pair.agent("ann"), pair.agent("bob")
    assert (ann.end()[0], bob.end()[0]) == (0, 0)


@pytest.mark.parametrize("ann_knows_bob", [False, True], ids=["one address", "both addresses"])
def test_who_has_an_address_dials_whoever_listens(pair, ann_knows_bob):
    """Bob has the larger number and listens, too; nobody waits for the other for ever."""
    port = free_port()
    bob, ann = pair.tables("bob"), pair.tables("ann")
    bob["agent"]["listen"] = f"127.0.0.1:{port}"
    if ann_knows_bob:
        ann["neighbour"][0]["address"] = f"127.0.0.1:{port}"
    pair.write("bob", bob)
    pair.write("ann", ann)
    for process in [pair.agent("bob"), pair.agent("ann")]:
        code, _, err = process.end()
        assert code == 0, err
        assert err.count("connected to") == 1


def test_a_second_process_for_the_same_agent_is_refused(pair):
    pair.agent("bob")
    wait_for(lambda: (s := read_position(pair.directory / "bob/state")) and s.is_running)
    code, _, err = pair.agent("bob").end()
    assert code == 2
    assert "another process runs this agent" in err


def test_metrics_are_served_while_it_runs(pair):
    for name in pair.files:
        pair.write(name, pair.tables(name, iterations=100_000))
    pair.agent("ann", "--quiet")
    pair.agent("bob", "--quiet")

    def scrape():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{pair.metrics}/metrics") as answer:
                return answer.read().decode()
        except OSError:
            return ""

    wait_for(lambda: 'hushgrad_peer_connected{peer="bob"} 1.0' in scrape())
    assert 'hushgrad_agent_info{agent="ann",run="r1"' in scrape()


def test_an_objective_that_fails_in_the_middle_ends_the_run_and_keeps_the_state(pair):
    (pair.directory / "bob/mine.py").write_text(
        "calls = []\n"
        "def gradient(theta):\n"
        "    calls.append(1)\n"
        "    if len(calls) > 10:\n"
        "        raise RuntimeError('the sensor is gone')\n"
        "    return 2 * theta\n"
    )
    tables = pair.tables("bob")
    tables["objective"] = {"function": "mine.py:gradient"}
    pair.write("bob", tables)
    pair.agent("ann")
    code, out, err = pair.agent("bob").end()
    assert code == 1
    assert out.startswith("failed: ")
    assert "mine.py:gradient raised RuntimeError: the sensor is gone" in out
    assert "the state is kept" in err
    assert "Traceback" not in err
    assert read_position(pair.directory / "bob/state").iteration >= 9
    result = read_result(pair.directory / "bob/state/result")
    assert (str(result.status), result.iterations) == ("failed", 9)


def test_a_run_that_diverges_says_so_in_its_result(pair):
    """The gradient leaves the finite numbers before the iterates do."""
    (pair.directory / "bob/mine.py").write_text("def gradient(x):\n    return 1e20 * (x + 1)\n")
    for name in pair.files:
        tables = pair.tables(name, iterations=5000)
        tables["algorithm"]["stepsize"]["value"] = 1e5
        tables["run"]["largest"] = 1e300
        if name == "bob":
            tables["objective"] = {"function": "mine.py:gradient"}
        pair.write(name, tables)
    pair.agent("ann")
    code, out, err = pair.agent("bob").end()
    assert code == 5, err
    assert out.startswith("diverged: ")
    assert "smaller stepsize" in out
    assert err.count("RuntimeWarning") == 1  # of their own function
    result = read_result(pair.directory / "bob/state/result")
    assert str(result.status) == "diverged"
    assert result.rounds > 10


def test_a_result_that_cannot_be_written_hides_nothing(pair):
    (pair.directory / "ann/blocked").touch()
    tables = pair.tables("ann")
    tables["agent"]["result"] = "blocked/result"
    pair.write("ann", tables)
    ann, bob = pair.agent("ann"), pair.agent("bob")
    code, out, err = ann.end()
    assert code == 1
    assert out.startswith("done\n")
    assert f"the result '{pair.directory}/ann/blocked/result' cannot be written" in err
    assert "Traceback" not in err
    assert bob.end()[0] == 0


def test_what_others_sent_cannot_move_the_cursor(capsys):
    say("error", "links are missing to \x1b[2J\x07bob\r.\nAdd them.", "bold red")
    assert capsys.readouterr().err == "error: links are missing to �[2J�bob�.\nAdd them.\n"


def test_the_line_tells_where_it_is_and_whom_it_waits_for(pair):
    agent = Agent(load_config(pair.files["ann"]))
    agent.stats.connected = {"bob": False}
    agent.stats.missing = lambda: ["bob"]
    line = StatusLine(agent)
    assert line() == ("ann  iteration 0 of 60  round 0  0 rounds/s  peers 0/1  waiting for bob")
    agent.stats.connected["bob"] = True
    agent.stats.iteration, agent.stats.round, agent.stats.rounds = 20, 40, 41
    agent.stats.last_progress = time.monotonic()
    line._since -= 2.0
    assert re.fullmatch(r"ann  iteration 20 of 60  round 40  2\d rounds/s  peers 1/1", line())


def refused(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 2, result.output
    return result.stderr


def test_bad_input_is_told_before_anything_is_started(pair):
    assert "hushgrad new --agent" in refused("agent", pair.directory / "none.toml")
    (pair.directory / "ann/ann.key").chmod(0o644)
    assert "chmod 600" in refused("agent", pair.files["ann"])
    (pair.directory / "ann/ann.key").chmod(0o600)
    (pair.directory / "ann/trusted/bob.crt").unlink()
    assert "`hushgrad key trust`" in refused("agent", pair.files["ann"])
    assert not (pair.directory / "ann/state").exists()


@pytest.mark.parametrize("tolerance", [1e-3, 1e-12])
def test_a_tolerance_that_is_not_reached_is_told(pair, tolerance):
    for name in pair.files:
        tables = pair.tables(name, iterations=30)
        tables["run"]["tolerance"] = tolerance
        pair.write(name, tables)
    ann, bob = pair.agent("ann"), pair.agent("bob", "--format", "json")
    code, out, _ = ann.end()
    is_met = tolerance == 1e-3
    assert code == (0 if is_met else 6)
    told = "converged" if is_met else "not converged: the tolerance of 1e-12 was not reached"
    assert out.startswith(f"{told}\n")
    document = json.loads(bob.end()[1])
    assert (document["status"] == "converged") is is_met
    assert bool(document["detail"]) is not is_met
    assert pair.agent("ann").end()[1].startswith(f"{told}\n")  # asked again, it says the same


@pytest.mark.parametrize(("option", "log_format"), [("-q", "text"), ("--format=text", "json")])
def test_no_notes_where_none_are_wanted(pair, option, log_format):
    tables = pair.tables("ann")
    tables["agent"] |= {"max_wait": 0.3, "heartbeat": 0.1, "log_format": log_format}
    pair.write("ann", tables)
    code, out, err = pair.agent("ann", option).end()
    assert code == 3
    assert out.startswith("peer lost")
    assert "note" not in err
    for line in err.splitlines():
        assert json.loads(line)["message"]


def test_the_example_file_is_written_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["new", "--agent"])
    assert result.exit_code == 0
    assert "hushgrad doctor agent.toml" in result.stderr
    assert "[[neighbour]]" in (tmp_path / "agent.toml").read_text(encoding="utf-8")
    assert "stays as it is" in refused("new", "--agent")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("a.toml", {}),
        ("--format json a.toml", {"is_json": True}),
        ("a.toml --format text", {"is_json": False}),
        ("-q a.toml", {"quiet": True}),
        (
            "--supervised --listen-fd 5 a.toml --quiet",
            {"is_supervised": True, "listen_fd": 5, "quiet": True},
        ),
    ],
)
def test_both_ways_to_the_agent_understand_the_same(words, options, monkeypatch):
    """The short one, and the one that knows help and errors."""
    asked = []
    monkeypatch.setattr(
        "hushgrad.network.ops.command.run_agent",
        lambda file, **given: asked.append((file, given)) or 7,
    )
    assert plain_options(words.split()) == {"file": Path("a.toml")} | options
    usual = dict.fromkeys(("is_json", "quiet", "is_supervised"), False) | {"listen_fd": None}
    assert CliRunner().invoke(app, ["agent", *words.split()]).exit_code == 7
    assert asked == [(Path("a.toml"), usual | options)]


@pytest.mark.parametrize(
    "words",
    ["", "--help", "-h a.toml", "a.toml b.toml", "a.toml --format", "a.toml --format xml",
     "a.toml --listen-fd 2", "a.toml --listen-fd x", "a.toml --quick", "a.toml --format=json"],
)  # fmt: skip
def test_what_the_short_way_does_not_know_goes_the_other(words):
    assert plain_options(words.split()) is None
