"""Whitening: constant splits hide the size of g_i from one neighbour, not its direction.

With B constant and secret, a fresh ϱ_i^k still fluctuates: λ_i^k = λ(1 − ϱ_i^k α^k) moves every
share of agent i along g_i at once. In the units and letters of `fluctuations`, agent j sees

    r_jl = c_jl · (ε_l − ε_j)^{k, k−1} + b_jl (ϱ_l^k, in PDG-NDS ϱ_l^k − ϱ_l^{k−1}) g_l

Earlier draws, which went round the network, told the first part; the second is new in iteration k.
So r is whitened: a linear prediction from the last iterations of all that j hears leaves mostly the
new draw, a multiple of g_l, and the main axis of its covariance is the direction of g_l. Agents
that j does not hear send news through l too, by the factor c smaller. The secret b_jl multiplies
the size, so nothing is said about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.fluctuations import (
    is_steady,
    pairs_of,
    seen,
    stepsize_spread,
    still_draws,
    window,
    without_course,
)
from hushgrad.privacy.attacks.pdg import flat, unfit
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.splits import PrivateConstantSplit

type Floats = NDArray[np.float64]

_LEAST = 200  # samples
_MOST = 200  # numbers that predict: beyond, only what l itself sent is used
_RIDGE = 1e-6  # of the largest predictor: what fluctuates less predicts nothing


@dataclass(frozen=True, kw_only=True)
class Whitening(Attack):
    """The direction of g_i(θ*) from what a neighbour could not predict."""

    past: int = 3  # iterations that predict the next

    name = "whitening"
    title = "Whitening"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if reason := unfit(view, target) or flat(view):
            return reason
        if not any(i == target for _, i in pairs_of(view)):
            return f"has no agent beside agent {target}"
        if not isinstance(cast("Private", view.algorithm).splitting, PrivateConstantSplit):
            return "splits are not constant"
        if reason := still_draws(view):
            return f"{reason}, so nothing does"
        heard = window(stepsize_spread(view))
        if heard.stop - heard.start < _LEAST:
            return f"the fluctuations last {heard.stop} iterations"
        return None

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        pairs = pairs_of(view)
        if len(pairs) * view.dim * self.past > _MOST:
            pairs = [pair for pair in pairs if pair[1] == target]
        sizes = stepsize_spread(view)
        heard = window(sizes)
        r = without_course(seen(view, pairs)[heard] / sizes[heard, None, None], heard)
        if not is_steady(r):
            return ()
        new = _unpredicted(r.reshape(len(r), -1), self.past).reshape(-1, *r.shape[1:])
        of_target = new[:, [p for p, (_, i) in enumerate(pairs) if i == target]]
        covariance = np.einsum("kpi,kpj->ij", of_target, of_target)
        axis = np.linalg.eigh(covariance)[1][:, -1]
        return (Estimate(attack=self.name, target=target, quantity="direction", value=axis),)


def _unpredicted(y: Floats, past: int) -> Floats:
    """The rest of each row that a linear prediction from the last `past` rows leaves."""
    n = len(y)
    before = np.concatenate([y[past - s - 1 : n - s - 1] for s in range(past)], axis=1)
    held = _RIDGE * np.linalg.norm(before, axis=0).max() * np.eye(before.shape[1])
    rows = np.concatenate([before, held])
    told = np.concatenate([y[past:], np.zeros((len(held), y.shape[1]))])
    return y[past:] - before @ np.linalg.lstsq(rows, told, rcond=None)[0]
