"""The rows of a study on several cores, against the same rows one after the other.

    python -m benchmarks.simulator.jobs

Both tables must agree in everything but seconds.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS = 6
STUDY = """
[network]
graph = "erdos_renyi"
n_agents = 100
p = 0.06
seed = 1
[problem]
kind = "estimation"
s = 20
d = 50
[[algorithm]]
name = "PDGDS"
stepsize = {{ kind = "diminishing", scale = 0.05 }}
[run]
iterations = {iterations}
record_every = {iterations}
[sweep]
"run.seed" = {seeds}
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator.jobs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=75_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        seeds = list(range(ROWS))
        text = STUDY.format(iterations=options.iterations, seeds=seeds)
        (home / "study.toml").write_text(text, encoding="utf-8")
        serial, expected = _run(home, 1)
        taken, found = _run(home, options.jobs)
    of_row = [float(row.pop("seconds")) for row in expected]
    for row in found:
        del row["seconds"]
    print(
        f"{len(expected)} rows of {statistics.median(of_row):.1f} s: one job {serial:.1f} s, "
        f"{options.jobs} jobs {taken:.1f} s, ratio {taken / serial:.2f}; "
        f"the tables {'agree' if found == expected else 'DIFFER'}"
    )
    return 0 if found == expected else 1


def _run(home: Path, jobs: int) -> tuple[float, list[dict[str, str]]]:
    """Seconds of the whole command, and its table."""
    command = [sys.executable, "-m", "hushgrad", "run", "study.toml", "--jobs", str(jobs),
               "--quiet", "--out", str(home / str(jobs))]  # fmt: skip
    own = os.environ | {"XDG_CACHE_HOME": str(home / f"cache{jobs}")}
    begun = time.perf_counter()
    subprocess.run(command, cwd=home, env=own, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    with (home / str(jobs) / "sweep.csv").open(newline="") as table:
        return seconds, list(csv.DictReader(table))


if __name__ == "__main__":
    sys.exit(main())
