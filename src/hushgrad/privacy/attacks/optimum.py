"""Optimum: the knowledge of all other agents together, whatever the method and however it hides.

At the minimiser the gradients add up to zero, and all agents learn θ*. So agents that know every
gradient but one know that one, without reading a message:

    g_i(θ*) = −Σ_{j≠i} g_j(θ*)

with θ* as the members' last estimates have it. The attack applies if all agents but i collude. Two
honest agents leave only the sum of their gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.knowledge import Knowledge


@dataclass(frozen=True, kw_only=True)
class Optimum(Attack):
    """g_i(θ*) by everyone else, from θ* alone."""

    name = "optimum"
    title = "the optimum itself"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if target in view.members:
            return f"agent {target} belongs to the adversary"
        if not view.members:
            return "needs curious agents"
        honest = view.n_agents - len(view.members)
        if honest > 1:
            return f"θ* tells only the sum of {honest} honest agents' gradients"
        return None

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        own = [view.own(j) for j in sorted(view.members)]
        theta = np.mean([agent.x[-1] for agent in own], axis=0)
        g = -np.sum([agent.gradient(theta) for agent in own], axis=0)
        return (Estimate(attack=self.name, target=target, quantity="gradient at optimum", value=g),)
