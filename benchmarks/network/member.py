"""One process of a network: `python -m benchmarks.network.member KIND '{"key": value}'`.

    bare     asyncio streams and ssl: in every round one frame to and one from every neighbour
    agent    `hushgrad agent` with a very cheap objective, which sends frames of the same size
    skeleton an agent without its work (skeleton.py)

rings.py starts the process. The clock starts at round `warm`, when the process has connected and
its buffers have grown. The last line of stdout is the result, one JSON document.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.network import objective

HEADER = struct.Struct("<32s")  # as long as the header of hushgrad's frames
HEAVY = ("jax", "scipy", "sklearn", "matplotlib", "networkx")


async def bare(settings: dict[str, Any]) -> None:
    """The simplest loop that sends and receives every frame."""
    size = 32 + 8 * settings["dim"]
    accepted: asyncio.Queue[Any] = asyncio.Queue()

    async def accept(*streams: Any) -> None:
        await accepted.put(streams)

    server = await asyncio.start_server(
        accept,
        sock=socket.socket(fileno=settings["listen_fd"]),
        ssl=_context(ssl.PROTOCOL_TLS_SERVER, settings),
        limit=2 * size,
    )
    neighbours = settings["neighbours"]
    streams = [
        await _dial(there, settings, limit=2 * size) for there in neighbours if there["is_dialled"]
    ]
    while len(streams) < len(neighbours):
        streams.append(await accepted.get())
    body = bytes(8 * settings["dim"])
    for k in range(settings["rounds"]):
        objective.CLOCK.tick()
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


async def _dial(there: dict[str, Any], settings: dict[str, Any], *, limit: int) -> Any:
    host, port = there["address"]
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    while True:
        with suppress(ConnectionError):
            return await asyncio.open_connection(
                host, port, ssl=context, server_hostname=there["name"], limit=limit
            )
        await asyncio.sleep(0.05)


def _context(protocol: int, settings: dict[str, Any]) -> ssl.SSLContext:
    """TLS 1.3 with the certificates of the agents. Both sides verify each other."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(settings["certificate"], settings["key"])
    for there in settings["neighbours"]:
        context.load_verify_locations(there["certificate"])
    return context


def agent(settings: dict[str, Any]) -> None:
    from hushgrad.__main__ import main

    sys.argv = ["hushgrad", "agent", settings["file"], "--quiet",
                "--listen-fd", str(settings["listen_fd"]), "--format", "json"]  # fmt: skip
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


def main(kind: str, settings: dict[str, Any]) -> None:
    objective.CLOCK = objective.Clock(settings["warm"])
    if kind == "bare":
        asyncio.run(bare(settings))
    else:
        if kind == "skeleton":
            from benchmarks.network.skeleton import strip

            strip()
        agent(settings)
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    heavy = [name for name in HEAVY if name in sys.modules]
    memory = int(peak[1]) / 1000 if peak else None
    print(json.dumps(objective.CLOCK.spent() | {"peak_mb": memory, "heavy": heavy}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
