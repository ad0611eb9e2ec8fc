"""Agents over real TLS give the trajectories of the simulator."""

import asyncio
import os
import random
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.frames import HEADER, FrameKind
from hushgrad.network.rounds import Rounds
from hushgrad.network.transport import dialling
from hushgrad.network.transport.connection import Connection
from hushgrad.network.transport.dispatch import Dispatch
from support import agent_network, cases, conformance
from support.tables import some
from support.waiting import wait_for

K, SEED = 30, 5
Q = cases.Quadratics(by_hand=True)


def gradients():
    return [Q.problem.local_gradient(j, None) for j in range(cases.M)]


def rows():
    for name, row in conformance.ROWS.items():
        yield pytest.param(row.algorithm, cases.undirected(), id=f"{name}-undirected")
        if row.directed:
            yield pytest.param(row.algorithm, cases.directed(), id=f"{name}-directed")


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


@pytest.mark.parametrize(("algorithm", "network"), some(rows()))
def test_every_algorithm_over_tls_gives_the_simulators_trajectory(
    algorithm, network, tmp_path, keys
):
    reference = cases.trajectory(algorithm, Q.problem, network, Q.x0, K, seed=SEED, engine="agents")
    configs = agent_network.configs(
        tmp_path, algorithm, network, dim=cases.D, iterations=K, seed=SEED, x0=Q.x0, keys=keys
    )
    got = asyncio.run(agent_network.together(agent_network.agents(configs, gradients())))
    conformance.assert_same(got, reference[0, 1:])


async def with_restarts(configs, leaves):
    """Every agent leaves after these iterations, without a FIN, and is started again."""
    kept = [{} for _ in configs]

    async def live(j):
        for until in [*leaves.get(j, ()), None]:
            (agent,) = agent_network.agents([configs[j]], [gradients()[j]])
            async for k, x in agent:
                kept[j][k] = x
                if k == until:
                    agent.stop()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for j in range(len(configs)):
            group.create_task(live(j))
    return np.array([[own[k] for own in kept] for k in range(1, len(kept[0]) + 1)])


@pytest.mark.parametrize("name", some(["PDGNDS square", "PDGDS", "AB", "ADDOPT"], 2))
def test_agents_that_leave_and_come_back_change_nothing(name, tmp_path, keys):
    algorithm, network = conformance.ROWS[name].algorithm, cases.undirected()
    reference = cases.trajectory(
        algorithm, Q.problem, network, Q.x0, 40, seed=SEED, engine="agents"
    )
    configs = agent_network.configs(
        tmp_path, algorithm, network, dim=cases.D, iterations=40, seed=SEED, x0=Q.x0, keys=keys
    )
    leaves = {0: [3, 20, 21], 4: [20], 6: [30, 39]}
    got = asyncio.run(with_restarts(configs, leaves))
    np.testing.assert_array_equal(got, reference[0, 1:])


def test_draws_from_secrets_reach_the_same_optimum_and_no_other_trajectory(tmp_path, keys):
    algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.2))
    network = cases.undirected()
    ends = []
    for name in ("one", "two"):
        configs = agent_network.configs(
            tmp_path / name, algorithm, network, dim=cases.D, iterations=120, x0=Q.x0, keys=keys,
            id=name,
        )  # fmt: skip
        ends.append(asyncio.run(agent_network.together(agent_network.agents(configs, gradients()))))
    assert np.abs(ends[0][-1] - Q.solution).max() < 1e-3
    assert np.abs(ends[1][-1] - Q.solution).max() < 1e-3
    assert (np.abs(ends[0][5] - ends[1][5]) > 1e-9).all()


def test_a_finished_run_can_be_asked_again_and_calls_no_objective(tmp_path, keys):
    network = hg.Network(hg.graphs.ring(3))
    configs = agent_network.configs(
        tmp_path, hg.DGD(), network, dim=2, iterations=5, keys=keys, max_wait=1.0
    )
    targets = np.eye(3)[:, :2]
    first = asyncio.run(
        agent_network.ends(agent_network.agents(configs, [lambda x, t=t: x - t for t in targets]))
    )

    def asked(x):
        raise AssertionError("the objective is asked again")

    again = asyncio.run(agent_network.ends(agent_network.agents(configs, [asked] * 3)))
    for a, b in zip(first, again, strict=True):
        assert a.status is b.status is Status.DONE
        np.testing.assert_array_equal(a.theta, b.theta)
        assert (a.iterations, b.iterations, b.incarnation) == (5, 5, 2)


@pytest.mark.parametrize("algorithm", [hg.DGD(), hg.AugDGM()], ids=["DGD", "Aug-DGM"])
def test_an_objective_that_takes_its_time_does_not_silence_the_heartbeats(
    tmp_path, keys, monkeypatch, algorithm
):
    """A gradient takes longer than a heartbeat, in every round or in every second one.

    After one such round in the event loop, the agent uses a thread. There a gradient waits until
    both neighbours have heard two more heartbeats: no clock decides, so no load does.
    """
    network = hg.Network(hg.graphs.ring(3))
    configs = agent_network.configs(
        tmp_path, algorithm, network, dim=1, iterations=4, keys=keys, heartbeat=0.1
    )
    beats = Counter()  # heartbeats of agent-0, by the neighbour that heard them
    hear = Dispatch.hear

    def count(dispatch, link, frame):
        if frame.kind is FrameKind.HEARTBEAT and link.peer.name == "agent-0":
            beats[dispatch] += 1
        hear(dispatch, link, frame)

    monkeypatch.setattr(Dispatch, "hear", count)

    def two_more(before):
        return lambda: sum(n >= before[who] + 2 for who, n in beats.copy().items()) == 2

    in_loop = []  # of every gradient: whether the event loop computed it

    def slow(x):
        in_loop.append(threading.current_thread() is threading.main_thread())
        if in_loop[-1]:
            time.sleep(0.2)
        elif len(in_loop) > 1:  # the very first gradient comes before the first connection
            wait_for(two_more(Counter(beats)), seconds=20)
        return x

    agents = agent_network.agents(configs, [slow, lambda x: x, lambda x: x])
    results = asyncio.run(agent_network.ends(agents))
    assert {r.status for r in results} == {Status.DONE}
    assert in_loop.count(True) <= 1
    assert len(in_loop) >= 4


def test_a_link_is_as_patient_as_its_slower_end(tmp_path, keys):
    """Two agents with different heartbeats wait for a third agent."""
    network = hg.Network(hg.graphs.path(3))
    configs = agent_network.configs(
        tmp_path, hg.DGD(), network, dim=1, iterations=5, keys=keys, heartbeat=0.1
    )
    configs[0] = replace(configs[0], heartbeat=2.0)
    agents = agent_network.agents(configs, [lambda x: x] * 3)

    async def run():
        async def late():
            await asyncio.sleep(0.6)
            return await agents[2].run()

        return await asyncio.gather(agents[0].run(), agents[1].run(), late())

    assert {r.status for r in asyncio.run(run())} == {Status.DONE}
    assert ("agent-0", "silent") not in agents[1].stats.reconnects


def test_a_finished_run_that_was_left_unsettled_waits_only_briefly_when_asked_again(
    tmp_path, keys, monkeypatch
):
    """All agents were killed after their last iteration and before they knew that all finished."""
    configs = agent_network.configs(
        tmp_path, hg.DGD(), hg.Network(hg.graphs.path(2)), dim=1, iterations=5, keys=keys,
        heartbeat=0.1,
    )  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "settle", lambda rounds: None)
        asyncio.run(agent_network.ends(agent_network.agents(configs, [lambda x: x] * 2)))

    def ask(max_wait):
        (agent,) = agent_network.agents([replace(configs[0], max_wait=max_wait)], [None])
        (result,) = asyncio.run(agent_network.ends([agent]))
        assert result.status is Status.DONE
        return result.seconds

    assert ask(max_wait=0.6) > 0.6  # the neighbour may come and need the last message
    monkeypatch.setattr("hushgrad.network.deployed.AGAIN", 0.2)
    assert ask(max_wait=20.0) < 10


def test_with_power_durability_every_round_is_on_disk_before_any_of_it_is_sent(
    tmp_path, keys, monkeypatch
):
    configs = agent_network.configs(
        tmp_path, hg.AugDGM(), hg.Network(hg.graphs.path(2)), dim=1, iterations=10, keys=keys
    )
    configs[0] = replace(configs[0], durability="power")
    seen = []  # events of agent 0: writes to its journal, syncs, rounds sent

    def noting(event, untouched):
        def call(file, *rest):
            if "agent-0/slot" in str(Path(f"/proc/self/fd/{file}").readlink()):
                seen.append(event)
            return untouched(file, *rest)

        return call

    def send(link, frame, untouched=Connection.send):
        _, _, kind, _, round_, _, _ = HEADER.unpack_from(frame)
        if kind == FrameKind.DATA and link.peer.number == 1:
            seen.append(round_)
        untouched(link, frame)

    monkeypatch.setattr(os, "pwrite", noting("write", os.pwrite))
    monkeypatch.setattr(os, "pwritev", noting("write", os.pwritev))
    monkeypatch.setattr(os, "fdatasync", noting("sync", os.fdatasync))
    monkeypatch.setattr(Connection, "send", send)
    agents = agent_network.agents(configs, [lambda x: x] * 2)
    assert {r.status for r in asyncio.run(agent_network.ends(agents))} == {Status.DONE}
    assert {event for event in seen if isinstance(event, int)} == set(range(20))
    for n in range(20):
        # n + 1 pairs of write and sync precede the first message of round n
        before = [event for event in seen[: seen.index(n)] if not isinstance(event, int)]
        assert before == ["write", "sync"] * (n + 1)


def test_two_agents_that_dial_each_other_at_once_keep_one_connection(tmp_path, keys, monkeypatch):
    """Without courtesy both ends dial; no agent may count as an old copy of itself."""
    monkeypatch.setattr(dialling, "COURTESY", 0.0)
    network = hg.Network(hg.graphs.complete(4))
    configs = agent_network.configs(
        tmp_path, hg.DGD(), network, dim=1, iterations=100, keys=keys, heartbeat=0.5
    )
    rng, asked = random.Random(0), []

    def gradient(x):
        """The gradient of agent 0: after every fifth of them some link breaks."""
        asked.append(x)
        if len(asked) % 5 == 0:
            loop.call_soon_threadsafe(disturb)
        return x

    def disturb():
        hub = rng.choice(agents)._hub
        if hub is not None and hub._links:
            rng.choice(list(hub._links.values())).abort("test")

    agents = agent_network.agents(configs, [gradient, *[lambda x: x] * 3])

    async def run():
        nonlocal loop
        loop = asyncio.get_running_loop()
        return await agent_network.ends(agents)

    loop = None
    results = asyncio.run(run())
    assert {r.status for r in results} == {Status.DONE}
    assert sum(sum(a.stats.reconnects.values()) for a in agents) > 10
    assert [dict(a.stats.rejected) for a in agents] == [{}] * 4


def test_leaving_the_loop_ends_the_agent(tmp_path, keys):
    network = hg.Network(hg.graphs.ring(3))
    configs = agent_network.configs(tmp_path, hg.DGD(), network, dim=1, iterations=50, keys=keys)

    async def leave_early(agent):
        async for k, _ in agent:
            if k == 3:
                break

    async def run():
        everyone = agent_network.agents(configs, [lambda x: x] * 3)
        await asyncio.gather(*map(leave_early, everyone))
        await asyncio.sleep(0.5)
        return await agent_network.ends(agent_network.agents(configs, [lambda x: x] * 3))

    results = asyncio.run(run())  # the state directories are free again
    assert {(r.status, r.incarnation) for r in results} == {(Status.DONE, 2)}


def test_long_messages_arrive_whole(tmp_path, keys):
    """Two vectors of two hundred TLS records each, more than a socket takes at once."""
    network, d = hg.Network(hg.graphs.complete(3)), 400_000
    targets = np.random.default_rng(0).normal(size=(3, d))
    configs = agent_network.configs(
        tmp_path, hg.DIGing(stepsize=hg.stepsizes.constant(0.1)), network, dim=d, iterations=4,
        keys=keys,
    )  # fmt: skip
    got = asyncio.run(
        agent_network.together(
            agent_network.agents(configs, [lambda x, t=t: x - t for t in targets])
        )
    )
    W = network.matrix()
    x, y, g = np.zeros((3, d)), -targets, -targets
    for k in range(4):
        x = W @ x - 0.1 * y
        y, g = W @ y + (x - targets) - g, x - targets
        np.testing.assert_allclose(got[k], x, atol=1e-12)
