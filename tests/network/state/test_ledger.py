"""A ledger shows every change of its lines: edits, moves, losses, and two writers at once."""

import hashlib
import json
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from hushgrad.cli import app
from hushgrad.errors import LedgerError, StateError
from hushgrad.network.state import ledger as ledger_module
from hushgrad.network.state.ledger import BEGUN, LedgerFile, ledger_of, mus, runs_of


@pytest.fixture
def ledger(tmp_path):
    made = LedgerFile(tmp_path / "ledger")
    made.create()
    for run, status in (("a", BEGUN), ("a", "done"), ("b", BEGUN)):
        with made.locked():
            made.append(status, {"run": run, "key": "k", "mu": 0.5 if run == "a" else "inf"})
    return made


def test_every_line_holds_the_sha256_of_the_line_before(ledger):
    texts = ledger.path.read_bytes().splitlines()
    before = [json.loads(text)["before"] for text in texts]
    assert before == ["0" * 64, *(hashlib.sha256(text).hexdigest() for text in texts[:-1])]
    assert [line.digest for line in ledger.lines()] == [
        hashlib.sha256(text).hexdigest() for text in texts
    ]
    for part in ("", ".secret", ".head"):
        file = ledger.path.with_name(f"ledger{part}")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_runs_have_their_last_status(ledger):
    assert [(r.begun.run, r.status, r.mu) for r in runs_of(ledger.lines())] == [
        ("a", "done", 0.5), ("b", "begun", float("inf")),
    ]  # fmt: skip


def replaced(old, new):
    return lambda lines: [line.replace(old, new) for line in lines]


def resealed(lines):
    """Another status in the last line, with the digests right, as one without the secret can."""
    line = json.loads(lines[-1])
    line["status"] = "refused"
    return [*lines[:-1], json.dumps(line, separators=(",", ":"))]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (replaced('"mu":0.5', '"mu":0.1'), "line 2: its seal"),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3]], "line 2: its number is 2"),
        (lambda lines: [lines[0], *lines[2:]], "line 2: its number is 2"),
        (lambda lines: [*lines, lines[-1]], "line 5: its number is 3"),
        (resealed, "line 4: its seal"),
        (lambda lines: lines[:-1], "its end is lost"),
        (lambda lines: lines[:1], "its end is lost"),
        (lambda lines: [*lines[:-1], "nonsense"], "line 4: this is no line of a ledger"),
        (lambda lines: [], "has no first line"),
    ],
)
def test_a_change_is_named(ledger, change, said):
    lines = ledger.path.read_text().splitlines()
    ledger.path.write_text("".join(f"{line}\n" for line in change(lines)))
    with pytest.raises(LedgerError, match=said):
        ledger.lines()
    with pytest.raises(LedgerError), ledger.locked():
        ledger.append("done", {"run": "b", "key": "k"})
    result = CliRunner().invoke(app, ["ledger", "verify", str(ledger.path)])
    assert result.exit_code == 1
    assert "✗" in result.output


def test_parts_that_are_missing_are_named_and_never_made_anew(ledger):
    for part in ("head", "secret"):
        file = ledger.path.with_name(f"ledger.{part}")
        kept = file.read_bytes()
        file.unlink()
        with pytest.raises(LedgerError, match=rf"ledger\.{part}' cannot be read"):
            ledger.lines()
        file.write_bytes(kept)
        file.chmod(0o600)
    ledger.path.unlink()
    with pytest.raises(LedgerError, match="begun once"):
        ledger.create()


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_ledger_whose_first_writer_was_killed_is_begun_anew(tmp_path, monkeypatch, writes):
    """Killed before its first, second or third file is in place."""
    new, done = LedgerFile(tmp_path / "ledger"), []
    whole = ledger_module.replace_file

    def killed(path, write, **options):
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(path)
        whole(path, write, **options)

    with monkeypatch.context() as patched:
        patched.setattr(ledger_module, "replace_file", killed)
        with pytest.raises(KeyboardInterrupt):
            new.create()
    assert not new.exists
    first = new.create()
    assert [line.digest for line in new.lines()] == [first.digest]
    new.append("begun", {"run": "a"})
    new.path.unlink()
    with pytest.raises(LedgerError, match="begun once"):
        new.create()


def test_another_secret_does_not_belong_to_the_ledger(ledger, tmp_path):
    other = LedgerFile(tmp_path / "other")
    other.create()
    ledger.path.with_name("ledger.secret").write_bytes(other.secret)
    with pytest.raises(LedgerError):
        ledger.lines()


def test_an_older_copy_is_told_by_a_head_that_was_noted(ledger, tmp_path):
    """Whoever copies all files back has a whole ledger; a digest in a log shows the loss."""
    kept = {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    with ledger.locked():
        head = ledger.append("done", {"run": "b", "key": "k"}).digest
    for file, content in kept.items():
        file.write_bytes(content)
    assert len(ledger.lines()) == 4
    call = ["ledger", "verify", str(ledger.path), "--format", "json"]
    assert CliRunner().invoke(app, call).exit_code == 0
    result = CliRunner().invoke(app, [*call, "--head", head])
    assert result.exit_code == 1
    assert "its end is lost" in json.loads(result.stdout)[0]["text"]


def test_an_auditor_checks_the_chain_without_the_secret(ledger):
    ledger.path.with_name("ledger.secret").unlink()
    call = ["ledger", "verify", str(ledger.path)]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0
    assert "seals not checked" in result.output
    ledger.path.write_text(ledger.path.read_text().replace('"mu":0.5', '"mu":0.1', 1))
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 1
    assert "line 3: it does not follow the line before" in result.output


def test_half_a_line_of_a_killed_writer_is_cut_off(ledger):
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole + b'{"n":4,"time":"2026')
    assert len(ledger.lines()) == 4
    with ledger.locked():
        ledger.append("done", {"run": "b", "key": "k"})
    assert ledger.path.read_bytes().startswith(whole)
    assert [line.number for line in ledger.lines()] == list(range(5))


def test_a_writer_killed_between_line_and_head_leaves_a_whole_ledger(ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(LedgerFile, "_set_head", lambda self, line: None)
        with ledger.locked():
            ledger.append("done", {"run": "b", "key": "k"})
    assert ledger.lines()[-1].status == "done"


WRITER = """
import os, sys
from pathlib import Path
from hushgrad.network.state.ledger import LedgerFile
ledger = LedgerFile(Path(sys.argv[1]))
for n in range(20):
    with ledger.locked():
        ledger.append("done", {"run": f"{os.getpid()}-{n}"})
"""


def test_two_writers_at_once_lose_no_line(ledger):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, ledger.path]) for _ in range(2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len(ledger.lines()) == 4 + 40


def test_time_never_runs_back(tmp_path):
    ledger = LedgerFile(tmp_path / "ledger")
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    ledger.create(later)
    with ledger.locked():
        assert ledger.append("done", {"run": "a"}).time == later


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(StateError, match=r"nowhere/ledger' cannot be written"):
        LedgerFile(tmp_path / "nowhere" / "ledger").create()


def test_the_commands_show_and_begin_a_ledger(ledger, tmp_path):
    runner = CliRunner()
    shown = runner.invoke(app, ["ledger", "show", str(ledger.path), "--format", "json"])
    (document,) = json.loads(shown.stdout)
    assert [line["status"] for line in document["lines"]] == ["opened", "begun", "done", "begun"]
    assert "begun" in runner.invoke(app, ["ledger", "show", str(ledger.path)]).output
    made = runner.invoke(app, ["ledger", "new", str(tmp_path / "two"), "--format", "json"])
    start = json.loads(made.stdout)["ledger_start"]
    assert start == LedgerFile(tmp_path / "two").lines()[0].digest
    missing = runner.invoke(app, ["ledger", "show", str(tmp_path / "none")])
    assert missing.exit_code == 2
    assert "no run has begun yet" in missing.output


def test_a_key_has_a_ledger_beside_it(tmp_path):
    key = tmp_path / "ann.key"
    assert mus(key) == {}
    ledger = ledger_of(key)
    assert ledger.path == tmp_path / "ann.ledger"
    ledger.create()
    with ledger.locked():
        ledger.append(BEGUN, {"run": "r1", "mu": None})
    assert mus(key) == {"r1": None}
