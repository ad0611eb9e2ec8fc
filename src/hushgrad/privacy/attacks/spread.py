"""Spread: what one curious neighbour reads in the fluctuations that fresh splits cause.

By `fluctuations`, what agent j sees of its neighbours has the cross-spectrum Σ_a T_a(ω) g_a g_aᵀ
with known T_a. The g_a are fitted to the periodogram: first the g_a g_aᵀ by least squares and
their top eigenpairs, then all g_a together by scoring on the likelihood of a Gaussian process
with that spectrum (Whittle's), f = Σ_a T_a ⊗ g_a g_aᵀ, D_θ = ∂f/∂θ, over bands b of n_b
frequencies with mean periodogram I_b:

    score_θ = Σ_b n_b tr f⁻¹ D_θ f⁻¹ (I_b − f),      information_θφ = Σ_b n_b tr f⁻¹ D_θ f⁻¹ D_φ

The information also says how exact each g_a is. Only what it puts within `sure` is claimed: the
neighbours of j, often agents beyond.

**Sign.** Covariances do not know it. In PDG-DS the mean does: E r = Σ_a C_pa g_a and Σ_a g_a = 0;
the signs that explain it best are taken, agents that are themselves uncertain counting as noise. In
PDG-NDS the means vanish and ϱ^k − ϱ^{k−1} is symmetric, so ±g_i remain.

It starves when nothing fluctuates: constant splits, and a deviation drawn once or fading fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.fluctuations import (
    is_steady,
    mean_response,
    pairs_of,
    seen,
    spectra,
    stepsize_spread,
    still_draws,
    window,
    without_course,
)
from hushgrad.privacy.attacks.pdg import is_two_step, stepsizes, unfit
from hushgrad.privacy.view import View
from hushgrad.splits import FreshSplit

type Floats = NDArray[np.float64]
type Complex = NDArray[np.complex128]

_LEAST = 400  # samples of the fluctuations
_BANDS = 32
_LOWEST = 8  # the first frequency used: below, the smooth course was taken out
_AXES = 4  # principal axes of r that are fitted, two where there are many pairs
_MANY = 24  # pairs times axes beyond which it takes long
_FLOOR = 1e-3  # of the spectrum's diagonal, for what the model leaves out
_RIDGE = 1e-3
_STEPS = 40
_MOST_SIGNS = 10  # agents whose signs are tried in all combinations
_CLEAR = 0.3  # relative standard error of gradients whose signs are sought
_INEXACT = 0.05  # of the means: the smooth course has not quite ended
_CERTAIN = 12.0  # twice the logarithm of the odds, 400 : 1


@dataclass(frozen=True, kw_only=True)
class Spread(Attack):
    """g_i(θ*) from the covariances of what neighbours hear; in PDG-NDS up to its sign."""

    sure: float = 0.1  # relative standard error up to which a gradient is claimed

    name = "spread"
    title = "Spread"

    def applies(self, view: View, target: int) -> str | None:
        reason = unfit(view, target)
        if reason:
            return reason
        if not pairs_of(view):
            return "needs an agent of its own that hears others"
        if not isinstance(cast("Private", view.algorithm).splitting, FreshSplit):
            return "the splits do not fluctuate along the gradients"
        if is_two_step(view) and (reason := still_draws(view)):
            return f"{reason}, so nothing does"
        heard = window(view, _sizes(view))
        if heard.stop - heard.start < _LEAST:
            return f"the fluctuations last {heard.stop} iterations"
        return None

    def __call__(self, view: View, target: int) -> tuple[Estimate, ...]:
        beside = any(i == target for _, i in pairs_of(view))
        whole = view.dim <= _axes(view)
        if not beside and (is_two_step(view) or not whole):
            return ()  # too faint for what the model leaves out
        fit = _fit(view, None if whole else target)
        g, size = fit.g[target], float(np.linalg.norm(fit.g[target]))
        if not fit.error[target] <= self.sure * size:
            return ()
        of = {"attack": self.name, "target": target}
        at = "gradient at optimum" if fit.signed[target] else "gradient at optimum up to sign"
        return (
            Estimate(**of, quantity=at, value=g),
            Estimate(**of, quantity="direction", value=g / size),
        )


@dataclass(frozen=True)
class _Fit:
    g: Floats  # (m, d)
    error: Floats  # (m,) standard errors
    signed: NDArray[np.bool_]  # (m,) whether the sign is known too


@lru_cache(maxsize=2)  # one fit serves all targets of a view
def _fit(view: View, target: int | None) -> _Fit:
    pairs = pairs_of(view)
    sizes = _sizes(view)
    heard = window(view, sizes)
    r = seen(view, pairs)[heard] / sizes[heard, None, None]
    mean, r = _limit(r, heard), without_course(r, heard)
    chosen = [p for p, (_, i) in enumerate(pairs) if target in (None, i)] or range(len(pairs))
    axes = _main_axes(r[:, list(chosen)], _axes(view))
    known = {j: axes @ view.own(j).gradients[heard].mean(axis=0) for j in view.members}
    I, omega, counts = _periodogram(r @ axes.T)
    T = spectra(view, pairs, omega)
    if not is_steady(r):
        nothing = np.zeros((view.n_agents, view.dim))
        return _Fit(nothing, np.full(view.n_agents, np.inf), np.zeros(view.n_agents, bool))
    g, error = _scoring(I, T, counts, _first_guess(I, T, counts, known), known)
    signed = np.zeros(len(g), bool)
    if not is_two_step(view):
        signs, signed = _signs(mean_response(view, pairs), mean @ axes.T, g, error, known)
        g = signs[:, None] * g
    return _Fit(g @ axes, error, signed)


def _sizes(view: View) -> Floats:
    """α^k, (n,)."""
    return stepsize_spread(view) if is_two_step(view) else stepsizes(view)


def _limit(r: Floats, heard: slice) -> Floats:
    """a of the course a + b/n of r, (pairs, d)."""
    n = np.arange(heard.start, heard.stop) + 1.0
    course = np.column_stack([np.ones_like(n), n[0] / n])
    return np.linalg.lstsq(course, r.reshape(len(r), -1), rcond=None)[0][0].reshape(r.shape[1:])


def _axes(view: View) -> int:
    return _AXES if len(pairs_of(view)) * _AXES <= _MANY else 2


def _main_axes(r: Floats, most: int) -> Floats:
    """Orthonormal rows (at most `most`, d) that hold most of r, every pair counted alike."""
    scaled = r / np.sqrt((r**2).sum(axis=2, keepdims=True).mean(axis=0, keepdims=True))
    flat = scaled.reshape(-1, r.shape[2])
    return np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :most].T


def _periodogram(r: Floats) -> tuple[Complex, Floats, Floats]:
    """Mean periodograms (bands, pairs · axes, the same), middle frequencies, numbers of them.

    Bands are narrow where the network's slow modes are, at low frequencies.
    """
    n = len(r)
    waves = np.fft.rfft(r.reshape(n, -1), axis=0) / np.sqrt(n)
    top = len(waves)
    edges = np.unique((_LOWEST + (top - _LOWEST) * np.linspace(0, 1, _BANDS + 1) ** 2).astype(int))
    bands = list(itertools.pairwise(edges))
    I = np.stack([waves[a:b].T @ waves[a:b].conj() / (b - a) for a, b in bands])  # noqa: E741
    middle = np.array([(a + b - 1) / 2 for a, b in bands]) * 2 * np.pi / n
    return I, middle, np.diff(edges).astype(float)


def _first_guess(
    I: Complex,  # noqa: E741
    T: Complex,
    counts: Floats,
    known: Mapping[int, Floats],
) -> Floats:
    """Top eigenpairs (m, axes) of the g_a g_aᵀ that fit the periodogram by least squares."""
    m, bands, P, _ = T.shape
    q = I.shape[1] // P
    blocks = I.reshape(bands, P, q, P, q).transpose(0, 1, 3, 2, 4)
    size = np.einsum("bppii->bp", blocks).real
    weight = np.sqrt(counts[:, None, None] / (size[:, :, None] * size[:, None, :]))
    A = (T * weight).reshape(m, -1).T
    y = (blocks * weight[..., None, None]).reshape(-1, q * q)
    A, y = np.concatenate([A.real, A.imag]), np.concatenate([y.real, y.imag])
    scale = np.linalg.norm(A, axis=0)
    A = np.concatenate([A / scale, _RIDGE * np.eye(m)])
    G = np.linalg.lstsq(A, np.concatenate([y, np.zeros((m, q * q))]), rcond=None)[0]
    G = (G / scale[:, None]).reshape(m, q, q)
    values, vectors = np.linalg.eigh((G + G.transpose(0, 2, 1)) / 2)
    g = np.sqrt(np.maximum(values[:, -1:], 1e-4 * values.max())) * vectors[:, :, -1]
    for j, own in known.items():
        g[j] = own
    return g


def _scoring(
    I: Complex,  # noqa: E741
    T: Complex,
    counts: Floats,
    g: Floats,
    known: Mapping[int, Floats],
) -> tuple[Floats, Floats]:
    """The likeliest g near the guess, and its standard errors (m,); members' own are held."""
    free = [a for a in range(len(g)) if a not in known]
    floor = _FLOOR * np.einsum("bii->bi", I).real
    usual = (g**2).mean()  # a wide prior, for agents too far to be seen

    def evidence(g: Floats) -> float:
        return _likelihood(I, T, counts, g, floor) - (g**2).sum() / (2 * usual)

    reached, damping = evidence(g), 1e-2
    information = np.eye(1)
    for _ in range(_STEPS):
        score, information = _derivatives(I, T, counts, g, floor, free)
        score, information = (
            score - g[free].ravel() / usual,
            information + np.eye(len(score)) / usual,
        )
        before = reached
        while damping < 1e6:
            damped = information + damping * np.diag(np.diag(information))
            tried = g.copy()
            tried[free] += np.linalg.solve(damped, score).reshape(len(free), -1)
            found = evidence(tried)
            if found >= reached:
                g, reached, damping = tried, found, damping / 5
                break
            damping *= 4
        if reached - before < 1e-2:
            break
    error = np.zeros(len(g))
    variance = np.diag(np.linalg.inv(information))
    error[free] = np.sqrt(variance.reshape(len(free), -1).sum(axis=1))
    return g, error


def _spectrum(T: Complex, g: Floats, floor: Floats) -> Complex:
    """f, (bands, pairs · axes, the same)."""
    _, bands, P, _ = T.shape
    f = np.einsum("abpq,ai,aj->bpiqj", T, g, g, optimize=True)
    f = f.reshape(bands, P * g.shape[1], P * g.shape[1])
    return f + floor[:, :, None] * np.eye(f.shape[1])


def _likelihood(I: Complex, T: Complex, counts: Floats, g: Floats, floor: Floats) -> float:  # noqa: E741
    f = _spectrum(T, g, floor)
    logs = np.linalg.slogdet(f)[1]
    return float(-counts @ (logs + np.einsum("bij,bji->b", np.linalg.inv(f), I).real))


def _derivatives(
    I: Complex,  # noqa: E741
    T: Complex,
    counts: Floats,
    g: Floats,
    floor: Floats,
    free: Sequence[int],
) -> tuple[Floats, Floats]:
    """Score and information of the free g, flattened agent by agent."""
    f = _spectrum(T, g, floor)
    K = np.linalg.inv(f)
    bands, size = f.shape[:2]
    q = g.shape[1]
    bumps = np.einsum("xi,aj->axij", np.eye(q), g[free])
    bumps = bumps + bumps.swapaxes(2, 3)  # ∂(g gᵀ)/∂g_x
    D = np.einsum("abpq,axij->axbpiqj", T[free], bumps, optimize=True)
    KD = K @ D.reshape(-1, bands, size, size)
    rest = counts[:, None, None] * (K @ (I - f))
    score = np.einsum("bij,xbji->x", rest, KD, optimize=True).real
    left = (counts[:, None, None] * KD).reshape(len(KD), -1)
    right = KD.swapaxes(2, 3).reshape(len(KD), -1)
    return score, (left @ right.T).real


def _signs(
    C: Floats, mean: Floats, g: Floats, error: Floats, known: Mapping[int, Floats]
) -> tuple[Floats, NDArray[np.bool_]]:
    """±1 (m,) such that Σ_a C_pa g_a explains the means and Σ_a g_a = 0, and which are certain."""
    m = len(g)
    size = np.linalg.norm(g, axis=1)
    others = sorted(set(range(m)) - set(known), key=lambda a: error[a] / size[a])
    clear = [a for a in others if error[a] < _CLEAR * size[a]][:_MOST_SIGNS]
    vague = [a for a in others if a not in clear]
    A = np.concatenate([C, np.ones((1, m))])  # the last row: gradients add up to zero
    y = np.concatenate([mean, np.zeros((1, g.shape[1]))])
    y = y - sum(np.outer(A[:, j], own) for j, own in known.items())
    noise = (g**2).mean() * A[:, vague] @ A[:, vague].T + np.diag(
        _INEXACT**2 * A**2 @ (g**2).mean(axis=1)
    )
    whiten = np.linalg.inv(np.linalg.cholesky(noise))
    parts = np.einsum("pe,ea,ai->api", whiten, A[:, clear], g[clear])
    tried = np.array(list(itertools.product((1.0, -1.0), repeat=len(clear))))
    misfit = ((whiten @ y - np.tensordot(tried, parts, 1)) ** 2).sum(axis=(1, 2))
    best = tried[misfit.argmin()]
    signs, certain = np.ones(m), np.zeros(m, bool)
    signs[clear] = best
    for n, a in enumerate(clear):
        certain[a] = misfit[tried[:, n] != best[n]].min() - misfit.min() > _CERTAIN
    return signs, certain
