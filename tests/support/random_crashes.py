"""Three agents in one event loop, over several runs if need be, and every iterate that they had.
Tests of faults and of security disturb the agents and compare the iterates with a calm run's.
"""

import asyncio

import numpy as np

import hushgrad as hg
from support import agent_network

M, DIM = 3, 3
FRESH = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.2))


class Life:
    """Runs of the same agents: their configurations, gradients and iterates."""

    def __init__(self, directory, keys, algorithm=FRESH, *, tls=True, iterations=120, **options):
        options = {"heartbeat": 0.2, "max_wait": 20.0} | options
        self.directory, self._tls = directory, tls
        self.configs = agent_network.configs(
            directory, algorithm, hg.Network(hg.graphs.ring(M)), dim=DIM, iterations=iterations,
            keys=keys, tls=tls, **options,
        )  # fmt: skip
        self.iterates = [{} for _ in range(M)]  # of each agent: k → bits
        self.calls = [0] * M
        self.at = {}  # (agent, number of a gradient) → a function to call there

    def parts(self, j):
        """H_j and c_j of ∇f_j(θ) = H_j (θ − c_j)."""
        rng = np.random.default_rng([3, j])
        A, c = rng.normal(size=(DIM + 2, DIM)), rng.normal(size=DIM)
        return A.T @ A / (2 * DIM), c

    def gradient(self, j):
        H, c = self.parts(j)

        def gradient(theta):
            self.calls[j] += 1
            if act := self.at.get((j, self.calls[j])):
                self.loop.call_soon_threadsafe(act)
            return H @ (theta - c)

        return gradient

    async def run(self, *, until=None, seconds=60, siege=None):
        """Run all agents to their end, or until one reaches an iteration; returns their results.

        The last agent comes late: when the coroutine `siege` is through with the others.
        """
        self.loop = asyncio.get_running_loop()
        self.agents = agent_network.agents(
            self.configs, [self.gradient(j) for j in range(M)], tls=self._tls,
            hessians=[lambda _, j=j: self.parts(j)[0] for j in range(M)],
        )  # fmt: skip

        def note(agent):
            k, x = agent.stats.iteration, agent.x.tobytes()
            assert self.iterates[agent.config.number].setdefault(k, x) == x
            if k == until:
                for other in self.agents:
                    other.stop()

        for agent in self.agents:
            agent._note = lambda rounds, agent=agent: (
                type(agent)._note(agent, rounds),
                note(agent),
            )
        async with asyncio.timeout(seconds):
            return await asyncio.gather(*map(self._run, self.agents, [None] * (M - 1) + [siege]))

    async def _run(self, agent, siege):
        if siege is not None:
            await siege
        return await agent.run()
