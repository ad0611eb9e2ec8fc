"""Drift: in PDG-DS agents that disagree drift together, by laws that everyone knows.

With diminishing stepsizes the disagreement ε of x^{k+1} = W x^k − B^k Λ^k g^k settles, in units of
λ^k, where (I − W) ε = −E[B] g, g_i = g_i(θ*). By `fluctuations`, the vectors that agent j sees of
others settle too, with public numbers C:

    r_jl = (v_jl − w_jl x_j) / λ^k  →  Σ_a C_(jl)a g_a,       Σ_a g_a = 0

There is one equation for each neighbour of each member, and one for the optimum. The unknowns are
the g_a of the agents outside. An agent that is linked to all others, or to all but one, needs no
help. A split whose mean is public, fresh or isotropic, does not help against it: chance averages
out. The pseudo-inverse says which g_i the equations determine, and how much it magnifies a rest
that has not settled yet.

PDG-NDS leaves no disagreement to read, and a private constant split has no public mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.fluctuations import limits, mean_response, pairs_of, seen, window
from hushgrad.privacy.attacks.pdg import (
    is_two_step,
    stepped_gradients,
    stepsizes,
    unfit,
    unmasked,
)
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.splits import PrivateConstantSplit

type Floats = NDArray[np.float64]

_LEAST = 2000  # iterations: earlier nothing has settled
_UNSETTLED = 0.01  # of what is seen
_OPEN = 1e-6  # share of a g_i in what the equations leave open


@dataclass(frozen=True, kw_only=True)
class Drift(Attack):
    """g_i(θ*) from the mean disagreement with what members hear, in PDG-DS."""

    sure: float = 0.1  # relative error, by what has not settled, up to which it is claimed

    name = "drift"
    title = "Drift"

    def applies(self, view: Knowledge, target: int) -> str | None:
        reason = unfit(view, target)
        if reason:
            return reason
        if is_two_step(view):
            return "PDG-NDS leaves no disagreement to read"
        if not pairs_of(view):
            return "needs an agent of its own that hears others"
        if isinstance(cast("Private", view.algorithm).splitting, PrivateConstantSplit):
            return "the mean of the splits is private"
        if view.iterations < _LEAST:
            return f"needs {_LEAST} iterations, the run has {view.iterations}"
        heard = window(stepsizes(view))
        if heard.stop - heard.start < _LEAST // 4:
            return f"stepsizes are lost in rounding after {heard.stop} iterations"
        free, inverse, design = _equations(view)
        row = inverse[free.index(target)] @ design
        row[free.index(target)] -= 1.0
        if np.abs(row).max() > _OPEN:
            return f"hears too few agents to tell agent {target} from others"
        return None

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        pairs, lam = pairs_of(view), stepsizes(view)
        free, inverse, _ = _equations(view)
        heard = window(lam)
        settled = limits(seen(view, pairs)[heard] / lam[heard, None, None], heard)
        known = np.concatenate([settled, np.zeros((1, view.dim))])
        C = _with_sum(mean_response(view, pairs))
        for j in view.members:
            known -= np.outer(C[:, j], stepped_gradients(view, j)[-1])
        row = inverse[free.index(target)]
        g = row @ known
        off = _UNSETTLED * np.linalg.norm(row) * np.abs(settled).max()
        if off > self.sure * np.linalg.norm(g):
            return ()
        g = unmasked(view, target, g)
        return (Estimate(attack=self.name, target=target, quantity="gradient at optimum", value=g),)


def _equations(view: Knowledge) -> tuple[list[int], Floats, Floats]:
    """Agents outside, the pseudo-inverse of their equations, and these."""
    free = [a for a in range(view.n_agents) if a not in view.members]
    design = _with_sum(mean_response(view, pairs_of(view)))[:, free]
    return free, np.linalg.pinv(design, rcond=1e-9), design


def _with_sum(C: Floats) -> Floats:
    """The equations and Σ_a g_a = 0 below."""
    return np.concatenate([C, np.ones((1, C.shape[1]))])
