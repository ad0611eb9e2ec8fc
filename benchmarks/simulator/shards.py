"""Agents divided among processes: time, memory, wire, and a model of many hosts.

    python -m benchmarks.simulator.shards --part speed      # two processes to one core
    python -m benchmarks.simulator.shards --part memory     # peak memory of 1, 2 and 4 processes
    python -m benchmarks.simulator.shards --part wire       # exchanges by size
    python -m benchmarks.simulator.shards --part memory --agents 1e7 --d 2
    python -m benchmarks.simulator.shards --write           # the parts so far, into the docs

Every part is kept in docs/shards.json. The weak-scaling model of docs/beyond-one-machine.md is
computed from them.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks import machine
from benchmarks.machine import ROOT
from benchmarks.simulator.shard_model import markdown
from benchmarks.tables import rewrite

KEPT = ROOT / "docs" / "shards.json"
PAGE = ROOT / "docs" / "beyond-one-machine.md"
ROUNDS = 10
SECONDS = 3.0  # of one process in a round, about: a call faults in its memory and makes metrics
SIZES = (16, 1024, 16_384, 131_072, 1_048_576, 8_388_608)  # bytes of an exchange
# case, agents, d, the most that two processes may take of one
SPEED = (("torus", 10**5, 10, 0.65), ("torus", 10**6, 10, 0.65), ("regular", 10**6, 10, 0.75))


class Team:
    """Processes which do together what a line asks for.

    apart    every process has a run of its own with its part of the agents, and exchanges nothing
    """

    def __init__(
        self, case: str, agents: int, d: int, processes: int, *, pinned: bool, apart: bool = False
    ):
        cores = machine.cores()
        size = agents // processes if apart else agents
        of_run = 1 if apart else processes
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._members = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.simulator.shard_worker", json.dumps(
                    {"case": case, "agents": size, "d": d, "processes": of_run, "process": p,
                     "coordinator": f"127.0.0.1:{port}"}
                    | ({"core": cores[p % len(cores)]} if pinned else {})
                )],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                stderr=subprocess.DEVNULL,
            )
            for p in range(processes)
        ]  # fmt: skip
        self.told = self._hear()[0]

    def ask(self, line: str) -> list[dict[str, Any]]:
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write(line + "\n")
            member.stdin.flush()
        return self._hear()

    def seconds(self, n: int) -> float:
        return max(answer["seconds"] for answer in self.ask(str(n)))

    def _hear(self) -> list[dict[str, Any]]:
        lines = [member.stdout.readline() for member in self._members if member.stdout is not None]
        if not all(lines):
            raise SystemExit("error: a process of the benchmark ended before its answer")
        return [json.loads(line) for line in lines]

    def end(self) -> None:
        for member in self._members:
            member.kill()
            member.wait()


@contextlib.contextmanager
def team(*given: Any, **options: Any) -> Iterator[Team]:
    found = Team(*given, **options)
    try:
        yield found
    finally:
        found.end()


def speed(case: str, agents: int, d: int, most: float, rounds: int) -> dict[str, Any]:
    """Two pinned processes to one pinned process, by turns.

    Two processes with half the agents each that exchange nothing (`apart`) tell which ratio the
    memory of this machine allows.
    """
    with (
        team(case, agents, d, 1, pinned=True) as one,
        team(case, agents, d, 2, pinned=True) as two,
        team(case, agents, d, 2, pinned=True, apart=True) as apart,
    ):
        for each in (one, two, apart):
            each.seconds(1)  # compiles
        n = max(1, round(SECONDS / one.seconds(1)))
        turns: list[tuple[float, ...]] = []
        for r in range(rounds):
            order = (one, two, apart) if r % 2 else (apart, two, one)
            took = {id(each): each.seconds(n) / n for each in order}
            turns.append(tuple(took[id(each)] for each in (one, two, apart)))
        ratios = [b / a for a, b, _ in turns]
        return {
            "case": case, "agents": agents, "d": d, "rounds": rounds, "most": most,
            "one": statistics.median(a for a, _, _ in turns),
            "two": statistics.median(b for _, b, _ in turns),
            "ratio": statistics.median(ratios), "least": min(ratios), "largest": max(ratios),
            "apart": statistics.median(c / a for a, _, c in turns),
            "set_up": two.told["set_up"], "rows": two.told["rows"],
            "exchanges": two.told["exchanges"],
        }  # fmt: skip


def memory(case: str, agents: int, d: int, processes: int) -> dict[str, Any]:
    """The peak memory of the largest process."""
    with team(case, agents, d, processes, pinned=False) as found:
        took = found.seconds(2)
        peaks = [answer["mb"] for answer in found.ask("memory")]
        return {
            "case": case, "agents": agents, "d": d, "processes": processes,
            "mb": max(peaks), "set_up": found.told["set_up"], "seconds": took / 2,
        }  # fmt: skip


def wire() -> list[dict[str, float]]:
    """The seconds of an exchange between two processes, by its bytes."""
    with team("none", 0, 0, 2, pinned=True) as pair:
        return [
            {"bytes": size, "seconds": max(a["seconds"] for a in pair.ask(f"permute {size}"))}
            for size in SIZES
        ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator.shards")
    parser.add_argument("--part", choices=("speed", "memory", "wire"))
    parser.add_argument("--case", help="torus, regular, regular addressed or geometric")
    parser.add_argument("--agents", type=float, help="of one case alone")
    parser.add_argument("--d", type=int, default=10)
    parser.add_argument("--processes", default="1,2,4")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--write", action="store_true", help="into docs/beyond-one-machine.md")
    options = parser.parse_args(arguments)
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if options.part is not None:
        kept |= {"machine": machine.describe(), "date": dt.datetime.now(dt.UTC).isoformat()[:19]}
    if options.part == "speed":
        for case, agents, d, most in SPEED:
            if options.agents in (None, agents) and options.case in (None, case):
                _keep(kept, "speed", speed(case, agents, d, most, options.rounds), "case agents d")
    elif options.part == "memory":
        for processes in map(int, options.processes.split(",")):
            found = memory(
                options.case or "torus", int(options.agents or 2e6), options.d, processes
            )
            _keep(kept, "memory", found, "case agents d processes")
    elif options.part == "wire":
        kept["wire"] = wire()
        print(json.dumps(kept["wire"]))
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if options.write:
        rewrite(PAGE, markdown(kept), mark="shards")
    return 0


def _keep(kept: dict[str, Any], part: str, found: dict[str, Any], keys: str) -> None:
    """Put a measurement in the place of an older one of the same kind."""

    def name(each: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(each[key] for key in keys.split())

    print(json.dumps(found), flush=True)
    others = [each for each in kept.get(part, []) if name(each) != name(found)]
    kept[part] = sorted([*others, found], key=name)


if __name__ == "__main__":
    sys.exit(main())
