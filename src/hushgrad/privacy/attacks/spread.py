"""Spread: one curious neighbour reads gradients in the fluctuations that fresh splits cause.

By `fluctuations`, the vectors that agent j sees of its neighbours have the cross-spectrum Σ_a
T_a(ω) g_a g_aᵀ with known T_a: all auto- and cross-covariances, at all lags, as a sum of the g_a
g_aᵀ with known numbers. `whittle` fits the g_a to the periodogram and says how exact each one is.
The attack claims those within `sure`: the neighbours of j, and in PDG-DS often agents beyond.

**Sign.** Covariances do not know the sign. In PDG-DS the mean does: E r = Σ_a C_pa g_a and Σ_a g_a
= 0. The attack takes the signs that explain the mean best; agents that are themselves uncertain
count as noise. In PDG-NDS the means vanish and ϱ^k − ϱ^{k−1} is symmetric, so ±g_i remain.

The attack has nothing to read if nothing fluctuates: with constant splits, and with a deviation
that is drawn once or fades fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.fluctuations import (
    is_steady,
    limits,
    mean_response,
    pairs_of,
    seen,
    spectra,
    stepsize_spread,
    still_draws,
    window,
    without_course,
)
from hushgrad.privacy.attacks.pdg import (
    is_two_step,
    stepped_gradients,
    stepsizes,
    unfit,
    unmasked,
)
from hushgrad.privacy.attacks.whittle import Complex, Whittle
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.splits import FreshSplit

type Floats = NDArray[np.float64]

_LEAST = 400  # samples of the fluctuations
_BANDS = 32
_LOWEST = 8  # the first frequency used: below, the smooth course was taken out
_AXES = 4  # principal axes of r that are fitted where not all are, two where there are many pairs
_MANY = 24  # pairs times axes beyond which it takes long
_MOST_SIGNS = 10  # agents whose signs are tried in all combinations
_CLEAR = 0.3  # relative standard error of gradients whose signs are sought
_INEXACT = 0.05  # of the means: the smooth course has not quite ended
_DISTINCT = 1e-9  # share of a mean that no other explains: rounding is a millionth of it
_CERTAIN = 12.0  # twice the logarithm of the odds, 400 : 1


@dataclass(frozen=True, kw_only=True)
class Spread(Attack):
    """g_i(θ*) from the covariances of what neighbours hear; in PDG-NDS up to its sign."""

    sure: float = 0.1  # relative standard error up to which a gradient is claimed

    name = "spread"
    title = "Spread"

    def applies(self, view: Knowledge, target: int) -> str | None:
        reason = unfit(view, target)
        if reason:
            return reason
        if not pairs_of(view):
            return "needs an agent of its own that hears others"
        if not isinstance(cast("Private", view.algorithm).splitting, FreshSplit):
            return "the splits do not fluctuate along the gradients"
        if is_two_step(view) and (reason := still_draws(view)):
            return f"{reason}, so nothing does"
        heard = window(_sizes(view))
        if heard.stop - heard.start < _LEAST:
            return f"the fluctuations last {heard.stop} iterations"
        return None

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        beside = any(i == target for _, i in pairs_of(view))
        whole = view.dim <= _axes(view)
        if not beside and (is_two_step(view) or not whole):
            return ()  # too faint for what the model leaves out
        fit = _fit(view, None if whole else target)
        g, size = fit.g[target], float(np.linalg.norm(fit.g[target]))
        if not fit.error[target] <= self.sure * size:
            return ()
        if fit.signed[target]:  # else the sign of what to take off is not known
            g = unmasked(view, target, g)
        of = partial(Estimate, attack=self.name, target=target)
        at = "gradient at optimum" if fit.signed[target] else "gradient at optimum up to sign"
        return (
            of(quantity=at, value=g),
            of(quantity="direction", value=g / np.linalg.norm(g)),
        )


@dataclass(frozen=True)
class _Fit:
    g: Floats  # (m, d)
    error: Floats  # (m,) standard errors
    signed: NDArray[np.bool_]  # (m,) whether the sign is known too


@lru_cache(maxsize=2)  # one fit serves all targets of a view
def _fit(view: Knowledge, target: int | None) -> _Fit:
    pairs = pairs_of(view)
    sizes = _sizes(view)
    heard = window(sizes)
    r = seen(view, pairs)[heard] / sizes[heard, None, None]
    mean, r = limits(r, heard), without_course(r, heard)
    chosen = [p for p, (_, i) in enumerate(pairs) if target in (None, i)] or range(len(pairs))
    axes = _main_axes(r[:, list(chosen)], _axes(view))
    known = {j: axes @ stepped_gradients(view, j)[heard].mean(axis=0) for j in view.members}
    signed = np.zeros(view.n_agents, bool)
    if not is_steady(r):
        return _Fit(np.zeros((view.n_agents, view.dim)), np.full(view.n_agents, np.inf), signed)
    periodogram, omega, counts = _periodogram(r @ axes.T)
    g, error = Whittle(periodogram, spectra(view, pairs, omega), counts, known).fit()
    if not is_two_step(view):
        signs, signed = _signs(mean_response(view, pairs), mean @ axes.T, g, error, known)
        g = signs[:, None] * g
    return _Fit(g @ axes, error, signed)


def _sizes(view: Knowledge) -> Floats:
    """α^k, (n,)."""
    return stepsize_spread(view) if is_two_step(view) else stepsizes(view)


def _axes(view: Knowledge) -> int:
    most = _MANY // len(pairs_of(view))
    return view.dim if view.dim <= most else _AXES if most >= _AXES else 2


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
    means = np.stack([waves[a:b].T @ waves[a:b].conj() / (b - a) for a, b in bands])
    middle = np.array([(a + b - 1) / 2 for a, b in bands]) * 2 * np.pi / n
    return means, middle, np.diff(edges).astype(float)


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
    noise[np.diag_indices_from(noise)] *= 1.0 + _DISTINCT
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
