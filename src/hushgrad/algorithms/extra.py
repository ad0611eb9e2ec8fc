"""EXTRA: exact first-order algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hushgrad.algorithms.base import Stepping
from hushgrad.exchange import Array, Pull, Step
from hushgrad.mixing import Kind


class EXTRAState(NamedTuple):
    x: Array  # (agents, d, trials) x^k
    x_prev: Array  # (agents, d, trials) x^{k−1}
    h_prev: Array  # (agents, d, trials) λ g^{k−1}


@dataclass(frozen=True, kw_only=True)
class EXTRA(Stepping):
    """x^1 = W x^0 − λ g^0,   x^{k+1} = (I + W) x^k − ½(I + W) x^{k−1} − λ (g^k − g^{k−1})

    Shi, Ling, Wu & Yin, *EXTRA: an exact first-order algorithm for decentralized consensus
    optimization*, 2015, with W̃ = (I + W)/2. The wire carries 2x^k − x^{k−1}.
    """

    title = "EXTRA"
    needs = {"W": Kind.SYMMETRIC}
    cites = ("shi2015extra",)
    guarantee = "exact and linear, strongly convex f_i, constant stepsize"

    def init(self, agent: Any, x0: Array) -> EXTRAState:
        return EXTRAState(x=x0, x_prev=x0, h_prev=0.0 * x0)

    def first(self, agent: Any, s: EXTRAState) -> Step[EXTRAState]:
        h = self.lam(agent) * agent.gradient(s.x)
        Wx = yield Pull(agent.W @ s.x)
        return EXTRAState(x=Wx - h, x_prev=s.x, h_prev=h)

    def step(self, agent: Any, s: EXTRAState) -> Step[EXTRAState]:
        h = self.lam(agent) * agent.gradient(s.x)
        mixed = yield Pull(agent.M @ (2.0 * s.x - s.x_prev))
        return EXTRAState(x=mixed - (h - s.h_prev), x_prev=s.x, h_prev=h)
