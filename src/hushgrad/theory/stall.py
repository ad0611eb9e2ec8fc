"""The stall: how long the deviations of stepsizes hold a run back, beside its linear rate.

PDG-NDS and EXTRA move the mean by −(1/m) Σ λ_i^k g_i. With λ_i^k = λ(1 − ϱ_i/k^q), near θ*,

    x̄⁺ = x̄ − λ H̄ x̄ + (λ/m) Σ ϱ_i g_i(θ*) / k^q,      H̄ = (1/m) Σ ∇²f_i(θ*)

Only the variance 1/12 of ϱ counts, because Σ g_i(θ*) = 0. With V = Σ g_i g_iᵀ / (12 m²) and the
eigenvectors a of H̄ with eigenvalues h_a, the mean square of the error is k^−2q times

    Σ_a V_aa / h_a²               if ϱ is drawn once: the error follows the deviation
    Σ_a V_aa λ / (h_a (2 − λh_a))  if ϱ is drawn in each iteration: the step averages over draws

A geometric deviation has ratio^k in place of k^−q. The disagreement, which fresh draws keep up at
the order λg_i/k^q, is not counted. Trackers multiply λ_i^k with y → 0: no deviation stalls them.

tight.py adds it to the expected iterations.
"""

from __future__ import annotations

import math

import numpy as np

from hushgrad.algorithms import EXTRA, PDGNDS, Stepping
from hushgrad.stepsizes import Geometric, Harmonic
from hushgrad.theory.curvature import Floats, LocalCurvature


def stalled_iterations(
    algorithm: Stepping, at: LocalCurvature, slopes: Floats, lam: float, tolerance: float
) -> float:
    """Iterations until the part of an error that the deviation makes is below `tolerance`.

    slopes    (m, d), ∇f_i(θ*)
    """
    deviation = algorithm.schedule.deviation
    if not isinstance(algorithm, PDGNDS | EXTRA) or not isinstance(deviation, Harmonic | Geometric):
        return 0.0
    too_large = max(_size(at, slopes, lam, is_kept=deviation.drawn == "once") / tolerance, 1.0)
    if isinstance(deviation, Geometric):
        return math.log(too_large) / -math.log(deviation.ratio)
    return too_large ** (1.0 / deviation.power)


def _size(at: LocalCurvature, slopes: Floats, lam: float, *, is_kept: bool) -> float:
    """The root mean square of the error, times k^q."""
    m = len(slopes)
    values, vectors = np.linalg.eigh(at.hessians.mean(axis=0))
    along = ((slopes @ vectors) ** 2).sum(axis=0) / (12 * m * m)
    h = np.clip(values, 1e-12 * max(float(values[-1]), 1e-300), 1.999 / lam)
    return math.sqrt(float((along / (h * h if is_kept else h * (2 - lam * h) / lam)).sum()))
