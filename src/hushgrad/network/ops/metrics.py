"""An HTTP server for monitoring systems, on loopback unless the agent's file allows more.

`hushgrad agent` (command.py) starts it if [agent] has the key `metrics`.

/metrics  Prometheus' text format
/healthz  200 if the agent's event loop answers, otherwise 503
/readyz   200 if all neighbours are connected, otherwise 503; a JSON document in both cases

The server reads the agent's `Stats` at each request. No number there derives from its gradients.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from hushgrad.errors import ConfigError
from hushgrad.network.config.model import Address
from hushgrad.network.ops.counters import Stats, Total

LOOP_TIMEOUT = 2.0  # seconds for the event loop to answer; then the agent is not healthy
CLIENT_TIMEOUT = 5.0  # seconds for a client to send its request
CLOSING = 0.1  # seconds that `close` waits at most


class StatsCollector(Collector):
    """An agent's counters as Prometheus' metrics; docs/agents.md lists them."""

    def __init__(self, stats: Stats, about: Mapping[str, str]):
        self._stats, self._about = stats, dict(about)

    def collect(self) -> Iterator[Metric]:
        s = self._stats
        yield InfoMetricFamily("hushgrad_agent", "Who this is.", self._about)
        yield GaugeMetricFamily("hushgrad_iteration", "Iterations completed.", s.iteration)
        yield GaugeMetricFamily("hushgrad_round", "The last round committed.", s.round)
        yield GaugeMetricFamily("hushgrad_stage", "The present stage, from 1 on.", s.stage)
        yield GaugeMetricFamily("hushgrad_stages", "Stages of the run; 0: none.", s.stages)
        yield _counter("rounds", "Rounds completed by this process.", {(): s.rounds})
        yield _counter("duplicates", "Messages dropped that had come before.", {(): s.duplicates})
        yield _counter("resent", "Messages sent again after a reconnection.", {(): s.resent})
        yield _counter("messages_sent", "Messages sent.", _by(s.sent), "peer")
        yield _counter("messages_received", "Messages received.", _by(s.received), "peer")
        yield _counter("rejected", "Connections refused.", _by(s.rejected), "reason")
        yield _counter("jumps", "Messages that moved too far.", _by(s.jumps), "peer")
        lost = s.reconnects.copy()
        yield _counter("reconnects", "Connections lost.", lost, "peer", "reason")
        connected = GaugeMetricFamily(
            "hushgrad_peer_connected", "Whether the link is up.", labels=["peer"]
        )
        for peer, is_up in s.connected.copy().items():
            connected.add_metric([peer], float(is_up))
        yield connected
        rounds, commits = {(): s.round_seconds}, {(): s.commit_seconds}
        yield _summary("round_duration_seconds", "From one round to the next.", rounds)
        yield _summary("journal_commit_seconds", "Making a round durable.", commits)
        yield _summary("peer_wait_seconds", "Waiting for a peer.", _by(s.wait_seconds), "peer")


def _by[T](table: dict[str, T]) -> dict[tuple[str, ...], T]:
    """A copy, because the agent may add a key while the server reads."""
    return {(label,): value for label, value in table.copy().items()}


def _counter(
    name: str, text: str, values: Mapping[tuple[str, ...], int], *labels: str
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"hushgrad_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _summary(
    name: str, text: str, totals: Mapping[tuple[str, ...], Total], *labels: str
) -> SummaryMetricFamily:
    family = SummaryMetricFamily(f"hushgrad_{name}", text, labels=labels)
    for key, total in totals.items():
        family.add_metric(key, total.count, total.sum)
    return family


def report(stats: Stats, about: Mapping[str, str]) -> dict[str, Any]:
    """The position and the connections of an agent, for /readyz and `hushgrad status`."""
    connected = stats.connected.copy()
    return {
        **about,
        "ready": bool(connected) and all(connected.values()),
        "iteration": stats.iteration,
        "round": stats.round,
        "stage": stats.stage,
        "stages": stats.stages,
        "part": stats.part,
        "connected": sorted(peer for peer, is_up in connected.items() if is_up),
        "disconnected": sorted(peer for peer, is_up in connected.items() if not is_up),
        "waiting_for": list(stats.waiting_for),
        "jumps": stats.jumps.copy(),
    }


class MetricsServer:
    """A server in a thread of its own, from construction to `close`.

    `loop` is the agent's event loop: /healthz asks whether it still answers.
    """

    def __init__(
        self,
        stats: Stats,
        address: Address,
        about: Mapping[str, str],
        loop: asyncio.AbstractEventLoop | None = None,
    ):
        registry = CollectorRegistry()
        registry.register(StatsCollector(stats, about))
        ProcessCollector(registry=registry)
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            self._server = _server_of(family)(address, _handler_of(registry, stats, about, loop))
        except OSError as error:
            host, port = address
            raise ConfigError(
                f"metrics cannot be served at {host}:{port}: {error.strerror}. Is this agent "
                "running already? If not, choose another address in [agent] metrics."
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(CLOSING,),
            name="hushgrad-metrics",
            daemon=True,
        )
        self._thread.start()

    @property
    def address(self) -> Address:
        """The address where the server listens, with the real port if 0 was asked for."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _server_of(family: int) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True

    return Server


def _handler_of(
    registry: CollectorRegistry,
    stats: Stats,
    about: Mapping[str, str],
    loop: asyncio.AbstractEventLoop | None,
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "hushgrad", ""
        timeout = CLIENT_TIMEOUT

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    encode, kind = choose_encoder(self.headers.get("Accept", ""))
                    self._answer(200, encode(registry), kind)
                case "/healthz":
                    is_well = _answers(loop)
                    self._answer_json(200 if is_well else 503, {"healthy": is_well})
                case "/readyz":
                    where = report(stats, about)
                    self._answer_json(200 if where["ready"] else 503, where)
                case _:
                    self._answer_json(404, {"paths": ["/metrics", "/healthz", "/readyz"]})

        def _answer_json(self, code: int, document: dict[str, Any]) -> None:
            self._answer(code, json.dumps(document).encode(), "application/json")

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's word
            del format, args  # requests are not worth a line in the log

    return Handler


def _answers(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Whether an event loop runs a callback in time."""
    if loop is None:
        return True
    done = threading.Event()
    try:
        loop.call_soon_threadsafe(done.set)
    except RuntimeError:  # the loop is closed
        return False
    return done.wait(LOOP_TIMEOUT)
