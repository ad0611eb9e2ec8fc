"""`python -m benchmarks.network`: agents on a ring of processes against a bare asyncio + ssl loop.

Five processes on loopback, mutual TLS, one frame per link and round in both directions, of the same
size. The bare loop computes nothing, keeps nothing and forgets everything when it is killed; the
ratio is what the algorithm, the journal and the protocol cost. Kinds take turns, and ratios are
taken within a turn.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine, processes, report
from benchmarks.report import Table, duration
from hushgrad.network.config.file import write_config
from hushgrad.network.keys.identity import mint
from hushgrad.network.objective.pytree_file import write_data

DOCS = processes.ROOT / "docs"
M = 5
TURNS = 5  # the fewest that a median is taken of
PATIENCE = 120  # seconds for one ring
KINDS = ("bare", "DGD", "process", "power")  # DGD: with process durability
ROUNDS = {2: 3000, 100_000: 120}  # by dimension: some seconds each
QUICK_ROUNDS = {2: 600, 100_000: 30}
_NAMES = {"bare": "bare loop", "DGD": "DGD, process", "process": "PDG-NDS, process",
          "power": "PDG-NDS, power"}  # fmt: skip
LEAST_RATE = {(2, "process"): 0.5, (2, "power"): 0.25,
              (100_000, "process"): 0.65, (100_000, "power"): 0.6}  # fmt: skip
MOST_CPU = {(2, "process"): 2.0, (100_000, "process"): 1.5}
MOST_MB = 80.0


def main(arguments: list[str] | None = None) -> int:
    """0 measured, 1 a ring failed, 2 bad input."""
    options = _parse(arguments)
    try:
        results = _measure(options)
    except processes.WorkerError as error:
        _say(f"error: {error}")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    document = json.dumps(results, indent=1, ensure_ascii=False)
    (options.out / "network.json").write_text(document + "\n", encoding="utf-8")
    print(document if options.format == "json" else text(results))
    _say(f"written: {options.out / 'network.json'}")
    if options.write:
        report.rewrite(DOCS / "performance.md", markdown(results), mark="network")
        (DOCS / "network.json").write_text(document + "\n", encoding="utf-8")
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds; half a minute")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"at least {TURNS}")
    parser.add_argument("--dims", default="2,100000", help="by default 2,100000")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--out", type=Path, default=processes.ROOT / "out" / "bench")
    parser.add_argument("--write", action="store_true", help="also into docs/performance.md")
    options = parser.parse_args(arguments)
    if options.turns < TURNS:
        parser.error(f"a median needs at least {TURNS} turns, but --turns {options.turns}")
    options.dims = [int(d) for d in options.dims.split(",")]
    unknown = sorted(set(options.dims) - set(ROUNDS))
    if unknown:
        parser.error(f"dimensions are {', '.join(map(str, ROUNDS))}, but {unknown[0]} was given")
    return options


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "turns": options.turns,
        "dims": {},
    }
    for dim in options.dims:
        rounds = (QUICK_ROUNDS if options.quick else ROUNDS)[dim]
        turns: list[dict[str, Any]] = []
        for turn in range(options.turns):
            _say(f"d = {dim}, turn {turn + 1} of {options.turns}")
            order = KINDS if turn % 2 == 0 else KINDS[::-1]
            turns.append({kind: run_ring(kind, dim, rounds) for kind in order})
        results["dims"][str(dim)] = summarise(turns) | {
            "rounds": rounds,
            "command_mb": run_ring("command", dim, max(50, rounds // 10))["peak_mb"],
        }
    results["targets"] = targets(results["dims"])
    return results


def run_ring(kind: str, dim: int, rounds: int) -> dict[str, Any]:
    """Five processes of one kind for some rounds; the slowest counts, processor time adds up."""
    warm = rounds // 10
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(M)]
    ports = [ear.getsockname()[1] for ear in sockets]
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        for j in range(M):
            mint(directory / _name(j), _name(j))
        settings = [
            {
                "directory": place,
                "names": [_name(j), _name(j - 1), _name(j + 1)],
                "port": ports[(j + 1) % M],
                "listen_fd": sockets[j].fileno(),
                "dim": dim,
                "rounds": rounds,
                "warm": warm,
                "file": str(_agent_file(directory, j, ports, dim, rounds, kind)),
            }
            for j in range(M)
        ]
        what = kind if kind in ("bare", "command") else "agent"
        ends = _run_all(what, settings)
    for ear in sockets:
        ear.close()
    measured = rounds - 1 - warm  # from the start of round `warm` to that of the last
    return {
        "peak_mb": max(end["peak_mb"] for end in ends),
        "heavy": sorted({name for end in ends for name in end["heavy"]}),
    } | (
        {}
        if kind == "command"
        else {
            "rate": measured / max(end["wall"] for end in ends),
            "cpu": sum(end["cpu"] for end in ends) / M / measured,
        }
    )


def _run_all(what: str, settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ring", what, json.dumps(each)],
            cwd=processes.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            pass_fds=[each["listen_fd"]],
        )
        for each in settings
    ]  # fmt: skip
    try:
        outputs = [process.communicate(timeout=PATIENCE) for process in running]
    except subprocess.TimeoutExpired as error:
        raise processes.WorkerError(f"a ring of {what} did not end in {PATIENCE} s") from error
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.communicate()
    for process, (_, err) in zip(running, outputs, strict=True):
        if process.returncode:
            raise processes.WorkerError(f"{what} failed: {err.strip()[-2000:]}")
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


def _name(j: int) -> str:
    return f"agent-{j % M}"


def _agent_file(
    directory: Path, j: int, ports: list[int], dim: int, rounds: int, kind: str
) -> Path:
    """What a deployed agent has, its objective as cheap as there is one."""
    path = directory / _name(j) / "agent.toml"
    write_data(path.with_name("data.npz"), {"p": np.full(dim, float(j))})
    write_config(
        path,
        {
            "agent": {
                "name": _name(j),
                "number": j,
                "listen": f"127.0.0.1:{ports[j]}",
                "durability": "power" if kind == "power" else "process",
                "log_level": "warning",
            },
            "objective": {"function": "benchmarks.ring:gradient", "data": "data.npz"},
            "neighbour": [
                {
                    "name": _name(i),
                    "number": i % M,
                    "address": f"127.0.0.1:{ports[i % M]}",
                    "certificate": f"../{_name(i)}/{_name(i)}.crt",
                }
                for i in (j - 1, j + 1)
            ],
            "partner": [
                {
                    "name": _name(i),
                    "number": i,
                    "certificate": f"../{_name(i)}/{_name(i)}.crt",
                }
                for i in range(M)
                if i != j and kind != "DGD"
            ],
            "run": {"id": "ring", "iterations": rounds, "dim": dim, "n_agents": M},
            "algorithm": {
                "name": "DGD" if kind == "DGD" else "PDGNDS",
                "stepsize": {"kind": "constant", "value": 0.02},
            },
        },
    )
    return path


# ---- results


def summarise(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the rates, and of the ratios within turns."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        rows = [turn[kind] for turn in turns]
        found[kind] = {key: statistics.median(row[key] for row in rows) for key in ("rate", "cpu")}
        found[kind] |= {
            "peak_mb": max(row["peak_mb"] for row in rows),
            "heavy": sorted({name for row in rows for name in row["heavy"]}),
        }
        for key in ("rate", "cpu"):
            ratios = sorted(turn[kind][key] / turn["bare"][key] for turn in turns)
            found[kind][f"{key}_ratio"] = {
                "median": statistics.median(ratios), "least": ratios[0], "most": ratios[-1],
            }  # fmt: skip
    return found


def targets(dims: dict[str, Any]) -> list[dict[str, Any]]:
    """Every target with what was measured."""
    found: list[dict[str, Any]] = []
    for dim, result in dims.items():
        for (of, kind), least in LEAST_RATE.items():
            if of == int(dim):
                value = result[kind]["rate_ratio"]["median"]
                found.append(_judged(dim, f"{kind}: rounds/s", value, least, value >= least, "≥"))
        for (of, kind), most in MOST_CPU.items():
            if of == int(dim):
                value = result[kind]["cpu_ratio"]["median"]
                found.append(
                    _judged(dim, f"{kind}: CPU per round", value, most, value <= most, "≤")
                )
        peak = max(result["command_mb"], *(result[kind]["peak_mb"] for kind in KINDS[1:]))
        found.append(_judged(dim, "memory of an agent, MB", peak, MOST_MB, peak < MOST_MB, "<"))
        heavy = sum(len(result[kind]["heavy"]) for kind in KINDS)
        found.append(_judged(dim, "heavy libraries imported", heavy, 0, not heavy, "="))
    return found


def _judged(dim: str, what: str, value: float, limit: float, ok: bool, sign: str) -> dict[str, Any]:
    return {"dim": int(dim), "what": what, "value": value, "limit": limit, "ok": ok, "sign": sign}


def text(results: dict[str, Any]) -> str:
    return "\n\n".join(table.text() for table in tables(results))


def markdown(results: dict[str, Any]) -> str:
    return "\n\n".join([report.headline(results), *(t.markdown() for t in tables(results))])


def tables(results: dict[str, Any]) -> list[Table]:
    rows = [
        [
            f"d = {int(dim):_}".replace("_", " "),
            _NAMES[kind],
            f"{found[kind]['rate']:.0f}",
            duration(found[kind]["cpu"]),
            _spread(found[kind]["rate_ratio"]),
            _spread(found[kind]["cpu_ratio"]),
            f"{found[kind]['peak_mb']:.0f} MB",
        ]
        for dim, found in results["dims"].items()
        for kind in KINDS
    ]
    header = ["", "", "rounds/s", "CPU per round", "rounds/s to bare", "CPU to bare", "peak memory"]
    judged = [
        [
            f"d = {t['dim']:_}".replace("_", " "),
            t["what"],
            f"{t['value']:.2f} {t['sign'] if t['ok'] else 'MISSED: ' + t['sign']} {t['limit']:g}",
        ]
        for t in results["targets"]
    ]
    return [
        Table(
            f"A ring of {M} processes on loopback, medians of {results['turns']} turns",
            header,
            rows,
        ),
        Table("Targets", ["", "", ""], judged),
    ]


def _spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['least']:.2f} … {ratio['most']:.2f})"


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
