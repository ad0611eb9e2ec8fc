"""Keys and trust from the command line: two organisations that exchange files and fingerprints."""

import json
import os
import pty
import stat
import subprocess
import sys
import tomllib

import pytest
from typer.testing import CliRunner

from hushgrad.cli import app
from hushgrad.network.keys.identity import load_certificate, load_identity, mint


def call(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def answer(*arguments, code=0):
    return json.loads(call(*arguments, "--format", "json", code=code).stdout)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_new_key_is_an_identity_for_as_long_as_asked(here):
    made = answer("key", "new", "north", "--out", "keys", "--days", "30")
    identity = load_identity(here / made["key"], here / made["certificate"])
    assert made["name"] == identity.name == "north"
    assert made["fingerprint"] == identity.certificate.fingerprint
    life = identity.certificate.not_after - identity.certificate.not_before
    assert life.days == 30
    assert stat.S_IMODE((here / "keys/north.key").stat().st_mode) == 0o600


def test_a_key_is_never_overwritten(here):
    call("key", "new", "north")
    before = {path: path.read_bytes() for path in here.iterdir()}
    assert "stays as it is" in call("key", "new", "north", code=2).stderr
    assert {path: path.read_bytes() for path in here.iterdir()} == before


def test_names_that_cannot_be_are_refused_with_one_that_can(here):
    assert "Try 'st-mary-s'" in call("key", "new", "St. Mary's", code=2).stderr
    assert not list(here.iterdir())


def test_both_sides_see_the_same_fingerprint(here):
    mint(here, "north")
    shown = call("key", "show", "north.crt").stdout
    fingerprint = answer("key", "show", "north.crt")["fingerprint"]
    assert "".join(shown.split()).count(fingerprint[:39]) == 1
    assert fingerprint[40:] in shown
    assert "PRIVATE" not in shown


def test_a_key_is_not_shown(here):
    mint(here, "north")
    assert "holds 0 certificates" in call("key", "show", "north.key", code=2).stderr


def test_trust_copies_the_certificate_and_says_what_to_write(here):
    south = mint(here / "post", "south")
    fingerprint = south.certificate.fingerprint
    said = answer(
        "key", "trust", "post/south.crt", "--fingerprint", fingerprint.upper().replace(":", " "),
        "--number", "3", "--address", "south.example.org:7440", "--as", "south",
    )  # fmt: skip
    assert load_certificate(here / said["trusted"]) == south.certificate
    assert said["trusted"] == "trusted/south.crt"
    (neighbour,) = tomllib.loads(said["toml"])["neighbour"]
    assert neighbour == {"name": "south", "number": 3, "address": "south.example.org:7440"}
    *_, partner = said["toml"].partition("without the #:\n")
    (partner,) = tomllib.loads(partner.replace("# ", ""))["partner"]
    assert partner == {"name": "south", "number": 3}
    again = call("key", "trust", "post/south.crt", "--fingerprint", fingerprint)
    assert tomllib.loads(again.stdout) == {"neighbour": [{"name": "south"}]}


def test_a_directory_of_ones_own_is_in_the_lines(here):
    south = mint(here / "post", "south")
    options = ["--fingerprint", south.certificate.fingerprint, "--into", "certs"]
    said = answer("key", "trust", "post/south.crt", *options)
    assert tomllib.loads(said["toml"])["neighbour"][0]["certificate"] == "certs/south.crt"


def test_another_fingerprint_is_not_trusted(here):
    mint(here / "post", "south")
    other = mint(here / "eve", "south").certificate.fingerprint
    said = call("key", "trust", "post/south.crt", "--fingerprint", other, code=2).stderr
    assert "Someone may have exchanged the file" in said
    assert not (here / "trusted").exists()


def test_another_name_is_not_trusted(here):
    south = mint(here / "post", "south")
    options = ["--fingerprint", south.certificate.fingerprint, "--as", "west"]
    assert (
        "of south, not of west" in call("key", "trust", "post/south.crt", *options, code=2).stderr
    )
    assert not (here / "trusted").exists()


def test_a_trusted_certificate_is_never_replaced(here):
    old = mint(here / "old", "south").certificate
    new = mint(here / "new", "south").certificate
    call("key", "trust", "old/south.crt", "--fingerprint", old.fingerprint)
    said = call("key", "trust", "new/south.crt", "--fingerprint", new.fingerprint, code=2).stderr
    assert "another certificate of south and stays as it is" in said
    assert load_certificate(here / "trusted/south.crt") == old


def test_nothing_is_trusted_without_a_comparison(here):
    mint(here / "post", "south")
    assert "--fingerprint" in call("key", "trust", "post/south.crt", code=2).stderr
    assert not (here / "trusted").exists()


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 2), ("\n", 2)])
def test_a_person_at_a_terminal_is_asked(here, typed, code):
    south = mint(here / "post", "south")
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    done = subprocess.run(
        [sys.executable, "-m", "hushgrad", "key", "trust", "post/south.crt"],
        stdin=theirs, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    os.close(theirs)
    os.close(ours)
    assert done.returncode == code, done.stderr
    assert south.certificate.fingerprint[:39] in done.stderr
    assert "Did its owner tell you this fingerprint?" in done.stderr
    assert (here / "trusted/south.crt").exists() == (code == 0)


def test_certificates_out_of_their_time_are_pointed_at(here):
    from datetime import UTC, datetime, timedelta

    late = mint(here / "post", "south", days=1, not_before=datetime.now(UTC) + timedelta(days=2))
    said = call("key", "show", "post/south.crt").stdout
    assert "is not valid before" in said
    fingerprint = late.certificate.fingerprint
    assert (
        "is not valid before"
        in call("key", "trust", "post/south.crt", "--fingerprint", fingerprint).stderr
    )
