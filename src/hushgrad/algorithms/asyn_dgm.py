"""AsynDGM: asynchronous distributed gradient method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hushgrad.algorithms.base import Tracker, TrackerState
from hushgrad.errors import AlgorithmError
from hushgrad.exchange import Push, Step
from hushgrad.mixing import Network


@dataclass(frozen=True, kw_only=True)
class AsynDGM(Tracker):
    """x^{k+1} = W^k (x^k − D^k y^k),   y^{k+1} = W^k (y^k + g^{k+1} − g^k)

    In each iteration one random link {i, j} wakes up: W^k = I − ½(e_i − e_j)(e_i − e_j)ᵀ, and D^k
    is λ for i and j, 0 for every other agent. A coin that all agents know picks the link.

    Xu, Zhu, Soh & Xie, *Convergence of asynchronous distributed gradient methods over stochastic
    networks*, 2018.
    """

    title = "AsynDGM"
    undirected = wakes_links = True
    cites = ("xu2017convergence",)
    guarantee = "exact in expectation, convex f_i, uncoordinated constant stepsizes"

    def step(self, agent: Any, s: TrackerState) -> Step[TrackerState]:
        W, awake, over = agent.pairing()
        x = yield Push(W @ (s.x - awake * self.lam(agent) * s.y), over=over)
        g = agent.gradient(x)
        y = yield Push(W @ (s.y + g - s.g), over=over)
        return TrackerState(x=x, y=y, g=g)

    def check(self, network: Network) -> None:
        super().check(network)
        if network.n_agents == 1:
            raise AlgorithmError(
                "AsynDGM wakes one link per iteration, but a network of one agent has none. "
                "Use another algorithm, or two agents."
            )
