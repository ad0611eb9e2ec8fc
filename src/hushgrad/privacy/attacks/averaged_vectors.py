"""The vectors of an average, from the first message or from what mixing makes of it.

Consensus begins with x^0 = a − c and sends x_j^0 itself, so an adversary that hears one link out of
i has x_i^0. The messages of others tell it too, because each x^k is a polynomial of W, times x^0:

    y = K x^0,        K = [E_S; E_S p_1(W); E_S p_2(W); …]        E_S: the rows S of I

Here S are the agents that the adversary hears (gossip_reconstruction.py says when this determines
x_i^0). Members of a coalition know the shares c_ij that they have in the mask of i:

    a_i = x_i^0 + Σ_{j member} c_ij + Σ_{j honest} c_ij

The last sum is the secret of honest partners; the attack takes it for zero. Without masks, or
without an honest partner, it is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.consensus import Consensus
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.broadcasts import Broadcast, ears
from hushgrad.privacy.attacks.gossip_reconstruction import reconstruct
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]

_X = Broadcast(letter="W")
_MOST_AGENTS = 200  # K has as many columns, and as many rows for every agent that is heard


@dataclass(frozen=True, kw_only=True)
class AveragedVectors(Attack):
    """a_i of Consensus, which is all of f_i(θ) = ½‖θ − a_i‖²."""

    most_doubt: float = 0.05  # of a vector that nobody hears; beyond it nothing is claimed

    name = "averaged-vectors"
    title = "vectors of an average"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if not isinstance(view.algorithm, Consensus):
            return f"reads the start of Consensus, not of {view.algorithm.title}"
        if target in view.members:
            return f"agent {target} belongs to the adversary"
        if ears(view, target):
            return None
        if not _observed(view):
            return "hears nobody"
        if view.n_agents > _MOST_AGENTS:
            return f"solves for at most {_MOST_AGENTS} agents that nobody hears"
        return None

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        start = _X.said(view, target)[0] if ears(view, target) else self._mixed(view, target)
        if start is None:
            return ()
        a = start + sum(
            shared[target].c
            for shared in (view.own(j).shared for j in view.members)
            if target in shared
        )
        value = np.column_stack([np.eye(view.dim), -a])
        return (Estimate(attack=self.name, target=target, quantity="objective", value=value),)

    def _mixed(self, view: Knowledge, target: int) -> Floats | None:
        observed, rounds = _observed(view), min(view.n_agents, view.iterations)
        seen = np.stack([_X.said(view, j)[:rounds] for j in observed], axis=1)
        found, doubt = reconstruct(_knowledge(view, observed, rounds), seen.reshape(-1, view.dim))
        return None if doubt[target] > self.most_doubt else found[target]


def _observed(view: Knowledge) -> list[int]:
    return [j for j in range(view.n_agents) if ears(view, j)]


def _knowledge(view: Knowledge, observed: list[int], rounds: int) -> Floats:
    """K (rounds · observed, m)."""
    algorithm, W = view.algorithm, _X.matrix(view)
    assert isinstance(algorithm, Consensus)
    before, now = np.eye(len(W)), W
    rows = [before[observed]]
    for k in range(1, rounds):
        rows.append(now[observed])
        omega = 1.0 if algorithm.acceleration == "none" else float(algorithm.omega(k))
        before, now = now, omega * (W @ now) + (1.0 - omega) * before
    return np.concatenate(rows)
