"""The comparison with peers: other libraries run the same DGD.

Each peer has a script beside this file, which runs in an interpreter that has the peer.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import hushgrad as hg
from benchmarks.machine import cores
from benchmarks.simulator.processes import WorkerError, call, worker
from benchmarks.simulator.workloads import WORKLOADS

SIZES = ("a", "c")
STEPSIZE = 0.01
TOLERANCE = 1e-9  # all peers must end at the same iterate
REPEATS = 3

# script, package, module, iterations at a and c
PEERS = (
    ("run_numpy.py", "NumPy loop", "numpy", {"a": 2000, "c": 500}),
    ("run_tvopt.py", "tvopt", "tvopt", {"a": 500, "c": 50}),
    ("run_decent_bench.py", "decent-bench", "decent_bench", {"a": 500, "c": 50}),
)
# iterations of hushgrad: so many that the start of `hg.run` does not count
ITERATIONS = {"a": 1_000_000, "c": 10_000}


def compare(python: str) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The rows for each size, fastest first, and the reasons for skipped peers."""
    rows: dict[str, list[dict[str, Any]]] = {size: [] for size in SIZES}
    skipped: list[str] = []
    present = [peer for peer in PEERS if _is_installed(python, peer, skipped)]
    with tempfile.TemporaryDirectory() as directory:
        for size in SIZES:
            file = Path(directory, f"{size}.npz")
            _write(size, file)
            ours = worker(
                "gradient_descent", on=1, file=str(file), iterations=ITERATIONS[size],
                repeats=REPEATS, ends=sorted({peer[3][size] for peer in PEERS}),
            )  # fmt: skip
            rows[size].append(_row("hushgrad", hg.__version__, ours, agrees=True))
            for script, name, _, iterations in present:
                n = str(iterations[size])
                settings = [str(file), n, str(REPEATS), str(cores()[-1])]
                try:
                    found = call([python, str(Path(__file__).with_name(script)), *settings], name)
                except WorkerError as error:
                    skipped.append(f"{name}: {error}")
                    continue
                apart = np.abs(np.array(found["x"]) - np.array(ours["x"][n])).max()
                agrees = bool(apart <= TOLERANCE)
                rows[size].append(_row(name, found["version"], found, agrees=agrees))
            rows[size].sort(key=lambda row: row["seconds_per_iteration"])
    return rows, skipped


def _row(name: str, version: str, found: dict[str, Any], *, agrees: bool) -> dict[str, Any]:
    seconds = found["seconds_per_iteration"]
    return {
        "name": name,
        "version": version,
        "seconds_per_iteration": seconds,
        "iterations_per_second": 1 / seconds,
        "agrees": agrees,
    }


def _is_installed(python: str, peer: Any, skipped: list[str]) -> bool:
    _, name, module, _ = peer
    done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
    if done.returncode:
        needs = " (it needs Python ≥ 3.13)" if name == "decent-bench" else ""
        skipped.append(
            f"{name}: not installed for {python}{needs}. pip install 'hushgrad[bench]', or name "
            "another interpreter by --peer-python."
        )
    return done.returncode == 0


def _write(size: str, file: Path) -> None:
    network, problem = WORKLOADS[size].build()
    network = hg.Network(network.graph, "metropolis")  # the rule that decent-bench has
    np.savez(file, **problem.data, W=network.matrix(), edges=network.graph.links, stepsize=STEPSIZE)
