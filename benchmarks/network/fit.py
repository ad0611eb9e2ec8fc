"""`python -m benchmarks.network.fit`: how long three linked sites fit across a distance.

Three processes `hushgrad fit` with TLS, secret masks and journals fit a logistic regression of
twelve columns, with standard errors. A proxy of this process carries every link and delays each
byte by half a round trip, in both directions. The rows are drawn; the table is compared with the
fit of all rows in one place.

Small sites would tell too much of single rows in twelve columns, and accept the weakness `sums`.
Large sites accept nothing: they judge their rows before the start and before every average.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hushgrad as hg
from benchmarks.machine import ROOT
from hushgrad.network import mint
from hushgrad.schema.toml import to_toml

NAMES = ["north", "middle", "south"]
SMALL, LARGE = (700, 1600, 2400), (30_000, 40_000, 50_000)
COLUMNS = [f"x{n}" for n in range(12)]
_MOST = 120.0  # seconds
MODEL: dict[str, Any] = {"kind": "logistic", "outcome": "y", "columns": COLUMNS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report. Exit codes: 0 done, 1 a fit failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network.fit", description=__doc__)
    parser.add_argument("--round-trip", type=float, default=50.0, help="milliseconds; default 50")
    options = parser.parse_args(arguments)
    for rows in (SMALL, LARGE):
        with tempfile.TemporaryDirectory() as directory:
            if code := asyncio.run(_measure(Path(directory), rows, options.round_trip / 1000)):
                return code
    return 0


async def _measure(home: Path, rows: tuple[int, ...], round_trip: float) -> int:
    sites = _write_rows(home, rows)
    judged = {"honest_rows": sum(rows[:2])} if rows is LARGE else {}
    ports = {name: _free_port() for name in NAMES}
    proxies: list[asyncio.Server] = []
    for name in NAMES:
        others = [other for other in NAMES if NAMES.index(other) < NAMES.index(name)]
        through: dict[str, int] = {}
        for other in others:
            proxy = await asyncio.start_server(_carrier(ports[other], round_trip / 2), "127.0.0.1")
            through[other] = proxy.sockets[0].getsockname()[1]
            proxies.append(proxy)
        _write_agent(home, name, ports[name], through, judged)
    started = time.perf_counter()
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "hushgrad",
            "fit",
            str(home / f"{name}.toml"),
            "--quiet",
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # three agents share this machine
        )
        for name in NAMES
    ]
    try:
        async with asyncio.timeout(_MOST):
            said = await asyncio.gather(*(process.communicate() for process in processes))
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
    whole = time.perf_counter() - started
    for proxy in proxies:
        proxy.close()
    if any(process.returncode for process in processes):
        print(said[0][0].decode())
        return 1
    result = json.loads((home / "state-north" / "result.json").read_text())
    plain = hg.fit(hg.Model(**MODEL), sites)
    off = float(np.abs(np.array(result["fit"]["estimate"]) / plain.estimate - 1).max())
    print(
        f"logistic, {len(COLUMNS)} columns, {sum(rows)} rows, three linked sites, round "
        f"trips of {1000 * round_trip:g} ms: {result['fit']['n_averages']} averages, "
        f"{result['rounds']} rounds, {result['seconds']:.2f} s from the first connection to the "
        f"table, {whole:.2f} s with the start of all processes; {off:.0e} from the pooled fit"
    )
    return 0


def _write_rows(home: Path, rows: tuple[int, ...]) -> dict[str, dict[str, NDArray[np.float64]]]:
    rng = np.random.default_rng(3)
    b = rng.standard_normal(len(COLUMNS)) / 4
    sites: dict[str, dict[str, NDArray[np.float64]]] = {}
    for name, n in zip(NAMES, rows, strict=True):
        X = rng.standard_normal((n, len(COLUMNS)))
        y = (rng.uniform(size=n) < 1 / (1 + np.exp(-X @ b))).astype(float)
        sites[name] = {"y": y} | dict(zip(COLUMNS, X.T, strict=True))
        with (home / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(sites[name])
            table.writerows(map(repr, row) for row in np.column_stack([y, X]).tolist())
    return sites


def _write_agent(
    home: Path, name: str, port: int, through: dict[str, int], judged: dict[str, int]
) -> None:
    mint(home, name)
    number = NAMES.index(name)
    others = [
        {"name": o, "number": NAMES.index(o), "certificate": f"{o}.crt"} for o in NAMES if o != name
    ]
    links = [
        o | ({"address": f"127.0.0.1:{through[str(o['name'])]}"} if o["name"] in through else {})
        for o in others
    ]
    (home / "model.toml").write_text(to_toml({"model": MODEL}))
    tables = {
        "agent": {
            "name": name, "number": number, "listen": f"127.0.0.1:{port}",
            "state": f"state-{name}", "result": f"state-{name}/result",
            "accept_exposure": [] if judged else ["sums"],
        },
        "run": {"id": "far", "n_agents": len(NAMES), **judged},
        "fit": {"model": "model.toml", "file": f"{name}.csv"},
        "neighbour": links,
        "partner": others,
    }  # fmt: skip
    (home / f"{name}.toml").write_text(to_toml(tables))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return made.getsockname()[1]


def _carrier(
    port: int, delay: float
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Carries a connection to a port, every byte `delay` seconds late."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:  # the agent does not listen yet: the other one dials again
            writer.transport.abort()
            return
        await asyncio.gather(_pipe(reader, far_writer, delay), _pipe(far_reader, writer, delay))

    return carry


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await reader.read(65_536):
            loop.call_later(delay, writer.write, data)
    loop.call_later(delay, writer.close)


if __name__ == "__main__":
    sys.exit(main())
