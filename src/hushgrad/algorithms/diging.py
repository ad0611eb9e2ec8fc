"""DIGing: distributed inexact gradient method with gradient tracking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hushgrad.algorithms.base import Tracker, TrackerState
from hushgrad.exchange import Pull, Step
from hushgrad.mixing import Kind


@dataclass(frozen=True, kw_only=True)
class DIGing(Tracker):
    """x^{k+1} = W x^k − Λ y^k,   y^{k+1} = W y^k + g^{k+1} − g^k

    Nedić, Olshevsky & Shi, *Achieving geometric convergence for distributed optimization over
    time-varying graphs*, 2017.
    """

    title = "DIGing"
    needs = {"W": Kind.DOUBLY}
    cites = ("nedic2017achieving",)
    guarantee = "exact and linear, strongly convex f_i, constant stepsize"

    def step(self, agent: Any, s: TrackerState) -> Step[TrackerState]:
        Wx, Wy = yield Pull(agent.W @ s.x), Pull(agent.W @ s.y)
        x = Wx - self.lam(agent) * s.y
        g = agent.gradient(x)
        return TrackerState(x=x, y=Wy + g - s.g, g=g)
