"""Neighbours that do nothing for the run are lost by name, and cost no memory."""

import asyncio
import urllib.request
from contextlib import suppress

import numpy as np

from hushgrad.network.config.file import load_config
from hushgrad.network.keys.identity import mint
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.session import Session
from hushgrad.network.transport import watching
from support import agent_network, attackers, process_network
from support.attacked_life import alone, assert_goes_on, knock, showing


def test_a_neighbour_that_sends_and_never_reads_costs_no_memory(tmp_path, keys):
    dim = 20_000
    victim, actor = alone(tmp_path, keys, dim)

    async def besiege():
        (agent,) = agent_network.agents([victim], [lambda x: x])
        run = asyncio.create_task(agent.run())
        longest, n = 0, 0
        async with attackers.Rogue(actor, victim) as deaf, asyncio.timeout(30):
            deaf._writer.transport.pause_reading()
            deaf.hello()
            while not agent.stats.reconnects:
                if agent.stats.round >= n - 1:
                    deaf.write(wire.encode_data(n, b"", (np.zeros(dim),)))
                    n += 1
                await asyncio.sleep(0.001)
                waiting = [link._transport.get_write_buffer_size() for link in agent._hub._all]
                longest = max(longest, *waiting, 0)
        agent.stop()
        await run
        assert set(agent.stats.reconnects) == {("agent-1", "does not read")}
        return longest, agent._hub.most_unsent

    longest, most = asyncio.run(besiege())
    assert 0 < longest < most + 10 * dim
    assert most < 10_000_000


def test_a_neighbour_that_comes_and_goes_without_a_message_is_lost(tmp_path, keys):
    victim, actor = alone(tmp_path, keys, 1, max_wait=1.0, heartbeat=0.2)

    async def besiege():
        (agent,) = agent_network.agents([victim], [lambda x: x])
        run = asyncio.create_task(agent.run())
        with suppress(AssertionError, OSError):  # until the agent has ended
            while not run.done():
                async with attackers.Rogue(actor, victim) as flapping:
                    flapping.hello()
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.5)
        return await run

    async def in_time():
        async with asyncio.timeout(60):
            return await besiege()

    assert asyncio.run(in_time()).status is Status.PEER_LOST


def test_a_neighbour_that_only_says_that_it_is_here_ends_the_run_by_name(tmp_path, keys):
    victim, actor = alone(tmp_path, keys, 1, max_wait=0.8, heartbeat=0.2)

    async def besiege():
        (agent,) = agent_network.agents([victim], [lambda x: x])
        run = asyncio.create_task(agent.run())
        async with attackers.Rogue(actor, victim) as idle, asyncio.timeout(30):
            idle.hello()
            while not run.done():
                idle.send(FrameKind.HEARTBEAT)
                await asyncio.sleep(0.05)
        return await run

    result = asyncio.run(besiege())
    assert result.summary == "peer lost: agent-1 at round 0 (connected, but silent for 0.8 s)"


def test_a_neighbour_that_comes_back_is_given_its_whole_time_again(tmp_path, keys):
    """The neighbour computes for nearly `max_wait`, and then its connection breaks."""
    victim, actor = alone(tmp_path, keys, 1, max_wait=1.5, heartbeat=0.2)

    async def besiege():
        (agent,) = agent_network.agents([victim], [lambda x: x])
        run = asyncio.create_task(agent.run())
        async with attackers.Rogue(actor, victim) as slow:
            slow.hello()
            for _ in range(10):
                slow.send(FrameKind.HEARTBEAT)
                await asyncio.sleep(0.1)
        await asyncio.sleep(0.8)
        assert not run.done()
        agent.stop()
        return await run

    assert asyncio.run(besiege()).status is Status.STOPPED


def test_a_frame_that_the_agent_itself_cannot_take_ends_the_connection_not_the_run(
    life, calm, monkeypatch, caplog
):
    struck = []

    def accept(session, peer, frame, untouched=Session.accept):
        if frame.round == 30 and not struck:
            struck.append(peer.name)
            raise KeyError("a defect")
        return untouched(session, peer, frame)

    monkeypatch.setattr(Session, "accept", accept)
    assert_goes_on(life, asyncio.run(life.run()), calm)
    assert len(struck) == 1
    assert "a frame could not be taken: KeyError('a defect')" in caplog.text


def test_an_agent_whose_watching_task_dies_ends_and_does_not_wait_for_ever(life, monkeypatch):
    def die(*_):
        raise RuntimeError("no clock")

    monkeypatch.setattr(watching.Watching, "_check_absence", die)
    life.at = {(j, 60): lambda: None for j in range(3)}
    asyncio.run(life.run(until=1))

    async def wait():
        (agent,) = agent_network.agents(life.configs[:1], [lambda x: x])
        async with asyncio.timeout(60):
            return await agent.run()

    result = asyncio.run(wait())
    assert result.status is Status.FAILED
    assert "can no longer serve its links: RuntimeError('no clock')" in result.detail


def test_metrics_of_a_process_count_refused_connections(tmp_path, keys):
    port, *_ = process_network.ports(1)
    algorithm = {"name": "DIGing", "stepsize": {"kind": "constant", "value": 0.2}}
    network = process_network.write_network(
        tmp_path / "network", algorithm, edges=((0, 1),), keys=keys, iterations=30,
        metrics=f"127.0.0.1:{port}",
    )  # fmt: skip
    try:
        network.start(1)
        address = load_config(network.file(1)).listen
        asyncio.run(knock(address, showing(mint(tmp_path / "theirs", "mallory"))))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert 'hushgrad_rejected_total{reason="certificate"} 1.0' in answer.read().decode()
        assert "refused: 127.0.0.1 failed its handshake" in network.log(1)
        text = network.file(0).read_text().replace(f'metrics = "127.0.0.1:{port}"\n', "")
        network.file(0).write_text(text)
        network.start(0)
        assert network.end() == [0, 0]
    finally:
        network.close()
