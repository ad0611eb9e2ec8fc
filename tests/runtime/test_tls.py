"""Agents over real TLS do what the simulator does."""

import asyncio
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cases
import ring
import test_equations

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


async def with_restarts(configs, gradients, kills):
    """Run agents as tasks; cancel one after some iterations without farewell, start it again."""
    kept = [{} for _ in configs]

    async def follow(j, until):
        (agent,) = ring.agents([configs[j]], [gradients[j]])
        async for k, x in agent:
            kept[j][k] = x
            if until is not None and k >= until:
                agent.crash()
                return

    async def live(j):
        for until in kills.get(j, ()):
            await follow(j, until)
        await follow(j, None)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for j in range(len(configs)):
            group.create_task(live(j))
    return kept
