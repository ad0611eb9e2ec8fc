"""Aug-DGM: augmented distributed gradient method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hushgrad.algorithms.base import Tracker, TrackerState
from hushgrad.exchange import Pull, Step
from hushgrad.mixing import Kind


@dataclass(frozen=True, kw_only=True)
class AugDGM(Tracker):
    """x^{k+1} = W (x^k − Λ y^k),   y^{k+1} = W (y^k + g^{k+1} − g^k)

    Xu, Zhu, Soh & Xie, *Augmented distributed gradient methods for multi-agent optimization under
    uncoordinated constant stepsizes*, 2015. An iteration has two rounds, because g^{k+1} needs
    x^{k+1}.
    """

    title = "Aug-DGM"
    needs = {"W": Kind.DOUBLY}
    cites = ("xu2015augmented",)
    guarantee = "exact, convex f_i, uncoordinated constant stepsizes"

    def step(self, agent: Any, s: TrackerState) -> Step[TrackerState]:
        x = yield Pull(agent.W @ (s.x - self.lam(agent) * s.y))
        g = agent.gradient(x)
        y = yield Pull(agent.W @ (s.y + g - s.g))
        return TrackerState(x=x, y=y, g=g)
