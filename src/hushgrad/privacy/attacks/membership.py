"""Membership: whether a candidate row is agent i's, by the likelihood ratio of masked statistics.

The game. The adversary knows everything but one bit: all rows of everyone, and that the candidate
row belongs to agent i or else to another honest agent j (so the sum, which the result reveals
anyway, is the same). Nobody can know more, so the advantage is that of the best case. The row adds
Δ = [H_r | q_r] to the statistic of its owner. Masked statistics of honest agents have the
covariance L_M ⊗ Σ (masked.py). Let S be the honest agents whose statistics the adversary has, by
the fit of their messages, v = e_i − e_j on S (e_i where j is not in S), and z = y − E y if the row
is j's:

    row is j's:  z = noise,      row is i's:  z = v ⊗ Δ + noise

    log-likelihood ratio  ℓ = Δᵀ Σ⁻¹ (vᵀ L⁺ z) − μ²/2,      μ² = (vᵀ L⁺ v) Δᵀ Σ⁻¹ Δ

with L = L_M on S. ℓ is N(±μ²/2, μ²), so the best test (ℓ > 0, Neyman and Pearson) is right about
a row of i with probability Φ(μ/2) and wrong about one of j with Φ(−μ/2): its advantage is

    2 Φ(μ/2) − 1 = erf(μ / √8)

With all of a component of M in S, vᵀ L⁺ v is the effective resistance between i and j; with i alone
it is one over the number of its honest partners. j is the agent for which it is largest. An
agent without honest partner has μ = ∞, and so has a row whose Hessian no mask covers.

Masks are taken as Gaussian. Of uniform shares, sums of several are nearly so, and the exact
test of a single one is better.

Limits. Quadratic f_i, or one stage. What an adversary without the other rows can do is less, by how
much depends on what it can guess of them. A row that joins or leaves changes the sum, which this
game does not cover: no mask does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.masked import (
    ShareSizes,
    component,
    honest_laplacian,
    masked_objective,
    no_statistic,
)
from hushgrad.privacy.attacks.pdg import unfit
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]

_CUT = 1e-9  # of the largest eigenvalue: below, an eigenvalue of L is the component's zero
_MOST = 64  # agents whose statistics are fitted for one target


@dataclass(frozen=True, kw_only=True)
class Membership(Attack):
    """The likelihood-ratio test for the row of i that masks cover worst."""

    name = "membership"
    title = "Membership"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if reason := unfit(view, target):
            return reason
        if target not in view.suspects:
            return "has no candidate: the data are no rows, or f is not quadratic"
        return no_statistic(view, target)

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        y = masked_objective(view, target)
        if y is None:
            return ()
        value = np.array(self._test(view, target, y))
        return (Estimate(attack=self.name, target=target, quantity="membership", value=value),)

    def _test(self, view: Knowledge, target: int, y: Floats) -> tuple[float, float]:
        """ℓ and μ for the row with the largest μ."""
        sizes, (honest, L) = ShareSizes.of(view), honest_laplacian(view)
        row = max(view.suspects[target].rows, key=lambda row: sizes.inner(row, row))
        size = sizes.inner(row, row)
        near = component(L, honest.index(target))
        if len(near) == 1 or not np.isfinite(size):
            return np.inf, np.inf
        others = self._others(view, [honest[n] for n in near if honest[n] != target])
        have = [target, *others]
        at = [honest.index(i) for i in have]
        inverse = np.linalg.pinv(L[np.ix_(at, at)], rcond=_CUT, hermitian=True)
        shifts = np.eye(len(have))[0] - np.eye(len(have))  # e_i − e_j for every j in S
        if len(have) < len(near):
            shifts[0, 0] = 1.0  # and e_i, for a j outside
        spread = np.einsum("ja,ab,jb->j", shifts, inverse, shifts)
        largest = np.flatnonzero(spread >= (1.0 - _CUT) * spread.max())  # rounding chooses no j
        v = shifts[largest[0]]
        true = np.array([view.suspects[i].objective for i in have])
        z = np.array([y, *others.values()]) - true + v[:, None, None] * row
        square = float(spread.max() * size)
        along = np.einsum("a,ab,bde->de", v, inverse, z)
        return sizes.inner(row, along) - square / 2, float(np.sqrt(square))

    def _others(self, view: Knowledge, agents: list[int]) -> dict[int, Floats]:
        found: dict[int, Floats] = {}
        for i in agents[:_MOST]:
            y = masked_objective(view, i)
            if y is not None:
                found[i] = y
        return found
