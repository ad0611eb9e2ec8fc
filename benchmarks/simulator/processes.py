"""Measurements in separate processes: workers, and commands timed from outside."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT

PATIENCE = 900  # seconds; the longest worker needs two minutes

_STUDY = """
[network]
graph = "ring"
n_agents = 5
[problem]
kind = "estimation"
s = 3
d = 2
[[algorithm]]
name = "PDGNDS"
stepsize = { kind = "constant", value = 0.02 }
[run]
iterations = 1000
"""


class WorkerError(Exception):
    """A measurement ended without a result."""


def call(command: list[str], name: str) -> dict[str, Any]:
    """The JSON document that a command prints last."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if done.returncode:
        raise WorkerError(f"{name} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def worker(task: str, *, on: int, **settings: Any) -> dict[str, Any]:
    """Run a task of benchmarks.simulator.measure on `on` cores."""
    given = json.dumps(settings | {"cores": on})
    command = [sys.executable, "-m", "benchmarks.simulator.worker", task, given]
    return call(command, f"{task} {settings}")


def import_seconds(repeats: int) -> dict[str, float]:
    """The seconds of Python's start, and the seconds that `import hushgrad` adds."""
    bare: list[float] = []
    full: list[float] = []
    for _ in range(repeats):
        bare.append(_seconds([sys.executable, "-c", "pass"]))
        full.append(_seconds([sys.executable, "-c", "import hushgrad"]))
    python = statistics.median(bare)
    return {"python": python, "hushgrad": statistics.median(full) - python}


def study_seconds(repeats: int) -> float:
    """The seconds of a whole `hushgrad run` with five agents and a thousand iterations."""
    with tempfile.TemporaryDirectory() as directory:
        study = Path(directory, "study.toml")
        study.write_text(_STUDY, encoding="utf-8")
        command = [
            sys.executable, "-c", "from hushgrad.cli import main; main()",
            "run", str(study), "--quiet", "--format", "json",
        ]  # fmt: skip
        return statistics.median(_seconds(command) for _ in range(repeats))


def _seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started
