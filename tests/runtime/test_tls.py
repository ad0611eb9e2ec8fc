"""Agents over real TLS do what the simulator does."""

import asyncio
import random
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ring

import cases
import hushgrad as hg
import test_equations
from hushgrad.runtime import link
from hushgrad.runtime.agent import SLOW_TURNS
from hushgrad.runtime.loop import run_loop
from hushgrad.runtime.result import Status

K, SEED = 200, 5
Q = cases.Quadratics(by_hand=True)


def gradients():
    return [Q.problem.local_gradient(j, None) for j in range(cases.M)]


def rows():
    for name, row in test_equations.ROWS.items():
        yield pytest.param(row.algorithm, cases.undirected(), id=f"{name}-undirected")
        if row.directed:
            yield pytest.param(row.algorithm, cases.directed(), id=f"{name}-directed")


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


@pytest.mark.parametrize(("algorithm", "network"), list(rows()))
def test_every_algorithm_over_tls_gives_the_simulators_trajectory(
    algorithm, network, tmp_path, keys
):
    reference = cases.trajectory(algorithm, Q.problem, network, Q.x0, K, seed=SEED, engine="agents")
    configs = ring.configs(
        tmp_path, algorithm, network, dim=cases.D, iterations=K, seed=SEED, x0=Q.x0, keys=keys
    )
    got = asyncio.run(ring.together(ring.agents(configs, gradients())))
    test_equations.assert_same(got, reference[0, 1:])


async def with_restarts(configs, leaves):
    """Every agent leaves after these iterations, without a farewell, and is started again."""
    kept = [{} for _ in configs]

    async def live(j):
        for until in [*leaves.get(j, ()), None]:
            (agent,) = ring.agents([configs[j]], [gradients()[j]])
            async for k, x in agent:
                kept[j][k] = x
                if k == until:
                    agent.stop()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for j in range(len(configs)):
            group.create_task(live(j))
    return np.array([[own[k] for own in kept] for k in range(1, len(kept[0]) + 1)])


@pytest.mark.parametrize("name", ["PDGDS", "PDGNDS square", "AB", "ADDOPT"])
def test_agents_that_leave_and_come_back_change_nothing(name, tmp_path, keys):
    algorithm, network = test_equations.ROWS[name].algorithm, cases.undirected()
    reference = cases.trajectory(
        algorithm, Q.problem, network, Q.x0, 40, seed=SEED, engine="agents"
    )
    configs = ring.configs(
        tmp_path, algorithm, network, dim=cases.D, iterations=40, seed=SEED, x0=Q.x0, keys=keys
    )
    leaves = {0: [3, 20, 21], 4: [20], 6: [30, 39]}
    got = asyncio.run(with_restarts(configs, leaves))
    np.testing.assert_array_equal(got, reference[0, 1:])


def test_draws_from_secrets_reach_the_same_optimum_and_no_other_trajectory(tmp_path, keys):
    algorithm = hg.PDGNDS(stepsize=test_equations.CONSTANT)
    network = cases.undirected()
    ends = []
    for name in ("one", "two"):
        configs = ring.configs(
            tmp_path / name, algorithm, network, dim=cases.D, iterations=400, x0=Q.x0, keys=keys,
            id=name,
        )  # fmt: skip
        ends.append(asyncio.run(ring.together(ring.agents(configs, gradients()))))
    assert np.abs(ends[0][-1] - Q.solution).max() < 1e-3
    assert np.abs(ends[1][-1] - Q.solution).max() < 1e-3
    assert (np.abs(ends[0][5] - ends[1][5]) > 1e-9).all()


def test_a_finished_run_can_be_asked_again_and_calls_no_objective(tmp_path, keys):
    network = hg.Network(hg.graphs.ring(3))
    configs = ring.configs(
        tmp_path, hg.DGD(), network, dim=2, iterations=5, keys=keys, max_wait=1.0
    )
    targets = np.eye(3)[:, :2]
    first = asyncio.run(ring.ends(ring.agents(configs, [lambda x, t=t: x - t for t in targets])))

    def asked(x):
        raise AssertionError("the objective is asked again")

    again = asyncio.run(ring.ends(ring.agents(configs, [asked] * 3)))
    for a, b in zip(first, again, strict=True):
        assert a.status is b.status is Status.DONE
        np.testing.assert_array_equal(a.theta, b.theta)
        assert (a.iterations, b.iterations, b.incarnation) == (5, 5, 2)


def test_an_objective_that_takes_its_time_does_not_silence_the_heartbeats(tmp_path, keys):
    """Three heartbeats pass in every gradient; nobody may take the agent for dead."""
    network = hg.Network(hg.graphs.ring(3))
    configs = ring.configs(
        tmp_path, hg.DGD(), network, dim=1, iterations=6, keys=keys, heartbeat=0.1
    )

    def slow(x):
        time.sleep(0.5)
        return x

    agents = ring.agents(configs, [slow, lambda x: x, lambda x: x])
    results = asyncio.run(ring.ends(agents))
    assert {r.status for r in results} == {Status.DONE}
    lost = [reason for a in agents[1:] for (_, reason) in a.stats.reconnects if reason == "silent"]
    assert len(lost) <= SLOW_TURNS * 2  # until it is known that turns are slow


def test_two_that_dial_each_other_at_once_keep_one_connection(tmp_path, keys, monkeypatch):
    """Without courtesy both ends dial; nobody may be taken for an old copy of itself."""
    monkeypatch.setattr(link, "COURTESY", 0.0)
    network = hg.Network(hg.graphs.complete(4))
    configs = ring.configs(
        tmp_path, hg.DGD(), network, dim=1, iterations=300, keys=keys, heartbeat=0.5
    )
    agents = ring.agents(configs, [lambda x: x] * 4)

    async def run():
        async def disturb():
            rng = random.Random(0)
            while True:
                await asyncio.sleep(0.02)
                hub = rng.choice(agents)._hub
                if hub is not None and hub._links:
                    rng.choice(list(hub._links.values())).abort("test")

        task = asyncio.create_task(disturb())
        try:
            return await ring.ends(agents)
        finally:
            task.cancel()

    results = asyncio.run(run())
    assert {r.status for r in results} == {Status.DONE}
    assert sum(sum(a.stats.reconnects.values()) for a in agents) > 10
    assert [dict(a.stats.rejected) for a in agents] == [{}] * 4


def test_leaving_the_loop_ends_the_agent(tmp_path, keys):
    network = hg.Network(hg.graphs.ring(3))
    configs = ring.configs(tmp_path, hg.DGD(), network, dim=1, iterations=50, keys=keys)

    async def leave_early(agent):
        async for k, _ in agent:
            if k == 3:
                break

    async def run():
        everyone = ring.agents(configs, [lambda x: x] * 3)
        await asyncio.gather(*map(leave_early, everyone))
        await asyncio.sleep(0.5)
        return await ring.ends(ring.agents(configs, [lambda x: x] * 3))

    results = asyncio.run(run())  # the state directories are free again
    assert {(r.status, r.incarnation) for r in results} == {(Status.DONE, 2)}


def test_long_messages_arrive_whole(tmp_path, keys):
    """Two vectors of two hundred TLS records each, more than a socket takes at once."""
    network, d = hg.Network(hg.graphs.complete(3)), 400_000
    targets = np.random.default_rng(0).normal(size=(3, d))
    configs = ring.configs(
        tmp_path, hg.DIGing(stepsize=hg.stepsizes.constant(0.1)), network, dim=d, iterations=4,
        keys=keys,
    )  # fmt: skip
    got = asyncio.run(ring.together(ring.agents(configs, [lambda x, t=t: x - t for t in targets])))
    W = network.matrix()
    x, y, g = np.zeros((3, d)), -targets, -targets
    for k in range(4):
        x = W @ x - 0.1 * y
        y, g = W @ y + (x - targets) - g, x - targets
        np.testing.assert_allclose(got[k], x, atol=1e-12)


def test_agents_run_on_uvloop_too(tmp_path, keys):
    uvloop = pytest.importorskip("uvloop")
    network = hg.Network(hg.graphs.ring(3))
    configs = ring.configs(tmp_path, hg.DGD(), network, dim=1, iterations=20, keys=keys)

    async def run():
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        return await ring.ends(ring.agents(configs, [lambda x: x] * 3))

    assert {r.status for r in run_loop(run())} == {Status.DONE}
