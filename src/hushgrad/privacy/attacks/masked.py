"""The start of the attacks on masks: masked statistics, and how the masks of honest agents spread.

In the letters of masks/zero_sum.py, partners i and j share (c_ij, Q_ij); i adds it, j subtracts it.
A coalition takes off the shares of its members. The masks of the graph M of pairs of honest agents
remain: entry by entry, the masked statistics y = (q̃, H̃) of the honest agents are

    y = a + B s,      cov y = L_M ⊗ Σ

with a the true statistics, B the incidence matrix of M, L_M = B Bᵀ its Laplacian and Σ the public
covariance of one share. The upper triangle of H counts once, as shares are drawn: Σ has σ_c² on
q, and on H σ_Q² plus τ² between entries of the diagonal (the part of Q_ij that is a multiple of
the identity).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.masking import mask_sizes
from hushgrad.algorithms.base import Masked
from hushgrad.masks import ZeroSum
from hushgrad.privacy.attacks.base import Attack
from hushgrad.privacy.attacks.objective_fit import ObjectiveFit
from hushgrad.privacy.attacks.trajectory import Trajectory
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]

# whose "objective" is the masked statistic; the first is exact, but needs constant splits
SOURCES: tuple[Attack, ...] = (Trajectory(), ObjectiveFit())

_fitted: WeakKeyDictionary[Knowledge, dict[int, Floats | None]] = WeakKeyDictionary()


def no_statistic(view: Knowledge, target: int) -> str | None:
    """Why the masked statistic of an agent cannot even be looked for."""
    reasons = [source.applies(view, target) for source in SOURCES]
    return None if None in reasons else reasons[0]


def masked_objective(view: Knowledge, target: int) -> Floats | None:
    """[H̃_i | q̃_i] (d, d + 1) less what members know of its mask; None where messages hide it."""
    known = _fitted.setdefault(view, {})
    if target not in known:
        known[target] = _look_for(view, target)
    return known[target]


def _look_for(view: Knowledge, target: int) -> Floats | None:
    for source in SOURCES:
        if source.applies(view, target) is None:
            for estimate in source(view, target):
                if estimate.quantity == "objective":
                    return estimate.value
    return None


@dataclass(frozen=True)
class ShareSizes:
    """Standard deviations of what one pair shares, all zero without masks."""

    linear: float  # of an entry of c_ij
    white: float  # of an entry of Q_ij
    identity: float  # of the multiple of I in Q_ij

    @staticmethod
    def of(view: Knowledge) -> ShareSizes:
        algorithm = view.algorithm
        if not isinstance(algorithm, Masked) or algorithm.masking is None:
            return ShareSizes(0.0, 0.0, 0.0)
        sizes: Any = mask_sizes(algorithm, view.network, view.dim, view.mask_scale)
        return ShareSizes(sizes.linear, sizes.quadratic, getattr(sizes, "identity", 0.0))

    def inner(self, a: Floats, b: Floats) -> float:
        """aᵀ Σ⁻¹ b of two statistics [H | q] (d, d + 1); infinite where Σ hides nothing of them."""
        d, upper = len(a), np.triu_indices(len(a))
        linear = _over(float(a[:, -1] @ b[:, -1]), self.linear**2)
        A, B = a[:, :-1], b[:, :-1]
        white = _over(float(A[upper] @ B[upper]), self.white**2)
        if math.isinf(white) or not self.identity:
            return linear + white
        ratio = self.identity**2 / (self.white**2 + d * self.identity**2)  # Sherman and Morrison
        return linear + white - ratio * float(np.trace(A) * np.trace(B)) / self.white**2


def _over(product: float, variance: float) -> float:
    if variance > 0:
        return product / variance
    return math.inf if product > 0 else -math.inf if product < 0 else 0.0


def honest_laplacian(view: Knowledge) -> tuple[list[int], Floats]:
    """The honest agents, ascending, and L_M of the pairs of them that share masks."""
    honest = [i for i in range(view.n_agents) if i not in view.members]
    masking: ZeroSum | None = getattr(view.algorithm, "masking", None)
    place = {i: n for n, i in enumerate(honest)}
    L = np.zeros((len(honest), len(honest)))
    if masking is None:
        return honest, L
    for i in honest:
        for j in masking.partners(i, view.n_agents):
            if j in place:
                L[place[i], place[i]] += 1.0
                L[place[i], place[j]] -= 1.0
    return honest, L


def component(L: Floats, i: int) -> list[int]:
    """The agents connected with i in the graph of a Laplacian, i included, ascending."""
    found, new = {i}, [i]
    while new:
        near = {int(j) for j in np.flatnonzero(L[new.pop()])} - found
        found |= near
        new += near
    return sorted(found)
