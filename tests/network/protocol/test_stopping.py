"""All agents stop in the same round, and not before all were still."""

import asyncio
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.stopping import Stopping
from support import agent_network, cases
from support.tables import some


def random_tree_and_more(rng, m):
    links = {(rng.randrange(i), i) for i in range(1, m)}
    links |= {tuple(sorted(rng.sample(range(m), 2))) for _ in range(rng.randrange(m))}
    return {i: [a + b - i for a, b in links if i in (a, b)] for i in range(m)}


def diameter(near):
    def reach(i):
        seen, rim, hops = {i}, [i], 0
        while len(seen) < len(near):
            rim = [j for k in rim for j in near[k] if j not in seen]
            seen |= set(rim)
            hops += 1
        return hops

    return max(reach(i) for i in near)


def stops(near, hops, still):
    """The round in which each agent stops; still[n][i]: agent i is still in round n."""
    agents = {i: Stopping(hops) for i in near}
    stopped = {}
    for n, now in enumerate(still):
        sent = {i: agent.encode() for i, agent in agents.items()}
        for i, agent in agents.items():
            if agent.next((sent[j] for j in near[i]), is_still=now[i]) and i not in stopped:
                stopped[i] = n
    return [stopped.get(i) for i in near]


@given(st.integers(0, 10**9), st.integers(2, 12), st.integers(0, 3))
def test_agents_stop_when_all_were_still_as_many_rounds_ago_as_there_are_hops(seed, m, slack):
    rng = random.Random(seed)
    near = random_tree_and_more(rng, m)
    hops = diameter(near) + slack
    quiet = [rng.randrange(60) for _ in near]
    still = [[n > quiet[i] or rng.random() > 0.1 for i in near] for n in range(100)]
    first = next(n for n in range(hops, 100) if all(still[n - hops]))
    assert stops(near, hops, still) == [first] * m


def test_a_bound_below_the_diameter_does_not_hold_agents_together():
    path = {i: [j for j in (i - 1, i + 1) if 0 <= j < 6] for i in range(6)}
    still = [[i < 5 or n > 50 for i in range(6)] for n in range(100)]
    assert len(set(stops(path, 3, still))) > 1


@pytest.mark.parametrize("hops", [0, 1, 63, 64, 200])
def test_bits_are_whole_words_and_come_back_from_them(hops):
    agent = Stopping(hops)
    assert agent.n_bytes % 8 == 0
    assert 0 <= 8 * agent.n_bytes - (hops + 1) < 64
    for n in range(hops):
        assert not agent.next([agent.encode()], is_still=True), n
    assert agent.next([agent.encode()], is_still=True)
    assert int.from_bytes(agent.encode(), "little") == 2 ** (hops + 1) - 1


def test_without_a_tolerance_messages_carry_no_bits_and_nobody_stops():
    agent = Stopping(None)
    assert (agent.encode(), agent.next([b""], is_still=True)) == (b"", False)


Q = cases.Quadratics(by_hand=True)
CONSTANT = hg.stepsizes.constant(0.05)
# tolerances that agents reach one after the other, after 40 to 300 iterations
METHODS = {
    "PDGDS": (hg.PDGDS(stepsize=hg.stepsizes.diminishing(scale=0.5, offset=5)), 0.5),
    "PDGNDS": (hg.PDGNDS(stepsize=CONSTANT), 0.03),
    "AB": (hg.AB(stepsize=CONSTANT), 0.03),
    "AsynDGM": (hg.AsynDGM(stepsize=CONSTANT), 0.1),
}


@pytest.mark.parametrize("name", some(METHODS, 2))
def test_agents_stop_together_at_the_first_iteration_that_is_still_everywhere(name, tmp_path):
    algorithm, tolerance = METHODS[name]
    network, K = cases.undirected(), 1000
    configs = agent_network.configs(
        tmp_path, algorithm, network, dim=cases.D, iterations=K, seed=1, x0=Q.x0, tls=False,
        tolerance=tolerance,
    )  # fmt: skip
    gradients = [Q.problem.local_gradient(j, None) for j in range(cases.M)]
    agents = agent_network.agents(configs, gradients, tls=False)

    async def run():
        return await asyncio.gather(*(agent.run() for agent in agents))

    results = asyncio.run(run())
    assert {result.status for result in results} == {Status.CONVERGED}
    (k,) = {result.iterations for result in results}
    path = cases.trajectory(algorithm, Q.problem, network, Q.x0, k, seed=1, engine="agents")[0]
    assert np.abs(path[-1] - [result.theta for result in results]).max() < 1e-12
    lam = np.array([algorithm.schedule.base(n + 1.0) for n in range(k)])
    moved = np.abs(np.diff(path, axis=0)).max(2) / lam[:, None]  # (k, agents)
    if name == "AsynDGM":  # an agent that slept repeats its last verdict
        for n in range(1, k):
            moved[n] = np.where(moved[n] == 0, moved[n - 1], moved[n])
    still = (moved <= tolerance).all(1)
    rounds = {"AB": 2, "AsynDGM": 2}.get(name, 1)
    hops = network.n_agents - 1
    # the next round tells the end of an iteration, and every hop takes one more round
    first = next(n for n in range(k) if still[n])
    assert k == -(-(rounds * (first + 1) + hops) // rounds)
