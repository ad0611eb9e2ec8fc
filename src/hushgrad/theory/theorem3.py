"""Theorem 3 of Wang & Nedić, in its corrected form: the inequalities for a constant λ.

For k ≥ T all λ_i^k are as near to λ as one likes, so ‖λ^k‖² → mλ² and the inequalities read

    (i)    2Lλ/m ≤ 1 − η
    (ii)   λL ≤ δ/(1 + δ)                                        (L is missing in print)
    (iii)  η + 6m³L²λ²/(1 − η) ≤ c
    (iv)   6mL²λ² max{m²r²/(1 − δ), m³} ≤ (1 − η)³(1 − c)         (r² is misplaced in print)

with some δ, c ∈ (0, 1) and r = ‖W − I‖. Smaller δ and c only help in (iv), so the best are those
with equality in (ii) and (iii), and all four are monotone in λ: one largest λ satisfies them.

proven.py asks for that λ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Inequalities:
    """The four inequalities at one λ, with the best δ and c."""

    hold: bool
    delta: float
    c: float
    margins: tuple[float, float, float, float]  # left over right of (i) … (iv); ≤ 1 holds


def inequalities(lam: float, *, L: float, m: int, eta: float, r: float) -> Inequalities:
    """Whether the inequalities of Theorem 3 hold in the limit of large k."""
    x = lam * L
    delta = x / (1 - x) if x < 0.5 else math.inf  # (ii) with equality; δ < 1 asks for λL < ½
    c = eta + 6 * m**3 * x * x / (1 - eta)
    first = 2 * x / m / (1 - eta)
    if not delta < 1 or not c < 1:
        return Inequalities(False, delta, c, (first, x / 0.5, c, math.inf))
    left = 6 * m * x * x * max(m * m * r * r / (1 - delta), m**3)
    fourth = left / ((1 - eta) ** 3 * (1 - c))
    # strict, because deviations push (i) a little beyond its limit
    return Inequalities(max(first, fourth) < 1, delta, c, (first, x / 0.5, c, fourth))


def largest_stepsize(*, L: float, m: int, eta: float, r: float) -> float:
    """The largest λ that satisfies Theorem 3 on a network with this η and r.

    >>> lam = largest_stepsize(L=2.0, m=5, eta=0.6, r=1.2)
    >>> inequalities(0.999 * lam, L=2.0, m=5, eta=0.6, r=1.2).hold
    True
    >>> inequalities(1.001 * lam, L=2.0, m=5, eta=0.6, r=1.2).hold
    False
    """
    low, high = 0.0, 0.5 / L
    for _ in range(200):
        middle = (low + high) / 2
        if inequalities(middle, L=L, m=m, eta=eta, r=r).hold:
            low = middle
        else:
            high = middle
    return low
