"""Tables of the measurements of shards, and the weak-scaling model that follows from them.

An iteration of a host takes

    compute + exchanges · latency + bytes · seconds per byte

with compute per agent, latency and bytes as measured here, or with the bytes of an assumed network.
"""

from __future__ import annotations

import math
from typing import Any

from benchmarks.tables import Table, duration, headline

NETWORK = 1.25e9  # bytes per second: 10 Gb/s Ethernet, assumed
D = 10
AGENTS = 10**6  # of a host
HOSTS = (1, 2, 10, 100, 1000)
DEGREE = 6


def line(wire: list[dict[str, float]]) -> tuple[float, float]:
    """Latency, and seconds per byte between the two largest exchanges."""
    small, large = wire[-2], wire[-1]
    slope = (large["seconds"] - small["seconds"]) / (large["bytes"] - small["bytes"])
    return wire[0]["seconds"], slope


def guests(partition: str, hosts: int) -> tuple[float, int]:
    """Rows that a host sends in an iteration of PDG-DS, and exchanges."""
    if hosts == 1:
        return 0.0, 0
    if partition == "torus in strips":
        side = math.sqrt(AGENTS * hosts)
        return 2 * side, 2 if hosts > 2 else 1
    if partition == "torus in squares":
        return 4 * math.sqrt(AGENTS), 4 if hosts > 2 else 1
    # a random regular graph: other hosts' agents with a neighbour among ours, at worst all
    others = AGENTS * (hosts - 1)
    return others * (1 - (1 - 1 / others) ** (DEGREE * AGENTS * (hosts - 1) / hosts)), hosts - 1


PARTITIONS = ("torus in strips", "torus in squares", "random regular of degree 6")


def iteration(kept: dict[str, Any], partition: str, hosts: int, per_byte: float) -> float:
    case = "regular" if "regular" in partition else "torus"
    one = next(
        s for s in kept["speed"] if s["case"] == case and s["agents"] == AGENTS and s["d"] == D
    )
    latency, _ = line(kept["wire"])
    rows, exchanges = guests(partition, hosts)
    return one["one"] + exchanges * latency + rows * 8 * D * per_byte


def markdown(kept: dict[str, Any]) -> str:
    tables: list[Table] = []
    if "speed" in kept:
        rows = [
            [s["case"], f"{s['agents']:.0e}", str(s["d"]), duration(s["one"]), duration(s["two"]),
             f"{s['ratio']:.2f} ({s['least']:.2f} … {s['largest']:.2f})",
             ("≤ " if s["ratio"] <= s["most"] else "MISSED: ") + str(s["most"]),
             f"{s['apart']:.2f}", str(s["rows"])]
            for s in kept["speed"]
        ]  # fmt: skip
        header = [
            "network", "agents", "d", "one process", "two", "ratio", "target", "apart", "rows sent",
        ]  # fmt: skip
        tables.append(
            Table("Seconds of an iteration, each process on a core of its own", header, rows)
        )
    if "memory" in kept:
        tables.append(_memory(kept["memory"]))
    if "wire" in kept:
        rows = [[f"{w['bytes']:.0f}", duration(w["seconds"])] for w in kept["wire"]]
        tables.append(Table("An exchange between two processes", ["bytes", "time"], rows))
    if {"speed", "wire"} <= kept.keys():
        tables.append(_model(kept))
    return "\n\n".join([headline(kept), *(table.markdown() for table in tables)])


def _memory(kept: list[dict[str, Any]]) -> Table:
    alone = {(m["case"], m["agents"], m["d"]): m["mb"] for m in kept if m["processes"] == 1}
    rows: list[list[str]] = []
    for m in kept:
        one = alone.get((m["case"], m["agents"], m["d"]))
        part = "–" if one is None else f"{m['mb'] / one:.2f}"
        rows.append(
            [m["case"], f"{m['agents']:.0e}", str(m["d"]), str(m["processes"]),
             f"{m['mb']:.0f} MB", part, duration(m["set_up"])]
        )  # fmt: skip
    header = ["network", "agents", "d", "processes", "peak of the largest", "of one", "set-up"]
    return Table("Memory of a process", header, rows)


def _model(kept: dict[str, Any]) -> Table:
    _, loopback = line(kept["wire"])
    rows: list[list[str]] = []
    for partition in PARTITIONS:
        if "regular" in partition and not any(
            s["case"] == "regular" and s["agents"] == AGENTS for s in kept["speed"]
        ):
            continue
        for hosts in HOSTS:
            measured = iteration(kept, partition, hosts, loopback)
            assumed = iteration(kept, partition, hosts, 1 / NETWORK)
            base = iteration(kept, partition, 1, 0.0)
            got = f"{guests(partition, hosts)[0]:.2g}"
            rows.append(
                [partition, str(hosts), f"{AGENTS * hosts:.0e}", got,
                 duration(measured), duration(assumed), f"{base / assumed:.2f}"]
            )  # fmt: skip
    header = [
        "network", "hosts", "agents", "guests of a host",
        "iteration, wire as measured", "at 10 Gb/s", "efficiency",
    ]  # fmt: skip
    return Table(f"Model: {AGENTS:.0e} agents on every host, one core each, d = {D}", header, rows)
