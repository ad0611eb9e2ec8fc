"""ADD-OPT: accelerated distributed directed optimisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hushgrad.algorithms.base import Stepping
from hushgrad.exchange import Array, Push, Step
from hushgrad.mixing import Kind


class ADDOPTState(NamedTuple):
    x: Array  # (agents, d, trials)
    y: Array  # (agents, 1, trials) push-sum weight
    w: Array  # (agents, d, trials) tracks the sum of gradients
    g: Array  # (agents, d, trials) gradient at z = x / y


@dataclass(frozen=True, kw_only=True)
class ADDOPT(Stepping):
    """x^{k+1} = C x^k − λ w^k,  y^{k+1} = C y^k,  z = x / y,  w^{k+1} = C w^k + g(z^{k+1}) − g(z^k)

    Xi, Xin & Khan, *ADD-OPT: accelerated distributed directed optimization*, 2018. The
    estimate is z.
    """

    title = "ADD-OPT"
    weighs_by_stepsize = False  # w tracks Σ g as in `Tracker`
    needs = {"C": Kind.COLUMN}
    cites = ("xi2017add",)
    guarantee = "exact and linear, strongly convex f_i, directed graphs"

    def init(self, agent: Any, x0: Array) -> ADDOPTState:
        g = agent.gradient(x0)
        return ADDOPTState(x=x0, y=agent.ones, w=g, g=g)

    def step(self, agent: Any, s: ADDOPTState) -> Step[ADDOPTState]:
        Cx, y, Cw = yield (
            Push(agent.C @ s.x),
            Push(agent.C @ s.y, scalar=True),
            Push(agent.C @ s.w),
        )
        x = Cx - self.lam(agent) * s.w
        g = agent.gradient(x / y)
        return ADDOPTState(x=x, y=y, w=Cw + g - s.g, g=g)

    def estimate(self, s: ADDOPTState) -> Array:
        return s.x / s.y
