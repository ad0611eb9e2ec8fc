"""`python -m benchmarks.network`: agents as processes on loopback and on slow links.

loopback: five processes in a ring with mutual TLS send one frame per link, direction and round. The
benchmark compares agents with a bare asyncio + ssl loop. The loop sends frames of the same size,
but computes nothing and keeps nothing on disk. The ratio is the cost of the algorithm, the journal
and the protocol.

pair, ring: two or five agents use links of 10 ms round trip and 100 Mbit/s. The benchmark compares
a round with its physical limit (limit.py).

The kinds run by turns, and a ratio compares two runs of the same turn.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.network import report
from benchmarks.network.link import NoLinkError
from benchmarks.network.rings import KINDS, RingError, run_ring
from benchmarks.tables import rewrite

DOCS = machine.ROOT / "docs"
TURNS = 5  # the fewest turns of a published median
QUICK = 5  # times fewer rounds
LINK_KINDS = ("bare", "process", "power")
# by part: number of agents, rounds by dimension (some seconds each)
PARTS = {
    "loopback": (5, {2: 3000, 100_000: 120}),
    "pair": (2, {2: 500, 10_000: 250, 100_000: 60}),
    "ring": (5, {2: 500}),
}


def main(arguments: list[str] | None = None) -> int:
    """Measure and report. Exit codes: 0 done, 1 a network failed, 2 bad input."""
    options = _parse(arguments)
    try:
        results = _measure(options)
    except RingError as error:
        _say(f"error: {error}")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    document = json.dumps(results, indent=1, ensure_ascii=False)
    (options.out / "network.json").write_text(document + "\n", encoding="utf-8")
    print(document if options.format == "json" else report.text(results))
    _say(f"written: {options.out / 'network.json'}")
    if options.write:
        rewrite(DOCS / "performance.md", report.markdown(results), mark="network")
        (DOCS / "network.json").write_text(document + "\n", encoding="utf-8")
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} times fewer rounds")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"by default {TURNS}")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some parts")
    parser.add_argument("--dims", type=_dims, help="some dimensions, as 2,100000")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--out", type=Path, default=machine.ROOT / "out" / "bench")
    parser.add_argument("--write", action="store_true", help="also into docs/performance.md")
    options = parser.parse_args(arguments)
    if options.turns < 1:
        parser.error(f"a measurement takes at least one turn, but --turns {options.turns}")
    known = sorted({dim for part in options.only for dim in PARTS[part][1]})
    unknown = sorted(set(options.dims or known) - set(known))
    if unknown:
        parser.error(f"dimensions are {', '.join(map(str, known))}, but {unknown[0]} was given")
    is_whole = options.turns >= TURNS and set(options.only) == set(PARTS)
    if options.write and (not is_whole or options.dims or options.quick):
        parser.error(f"--write needs a whole measurement: every part, at least {TURNS} turns")
    options.dims = options.dims or known
    return options


def _dims(text: str) -> list[int]:
    return [int(dim) for dim in text.split(",")]


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "turns": options.turns,
        "loopback": {},
        "link": {},
        "skipped": [],
    }
    for part in options.only:
        try:
            found = _part(part, options)
        except NoLinkError as error:
            results["skipped"].append(f"{part}: {error}")
        else:
            results.update({part: found} if part == "loopback" else {})
            results["link"].update({} if part == "loopback" else {part: found})
    results["targets"] = report.targets(results)
    return results


def _part(part: str, options: argparse.Namespace) -> dict[str, Any]:
    n_agents, all_rounds = PARTS[part]
    is_slow = part != "loopback"
    found: dict[str, Any] = {}
    for dim in [dim for dim in all_rounds if dim in options.dims]:
        rounds = all_rounds[dim] // (QUICK if options.quick else 1)
        turns: list[dict[str, Any]] = []
        for turn in range(options.turns):
            _say(f"{part}, d = {dim}, turn {turn + 1} of {options.turns}")
            kinds = LINK_KINDS if is_slow else KINDS
            measured = {
                kind: run_ring(kind, dim, rounds, n_agents=n_agents, is_slow=is_slow)
                for kind in (kinds if turn % 2 == 0 else kinds[::-1])
            }
            turns.append({kind: measured[kind] for kind in kinds})
        found[str(dim)] = report.summarise_link(dim, turns) if is_slow else report.summarise(turns)
    return found


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
