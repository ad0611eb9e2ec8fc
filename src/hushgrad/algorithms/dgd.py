"""DGD: decentralised gradient descent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from hushgrad.algorithms.base import Stepping
from hushgrad.exchange import Array, Pull, Step
from hushgrad.mixing import Kind, Network
from hushgrad.stepsizes import Auto, Schedule, diminishing


class DGDState(NamedTuple):
    x: Array  # (agents, d, trials)


@dataclass(frozen=True, kw_only=True)
class DGD(Stepping):
    """x^{k+1} = W x^k − Λ^k g^k

    Nedić & Ozdaglar, *Distributed subgradient methods for multi-agent optimization*, 2009.
    """

    stepsize: Schedule | Auto = diminishing()

    title = "DGD"
    needs = {"W": Kind.DOUBLY}
    cites = ("nedic2009distributed",)
    guarantee = "exact with diminishing stepsizes, O(λ) off with a constant one"

    def init(self, agent: Any, x0: Array) -> DGDState:
        return DGDState(x=x0)

    def step(self, agent: Any, s: DGDState) -> Step[DGDState]:
        h = self.lam(agent) * agent.gradient(s.x)
        Wx = yield Pull(agent.W @ s.x)
        return DGDState(x=Wx - h)

    def risks(self, network: Network, smoothness: float) -> Iterator[str]:
        if self.schedule.limit > 0:
            yield (
                "DGD with a constant stepsize stops at a distance of order λ from θ*. "
                "Use hg.stepsizes.diminishing(), or EXTRA, DIGing or PDGNDS for an exact answer."
            )
