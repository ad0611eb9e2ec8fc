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
SECONDS = 5.0  # of a row: a process takes two seconds to start and to compile
TRIED = 20_000  # iterations from which the length of a row follows
TARGET = 0.7  # two jobs on two cores, to one
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
    parser.add_argument("--rounds", type=int, default=3, help="of all rows, by turns")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a row, at least")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        _write(home, TRIED)
        _, tried = _run(home, 1, "--rows", "0-1")
        per_second = TRIED / float(tried[1]["seconds"])  # the first row compiles, too
        _write(home, round(1.1 * options.seconds * per_second))
        pairs: list[tuple[float, float]] = []
        of_row: list[float] = []
        agree = True
        for _ in range(options.rounds):
            serial, expected = _run(home, 1)
            taken, found = _run(home, options.jobs)
            pairs.append((serial, taken))
            of_row += [float(row.pop("seconds")) for row in expected]
            for row in found:
                del row["seconds"]
            agree &= found == expected
    ratios = [taken / serial for serial, taken in pairs]
    ratio = statistics.median(ratios)
    print(
        f"{ROWS} rows of {min(of_row):.1f} s or more, {options.rounds} rounds: one job "
        f"{statistics.median(serial for serial, _ in pairs):.1f} s, {options.jobs} jobs "
        f"{statistics.median(taken for _, taken in pairs):.1f} s, ratio {ratio:.2f} "
        f"({min(ratios):.2f} … {max(ratios):.2f}), "
        + (f"≤ {TARGET}" if ratio <= TARGET else f"MISSED: {TARGET}")
        + f"; the tables {'agree' if agree else 'DIFFER'}"
    )
    return 0 if agree else 1


def _write(home: Path, iterations: int) -> None:
    text = STUDY.format(iterations=iterations, seeds=list(range(ROWS)))
    (home / "study.toml").write_text(text, encoding="utf-8")


def _run(home: Path, jobs: int, *options: str) -> tuple[float, list[dict[str, str]]]:
    """Seconds of the whole command, and its table."""
    out = home / str(jobs)
    command = [sys.executable, "-m", "hushgrad", "run", "study.toml", "--jobs", str(jobs),
               "--quiet", "--out", str(out), *options]  # fmt: skip
    own = os.environ | {"XDG_CACHE_HOME": str(home / f"cache{jobs}")}
    begun = time.perf_counter()
    subprocess.run(command, cwd=home, env=own, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    (written,) = out.glob("sweep*.csv")
    with written.open(newline="") as table:
        rows = list(csv.DictReader(table))
    written.unlink()
    return seconds, rows


if __name__ == "__main__":
    sys.exit(main())
