"""One process of a ring: `python -m benchmarks.ring KIND '{"key": value}'`.

    bare     asyncio streams and ssl: in every round one frame to both neighbours, one from both
    agent    hushgrad's agent with a NumPy objective, sending frames of the same size
    command  the same through `hushgrad agent`, to see the memory of all that is deployed

Rounds are timed from `warm` on, when connections are up and buffers have grown. The result is one
JSON document on stdout.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from hushgrad.network.keys.identity import (
    client_context,
    load_certificate,
    load_identity,
    server_context,
)

HEADER = struct.Struct("<32s")  # as long as that of hushgrad's frames
HEAVY = ("jax", "scipy", "sklearn", "matplotlib", "networkx")


class Clock:
    """Wall and processor time of the rounds after `warm`."""

    def __init__(self, warm: int):
        self.warm, self.first, self.last = warm, (0.0, 0.0), (0.0, 0.0)

    def tick(self, k: int) -> None:
        if k == self.warm:
            self.first = time.perf_counter(), time.process_time()

    def stop(self) -> dict[str, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        return {"wall": wall - self.first[0], "cpu": cpu - self.first[1]}


async def bare(settings: dict[str, Any]) -> dict[str, float]:
    """The loop that anyone would write first."""
    place, names = Path(settings["directory"]), settings["names"]
    me, left, right = names[0], names[1], names[2]
    identity = load_identity(place / me / f"{me}.key", place / me / f"{me}.crt")
    trusted = {n: load_certificate(place / n / f"{n}.crt") for n in (left, right)}
    size = 32 + 8 * settings["dim"]
    accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(
        lambda *streams: accepted.set_result(streams),
        sock=socket.socket(fileno=settings["listen_fd"]),
        ssl=server_context(identity, trusted.values()),
        limit=2 * size,
    )
    while True:
        with suppress(ConnectionError):
            context = client_context(identity, trusted[right])
            dialled = await asyncio.open_connection(
                "127.0.0.1", settings["port"], ssl=context, server_hostname=right, limit=2 * size
            )
            break
        await asyncio.sleep(0.05)
    streams = [dialled, await accepted]
    clock, body = Clock(settings["warm"]), bytes(8 * settings["dim"])
    spent: dict[str, float] = {}
    for k in range(settings["rounds"]):
        clock.tick(k)
        if k == settings["rounds"] - 1:
            spent = clock.stop()
        frame = HEADER.pack(b"%d" % k) + body
        for _, writer in streams:
            writer.write(frame)
        for reader, _ in streams:
            got = await reader.readexactly(size)
            assert int(got[:32].rstrip(b"\0")) == k
        for _, writer in streams:
            with suppress(ConnectionError):  # after the last round a neighbour may be gone
                await writer.drain()
    for _, writer in streams:
        writer.close()
    server.close()
    return spent


class Objective:
    """∇ of ½‖θ − p‖², as cheap as there is one; it is asked once in every round, so it has the
    clock.
    """

    def __init__(self, p: Any, clock: Clock, rounds: int):
        self._p, self._clock, self._last, self._k = p, clock, rounds - 1, 0
        self.spent: dict[str, float] = {}

    def __call__(self, theta: Any) -> Any:
        self._clock.tick(self._k)
        if self._k == self._last:
            self.spent = self._clock.stop()
        self._k += 1
        return theta - self._p


async def agent(settings: dict[str, Any]) -> dict[str, float]:
    from hushgrad.network.deployed import Agent
    from hushgrad.network.objective.pytree_file import read_data

    p = read_data(Path(settings["file"]).with_name("data.npz"))["p"]
    objective = Objective(p, Clock(settings["warm"]), settings["rounds"])
    listening = socket.socket(fileno=settings["listen_fd"])
    await Agent(settings["file"], gradient=objective, listening=listening).run()
    return objective.spent


def gradient(theta: Any, data: Any) -> Any:
    """The same for `hushgrad agent`."""
    return theta - data["p"]


def command(settings: dict[str, Any]) -> dict[str, float]:
    from hushgrad.__main__ import main

    sys.argv = ["hushgrad", "agent", settings["file"], "--quiet",
                "--listen-fd", str(settings["listen_fd"]), "--format", "json"]  # fmt: skip
    with suppress(SystemExit):
        main()
    return {}


def main(kind: str, settings: dict[str, Any]) -> None:
    if kind == "command":
        spent = command(settings)
    else:
        spent = asyncio.run({"bare": bare, "agent": agent}[kind](settings))
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    heavy = [name for name in HEAVY if name in sys.modules]
    print(json.dumps(spent | {"peak_mb": int(peak[1]) / 1000 if peak else None, "heavy": heavy}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
