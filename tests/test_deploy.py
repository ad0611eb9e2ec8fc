"""The files for operators: the unit, the container, the requirements, the bill of materials."""

import hashlib
import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hushgrad.cli import app
from hushgrad.network.ops.result import BAD_INPUT, EXIT_CODES, Status

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "hushgrad@.service"


def entries(name):
    """The values of a key of the unit."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE)


def test_the_unit_starts_again_only_what_can_go_on():
    (prevented,) = entries("RestartPreventExitStatus")
    final = {Status.REFUSED, Status.DIVERGED, Status.NOT_CONVERGED, Status.PEER_ENDED}
    assert set(map(int, prevented.split())) == {BAD_INPUT, *(EXIT_CODES[s] for s in final)}
    assert entries("Restart") == ["on-failure"]
    assert entries("SuccessExitStatus") == [str(EXIT_CODES[Status.STOPPED])]
    assert entries("StartLimitBurst") == ["20"]  # nothing is started for ever


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_the_unit_leaves_an_agent_little_to_do_harm_with():
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr  # above 2.0 it fails
    level = re.search(r"Overall exposure level for .*: ([\d.]+)", done.stdout)[1]
    assert f"says {level} (" in (DEPLOY / "README.md").read_text("utf-8")


def test_the_container_runs_as_a_user_and_installs_by_hashes_alone():
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    user = re.search(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    assert user is not None
    assert "0" not in user.groups()
    assert text.index("USER ") < text.index("ENTRYPOINT")
    assert "--no-index" in text
    assert "--require-hashes" in text
    assert "://" not in text


def test_requirements_name_every_wheel_by_its_digest(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    content = {
        "prometheus_client-0.26.0-py3-none-any.whl": b"one",
        "numpy-2.5.4-cp312-cp312-manylinux_2_27_x86_64.whl": b"two",
    }
    for name, data in content.items():
        (wheels / name).write_bytes(data)
    path = runpy.run_path(str(DEPLOY / "lock.py"))["write_requirements"](tmp_path)
    assert path.read_text("utf-8") == (
        f"numpy==2.5.4 \\\n    --hash=sha256:{hashlib.sha256(b'two').hexdigest()}\n"
        f"prometheus-client==0.26.0 \\\n    --hash=sha256:{hashlib.sha256(b'one').hexdigest()}\n"
    )


@pytest.mark.slow
def test_an_agent_is_installed_from_its_wheels_without_a_network(tmp_path):
    """It downloads the wheels of the core."""
    built = tmp_path / "build"
    subprocess.run([sys.executable, DEPLOY / "lock.py", "--out", built], check=True)
    assert "://" not in (built / "requirements.txt").read_text("utf-8")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install = [
        tmp_path / "venv/bin/pip", "install", "--no-index", "--find-links", built / "wheels",
        "--require-hashes", "-r", built / "requirements.txt",
    ]  # fmt: skip
    subprocess.run(install, check=True)
    said = subprocess.run(
        [tmp_path / "venv/bin/hushgrad", "sbom"], check=True, capture_output=True, text=True
    )
    names = {part["name"] for part in json.loads(said.stdout)["components"]}
    assert {"numpy", "cryptography", "prometheus-client", "rich", "typer"} <= names
    wheel = next((built / "wheels").glob("numpy-*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"x")  # somebody else's file
    refused = subprocess.run([*install, "--force-reinstall"], capture_output=True, text=True)
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr.upper() + refused.stdout.upper()


def test_the_bill_of_materials_has_every_package_that_an_agent_loads():
    result = CliRunner().invoke(app, ["sbom"])
    assert result.exit_code == 0
    bill = json.loads(result.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    parts = {part["name"]: part for part in bill["components"]}
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    for requirement in needed:
        name = re.match(r"[\w-]+", requirement)[0]
        assert parts[name]["version"] == metadata.version(name)
        assert parts[name]["purl"] == f"pkg:pypi/{name}@{metadata.version(name)}"
    assert "cffi" in parts  # cryptography needs it
    assert not {"jax", "pytest"} & parts.keys()  # of extras
    refs = {part["bom-ref"] for part in bill["components"]}
    refs.add(bill["metadata"]["component"]["bom-ref"])
    assert {entry["ref"] for entry in bill["dependencies"]} == refs
    assert all(set(entry["dependsOn"]) <= refs for entry in bill["dependencies"])


def test_committed_files_for_operators_name_no_host():
    for path in (*DEPLOY.glob("*"), ROOT / "SECURITY.md"):
        if path.is_file():
            assert "://" not in path.read_text("utf-8"), path
