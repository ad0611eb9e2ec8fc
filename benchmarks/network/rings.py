"""Start processes with agents or the bare loop, in a ring or a pair, and time their rounds."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import ROOT
from benchmarks.network.limit import propagation
from benchmarks.network.link import Link, inside, links
from hushgrad.network.config.file import write_config
from hushgrad.network.keys.identity import mint
from hushgrad.theory import WEAKNESSES

PATIENCE = 120  # seconds for one network
KINDS = ("bare", "skeleton", "DGD", "process", "power")  # all but `power` have durability `process`
_LOOPBACK = "127.0.0.1"


class RingError(Exception):
    """A network ended without a result."""


@dataclass(frozen=True)
class Member:
    """A process of the network: its listening socket and the addresses of its neighbours."""

    number: int
    ear: socket.socket
    space: int | None  # the network namespace
    neighbours: dict[int, tuple[str, int]]  # address by number

    @property
    def name(self) -> str:
        return name_of(self.number)


def name_of(number: int) -> str:
    return f"agent-{number}"


def run_ring(
    kind: str, dim: int, rounds: int, *, n_agents: int = 5, is_slow: bool = False
) -> dict[str, Any]:
    """Run processes of one kind for some rounds.

    The slowest process gives the wall times; the processor time is a mean. The processes use
    loopback, or slow links, whose propagation is measured first.
    """
    ends = [(0, 1)] if n_agents == 2 else [(j, (j + 1) % n_agents) for j in range(n_agents)]
    with ExitStack() as held:
        place = Path(held.enter_context(tempfile.TemporaryDirectory()))
        spaces, made, found = [None] * n_agents, None, dict[str, Any]()
        if is_slow:
            spaces, made = held.enter_context(links(n_agents, ends))
            found["propagation"] = propagation((spaces[0], spaces[1]), made[0])
        members = _members(ends, spaces, made, held)
        for member in members:
            mint(place / member.name, member.name)
        settings = [
            _settings(place, member, dim, rounds)
            | {"file": str(_agent_file(place, member, n_agents, dim, rounds, kind))}
            for member in members
        ]
        what = kind if kind in ("bare", "skeleton") else "agent"
        ended = _run_all(what, members, settings)
    return found | {
        "rate": 1 / max(end["wall"] for end in ended),
        "round": max(end["median"] for end in ended),
        "cpu": statistics.fmean(end["cpu"] for end in ended),
        "peak_mb": max(end["peak_mb"] for end in ended),
        "heavy": sorted({name for end in ended for name in end["heavy"]}),
    }


def _members(
    ends: Sequence[tuple[int, int]],
    spaces: Sequence[int | None],
    made: list[Link] | None,
    held: ExitStack,
) -> list[Member]:
    ears: list[socket.socket] = []
    for space in spaces:
        with inside(space):
            ears.append(socket.create_server((_LOOPBACK if space is None else "", 0)))
        held.enter_context(ears[-1])
    members = [Member(j, ears[j], space, {}) for j, space in enumerate(spaces)]
    for number, (a, b) in enumerate(ends):
        at_a, at_b = made[number].addresses if made else (_LOOPBACK, _LOOPBACK)
        members[a].neighbours[b] = at_b, ears[b].getsockname()[1]
        members[b].neighbours[a] = at_a, ears[a].getsockname()[1]
    return members


def _settings(place: Path, member: Member, dim: int, rounds: int) -> dict[str, Any]:
    home = place / member.name
    return {
        "listen_fd": member.ear.fileno(),
        "key": str(home / f"{member.name}.key"),
        "certificate": str(home / f"{member.name}.crt"),
        "dim": dim,
        "rounds": rounds,
        "warm": rounds // 10,
        "neighbours": [
            {
                "name": name_of(i),
                "address": address,
                "certificate": str(place / name_of(i) / f"{name_of(i)}.crt"),
                "is_dialled": i > member.number,
            }
            for i, address in member.neighbours.items()
        ],
    }


def _run_all(
    what: str, members: list[Member], settings: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    running: list[subprocess.Popen[str]] = []
    for member, each in zip(members, settings, strict=True):
        with inside(member.space):
            running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.network.member", what, json.dumps(each)],
                    cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    pass_fds=[member.ear.fileno()],
                    env=os.environ | {"MALLOC_ARENA_MAX": "1"},  # as the files in deploy/ do
                )
            )  # fmt: skip
    until = time.monotonic() + PATIENCE
    try:
        outputs = [process.communicate(timeout=until - time.monotonic()) for process in running]
    except subprocess.TimeoutExpired as error:
        raise RingError(f"a network of {what} did not end in {PATIENCE} s") from error
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.communicate()
    for process, (_, err) in zip(running, outputs, strict=True):
        if process.returncode:
            raise RingError(f"{what} failed: {err.strip()[-2000:]}")
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


def _design(kind: str) -> dict[str, Any]:
    """The parts of the recommended design that cost time in a round.

    A statistic of d × d numbers is too large for the benchmark's largest d, so there are no stages.
    """
    stepsize: dict[str, Any] = {"kind": "constant", "value": 0.02}
    if kind == "DGD":
        return {"stepsize": stepsize}
    stepsize["deviation"] = {"kind": "geometric", "ratio": 0.5, "drawn": "once"}
    return {
        "design": "paper",
        "stepsize": stepsize,
        "split": {"kind": "private_constant", "own": 0.45},
        "masks": {"kind": "zero_sum", "quadratic": 0.0},
    }


def _agent_file(
    place: Path, member: Member, n_agents: int, dim: int, rounds: int, kind: str
) -> Path:
    """Write the files of an agent with the cheap objective; return the path of its agent.toml."""
    home = place / member.name
    np.savez(home / "data.npz", p=np.full(dim, float(member.number)))

    def known(i: int) -> dict[str, Any]:
        name = name_of(i)
        return {"name": name, "number": i, "certificate": f"../{name}/{name}.crt"}

    host, port = member.ear.getsockname()[:2]
    write_config(
        home / "agent.toml",
        {
            "agent": {
                "name": member.name,
                "number": member.number,
                "listen": f"{host}:{port}",
                "durability": "power" if kind == "power" else "process",
                "log_level": "error",  # of a benchmark nobody reads what its settings expose
                "accept_exposure": list(WEAKNESSES),
            },
            "objective": {"function": "benchmarks.network.objective:gradient", "data": "data.npz"},
            "neighbour": [
                known(i) | {"address": f"{address}:{port}"}
                for i, (address, port) in member.neighbours.items()
            ],
            "partner": [known(i) for i in range(n_agents) if i != member.number and kind != "DGD"],
            "run": {"id": "ring", "iterations": rounds, "dim": dim, "n_agents": n_agents},
            "algorithm": {"name": "DGD" if kind == "DGD" else "PDGNDS"} | _design(kind),
        },
    )
    return home / "agent.toml"
