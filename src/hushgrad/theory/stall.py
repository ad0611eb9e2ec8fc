"""The stall: how long the deviations of stepsizes hold a run back, beside its linear rate.

PDG-NDS and EXTRA move by B(h^k − h^{k−1}) with h_i = λ_i g_i. With λ_i^k = λ(1 − ϱ_i^k/k^q), h is
λHx − e near θ*, where e_i^k = λϱ_i^k g_i(θ*)/k^q. So errors fall as k^−q in the end.

*ϱ drawn once.* Their mean obeys x̄⁺ = x̄ − λH̄x̄ + (1/m) Σ e_i, with H̄ = (1/m) Σ H_i, and follows e.
Only the variance 1/12 of ϱ counts, because Σ g_i(θ*) = 0: with V = Σ g_i g_iᵀ/(12 m²), the
covariance of the mean is k^−2q H̄⁻¹VH̄⁻¹. The disagreement, of the order k^−q−1, is left out.

*ϱ drawn in every iteration.* Each draw kicks the errors, the disagreement too. e changes slowly in
size, so errors have the covariance that they would have with k^−q fixed, times k^−2q. Let Σ be the
covariance of e, F = [B̄; 0] its place in the state s = (x, w), and v what a split divides. Then
t = s − Fe, which e does not touch before the next step, has the moments P with

    P = ĀPĀᵀ + (Ā − I)FΣFᵀ(Ā − I)ᵀ + Σ_j Cov(b_j) ⊗ V_jj
    V_jj = E[v_j v_jᵀ] = λ²H_j P^Δ_jj H_j + ((λHB̄ + I)Σ(λHB̄ + I)ᵀ)_jj + Σ_jj

and x = t_x + B̄e. The last term of the first line is there if splits are drawn in every iteration,
too. It feeds P back with a gain γ: errors multiply by noise, and have the tails of Student's
distribution. In n dimensions dx = −θx dt + (b² + σ²‖x‖²)^½ dW has γ = nσ²/2θ and ν = 2 + n(1/γ − 1)
degrees of freedom; n here is the number of directions over which P spreads, (tr P)²/tr P².

A geometric deviation has ratio^k in place of k^−q. Trackers multiply λ_i^k with y → 0: no deviation
stalls them. tight.py adds the stall to the expected iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hushgrad.algorithms import EXTRA, PDGNDS, Stepping
from hushgrad.mixing import Network
from hushgrad.splits import FreshSplit
from hushgrad.stepsizes import Geometric, Harmonic
from hushgrad.theory.curvature import Floats
from hushgrad.theory.linear import LinearStep, TwoStep, split_links, split_matrix, times
from hushgrad.theory.mean_square import (
    LARGE_STEPS,
    STEPS,
    doubled,
    draw_shares,
    fluctuates,
    has_moments,
    moved,
    own_blocks,
    split_noise,
    summed,
)
from hushgrad.theory.rates import LARGE

SETTLED = 1e-3  # relative change of the moments
MOST_LOOPS = 200  # the rest of a feedback with a gain near 1 is a geometric series
SAMPLES = 1000  # of the errors, for the median of their largest
PART = 1.0 / 12.0  # the variance of ϱ


class Expected(NamedTuple):
    """The iterations that a run, or its deviation, is expected to take."""

    iterations: float
    is_bound: bool = False  # it may well take longer


class _Moments(NamedTuple):
    """The second moments of errors, times k^2q."""

    P: Floats  # (md, md), of x
    gain: float = 0.0  # γ


def stalled_iterations(
    algorithm: Stepping, step: LinearStep, network: Network, slopes: Floats, lam: float, to: float
) -> Expected:
    """Iterations until the median error that the deviation makes is below `to`.

    slopes    (m, d), ∇f_i(θ*)
    """
    deviation = algorithm.schedule.deviation
    if not isinstance(step, TwoStep) or not isinstance(deviation, Harmonic | Geometric):
        return Expected(0.0)
    assert isinstance(algorithm, PDGNDS | EXTRA)  # the methods with such a step
    is_kept = deviation.drawn == "once"
    if is_kept:
        size = _median(_of_mean(step, slopes), (1, step.shape[1]))
    elif has_moments(step):
        size = _median(_of_draws(algorithm, step, network, slopes, lam), step.shape)
    else:
        size = _sampled(algorithm, step, network, slopes, lam)
    too_large = max(size / to, 1.0)
    if isinstance(deviation, Geometric):
        return Expected(math.log(too_large) / -math.log(deviation.ratio))
    return Expected(too_large ** (1.0 / deviation.power), not is_kept and not has_moments(step))


def _of_mean(step: TwoStep, slopes: Floats) -> _Moments:
    """Of x̄, with ϱ drawn once."""
    values, vectors = np.linalg.eigh(step.hessians.mean(axis=0))
    h = np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300))
    follows = slopes @ vectors / h / len(slopes)  # (m, d), H̄⁻¹g_i/m in the eigenvectors of H̄
    return _Moments(PART * follows.T @ follows)


def _of_draws(
    algorithm: PDGNDS | EXTRA, step: TwoStep, network: Network, slopes: Floats, lam: float
) -> _Moments:
    """Of x, with ϱ drawn in every iteration."""
    (m, d), n = step.shape, step.size
    half, eye = n // 2, np.eye(n)
    B = step.split(np.eye(half).reshape(m, d, half)).reshape(half, half)
    e = lam * math.sqrt(PART) * step.profile * slopes[:, :, None]  # (m, d, 1)
    kicks = _diagonal(e * e.swapaxes(1, 2))
    free = step.step(eye.reshape(2, m, d, n), lam).reshape(n, n) - eye  # Ā − I
    F = free[:, :half] @ B
    source, powers = F @ kicks @ F.T, doubled(step.dense(lam))
    settled = summed(powers, source), 0.0
    if isinstance(algorithm, PDGNDS) and fluctuates(algorithm):
        noise = split_noise(algorithm, network, step.shape)
        curve = _diagonal(lam * step.profile * step.hessians)
        direct = curve @ B + np.eye(half)
        given = direct @ kicks @ direct.T + kicks

        def fed(P: Floats) -> Floats:
            added = source.copy()
            V = curve @ moved(P) @ curve.T + given
            added[:half, :half] += noise(own_blocks(V, step.shape))
            return summed(powers, added)

        settled = _settled(fed, settled[0])
    P, gain = settled
    return _Moments(P[:half, :half] + B @ kicks @ B.T, gain)


def _settled(fed: Callable[[Floats], Floats], start: Floats) -> tuple[Floats, float]:
    """The P with fed(P) = P, and the gain of the feedback."""
    last, change, gain, grown = start, np.zeros_like(start), 0.0, 0.0
    for _ in range(MOST_LOOPS):
        new = fed(last)
        change = new - last
        more = float(np.trace(change))
        gain, grown, last = (more / grown if grown else 0.0), more, new
        if gain >= 1.0:
            return last, gain
        if more < SETTLED * (1.0 - gain) * float(np.trace(last)):
            break
    return last + change * gain / (1.0 - gain), gain


def _diagonal(blocks: Floats) -> Floats:
    """The matrix (md, md) with these blocks (m, d, d)."""
    m, d = blocks.shape[:2]
    full = np.zeros((m, d, m, d))
    full[np.arange(m), :, np.arange(m), :] = blocks
    return full.reshape(m * d, m * d)


def _median(moments: _Moments, shape: tuple[int, int]) -> float:
    """The median of max_i ‖x_i‖, from samples; ∞ if the moments grow without end."""
    if not moments.gain < 1.0:
        return math.inf
    values, vectors = np.linalg.eigh(moments.P)
    values = np.clip(values, 0.0, None)
    rng = np.random.default_rng(0)
    x = vectors * np.sqrt(values) @ rng.normal(size=(len(values), SAMPLES))
    if moments.gain > 0.0:
        spread = float(values.sum()) ** 2 / float((values**2).sum())
        freedom = 2.0 + spread * (1.0 / moments.gain - 1.0)
        x = x * np.sqrt((freedom - 2.0) / rng.chisquare(freedom, size=SAMPLES))
    return float(np.median(_largest(x.reshape(*shape, SAMPLES))))


def _largest(x: Floats) -> Floats:
    """max_i ‖x_i‖ of x (m, d, q)."""
    return np.sqrt((x * x).sum(axis=1)).max(axis=0)


def _sampled(
    algorithm: PDGNDS | EXTRA, step: TwoStep, network: Network, slopes: Floats, lam: float
) -> float:
    """The median of max_i ‖x_i‖ over a run of the linear step that starts at θ*.

    A bound from below, because slow errors still grow at its end.
    """
    (m, d), rng = step.shape, np.random.default_rng(0)
    steps = STEPS if step.size <= LARGE else LARGE_STEPS
    kick = lam * step.profile * slopes[:, :, None]
    s, before, sizes = np.zeros((2, m, d, 1)), np.zeros((m, d, 1)), np.zeros(steps)
    for k in range(steps):
        drawn = step
        if isinstance(algorithm, PDGNDS) and isinstance(algorithm.splitting, FreshSplit):
            receivers, senders = split_links(network, algorithm.links)
            own, links = draw_shares(algorithm.splitting, senders, m, rng)
            drawn = replace(step, split=times(split_matrix(own, links, receivers, senders)))
        e = kick * (rng.uniform(size=(m, 1, 1)) - 0.5)
        s = drawn.step(s, lam)
        s[0] += drawn.split(e - before)
        before, sizes[k] = e, _largest(s[0])[0]
    return float(np.median(sizes[steps // 2 :]))
