"""Conditions for the lazy form of PDG-NDS and for EXTRA, beyond the paper.

docs/certificates.md has the proofs. M = (I + W)/2 has the eigenvalues 1 > μ₂ ≥ … ≥ μ_m > 0.

    E    B = I, f_i convex and L-smooth, Σ |λ_i^k − λ| < ∞:     λ < (1 + 3 μ_m) / (2L)
    S    any column-stochastic B^k, F σ-strongly convex, λ_i^k → λ ≤ 2/(L + σ):
         τ λL [γ₂ + (λL/ρ) γ₁ (1 + 2L/σ)] < 1 with ρ = 1 − λσ/2 > √μ₂, τ = √(m − 1) ≥ ‖B − J‖

γ₁ = max |z/(z² − 2μz + μ)| and γ₂ = max |(z − 1)/(z² − 2μz + μ)| over |z| = ρ and μ = μ₂ … μ_m.

proven.py decides them for a run.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hushgrad.theory.rates import largest_stable

type Floats = NDArray[np.float64]


def extra_bound(L: float, smallest: float) -> float:
    """(1 + 3 μ_m) / (2L), of condition E; `smallest` is μ_m."""
    return (1 + 3 * smallest) / (2 * L)


def gains(mu: Floats, rho: float) -> tuple[float, float]:
    """(γ₁, γ₂), exactly: on |z| = ρ both are ratios of polynomials in the cosine of z's angle."""
    # |z² − 2μz + μ|² = a cos² − b cos + c
    a = 4 * mu * rho**2
    b = 4 * mu * rho * (rho**2 + mu)
    c = rho**4 + 4 * mu**2 * rho**2 + mu**2 - 2 * mu * rho**2
    ends = [np.full_like(mu, -1.0), np.full_like(mu, 1.0)]
    inner = np.clip((rho**2 + mu) / (2 * rho), -1, 1)  # where the denominator is smallest
    first = max(float((rho / np.sqrt(a * t * t - b * t + c)).max()) for t in [*ends, inner])
    # the derivative of |z − 1|² / |z² − 2μz + μ|² vanishes where p t² + q t + s = 0
    p, q, s = 2 * rho * a, -2 * a * (rho**2 + 1), b * (rho**2 + 1) - 2 * rho * c
    root = np.sqrt(np.maximum(q * q - 4 * p * s, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        roots = [np.where(p > 0, (-q + sign * root) / (2 * p), 1.0) for sign in (1, -1)]
    second = max(
        float(np.sqrt((rho**2 - 2 * rho * t + 1) / (a * t * t - b * t + c)).max())
        for t in [*ends, *(np.clip(t, -1, 1) for t in roots)]
    )
    return first, second


def loop_gain(lam: float, *, L: float, strong: float, mu: Floats, m: int) -> float:
    """The left-hand side of condition S; ∞ where its other conditions fail. mu: without μ = 1."""
    rho = 1 - lam * strong / 2
    if strong <= 0 or lam > 2 / (L + strong):
        return math.inf
    if m == 1:
        return 0.0
    if rho <= math.sqrt(float(mu.max())):
        return math.inf
    first, second = gains(mu, rho)
    x = lam * L
    return math.sqrt(m - 1) * x * (second + x / rho * first * (1 + 2 * L / strong))


def largest_by_gain(*, L: float, strong: float, mu: Floats, m: int) -> float:
    """The largest λ found that satisfies condition S; 0: none."""
    return largest_stable(
        lambda lam: loop_gain(lam, L=L, strong=strong, mu=mu, m=m) < 1, 1.0 / L, 1e-6
    )
