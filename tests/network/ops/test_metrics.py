"""The metrics server of an agent answers a monitoring system over HTTP."""

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hushgrad.errors import ConfigError
from hushgrad.network.ops import metrics
from hushgrad.network.ops.counters import Stats, Total
from hushgrad.network.ops.metrics import MetricsServer, StatsCollector

ABOUT = {"agent": "ann", "run": "r1"}


@pytest.fixture
def stats():
    return Stats(
        round=41,
        iteration=20,
        stage=2,
        stages=8,
        rounds=42,
        duplicates=3,
        resent=2,
        connected={"bob": True, "dan": False},
        missing=lambda: ["dan"],
        sent={"bob": 42, "dan": 40},
        received={"bob": 41},
        rejected={"stranger": 5},
        jumps={"bob": 4},
        reconnects={("dan", "timeout"): 6},
        round_seconds=Total(42, 1.5),
        commit_seconds=Total(43, 0.25),
        wait_seconds={"dan": Total(7, 3.5)},
    )


@pytest.fixture
def server(stats):
    server = MetricsServer(stats, ("127.0.0.1", 0), ABOUT)
    yield server
    server.close()


def ask(server, path):
    """(status, body) of a GET."""
    host, port = server.address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_gives_the_agents_counters_as_they_are(server, stats):
    found = samples(ask(server, "/metrics")[1])
    expected = {
        ("hushgrad_agent_info", "ann", "r1"): 1,
        ("hushgrad_iteration",): 20,
        ("hushgrad_round",): 41,
        ("hushgrad_stage",): 2,
        ("hushgrad_stages",): 8,
        ("hushgrad_rounds_total",): 42,
        ("hushgrad_duplicates_total",): 3,
        ("hushgrad_resent_total",): 2,
        ("hushgrad_messages_sent_total", "bob"): 42,
        ("hushgrad_messages_sent_total", "dan"): 40,
        ("hushgrad_messages_received_total", "bob"): 41,
        ("hushgrad_rejected_total", "stranger"): 5,
        ("hushgrad_jumps_total", "bob"): 4,
        ("hushgrad_reconnects_total", "dan", "timeout"): 6,
        ("hushgrad_peer_connected", "bob"): 1,
        ("hushgrad_peer_connected", "dan"): 0,
        ("hushgrad_round_duration_seconds_count",): 42,
        ("hushgrad_round_duration_seconds_sum",): 1.5,
        ("hushgrad_journal_commit_seconds_count",): 43,
        ("hushgrad_journal_commit_seconds_sum",): 0.25,
        ("hushgrad_peer_wait_seconds_count", "dan"): 7,
        ("hushgrad_peer_wait_seconds_sum", "dan"): 3.5,
    }
    assert {key: v for key, v in found.items() if key[0].startswith("hushgrad")} == expected
    stats.rounds += 1
    assert samples(ask(server, "/metrics")[1])["hushgrad_rounds_total",] == 43


def test_an_agent_is_ready_when_all_neighbours_are_connected(server, stats):
    code, body = ask(server, "/readyz")
    assert code == 503
    assert json.loads(body) == ABOUT | {
        "ready": False, "iteration": 20, "round": 41, "stage": 2, "stages": 8, "part": "",
        "connected": ["bob"], "disconnected": ["dan"], "waiting_for": ["dan"], "jumps": {"bob": 4},
    }  # fmt: skip
    stats.connected["dan"] = True
    assert ask(server, "/readyz")[0] == 200
    stats.connected.clear()  # before it has met any neighbour
    assert ask(server, "/readyz")[0] == 503


def test_an_agent_is_healthy_while_its_loop_answers(stats, monkeypatch):
    monkeypatch.setattr(metrics, "LOOP_TIMEOUT", 0.2)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = MetricsServer(stats, ("127.0.0.1", 0), ABOUT, loop)
    try:
        assert ask(server, "/healthz") == (200, '{"healthy": true}')
        loop.call_soon_threadsafe(time.sleep, 1.0)
        assert ask(server, "/healthz") == (503, '{"healthy": false}')
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        assert ask(server, "/healthz")[0] == 503
    finally:
        server.close()


def test_other_paths_are_not_there(server):
    assert ask(server, "/")[0] == 404
    assert ask(server, "/../etc/passwd")[0] == 404


def test_the_server_listens_at_its_address_and_nowhere_else(server):
    assert server.address[0] == "127.0.0.1"
    with (
        pytest.raises(OSError, match="refused"),
        socket.create_connection(("127.0.0.2", server.address[1]), timeout=2),
    ):
        pass


def test_an_address_that_is_taken_is_named(server, stats):
    with pytest.raises(ConfigError, match=r"metrics cannot be served at 127\.0\.0\.1"):
        MetricsServer(stats, server.address, ABOUT)


def test_a_silent_client_does_not_hold_up_others(server):
    with socket.create_connection(server.address, timeout=2):
        assert ask(server, "/metrics")[0] == 200


def test_closing_frees_the_port(stats):
    server = MetricsServer(stats, ("127.0.0.1", 0), ABOUT)
    server.close()
    MetricsServer(stats, server.address, ABOUT).close()


def test_every_metric_is_in_the_documentation():
    docs = (Path(__file__).parents[3] / "docs" / "agents.md").read_text(encoding="utf-8")
    for family in StatsCollector(Stats(), ABOUT).collect():
        ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
        assert f"`{family.name}{ending}" in docs
