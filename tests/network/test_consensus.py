"""Deployed agents average masked vectors: the simulator's bits, and the promise of their masks."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import ConfigError, PrivacyError
from hushgrad.network.config.file import parse_config
from hushgrad.network.deployed import Agent
from hushgrad.network.keys.identity import mint
from hushgrad.network.objective.objectives import ObjectiveSpec
from hushgrad.network.promise import promise
from hushgrad.network.state.stages import read_stages
from support import agent_network, cases

VALUES = np.random.default_rng(1).normal(size=(6, 3))
RING = hg.Network(hg.graphs.ring(6))


def objective(j):
    return ObjectiveSpec(kind="average", n_agents=6, position=tuple(VALUES[j]))


@pytest.mark.optimised
@pytest.mark.parametrize("acceleration", ["none", "chebyshev"])
def test_seeded_agents_have_the_simulators_bits(tmp_path, acceleration):
    algorithm = hg.Consensus(acceleration=acceleration).on(RING)
    problem = hg.problems.average(VALUES)
    made = agent_network.configs(
        tmp_path, algorithm, RING, dim=3, iterations=40, seed=3, tls=False, stages=1
    )
    configs = [replace(c, objective=objective(c.number)) for c in made]
    agents = agent_network.agents(configs, [None] * 6, tls=False)
    got = asyncio.run(agent_network.together(agents))
    expected = cases.trajectory(algorithm, problem, RING, 0 * VALUES, 40, seed=3, engine="agents")
    np.testing.assert_array_equal(got, expected[0, 1:])


def tables(directory, ports, j, **changed):
    """The file of agent j of three that are all linked."""
    others = [i for i in range(3) if i != j]
    people = [{"name": f"agent-{i}", "number": i} for i in others]
    return {
        "agent": {
            "name": f"agent-{j}", "number": j, "listen": f"127.0.0.1:{ports[j]}",
            "state": f"state-{j}", "durability": "process",
        },
        "run": {"id": agent_network.run_id(directory), "iterations": 1, "dim": 3, "n_agents": 3,
                "row_norm": 4.0},
        "algorithm": {"name": "Consensus"},
        "objective": {"kind": "average", "values": VALUES[j].tolist()},
        "neighbour": [p | {"address": f"127.0.0.1:{ports[p['number']]}"} for p in people],
        "partner": people,
    } | changed  # fmt: skip


def secret(directory, **changed):
    """The configurations of three agents with secret masks."""
    ports = agent_network.free_ports(3)
    for j in range(3):
        mint(directory, f"agent-{j}")
    (directory / "trusted").symlink_to(directory)
    made = [tables(directory, ports, j) for j in range(3)]
    for each in made:
        each["run"] |= changed
    return [parse_config(each, directory=directory) for each in made]


def test_agents_with_secret_masks_average_in_one_round_and_end_with_the_same_bits(tmp_path):
    configs = secret(tmp_path)
    results = asyncio.run(agent_network.ends([Agent(config) for config in configs]))
    found = [result.theta for result in results]
    assert len({x.tobytes() for x in found}) == 1
    assert np.abs(found[0] - VALUES[:3].mean(axis=0)).max() < 4 * 6e-11
    statistics = [read_stages(config.state)[0].statistic for config in configs]
    for j, masked in enumerate(statistics):
        assert masked.H.size == 0
        assert (np.abs(masked.q + VALUES[j]) > 1.0).all()  # masks of about 10⁴
    told = promise(configs[0])  # σ = 10⁴ · 1, the least unit, and ‖a_i‖ ≤ 4
    assert told.unit_mu == pytest.approx(4.0 / 1e4)
    assert told.exposures[0].mu == pytest.approx(4e-4 * np.sqrt(2 / 3))  # a triangle of resistors


def test_an_agent_that_leaves_and_comes_back_goes_on_with_its_masked_vector(tmp_path):
    configs = secret(tmp_path, iterations=6)

    async def live(config, leaves):
        for until in (*leaves, None):
            agent = Agent(config)
            async for k, x in agent:
                found = x
                if k == until:
                    agent.stop()
        return found

    async def everyone():
        async with asyncio.timeout(60):
            leaves = ((), (1, 4), (2,))
            return await asyncio.gather(*map(live, configs, leaves))

    found = asyncio.run(everyone())
    assert len({x.tobytes() for x in found}) == 1
    assert np.abs(found[0] - VALUES[:3].mean(axis=0)).max() < 4 * 6e-11


def test_an_agent_without_masks_or_without_eta_does_not_start(tmp_path):
    bare = {"name": "Consensus", "masks": {"kind": "zero_sum", "linear": 0}}
    ports = [1, 2, 3]
    mint(tmp_path, "agent-0")
    (tmp_path / "trusted").symlink_to(tmp_path)
    for j in (1, 2):
        mint(tmp_path, f"agent-{j}")
    config = parse_config(
        tables(tmp_path, ports, 0, algorithm=bare, partner=[]), directory=tmp_path
    )
    with pytest.raises(PrivacyError, match=r"design: .*messages tell the vector itself"):
        asyncio.run(Agent(config).run())
    fast = {"name": "Consensus", "acceleration": "chebyshev"}
    with pytest.raises(ConfigError, match="needs the key eta"):
        parse_config(tables(tmp_path, ports, 0, algorithm=fast), directory=tmp_path)
    meeting = {"kind": "rendezvous", "position": [1.0, 2.0, 3.0]}
    with pytest.raises(ConfigError, match='"rendezvous" is minimised by no average'):
        parse_config(tables(tmp_path, ports, 0, objective=meeting), directory=tmp_path)
    both = {"kind": "average", "values": [1.0, 2.0, 3.0], "file": "a.csv", "columns": ["x"]}
    with pytest.raises(ConfigError, match="needs either values or file"):
        parse_config(tables(tmp_path, ports, 0, objective=both), directory=tmp_path)
