"""`python -m benchmarks`: all measurements, one after the other, each in its own processes."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.simulator import peers, processes, report, scaling
from benchmarks.simulator.workloads import WORKLOADS

ROUNDS = 7  # the fewest rounds of a median
SECONDS, QUICK_SECONDS = 0.1, 0.03  # the time of one runner in a round
_PARTS = ("workloads", "peers", "scaling", "skipped", "import_seconds", "study_seconds")


def main(arguments: list[str] | None = None) -> int:
    """Measure and report.

    Exit codes: 0 done, 1 the engine disagrees with the limit or a peer, 2 bad input.
    """
    options = _parse(arguments)
    if options.isa == "avx2":
        machine.cap_to_avx2()
    try:
        results = _measure(options)
    except processes.WorkerError as error:
        _say(f"error: {error}")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    if results["scaling"]:
        scaling.plot(results["scaling"], options.out / report.PICTURE)
    document = json.dumps(results, indent=1, ensure_ascii=False)
    (options.out / "bench.json").write_text(document + "\n", encoding="utf-8")
    print(document if options.format == "json" else report.text(results))
    _say(f"written: {options.out / 'bench.json'}")
    return 0 if results["ok"] else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--quick", action="store_true", help="one core, no f, no peers; a minute")
    parser.add_argument("--workloads", metavar="LIST", help="of a,b,c,d,e,f; by default all")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"at least {ROUNDS}")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--isa",
        choices=("native", "avx2"),
        default="native",
        help="avx2: XLA and the C limit use nothing wider",
    )
    parser.add_argument(
        "--add", action="store_true", help="to the workloads of this machine in OUT/bench.json"
    )
    parser.add_argument("--out", type=Path, default=machine.ROOT / "out" / "bench")
    parser.add_argument("--two-cores", action=flag, help="two cores against a C limit on two")
    parser.add_argument("--peers", action=flag, help="other libraries on the same DGD")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has them")
    parser.add_argument("--scaling", action="store_true", help="time and memory as sizes grow")
    options = parser.parse_args(arguments)
    if options.rounds < ROUNDS:
        parser.error(f"a median needs at least {ROUNDS} rounds, but --rounds {options.rounds}")
    chosen = [name for name, w in WORKLOADS.items() if w.is_quick or not options.quick]
    if options.workloads is not None:
        chosen = [name.strip() for name in options.workloads.split(",") if name.strip()]
        unknown = sorted(set(chosen) - set(WORKLOADS))
        if unknown:
            parser.error(f"workloads are {', '.join(WORKLOADS)}, but {unknown[0]!r} was given")
    options.workloads = chosen
    for name in ("two_cores", "peers"):
        if getattr(options, name) is None:
            setattr(options, name, not options.quick)
    return options


def _kept(options: argparse.Namespace) -> dict[str, Any]:
    """The earlier results to which these are added."""
    file = options.out / "bench.json"
    if not options.add or not file.exists():
        return {}
    kept = json.loads(file.read_text(encoding="utf-8"))
    here, there = machine.describe(), kept["machine"]
    if any(here[name] != there[name] for name in here if name != "load_before"):
        raise processes.WorkerError(f"{file} is of another machine. Choose another --out.")
    return kept


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    kept = _kept(options)
    results: dict[str, Any] = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "options": {k: v for k, v in vars(options).items() if k not in ("out", "peer_python")},
        "workloads": {},
        "peers": {},
        "scaling": {},
        "skipped": [],
        **{name: kept[name] for name in _PARTS if name in kept},
    }
    seconds = QUICK_SECONDS if options.quick else SECONDS
    repeats = 3 if options.quick else ROUNDS
    if not kept:
        _say("starting times")
        results["import_seconds"] = processes.import_seconds(repeats)
        results["study_seconds"] = processes.study_seconds(1 if options.quick else 3)
    for name in options.workloads:
        results["workloads"][name] = _workload(name, options, seconds, results["skipped"])
    if options.peers:
        _say("peers")
        results["peers"], reasons = peers.compare(options.peer_python)
        results["skipped"] += reasons
    if options.scaling:
        million = results["workloads"].get("f", {}).get("one_core")
        results["scaling"] = scaling.measure(seconds, million, _say)
    results["workloads"] = dict(sorted(results["workloads"].items()))
    results["targets"] = report.targets(results["workloads"])
    results["ok"] = _all_agree(results)
    return results


def _workload(
    name: str, options: argparse.Namespace, seconds: float, skipped: list[str]
) -> dict[str, Any]:
    settings = {"name": name, "rounds": options.rounds, "seconds": seconds}
    _say(f"{name}: {WORKLOADS[name].title}, one core")
    found = {"one_core": processes.worker("workload", on=1, threads=1, **settings)}
    skipped += found["one_core"]["skipped"]
    if options.two_cores and len(machine.cores()) < 2:
        skipped.append(f"{name} on two cores: this machine gives us one")
    elif options.two_cores:
        _say(f"{name}: two cores")
        found["two_cores"] = processes.worker("workload", on=2, threads=2, **settings)
    return found


def _all_agree(results: dict[str, Any]) -> bool:
    checks = [
        check["ok"]
        for cores in results["workloads"].values()
        for result in cores.values()
        for check in result["agreement"].values()
    ]
    return all(checks) and all(r["agrees"] for rows in results["peers"].values() for r in rows)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
