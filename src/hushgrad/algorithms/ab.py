"""AB: gradient tracking with a row- and a column-stochastic matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hushgrad.algorithms.base import Tracker, TrackerState
from hushgrad.exchange import Pull, Push, Step
from hushgrad.mixing import Kind


@dataclass(frozen=True, kw_only=True)
class AB(Tracker):
    """x^{k+1} = R x^k − λ y^k,   y^{k+1} = C (y^k + g^{k+1} − g^k)

    Xin & Khan, *A linear algorithm for optimization over directed graphs with geometric
    convergence*, 2018, in the form that Wang & Nedić print. An iteration has two rounds, because
    g^{k+1} needs x^{k+1}.
    """

    title = "AB"
    needs = {"R": Kind.ROW, "C": Kind.COLUMN}
    cites = ("xin2018linear",)
    guarantee = "exact and linear, strongly convex f_i, directed graphs"

    def step(self, agent: Any, s: TrackerState) -> Step[TrackerState]:
        Rx = yield Pull(agent.R @ s.x)
        x = Rx - self.lam(agent) * s.y
        g = agent.gradient(x)
        y = yield Push(agent.C @ (s.y + g - s.g))
        return TrackerState(x=x, y=y, g=g)
