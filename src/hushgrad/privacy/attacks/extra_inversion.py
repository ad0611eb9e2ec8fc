"""Inversion of EXTRA: the update solved for the gradient.

EXTRA sends x_j^0, then u_j^k = 2x_j^k − x_j^{k−1}, so that x_j^k = (u_j^k + x_j^{k−1}) / 2 follows
from iteration to iteration. With h = λg and M = (I + W)/2 the update says

    h_i^0            = Σ_j w_ij x_j^0 − x_i^1
    h_i^k − h_i^{k−1} = Σ_j m_ij u_j^k − x_i^{k+1},        k = 1 … n − 2

An adversary that hears i and every agent that i listens to knows the right-hand sides. The
differences add up to h_i^k, and g_i^k = h_i^k / λ^k with the public λ^k (its mean, if stepsizes
deviate). If one sender of i is not heard, m_ij u_j^k stays unknown in every line.

The last gradient is the estimate of g_i(θ*), as near as x_i^{n−2} is to θ*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrad.algorithms.extra import EXTRA
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.broadcasts import Broadcast, silent
from hushgrad.privacy.attacks.dgd_inversion import inverted
from hushgrad.privacy.attacks.in_clear import unrolled
from hushgrad.privacy.attacks.pdg import stepsizes
from hushgrad.privacy.knowledge import Knowledge

_U = Broadcast(letter="W")


@dataclass(frozen=True, kw_only=True)
class EXTRAInversion(Attack):
    """g_i^k for all k from 2x^k − x^{k−1} on the wire."""

    name = "extra-inversion"
    title = "inversion of EXTRA"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if not isinstance(view.algorithm, EXTRA):
            return f"inverts EXTRA, not {view.algorithm.title}"
        return silent(view, target, with_senders=True, iterations=2)

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        u = _U.said(view, target)
        x = unrolled(u)
        mixed = _U.matrix(view)[target, target] * u + _U.received(view, target)  # W u
        mixed[1:] = (u[1:] + mixed[1:]) / 2  # M u
        h = np.cumsum(mixed[:-1] - x[1:], axis=0)
        return inverted(self.name, target, h / stepsizes(view)[:-1, None])
