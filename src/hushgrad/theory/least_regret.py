"""The stepsize that loses least if nothing is known but W and the largest curvatures L_i.

The fastest stepsize of EXTRA and PDG-NDS hangs on all Hessians. Deployed agents know W and their
L_i only (network/auto.py). Let r(λ) be the rate of a run with H_i = L_i, by its mean split B̄:

    x⁺ = M (2x − w) − λ B̄ D (x − w),   w⁺ = x,   M = ½(I + W),   D = diag(L_i)

It is stable up to `largest`, and fastest at some λ* below. A problem whose curvatures spread widely
(H_i between 0 and L_i) is the faster, the larger λ is. So with λ in between, the first problem
takes log r(λ*) / log r(λ) times its least number of iterations, the second largest/λ times. The
choice makes the larger of the two, its regret, as small as possible. No rule that knows only W and
L_i can promise less than that regret on both: docs/certificates.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]

SQUARINGS = 16  # of a step: rates come from 2¹⁵ steps
FINER = 2.0**0.25  # the ratio of neighbours among the stepsizes that are compared
STEPSIZES = 28  # so many, down to 1/128 of the largest
MARGIN = 2  # of them are left out with fresh splits, whose noise the mean split does not show
HALVINGS = 4  # of the interval that holds the largest stable stepsize
MOST_STEPS = 200  # of the search for it


class LeastRegret(NamedTuple):
    """A stepsize, and what it can lose."""

    lam: float
    regret: float  # iterations over those of the best stepsize, on the worse of two problems
    largest: float  # the largest stable stepsize if H_i = L_i


def least_regret(W: Floats, L: Floats, *, is_split: bool, within: float = 1.0) -> LeastRegret:
    """The choice for W (m, m) and L_i (m,), not all of them 0.

    is_split    PDG-NDS with fresh splits, whose mean is B̄; else B̄ = I, as in EXTRA
    within      the curvatures lie between L_i/within and L_i; rates are those of the middle
    """
    support = W > 0
    B = support / support.sum(axis=0) if is_split else np.eye(len(W))
    largest = _largest_split(W, B, L) if is_split else largest_extra(W, L)
    middle, start = math.sqrt(within), MARGIN if is_split else 1
    lams = largest * middle / FINER ** np.arange(start, STEPSIZES + 1)
    rates = np.array([log_rate(W, B, L / middle, float(lam)) for lam in lams])
    slower = rates.min() / np.where(rates < 0, rates, -math.inf)
    is_safe = (rates < 0) & (lams <= largest / FINER**start * (1 + 1e-9))
    regrets = np.where(is_safe, np.maximum(slower, largest * middle / lams), math.inf)
    best = int(np.argmin(regrets))
    return LeastRegret(float(lams[best]), float(regrets[best]), largest)


def largest_extra(W: Floats, L: Floats) -> float:
    """The λ up to which 2λD ≺ I + 3M: EXTRA is stable for all convex f_i (condition E)."""
    C = np.linalg.cholesky(2.5 * np.eye(len(W)) + 1.5 * W)
    inner = np.linalg.solve(C, np.linalg.solve(C, np.diag(2.0 * L)).T)
    return 1.0 / float(np.linalg.eigvalsh(inner)[-1])


def log_rate(W: Floats, B: Floats, L: Floats, lam: float) -> float:
    """log r(λ), from ‖A^{2K}‖/‖A^K‖ of the step A on the states that a run reaches."""
    m = len(W)
    M, h, eye = (np.eye(m) + W) / 2, lam * B * L, np.eye(m)
    step = np.block([[2 * M - h, h - M], [eye, np.zeros((m, m))]])
    # 1ᵀ(x − w) + 1ᵀλDw is conserved and starts at 0: take its part out of x
    kept = np.concatenate([np.ones(m), lam * L - 1.0]) / m
    step -= step[:, :m].sum(axis=1, keepdims=True) * kept
    log, before = 0.0, 0.0  # of the norm of the power
    for _ in range(SQUARINGS):
        size = float(np.linalg.norm(step))
        if not math.isfinite(size) or size == 0.0:
            return -math.inf if size == 0.0 else math.inf
        step = step / size
        before = log + math.log(size)
        step, log = step @ step, 2 * before
    return (log + math.log(max(float(np.linalg.norm(step)), 1e-300)) - before) / 2 ** (
        SQUARINGS - 1
    )


def _largest_split(W: Floats, B: Floats, L: Floats) -> float:
    """The largest stable λ with the mean split, by a walk down and bisection."""
    high = 8.0 / float(L.mean())
    is_stable: Callable[[float], bool] = lambda lam: log_rate(W, B, L, lam) < 0  # noqa: E731  # short
    for _ in range(MOST_STEPS):
        if is_stable(high / FINER):
            break
        high /= FINER
    low = high / FINER
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_stable(middle) else (low, middle)
    return low
