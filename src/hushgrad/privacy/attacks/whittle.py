"""Gradients fitted to a periodogram, by the likelihood of a Gaussian process (Whittle's).

The model is f = Σ_a T_a ⊗ g_a g_aᵀ over bands b of n_b frequencies with mean periodogram I_b, plus
a small floor for what the model leaves out. With D_θ = ∂f/∂θ,

    log likelihood    = −Σ_b n_b (log det f + tr f⁻¹ I_b)
    score_θ           =  Σ_b n_b tr f⁻¹ D_θ f⁻¹ (I_b − f)
    information_θφ    =  Σ_b n_b tr f⁻¹ D_θ f⁻¹ D_φ

Scoring starts from the g_a g_aᵀ that fit by least squares; the information gives standard errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]
type Complex = NDArray[np.complex128]

_FLOOR = 1e-3  # of the periodogram's diagonal
_RIDGE = 1e-3  # of the least squares
_LEAST = 1e-4  # of the largest g_a g_aᵀ: a guess of zero would stay there
_STEPS = 40
_GAINED = 1e-2  # in likelihood: less is no progress
_SINGLE = 1e-6  # of an information with a diagonal of ones: rounding of single precision
_WIDE = 1e6  # damping at which no step helps any more


@dataclass(frozen=True, eq=False)
class Whittle:
    """The likelihood of gradients g (agents, q); of those that are known, only the others vary."""

    periodogram: Complex  # (bands, pairs · q, pairs · q)
    T: Complex  # (agents, bands, pairs, pairs)
    counts: Floats  # (bands,)
    known: Mapping[int, Floats]  # {agent: g (q,)}

    def fit(self) -> tuple[Floats, Floats]:
        """The likeliest g (agents, q), up to signs, and its standard errors (agents,)."""
        unit = float(np.sqrt(np.einsum("bii->", self.periodogram).real / len(self.periodogram)))
        known = {a: own / unit for a, own in self.known.items()}
        scaled = replace(self, periodogram=self.periodogram / unit**2, known=known)
        g, error = scaled.fit_scaled()
        return unit * g, unit * error

    def fit_scaled(self) -> tuple[Floats, Floats]:
        """The same where the periodogram is about one: single precision has no room for others."""
        g = self._guess()
        usual = float((g**2).mean())  # a wide prior, for agents too far to be seen
        reached, damping = self.evidence(g, usual), 1e-2
        information = np.eye(0)
        for _ in range(_STEPS):
            score, information = self.derivatives(g)
            score = score - g[self.free].ravel() / usual
            information = information + np.eye(len(score)) / usual
            before = reached
            while damping < _WIDE:
                step = np.linalg.solve(information + damping * np.diag(np.diag(information)), score)
                tried = g.copy()
                tried[self.free] += step.reshape(len(self.free), -1)
                found = self.evidence(tried, usual)
                if found >= reached:
                    g, reached, damping = tried, found, max(damping / 5, _SINGLE)
                    break
                damping *= 4
            if reached - before < _GAINED:
                break
        error = np.zeros(len(g))
        variance = _variances(information).reshape(len(self.free), -1)
        error[self.free] = np.sqrt(variance.sum(axis=1))
        return g, error

    @cached_property
    def free(self) -> list[int]:
        return [a for a in range(len(self.T)) if a not in self.known]

    @cached_property
    def _floor(self) -> Complex:
        diagonal = _FLOOR * np.einsum("bii->bi", self.periodogram)
        return diagonal[:, :, None] * np.eye(diagonal.shape[1])

    def _guess(self) -> Floats:
        """Top eigenpairs of the g_a g_aᵀ that fit the periodogram by least squares."""
        m, bands, P, _ = self.T.shape
        q = self.periodogram.shape[1] // P
        blocks = self.periodogram.reshape(bands, P, q, P, q).transpose(0, 1, 3, 2, 4)
        size = np.einsum("bppii->bp", blocks).real
        weight = np.sqrt(self.counts[:, None, None] / (size[:, :, None] * size[:, None, :]))
        design = (self.T * weight).reshape(m, -1).T
        target = (blocks * weight[..., None, None]).reshape(-1, q * q)
        columns = np.maximum(np.linalg.norm(design, axis=0), 1e-300)
        design = design / columns
        products = np.linalg.lstsq(
            np.concatenate([design.real, design.imag, _RIDGE * np.eye(m)]),
            np.concatenate([target.real, target.imag, np.zeros((m, q * q))]),
            rcond=None,
        )[0]
        products = (products / columns[:, None]).reshape(m, q, q)
        values, vectors = np.linalg.eigh((products + products.transpose(0, 2, 1)) / 2)
        g = np.sqrt(np.maximum(values[:, -1:], _LEAST * values.max())) * vectors[:, :, -1]
        for a, own in self.known.items():
            g[a] = own
        return g

    def _spectrum(self, g: Floats) -> Complex:
        """f, (bands, pairs · q, pairs · q)."""
        f = np.einsum("abpq,ai,aj->bpiqj", self.T, g, g, optimize=True)
        return f.reshape(self._floor.shape) + self._floor

    def evidence(self, g: Floats, usual: float = np.inf) -> float:
        """Log likelihood, and prior of gradients of a usual size."""
        f = self._spectrum(g)
        fit = np.einsum("bij,bji->b", np.linalg.inv(f), self.periodogram).real
        return float(-self.counts @ (np.linalg.slogdet(f)[1] + fit) - (g**2).sum() / (2 * usual))

    def derivatives(self, g: Floats) -> tuple[Floats, Floats]:
        """Score and information of the likelihood, over the free g agent by agent.

        The information only steers and says how exact the result is: single precision will do.
        """
        f = self._spectrum(g)
        bands, P, q = len(f), self.T.shape[2], g.shape[1]
        inverse, T, own = np.linalg.inv(f), self.T[self.free], g[self.free]
        misfit = inverse @ (self.periodogram - f) @ inverse * self.counts[:, None, None]
        blocks = misfit.reshape(bands, P, q, P, q)
        score = 2 * np.einsum("abps,bsjpx,aj->ax", T, blocks, own, optimize=True).real
        bumps = np.einsum("xi,aj->axij", np.eye(q), own)
        bumps = (bumps + bumps.swapaxes(2, 3)).astype(np.float32)  # ∂(g gᵀ)/∂g_x
        D = np.einsum("abps,axij->axbpisj", T.astype(np.complex64), bumps, optimize=True)
        changes = inverse.astype(np.complex64) @ D.reshape(-1, *f.shape)
        turned = changes.swapaxes(2, 3).reshape(len(changes), -1)
        changes *= self.counts.astype(np.float32)[:, None, None]
        information = (changes.reshape(len(changes), -1) @ turned.T).real
        return score.ravel(), information.astype(np.float64)


def _variances(information: Floats) -> Floats:
    """The diagonal of its inverse; what rounding may have left of an eigenvalue counts as such."""
    scale = 1.0 / np.sqrt(np.diag(information))
    values, vectors = np.linalg.eigh(information * scale[:, None] * scale)
    return scale**2 * (vectors**2 / np.maximum(values, _SINGLE)).sum(axis=1)
