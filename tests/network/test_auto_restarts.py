"""An agent that is killed while the agents agree on a stepsize takes the stepsize of the others."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.network import agreement, auto
from hushgrad.network.agreement import ANNOUNCEMENTS
from hushgrad.network.deployed import Agent
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.announcements import decode_announcements, links_width
from hushgrad.network.staging import STEPSIZE
from hushgrad.network.transport.in_memory import InMemoryTransport
from support import agent_network, process_network

M, DIM = 4, 3
PATH = ((0, 1), (1, 2), (2, 3))
NETWORK = hg.Network(hg.graphs.ring(M))
ALGORITHMS = {
    "EXTRA": (hg.EXTRA(), {}),
    "PDG-NDS": (hg.PDGNDS(design="recommended"), {"stages": 1}),
}


class KilledError(Exception):
    """Stands for kill -9: the agent ends here, and only its state directory is left."""


def objective(j):
    rng = np.random.default_rng([3, j])
    A, c = rng.normal(size=(DIM + 2, DIM)) * 1.5**j, rng.normal(size=DIM)
    return lambda x: A.T @ (A @ (x - c)), lambda x: A.T @ A


async def survive(setting):
    """Run agents to their end; one that is killed begins again. The results, and the deaths."""
    everyone, deaths = {}, 0

    async def live(config):
        nonlocal deaths
        while True:
            gradient, hessian = objective(config.number)
            transport = InMemoryTransport(config.name, everyone)
            agent = Agent(
                config, gradient=gradient, hessian=hessian, quadratic=True, transport=transport
            )
            try:
                return await agent.run()
            except KilledError:
                deaths += 1

    async with asyncio.timeout(60):
        return await asyncio.gather(*map(live, setting)), deaths


def ends(directory, name):
    """The agreed e and the bits of all agents, and the deaths."""
    algorithm, options = ALGORITHMS[name]
    setting = agent_network.configs(
        directory, algorithm, NETWORK, dim=DIM, iterations=40, seed=5, tls=False, id="one",
        is_auto=True, eta=NETWORK.eta, **options,
    )  # fmt: skip
    results, deaths = asyncio.run(survive(setting))
    assert {r.status for r in results} == {Status.DONE}, results
    return [agreed(c.state) for c in setting], [r.theta.tobytes() for r in results], deaths


def agreed(state: Path):
    return json.loads((state / "links.json").read_text())[STEPSIZE]


def kill_at_every_store(monkeypatch, *, after):
    """Kill every agent once at each content of its file of announcements."""
    seen = set()

    def store(file, announcements, original=agreement._store):
        key = file, tuple(one.number for one in announcements)
        is_due = key not in seen
        seen.add(key)
        if is_due and not after:
            raise KilledError
        original(file, announcements)
        if is_due:
            raise KilledError

    monkeypatch.setattr(agreement, "_store", store)
    return seen


@pytest.mark.parametrize(("name", "after"), [("EXTRA", False), ("PDG-NDS", True)])
def test_agents_killed_at_every_announcement_end_with_the_same_stepsize_and_bits(
    tmp_path, monkeypatch, name, after
):
    calm = ends(tmp_path / "calm", name)
    assert len(set(calm[0])) == 1
    seen = kill_at_every_store(monkeypatch, after=after)
    assert ends(tmp_path / "killed", name) == (*calm[:2], len(seen))
    files = {file for file, _ in seen}
    for file in files:  # own, those of all, with the own second, all of both
        held = [set(numbers) for of, numbers in seen if of == file]
        assert {len(numbers) for numbers in held} >= {1, M, M + 1, 2 * M}


def test_a_second_announcement_that_was_made_stands_though_the_agent_now_computes_another(
    tmp_path, monkeypatch
):
    """As on a processor that rounds differently: what neighbours may know is not told anew."""
    made = []

    def chosen(run, announced, original=auto.chosen):
        made.append(original(run, announced) + len(made))
        return made[-1]

    monkeypatch.setattr("hushgrad.network.staging.chosen", chosen)
    seen = kill_at_every_store(monkeypatch, after=True)
    stepsizes, _, deaths = ends(tmp_path, "EXTRA")
    assert len(set(stepsizes)) == 1
    assert deaths == len(seen)
    assert len(made) > M  # they did compute again
    width = links_width(M)
    file = next(file for file, _ in seen)
    kept = decode_announcements(file.read_bytes(), width)
    seconds = [one.stepsize for one in kept if one.number >= M]
    assert stepsizes[0] == max(seconds)


def test_processes_killed_between_their_two_announcements_end_with_the_bits_of_a_calm_run(tmp_path):
    """The end of the path comes late, so nobody makes a second announcement before the kill."""
    network = process_network.write_network(
        tmp_path / "network", {"name": "EXTRA", "stepsize": "auto"}, edges=PATH, seed=5
    )
    calm = process_network.twin(network, tmp_path / "twin")
    try:
        calm.start()
        assert calm.end() == [0] * M
        network.start(0, 1, 2)
        for j in (0, 1):
            network.wait(lambda j=j: (network.state(j) / ANNOUNCEMENTS).exists())
        for j in (0, 1):
            kept = (network.state(j) / ANNOUNCEMENTS).read_bytes()
            assert [one.number for one in decode_announcements(kept, links_width(M))] == [j]
            network.kill(j)
            network.start(j)
        network.start(3)
        assert network.end() == [0] * M
        assert {agreed(n.state(j)) for n in (network, calm) for j in range(M)} == {
            agreed(calm.state(0))
        }
        for j in range(M):
            assert network.result(j).theta.tobytes() == calm.result(j).theta.tobytes()
    finally:
        network.close()
        calm.close()
