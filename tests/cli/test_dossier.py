"""The dossier tells what the doctor, the policy and the ledger tell, and what attacks find."""

import json
import re

import pytest
from typer.testing import CliRunner

import hushgrad as hg
from hushgrad.cli import app
from hushgrad.errors import MissingExtra
from hushgrad.fitting import contract_digest
from hushgrad.network.keys.identity import load_certificate, mint
from hushgrad.privacy.programme_audit import audit_programme
from hushgrad.schema.toml import to_toml
from support import fit_network, fits

MODEL = {"kind": "linear", "outcome": "pressure", "columns": ["age", "year"]}
NAMES = ["north", "middle", "south"]


@pytest.fixture
def agent_file(tmp_path):
    for name in NAMES:
        mint(tmp_path / "keys", name)
    fit_network.write_rows(tmp_path / "rows.csv", fits.synthetic((80, 90, 100))["north"])
    (tmp_path / "model.toml").write_text(to_toml({"model": MODEL}))
    (tmp_path / "policy.toml").write_text("[policy]\nmin_rows = 100\nmin_participants = 3\n")
    others = [
        {"name": name, "number": n, "certificate": f"keys/{name}.crt"}
        for n, name in enumerate(NAMES) if n
    ]  # fmt: skip
    tables = {
        "agent": {
            "name": "north", "number": 0, "listen": "127.0.0.1:7440", "policy": "policy.toml",
            "key": "keys/north.key", "certificate": "keys/north.crt",
        },
        "run": {"id": "r1", "n_agents": 3},
        "fit": {"model": "model.toml", "file": "rows.csv"},
        "neighbour": [o | {"address": "127.0.0.1:7441"} for o in others],
        "partner": others,
    }  # fmt: skip
    (tmp_path / "agent.toml").write_text(to_toml(tables))
    return tmp_path / "agent.toml"


def made(agent_file, *options, code=0):
    out = agent_file.parent / "dossier.html"
    call = ["dossier", str(agent_file), "--out", str(out), "--format", "json", *options]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout), out.read_text(encoding="utf-8")


def test_the_dossier_tells_everything_from_this_sites_position(agent_file):
    document, page = made(agent_file, "--no-audit")
    digest = contract_digest(hg.fitting.contract(hg.Model(**MODEL)))
    assert document["contract"] == digest
    fingerprints = [
        load_certificate(agent_file.parent / "keys" / f"{name}.crt").fingerprint for name in NAMES
    ]
    assert sorted(p["fingerprint"] for p in document["participants"]) == sorted(fingerprints)
    assert {r["rule"]: r["is_kept"] for r in document["rulings"]} == {
        "min_rows": False, "min_participants": True,
    }  # fmt: skip
    assert {e["verdict"] for e in document["exposure"]} == {"held"}
    assert document["audit"] is None
    assert document["ledgers"] == []
    for text in (digest, *fingerprints, "min_rows = 100, and there are 80 rows", "Signature"):
        assert text in page
    assert not re.search(r"<script|https?://|src=", page)
    assert not (agent_file.parent / "state").exists()


def test_the_policy_of_the_file_ends_the_command_with_exit_code_2(agent_file):
    for command in ("fit", "agent"):
        result = CliRunner().invoke(app, [command, str(agent_file)])
        assert result.exit_code == 2
        assert "min_rows = 100, and there are 80 rows of this site. Use more rows." in result.output
        assert not (agent_file.parent / "state").exists()
    said = CliRunner().invoke(app, ["doctor", str(agent_file), "--timeout", "0.1"]).output
    assert "✗ policy             min_rows = 100" in said


def test_attacks_on_the_programme_find_what_theory_says():
    """Masks hide a vector from each other site, and from all of them nothing can."""
    model = hg.Model(**MODEL)
    found = {f.adversary: f for f in audit_programme(model, [60, 60, 60], eta=0.0, agent=1)}
    plain = fits.fit(model, fits.synthetic((60, 60, 60)))
    assert {f.averages for f in found.values()} == {plain.n_averages}
    exposed = {name: f.is_exposed for name, f in found.items()}
    assert exposed == {
        "a listener who hears every link in clear": False,
        "each other site alone": False,
        "all other sites together": True,
    }
    assert found["each other site alone"].nearest > 100
    assert found["all other sites together"].nearest < 1e-6


def test_without_the_simulator_the_page_names_the_package(agent_file, monkeypatch):
    def missing(module, extra):
        raise MissingExtra(f"{module} is missing. Install it with: pip install 'hushgrad[{extra}]'")

    monkeypatch.setattr("hushgrad.cli.dossier.optional", missing)
    document, page = made(agent_file)
    assert "pip install 'hushgrad[sim]'" in document["audit"]["problem"]
    assert "Not made: scipy is missing" in page


def test_rows_that_cannot_be_read_are_told_on_the_page(agent_file):
    (agent_file.parent / "rows.csv").unlink()
    document, page = made(agent_file, "--no-audit")
    assert "there is no file" in document["problem"]
    assert "there is no file" in page
