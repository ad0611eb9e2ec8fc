"""Inversion of DGD: the update solved for the gradient.

DGD sends x_j^k itself, and x_i^{k+1} = Σ_j w_ij x_j^k − λ^k g_i^k. An adversary that hears x_i and
every x_j that i listens to solves

    g_i^k = (Σ_j w_ij x_j^k − x_i^{k+1}) / λ^k,        k = 0 … n − 2

(x_i^n is never sent). W and the schedule λ^k are public; if stepsizes deviate in secret, λ^k is the
mean that is public. A vector is the same on all links, so one link out of every sender is enough.
If one sender of i is not heard at all, its w_ij x_j^k stays between g_i^k and the adversary.

PDG-DS without a split, B = I, is DGD whose senders weigh: the wire carries w_lj x_j^k.

The last gradient is the estimate of g_i(θ*), as near as x_i^{n−2} is to θ*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Algorithm
from hushgrad.algorithms.dgd import DGD
from hushgrad.algorithms.pdg_ds import PDGDS
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.broadcasts import Broadcast, silent
from hushgrad.privacy.attacks.pdg import stepsizes
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.splits import IdentitySplit


def _sends(algorithm: Algorithm) -> Broadcast | None:
    """The messages of DGD and its like that carry x."""
    if isinstance(algorithm, PDGDS) and isinstance(algorithm.splitting, IdentitySplit):
        return Broadcast(letter="W", pushed=True)
    return Broadcast(letter="W") if isinstance(algorithm, DGD) else None


@dataclass(frozen=True, kw_only=True)
class DGDInversion(Attack):
    """g_i^k for all k from x on the wire."""

    name = "dgd-inversion"
    title = "inversion of DGD"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if _sends(view.algorithm) is None:
            return f"inverts DGD, not {view.algorithm.label}"
        return silent(view, target, with_senders=True, iterations=2)

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        sent = _sends(view.algorithm)
        assert sent is not None
        x = sent.said(view, target)
        mixed = sent.matrix(view)[target, target] * x + sent.received(view, target)
        g = (mixed[:-1] - x[1:]) / stepsizes(view)[:-1, None]
        return inverted(self.name, target, g)


def inverted(attack: str, target: int, g: NDArray[np.float64]) -> tuple[Estimate, ...]:
    """Gradients g^0 … and the last one as g(θ*)."""
    return (
        Estimate(attack=attack, target=target, quantity="gradient", k=np.arange(len(g)), value=g),
        Estimate(attack=attack, target=target, quantity="gradient at optimum", value=g[-1]),
    )
