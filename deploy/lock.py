"""Collect the wheels of one agent, and write requirements that name each by its SHA-256.

    python deploy/lock.py            into deploy/build: wheels/, requirements.txt

The versions are those of constraints.txt, the platform and the Python are those of this command. An
installation from the requirements takes these files and no others, and needs no network:

    pip install --no-index --find-links wheels --require-hashes -r requirements.txt
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-.+\.whl")


def pip(*arguments: str | Path) -> None:
    """Run pip of this Python."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    subprocess.run(command, check=True)


def collect(wheels: Path, extras: list[str]) -> None:
    """Build hushgrad's wheel and download the wheels of all that it needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = list(project["dependencies"])
    for extra in extras:
        needed += project["optional-dependencies"][extra]
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT)
    pip(
        "download", "--quiet", "--only-binary", ":all:", "--dest", wheels,
        "--constraint", ROOT / "constraints.txt", *needed,
    )  # fmt: skip


def requirement(wheel: Path) -> str:
    """`name==version --hash=sha256:…` of a wheel."""
    match = _WHEEL.fullmatch(wheel.name)
    if match is None:
        raise SystemExit(f"'{wheel}' is not named like a wheel.")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    return f"{name}=={match['version']} \\\n    --hash=sha256:{digest}"


def write_requirements(directory: Path) -> Path:
    """Write requirements.txt for the wheels in a directory."""
    wheels = sorted((directory / "wheels").glob("*.whl"))
    path = directory / "requirements.txt"
    path.write_text("\n".join(map(requirement, wheels)) + "\n", encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "deploy" / "build", metavar="DIR")
    parser.add_argument(
        "--extra", action="append", default=[], choices=["parquet", "sim"],
        help="an extra that the agent needs; may be given twice",
    )  # fmt: skip
    given = parser.parse_args()
    if sys.version_info < (3, 12):  # noqa: UP036 an older Python may run this file
        raise SystemExit(
            "hushgrad needs Python 3.12 or newer, and the wheels are for the Python that runs this "
            f"command, {sys.version.split()[0]}. Run it by the Python of the agent's machine."
        )
    wheels = given.out / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for old in wheels.glob("*.whl"):
        old.unlink()
    collect(wheels, given.extra)
    path = write_requirements(given.out)
    print(f"{len(list(wheels.glob('*.whl')))} wheels, their hashes in {path}")


if __name__ == "__main__":
    main()
