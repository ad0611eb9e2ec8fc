"""What the doctor finds: each thing in the way is named, and nothing that runs is disturbed."""

import json
import shutil
import signal
import socket
import time
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from hushgrad.cli import app
from hushgrad.network.config.file import load_config
from hushgrad.network.keys.identity import mint
from hushgrad.network.ops.doctor import access as access_module
from hushgrad.network.state.journal import FORMAT
from hushgrad.network.state.position import read_position
from hushgrad.theory import WEAKNESSES


def examined(pair, name, *, good):
    """{check: (ok, text)} of one agent's doctor."""
    result = CliRunner().invoke(
        app, ["doctor", str(pair.files[name]), "--timeout", "5", "--format", "json"]
    )
    assert result.exit_code == (0 if good else 1), result.output
    document = json.loads(result.stdout)
    assert document["ok"] is good
    assert document["agent"] == name
    return {check["check"]: (check["ok"], check["text"]) for check in document["checks"]}


EXPOSURE = [f"exposure {name}" for name in WEAKNESSES]


def bad(found):
    return {check for check, (ok, _) in found.items() if ok is False}


def start(pair, name):
    process = pair.agent(name)
    deadline = time.monotonic() + 30
    while not (s := read_position(pair.directory / name / "state")) or not s.is_running:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    while True:  # until it listens
        try:
            socket.create_connection(("127.0.0.1", pair.listen), timeout=1).close()
            return process
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_healthy_agent_gets_one_line_for_each_check(pair):
    found = examined(pair, "ann", good=True)
    assert list(found) == [
        "key", "certificate", "trust bob", "access trusted", "objective", *EXPOSURE, "guarantee",
        "state", "listen", "metrics", "reach bob", "clock",
    ]  # fmt: skip
    accepted = {"exposure design", "exposure degree"}
    assert {check for check, (ok, _) in found.items() if ok is None} == {
        "guarantee", "reach bob", "clock", *accepted,  # EXTRA promises nothing
    }  # fmt: skip
    result = CliRunner().invoke(app, ["doctor", str(pair.files["ann"])])
    assert [line[0] for line in result.stdout.splitlines()] == [*"✓✓✓✓✓–✓✓✓✓✓✓–✓✓✓–✓✓✓––"]
    assert not (pair.directory / "ann/state").exists()
    assert sorted(p.name for p in (pair.directory / "ann").iterdir()) == [
        "agent.toml", "ann.crt", "ann.key", "trusted",
    ]  # fmt: skip


def test_a_neighbour_that_runs_is_reached_and_not_disturbed(pair):
    for name in pair.files:  # long enough for three examinations
        pair.write(name, pair.tables(name, iterations=1500))
    ann = start(pair, "ann")
    found = examined(pair, "bob", good=True)
    assert found["reach ann"] == (
        True, f"127.0.0.1:{pair.listen} answers, runs the same, and has not begun",
    )  # fmt: skip
    assert found["clock"][0]
    assert examined(pair, "ann", good=True)["listen"][1].endswith("this agent is running")
    bob = pair.agent("bob")
    for _ in range(3):  # during the run, too
        examined(pair, "bob", good=True)
    code, _, err = bob.end()
    assert code == 0, err
    code, _, err = ann.end()
    assert code == 0, err
    assert err.count("connected to bob") == 1
    assert err.count("refused") == 1  # the plain connection of `start`


def test_a_state_that_is_an_old_copy_is_named(pair):
    for name in pair.files:
        pair.write(name, pair.tables(name, iterations=100_000))
    state, copy = pair.directory / "bob/state", pair.directory / "copy"

    def run_bob(rounds):
        before = (s.round or 0) if (s := read_position(state)) else 0
        bob, deadline = pair.agent("bob"), time.monotonic() + 30
        while not (s := read_position(state)) or (s.round or 0) < before + rounds:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        bob.signal(signal.SIGKILL)
        bob.end()

    start(pair, "ann")
    run_bob(20)
    assert examined(pair, "bob", good=True)["reach ann"][0]
    shutil.copytree(state, copy)
    old = read_position(copy).round
    run_bob(20)
    assert examined(pair, "bob", good=True)["reach ann"][0]
    shutil.rmtree(state)
    copy.rename(state)
    found = examined(pair, "bob", good=False)
    assert bad(found) == {"reach ann"}
    assert f"whose journal ends at round {old}: " in found["reach ann"][1]
    assert "is an old copy" in found["reach ann"][1]
    shutil.rmtree(state)
    assert "ends at round -1" in examined(pair, "bob", good=False)["reach ann"][1]
    state.mkdir(
        mode=0o700
    )  # of what cannot be read, or is another run's, no more is said than that
    for belongs in ({"format": 1, "run": "r1"}, {"format": FORMAT, "run": "r0"}):
        (state / "run.json").write_text(json.dumps(belongs | {"agent": "bob"}))
        assert bad(examined(pair, "bob", good=False)) == {"state"}


def test_what_two_agents_understand_differently_is_named(pair):
    tables = pair.tables("bob", iterations=61)
    tables["neighbour"][0]["number"] = 0
    pair.write("bob", tables)
    start(pair, "ann")
    found = examined(pair, "bob", good=False)
    assert bad(found) == {"reach ann"}
    assert "iterations: 61 here, 60 there" in found["reach ann"][1]


def test_a_neighbour_that_is_away_is_named(pair):
    found = examined(pair, "bob", good=False)
    assert bad(found) == {"reach ann"}
    assert "cannot be reached" in found["reach ann"][1]
    tables = pair.tables("bob")
    tables["neighbour"][0]["address"] = "no-such-host.invalid:7440"
    pair.write("bob", tables)
    assert "no-such-host.invalid" in examined(pair, "bob", good=False)["reach ann"][1]


def test_a_neighbour_that_does_not_trust_this_agent_is_named(pair):
    """Bob has made a new key, and Ann has the old certificate."""
    start(pair, "ann")
    for ending in ("key", "crt"):
        (pair.directory / f"bob/bob.{ending}").unlink()
    mint(pair.directory / "bob", "bob")
    text = examined(pair, "bob", good=False)["reach ann"][1]
    assert "TLS handshake" in text or "closed the connection" in text


def test_someone_else_at_the_neighbours_address_is_named(pair):
    false_ann = mint(pair.directory / "eve", "ann")
    shutil.copy(false_ann.key_path, pair.directory / "ann/ann.key")
    shutil.copy(false_ann.certificate_path, pair.directory / "ann/ann.crt")
    start(pair, "ann")
    text = examined(pair, "bob", good=False)["reach ann"][1]
    assert "does not show the certificate of ann" in text
    assert "Compare certificates by `hushgrad key show`" in text
    assert "Is its agent running" not in text


def test_who_says_nothing_is_given_up(pair):
    with socket.create_server(("127.0.0.1", pair.listen)):
        result = CliRunner().invoke(
            app, ["doctor", str(pair.files["bob"]), "--timeout", "0.3", "--format", "json"]
        )
    assert "no answer from" in result.stdout


def break_mode(pair):
    (pair.directory / "ann/ann.key").chmod(0o640)
    return "key", "chmod 600"


def break_key(pair):
    shutil.copy(pair.directory / "bob/bob.key", pair.directory / "ann/ann.key")
    return "key", "is not the key of"


def break_own_dates(pair):
    for ending in ("key", "crt"):
        (pair.directory / f"ann/ann.{ending}").unlink()
    mint(pair.directory / "ann", "ann", days=1, not_before=datetime(2024, 1, 1, tzinfo=UTC))
    return "certificate", "expired on 2024-01-02"


def break_trust(pair):
    (pair.directory / "ann/trusted/bob.crt").unlink()
    return "trust bob", "hushgrad key trust"


def break_name(pair):
    mint(pair.directory / "post", "carl")
    shutil.copy(pair.directory / "post/carl.crt", pair.directory / "ann/trusted/bob.crt")
    return "trust bob", "is the certificate of carl, and not of bob"


def break_neighbours_dates(pair):
    later = datetime.now(UTC) + timedelta(days=3)
    mint(pair.directory / "post", "bob", not_before=later)
    shutil.copy(pair.directory / "post/bob.crt", pair.directory / "ann/trusted/bob.crt")
    return "trust bob", "is not valid before"


def break_data(pair):
    tables = pair.tables("ann")
    tables["objective"] = {
        "kind": "ridge", "file": "a.csv", "columns": ["x", "z"], "target": "y",
    }  # fmt: skip
    pair.write("ann", tables)
    (pair.directory / "ann/a.csv").write_text("x,z,y\n1,2,3\n1,,3\n")
    return "objective", "a.csv:3: column z is empty"


def break_gradient(pair):
    tables = pair.tables("ann") | {"objective": {"function": "f.py:f"}}
    pair.write("ann", tables)
    (pair.directory / "ann/f.py").write_text("def f(theta):\n    return theta + float('nan')\n")
    return "objective", "gives nan in entry 0"


def break_state(pair):
    (pair.directory / "ann/state").write_text("a file")
    return "state", "cannot be written"


def break_run(pair):
    state = pair.directory / "ann/state"
    state.mkdir(mode=0o700)
    belongs = {"format": FORMAT, "run": "r0", "agent": "ann"}
    (state / "run.json").write_text(json.dumps(belongs))
    return "state", "belongs to agent ann in run r0"


def break_trusted_mode(pair):
    (pair.directory / "ann/trusted/bob.crt").chmod(0o664)
    return "access trusted", "chmod go-w"


def break_trusted_directory(pair):
    (pair.directory / "ann/trusted").chmod(0o777)
    return "access trusted", "others may replace"


def break_state_mode(pair):
    (pair.directory / "ann/state").mkdir(mode=0o700)
    (pair.directory / "ann/state").chmod(0o750)
    return "access state", "chmod 700"


def with_data(pair, text, kind="ridge", mode=0o600):
    tables = pair.tables("ann")
    tables["objective"] = {"kind": kind, "file": "a.csv", "columns": ["x", "z"], "target": "y"}
    pair.write("ann", tables)
    (pair.directory / "ann/a.csv").write_text(text)
    (pair.directory / "ann/a.csv").chmod(mode)


GOOD_ROWS = "x,z,y\n1,2,0\n2,1,1\n3,5,0\n"


def break_data_mode(pair):
    with_data(pair, GOOD_ROWS, mode=0o622)
    return "access data", "others may change"


def break_cell(pair):
    with_data(pair, GOOD_ROWS + "4,1e30,1\n")
    return "data", "column 'z' has the number 1e+30 in row 4"


BREAKS = [
    break_trusted_mode, break_trusted_directory, break_state_mode, break_data_mode, break_cell,
    break_mode, break_key, break_own_dates, break_trust, break_name, break_neighbours_dates,
    break_data, break_gradient, break_state, break_run,
]  # fmt: skip


@pytest.mark.parametrize("break_it", BREAKS, ids=lambda f: f.__name__)
def test_each_thing_that_is_broken_is_found_and_nothing_else(pair, break_it):
    check, text = break_it(pair)
    found = examined(pair, "ann", good=False)
    assert bad(found) == {check}
    assert text in found[check][1]


def test_a_port_that_another_program_has_is_named(pair):
    with socket.create_server(("127.0.0.1", pair.listen)):
        found = examined(pair, "ann", good=False)
    assert bad(found) == {"listen"}
    assert "in use" in found["listen"][1]


def test_certificates_that_changed_places_are_named(pair):
    shutil.copy(pair.directory / "ann/ann.crt", pair.directory / "ann/trusted/bob.crt")
    shutil.copy(pair.directory / "bob/bob.crt", pair.directory / "ann/ann.crt")
    shutil.copy(pair.directory / "bob/bob.key", pair.directory / "ann/ann.key")
    found = examined(pair, "ann", good=False)
    assert bad(found) == {"key", "trust bob"}
    assert "is the certificate of bob, and not of ann" in found["key"][1]
    assert "is the certificate of ann, and not of bob" in found["trust bob"][1]


@pytest.mark.parametrize("has_masks", [False, True], ids=["no masks", "masks"])
def test_a_certificate_that_ends_soon_is_pointed_at(pair, has_masks):
    if has_masks:
        tables = pair.tables("ann") | {"partner": [{"name": "bob", "number": 1}]}
        tables["algorithm"]["name"] = "PDGNDS"
        tables["agent"]["accept_exposure"] = ["eta", "partners"]
        pair.write("ann", tables)
    for ending in ("key", "crt"):
        (pair.directory / f"ann/ann.{ending}").unlink()
    mint(pair.directory / "ann", "ann", days=5)
    found = examined(pair, "ann", good=True)
    assert found["certificate"][0] is None
    assert "in 4 days" in found["certificate"][1]
    assert ("does not survive a new one" in found["certificate"][1]) == has_masks


def test_a_bad_file_is_bad_input(pair):
    pair.files["ann"].write_text("[agent]\n")
    result = CliRunner().invoke(app, ["doctor", str(pair.files["ann"])])
    assert result.exit_code == 2
    assert "needs the key name" in result.stderr


def test_a_policy_that_is_not_there_is_a_line_like_others(pair):
    tables = pair.tables("ann")
    tables["agent"]["policy"] = "policy.toml"
    pair.write("ann", tables)
    found = examined(pair, "ann", good=False)
    assert bad(found) == {"policy"}
    assert "there is no policy" in found["policy"][1]
    assert found["exposure sums"][0] is None
    assert "earlier runs are not known" in found["exposure sums"][1]


def test_an_agent_can_be_stopped_after_all(pair):
    """The probe leaves no connection behind that would hold a leaving agent up."""
    ann = start(pair, "ann")
    examined(pair, "bob", good=True)
    ann.signal(signal.SIGINT)
    started = time.monotonic()
    ann.end()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("x,z,y\n1,2,3\n", "ridge", "there is one row only"),
        ("x,z,y\n1,2,1\n2,1,1\n", "logistic", "outcome 'y' has one class, 1, in all 2 rows"),
        ("x,z,y\n1,7,1\n2,7,0\n", "logistic", "constant columns: 'z'."),
        (GOOD_ROWS, "logistic", None),
        ("x,z,y\n1,2,1\n2,1,1\n", "ridge", None),  # no classes
    ],
    ids=["one row", "one class", "constant", "good", "no classes"],
)
def test_rows_that_tell_little_are_pointed_at(pair, text, kind, words):
    with_data(pair, text, kind)
    result = CliRunner().invoke(app, ["doctor", str(pair.files["ann"]), "--format", "json"])
    found = {c["check"]: (c["ok"], c["text"]) for c in json.loads(result.stdout)["checks"]}
    is_good, said = found["data"]
    assert is_good is (True if words is None else None)
    assert words is None or words in said
    assert found["access data"][0] is True


def test_data_that_every_user_may_read_are_pointed_at(pair):
    with_data(pair, GOOD_ROWS, mode=0o644)
    result = CliRunner().invoke(app, ["doctor", str(pair.files["ann"]), "--format", "json"])
    found = {c["check"]: (c["ok"], c["text"]) for c in json.loads(result.stdout)["checks"]}
    assert found["access data"][0] is None
    assert "chmod o-rwx" in found["access data"][1]


@pytest.mark.parametrize("what", ["state", "trusted/bob.crt", "a.csv"])
def test_files_of_somebody_else_are_named(pair, monkeypatch, what):
    """Another user runs the doctor than the one whose files these are."""
    with_data(pair, GOOD_ROWS)
    (pair.directory / "ann/state").mkdir(mode=0o700)
    owner = (pair.directory / "ann").stat().st_uid
    monkeypatch.setattr(access_module, "_owner", lambda path: 4711 if path.match(what) else owner)
    config = load_config(pair.files["ann"])
    found = {check: (is_good, text) for check, is_good, text in access_module.access(config)}
    check = {"state": "access state", "a.csv": "access data"}.get(what, "access trusted")
    assert {name for name, (is_good, _) in found.items() if is_good is False} == {check}
    assert "belongs to user 4711" in found[check][1]
