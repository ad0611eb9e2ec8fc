"""Push-Pull: agents pull the estimates and push the trackers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hushgrad.algorithms.base import Tracker, TrackerState
from hushgrad.exchange import Pull, Push, Step
from hushgrad.mixing import Kind


@dataclass(frozen=True, kw_only=True)
class PushPull(Tracker):
    """x^{k+1} = R (x^k − Λ y^k),   y^{k+1} = C y^k + g^{k+1} − g^k

    Pu, Shi, Xu & Nedić, *Push–pull gradient methods for distributed optimization in networks*,
    2021.
    """

    title = "Push-Pull"
    needs = {"R": Kind.ROW, "C": Kind.COLUMN}
    cites = ("pu2020push",)
    guarantee = "exact and linear, strongly convex Σ f_i, directed graphs"

    def step(self, agent: Any, s: TrackerState) -> Step[TrackerState]:
        x, Cy = yield Pull(agent.R @ (s.x - self.lam(agent) * s.y)), Push(agent.C @ s.y)
        g = agent.gradient(x)
        return TrackerState(x=x, y=Cy + g - s.g, g=g)
