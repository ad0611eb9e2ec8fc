"""Medians, targets and tables from the results of `python -m benchmarks.network`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from benchmarks.network.limit import round_seconds
from benchmarks.network.link import DELAY
from benchmarks.tables import Table, duration, headline

NAMES = {"bare": "bare loop", "skeleton": "agent without its work", "DGD": "DGD, process",
         "process": "PDG-NDS, process", "power": "PDG-NDS, power"}  # fmt: skip
LEAST_RATE = {(2, "process"): 0.5, (2, "power"): 0.25,
              (100_000, "process"): 0.6, (100_000, "power"): 0.5}  # fmt: skip
MOST_CPU = {(2, "process"): 2.0, (100_000, "process"): 1.65}
MOST_MB = 80.0
MOST_OF_LIMIT = 1.05
LINKS = {"pair": "Two agents on a slow link", "ring": "Five agents in a ring of slow links"}
_BUSY = 0.04  # part of DELAY: a later link counts as busy; an idle link is half as late


def summarise(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """By kind: the medians of rates and times, and of the ratios to the bare loop of a turn."""
    found: dict[str, Any] = {}
    for kind in turns[0]:
        rows = [turn[kind] for turn in turns]
        found[kind] = {
            key: statistics.median(row[key] for row in rows)
            for key in ("rate", "round", "cpu", "propagation")
            if key in rows[0]
        }
        found[kind] |= {
            "peak_mb": max(row["peak_mb"] for row in rows),
            "heavy": sorted({name for row in rows for name in row["heavy"]}),
        }
        for key in ("rate", "cpu"):
            found[kind][f"{key}_ratio"] = _ratio(
                turn[kind][key] / turn["bare"][key] for turn in turns
            )
    return found


def summarise_link(dim: int, turns: list[dict[str, Any]]) -> dict[str, Any]:
    """`summarise`, and the ratio of a round to the physical limit in the same turn."""
    found = summarise(turns)
    for kind in found:
        rows = [turn[kind] for turn in turns]
        found[kind]["limit"] = round_seconds(dim, found[kind]["propagation"])
        found[kind]["limit_ratio"] = _ratio(
            row["round"] / round_seconds(dim, row["propagation"]) for row in rows
        )
        found[kind]["nominal_ratio"] = _ratio(
            row["round"] / round_seconds(dim, DELAY) for row in rows
        )
    return found


def _ratio(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median": statistics.median(ordered), "least": ordered[0], "most": ordered[-1]}


def targets(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Every target with the measured value."""
    found: list[dict[str, Any]] = []
    for dim, result in results["loopback"].items():
        for (of, kind), least in LEAST_RATE.items():
            if of == int(dim):
                value = result[kind]["rate_ratio"]["median"]
                found.append(_judged(dim, f"{kind}: rounds/s to bare", value, "≥", least))
        for (of, kind), most in MOST_CPU.items():
            if of == int(dim):
                value = result[kind]["cpu_ratio"]["median"]
                found.append(_judged(dim, f"{kind}: CPU per round to bare", value, "≤", most))
        peak = max(row["peak_mb"] for kind, row in result.items() if kind != "skeleton")
        found.append(_judged(dim, "memory of an agent, MB", peak, "<", MOST_MB))
        heavy = sum(len(row["heavy"]) for row in result.values())
        found.append(_judged(dim, "heavy libraries imported", heavy, "=", 0))
    # the ring has no target: its five agents share the cores of one machine
    for dim, result in results["link"].get("pair", {}).items():
        value = result["process"]["limit_ratio"]["median"]
        found.append(_judged(dim, "process: a round to its limit", value, "≤", MOST_OF_LIMIT))
    return found


def _judged(dim: str, what: str, value: float, sign: str, limit: float) -> dict[str, Any]:
    ok = {"≥": value >= limit, "≤": value <= limit, "<": value < limit, "=": value == limit}[sign]
    return {"dim": int(dim), "what": what, "value": value, "limit": limit, "ok": ok, "sign": sign}


def notes(results: dict[str, Any]) -> list[str]:
    """Remarks that a reader of the tables needs."""
    found = [f"skipped {reason}" for reason in results["skipped"]]
    for place, dims in results["link"].items():
        for dim, kinds in dims.items():
            late = max(row["propagation"] for row in kinds.values()) / DELAY - 1
            if late > _BUSY:
                found.append(
                    f"busy: the link of the {place} was {late:.0%} late at d = {dim}; measure "
                    "again on a quiet machine."
                )
    return found


def text(results: dict[str, Any]) -> str:
    return "\n\n".join([*(table.text() for table in tables(results)), *notes(results)])


def markdown(results: dict[str, Any]) -> str:
    shown = [table.markdown() for table in tables(results)]
    return "\n\n".join([headline(results), *shown, *notes(results)])


def tables(results: dict[str, Any]) -> list[Table]:
    found: list[Table] = []
    if results["loopback"]:
        found.append(_loopback(results))
    found += [_link(results, place) for place in LINKS if place in results["link"]]
    judged = [
        [
            _dim(t["dim"]),
            t["what"],
            f"{t['value']:.3g} {t['sign'] if t['ok'] else 'MISSED: ' + t['sign']} {t['limit']:g}",
        ]
        for t in results["targets"]
    ]
    return [*found, Table("Targets", ["", "", ""], judged)] if judged else found


def _loopback(results: dict[str, Any]) -> Table:
    rows = [
        [
            _dim(dim),
            NAMES[kind],
            f"{row['rate']:.0f}",
            duration(row["cpu"]),
            _spread(row["rate_ratio"]),
            _spread(row["cpu_ratio"]),
            f"{row['peak_mb']:.0f} MB",
        ]
        for dim, kinds in results["loopback"].items()
        for kind, row in kinds.items()
    ]
    header = ["", "", "rounds/s", "CPU per round", "rounds/s to bare", "CPU to bare", "peak memory"]
    title = f"A ring of 5 processes on loopback, medians of {results['turns']} turns"
    return Table(title, header, rows)


def _link(results: dict[str, Any], place: str) -> Table:
    rows = [
        [
            _dim(dim),
            NAMES[kind],
            f"{1e3 * row['round']:.2f} ms",
            f"{1e3 * row['limit']:.2f} ms",
            _spread(row["limit_ratio"], digits=3),
            f"{row['nominal_ratio']['median']:.3f}",
            duration(row["cpu"]),
        ]
        for dim, kinds in results["link"][place].items()
        for kind, row in kinds.items()
    ]
    header = ["", "", "round", "limit", "round to limit", "to nominal limit", "CPU per round"]
    title = f"{LINKS[place]}, 10 ms and 100 Mbit/s, medians of {results['turns']} turns"
    return Table(title, header, rows)


def _dim(dim: str | int) -> str:
    return f"d = {int(dim):_}".replace("_", " ")


def _spread(ratio: dict[str, float], *, digits: int = 2) -> str:
    median, least, most = (f"{ratio[key]:.{digits}f}" for key in ("median", "least", "most"))
    return f"{median} ({least} … {most})"
