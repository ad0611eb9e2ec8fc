"""Spectral radii of linear steps: the tight rate, the largest stable stepsize, the fastest one.

The radius ρ of a step on the states that a run can reach decides everything near θ*: errors shrink
by ρ per iteration in the long run if ρ < 1, and grow if ρ > 1. `hushgrad.theory.certificate` and
`hushgrad.theory.auto` use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hushgrad.errors import optional
from hushgrad.theory.linear import Floats, LinearStep

DENSE_SIZE = 320  # numbers in a state up to which all eigenvalues take some 60 ms
MOST_DENSE = 2400  # and up to which they take less than a minute, where Arnoldi's method fails
KRYLOV = 60  # vectors that Arnoldi's method keeps; with 20 it stalls on rings and paths
RESTARTS = 12
ARNOLDI_TOLERANCE = 1e-8
LARGE = (
    6000  # numbers in a state from which stepsizes are compared by runs of the step, all at once
)
LARGE_RESTARTS = 2
LARGE_TOLERANCE = 1e-4
LARGE_STEPS = 90
PROJECTED = 10
LARGE_GRID = 6  # stepsizes at once
ONE = 1.0 + 1e-8  # rounding of a radius: below, a step counts as stable
THRESHOLD_TOLERANCE = 0.004  # relative, of the largest stable stepsize
COARSE_TOLERANCE = 0.05
COARSER = 0.5  # the ratio of neighbours in the search for the fastest stepsize
MOST_WORSE = 2  # so many worse stepsizes in a row end the search
FINER = 9  # golden sections around the best


@dataclass(frozen=True)
class Radius:
    """A spectral radius, and how it was found."""

    value: float
    is_settled: bool = True  # False: Arnoldi's method did not converge, the value is an estimate


def spectral_radius(step: LinearStep, lam: float) -> Radius:
    """ρ of the step with Λ = λ · profile on the states that a run can reach."""
    if step.size <= DENSE_SIZE:
        return _dense(step, lam)
    return _arnoldi(step, lam)


def _dense(step: LinearStep, lam: float) -> Radius:
    values = np.linalg.eigvals(step.dense(lam))
    return Radius(float(np.abs(values).max()))


def _arnoldi(step: LinearStep, lam: float) -> Radius:
    linalg = optional("scipy.sparse.linalg", "sim")
    (m, d), n = step.shape, step.size

    def product(v: Floats) -> Floats:
        s = v.reshape(2, m, d, 1)
        return step.step(step.project(s, lam), lam).ravel()

    operator = linalg.LinearOperator((n, n), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).normal(size=n)
    try:
        values = linalg.eigs(
            operator, k=1, which="LM", v0=start, return_eigenvectors=False,
            ncv=min(KRYLOV if n <= LARGE else KRYLOV // 2, n - 1),
            maxiter=RESTARTS if n <= LARGE else LARGE_RESTARTS,
            tol=ARNOLDI_TOLERANCE if n <= LARGE else LARGE_TOLERANCE,
        )  # fmt: skip
        return Radius(float(np.abs(values).max()))
    except linalg.ArpackNoConvergence:
        if n <= MOST_DENSE:
            return _dense(step, lam)
    growth = float(growths(step, np.array([lam]), 2 * LARGE_STEPS)[0])
    return Radius(growth, is_settled=False)


def growths(step: LinearStep, lams: Floats, steps: int = LARGE_STEPS) -> Floats:
    """The growth per step for each stepsize (n,), over the last third of a run of the step.

    It estimates ρ, mostly from below. The start excites consensus and disagreement alike.
    """
    (m, d), rng = step.shape, np.random.default_rng(0)
    common, apart = rng.normal(size=(d, 1)), rng.normal(size=(2, m, d, 1))
    s = np.repeat(common + 0.1 * apart, len(lams), axis=3)
    logs, first = np.zeros(len(lams)), steps - steps // 3
    for k in range(steps):
        if k % PROJECTED == 0:  # what is conserved grows from rounding only
            s = step.project(s, lams)  # type: ignore[arg-type]  # one λ per column
        s = step.step(s, lams)  # type: ignore[arg-type]  # the same
        size = np.sqrt((s * s).sum(axis=(0, 1, 2))) + 1e-300
        logs += np.log(size) * (k >= first)
        s = s / size
    return np.exp(logs / (steps - first))


def _large_range(step: LinearStep, guess: float) -> StableRange | None:
    """The range of a large state: two grids of stepsizes, each of one run."""
    lams = np.asarray(guess * 2.0 ** np.arange(2, 2 - LARGE_GRID, -1), np.float64)
    found = growths(step, lams)
    stable = np.flatnonzero(found < ONE)
    if not len(stable):
        return None
    top = float(lams[stable[0]])
    finer = np.geomspace(2 * top, top / 2, LARGE_GRID + 2)[1:-1]
    lams, found = np.append(lams, finer), np.append(found, growths(step, finer))
    stable = np.flatnonzero(found < ONE)
    best = stable[np.argmin(found[stable])]
    return StableRange(float(lams[stable].max()), float(lams[best]), float(found[best]))


# ---- stepsizes


@dataclass(frozen=True)
class StableRange:
    """The stepsizes at which a step is stable, and the best of them."""

    largest: float  # λ above which ρ > 1
    fastest: float  # λ with the smallest ρ
    radius: float  # ρ there


def largest_stable(
    is_stable: Callable[[float], bool], guess: float, tolerance: float = THRESHOLD_TOLERANCE
) -> float:
    """The λ up to which steps are stable, by bisection from a guess; 0: no λ is."""
    low, high = guess, guess
    if is_stable(guess):
        while is_stable(2 * high) and high < 2.0**40 * guess:
            high *= 2
        low, high = high, 2 * high
    else:
        while not is_stable(low / 2):
            low /= 2
            if low < 2.0**-60 * guess:
                return 0.0
        low, high = low / 2, low
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_stable(middle) else (low, middle)
    return low


def fastest(
    radius: Callable[[float], float], largest: float, finer: int = FINER
) -> tuple[float, float]:
    """(λ, ρ) with the smallest ρ below the largest stable λ.

    ρ falls while λ is small, as 1 − λσ, and rises to 1 at the largest stable λ. A coarse walk down
    finds the valley, golden sections find its bottom.
    """
    found = {0.97 * largest: radius(0.97 * largest)}
    lam, worse = 0.97 * largest, 0
    best = lam
    while worse < MOST_WORSE:
        lam *= COARSER
        found[lam] = radius(lam)
        # a plateau, which a slow graph gives, counts as better: a small λ is safer than a large one
        is_better = found[lam] <= found[best] + 1e-3 * (1 - found[best])
        best, worse = (lam, 0) if is_better else (best, worse + 1)
        if lam < 1e-12 * largest:
            break
    low, high = best * COARSER, min(best / COARSER, 0.97 * largest)
    return _golden(radius, low, high, (best, found[best]), finer)


def _golden(
    radius: Callable[[float], float],
    low: float,
    high: float,
    best: tuple[float, float],
    finer: int,
) -> tuple[float, float]:
    part = (math.sqrt(5) - 1) / 2
    a, b = math.log(low), math.log(high)
    left, right = b - part * (b - a), a + part * (b - a)
    at_left, at_right = radius(math.exp(left)), radius(math.exp(right))
    for _ in range(finer - 2):
        if at_left <= at_right:
            b, right, at_right = right, left, at_left
            left = b - part * (b - a)
            at_left = radius(math.exp(left))
        else:
            a, left, at_left = left, right, at_right
            right = a + part * (b - a)
            at_right = radius(math.exp(right))
    candidates = [best, (math.exp(left), at_left), (math.exp(right), at_right)]
    return min(candidates, key=lambda pair: pair[1])


def stable_range(step: LinearStep, *, is_precise: bool = True) -> StableRange | None:
    """The largest stable and the fastest stepsize; None if no stepsize is stable.

    is_precise    the largest to 0.4 %; else to 5 %, which serves a search for the fastest
    """
    known: dict[float, float] = {}

    def radius(lam: float) -> float:
        if lam not in known:
            known[lam] = spectral_radius(step, lam).value
        return known[lam]

    start = 1.0 / largest_curvature(step.hessians)
    if step.size > LARGE:
        return _large_range(step, start)
    tolerance = THRESHOLD_TOLERANCE if is_precise else COARSE_TOLERANCE
    largest = largest_stable(lambda lam: radius(lam) <= ONE, start, tolerance)
    if largest == 0.0:
        return None
    lam, rho = fastest(radius, largest, FINER if is_precise else FINER - 3)
    return StableRange(largest, lam, rho)


def largest_curvature(hessians: Floats) -> float:
    """max_i ‖H_i‖ of H (m, d, d); 1 if all vanish."""
    return float(np.abs(np.linalg.eigvalsh(hessians)).max()) or 1.0


def iterations_to(tolerance: float, radius: float) -> float:
    """Iterations in which an error falls by the factor `tolerance`, in the long run.

    >>> round(iterations_to(1e-6, 0.9))
    131
    """
    if radius >= 1.0:
        return math.inf
    return max(1.0, math.log(tolerance) / math.log(radius)) if radius > 0 else 1.0
