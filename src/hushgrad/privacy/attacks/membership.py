"""Membership: whether a candidate row is agent i's, by the likelihood ratio of masked statistics.

The game. The adversary knows everything but one bit: all rows of everyone, and that the candidate
row belongs to agent i or else to another honest agent j. So the sum, which the result reveals
anyway, is the same. Nobody can know more, so the advantage is that of the best case. The row adds Δ
= [H_r | q_r] to the statistic of its owner. Masked statistics of honest agents have the covariance
L_M ⊗ Σ (masked.py). Let S be the honest agents whose statistics the adversary has, by the fit of
their messages, v = e_i − e_j on S (e_i if j is not in S), and z = y − E y if the row belongs to j:

    row is j's:  z = noise,      row is i's:  z = v ⊗ Δ + noise

    log-likelihood ratio  ℓ = Δᵀ Σ⁻¹ (vᵀ L⁺ z) − μ²/2,      μ² = (vᵀ L⁺ v) Δᵀ Σ⁻¹ Δ

with L = L_M on S. ℓ is N(±μ²/2, μ²), so the best test (ℓ > 0, Neyman and Pearson) is right about
a row of i with probability Φ(μ/2) and wrong about one of j with Φ(−μ/2): its advantage is

    2 Φ(μ/2) − 1 = erf(μ / √8)

With all of a component of M in S, vᵀ L⁺ v is the effective resistance between i and j; with i alone
it is one over the number of its honest partners. The adversary takes the agent j for which it is
largest. An agent without an honest partner has μ = ∞, and so has a row whose Hessian no mask
covers.

The test takes masks for Gaussian. Sums of several uniform shares are nearly so, and the exact test
of a single one is better.

Stages have masks of their own, so ratios of stages add up, and so do the μ². Δ is what the row adds
at the θ_s of the stage. With a fixed curvature H_i and Q_i are the same in all stages, so H̃ counts
once. The candidate is the row with the largest μ over all stages.

Limits. An adversary without the other rows achieves less, and how much less depends on what it can
guess of them. A row that joins or leaves changes the sum. This game does not cover such a change,
and no mask does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.base import Estimate, StagesAttack
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
class Membership(StagesAttack):
    """The likelihood-ratio test for the row of i that masks cover worst."""

    name = "membership"
    title = "Membership"

    def refusal(self, views: Sequence[Knowledge], target: int) -> str | None:
        if reason := unfit(views[0], target):
            return reason
        if any(target not in view.suspects for view in views):
            return "has no candidate: the data are no rows, or f is not quadratic"
        return no_statistic(views[0], target)

    def over(self, views: Sequence[Knowledge], target: int) -> tuple[Estimate, ...]:
        heard = [stage for s, view in enumerate(views) if (stage := _stage(view, target, s))]
        if not heard:
            return ()
        sizes = np.array([[stage.size(row) for row in stage.rows] for stage in heard])
        row = int(np.argmax(sizes.sum(axis=0)))
        tests = np.array([stage.test(row) for stage in heard])
        ratio, square = tests[:, 0].sum(), (tests[:, 1] ** 2).sum()
        value = np.array([ratio, np.sqrt(square)])
        return (Estimate(attack=self.name, target=target, quantity="membership", value=value),)


@dataclass(frozen=True, eq=False)
class _StageEvidence:
    """The statistics that an adversary has of one stage, and what it knows beside them."""

    target: int
    sizes: ShareSizes
    rows: Floats  # (rows, d, d + 1) what each row of the target adds
    statistics: dict[int, Floats]  # of the target, first, and others of its component
    truth: dict[int, Floats]  # of the same agents
    L: Floats  # of the same agents
    is_whole: bool  # whether they are the component

    def size(self, row: Floats) -> float:
        return self.sizes.inner(row, row)

    def test(self, number: int) -> tuple[float, float]:
        """ℓ and μ for one row."""
        row = self.rows[number]
        size = self.size(row)
        if (len(self.statistics) == 1 and self.is_whole) or not np.isfinite(size):
            return np.inf, np.inf
        inverse = np.linalg.pinv(self.L, rcond=_CUT, hermitian=True)
        shifts = np.eye(len(self.L))[0] - np.eye(len(self.L))  # e_i − e_j for every j in S
        if not self.is_whole:
            shifts[0, 0] = 1.0  # and e_i, for a j outside
        spread = np.einsum("ja,ab,jb->j", shifts, inverse, shifts)
        largest = np.flatnonzero(spread >= (1.0 - _CUT) * spread.max())  # rounding chooses no j
        v = shifts[largest[0]]
        z = np.array([y - self.truth[i] for i, y in self.statistics.items()])
        z = z + v[:, None, None] * row
        square = float(spread.max() * size)
        along = np.einsum("a,ab,bde->de", v, inverse, z)
        return self.sizes.inner(row, along) - square / 2, float(np.sqrt(square))


def _stage(view: Knowledge, target: int, s: int) -> _StageEvidence | None:
    """The evidence of a view of stage s; None if it does not tell the target's statistic."""
    y = masked_objective(view, target)
    if y is None:
        return None
    honest, L = honest_laplacian(view)
    near = component(L, honest.index(target))
    found = {target: y}
    for i in [honest[n] for n in near if honest[n] != target][:_MOST]:
        other = masked_objective(view, i)
        if other is not None:
            found[i] = other
    at = [honest.index(i) for i in found]

    def as_masked(statistics: Floats) -> Floats:
        """(…, d, d + 1) [H | q] as the agents masked them.

        With a fixed curvature the linear part is the gradient at the start of the stage, and H̃ is
        told once: later stages have the linear part alone.
        """
        if not isinstance(view.algorithm, Private) or view.algorithm.curvature != "fixed":
            return statistics
        made = statistics.copy()
        if view.start is not None:
            made[..., -1] += made[..., :-1] @ view.start
        made[..., :-1] *= s == 0
        return made

    return _StageEvidence(
        target,
        ShareSizes.of(view),
        as_masked(view.suspects[target].rows),
        {i: as_masked(y) for i, y in found.items()},
        {i: as_masked(view.suspects[i].objective) for i in found},
        L[np.ix_(at, at)],
        len(found) == len(near),
    )
