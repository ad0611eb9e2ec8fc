"""Structured Hessian: usual Hessians and the known size of masks give some of H_i back.

The adversary has H̃_i = H_i + N, N the masks of i's honest partners (masked.py): with p of them the
entries of N have the variance p σ_Q², those of the diagonal p τ² more in common. A Hessian is no
arbitrary matrix.

**Scale, and the number of rows.** If rows are alike everywhere, H_i is about s_i H̄, with H̄ the mean
over agents and s_i = n_i / n̄. Generalised least squares gives

    ŝ = ⟨H̄, H̃⟩ / ⟨H̄, H̄⟩,      var ŝ = p / ⟨H̄, H̄⟩,      ⟨A, B⟩ = Aᵀ Σ⁻¹ B over the upper triangle

which for white masks and H̄ = I is the mean of the diagonal, with the error √(p/d) σ_Q: the more
dimensions, the better. The part τ of a mask stands against that. n̂_i = ŝ n̄.

**Shrinkage.** H_i of n_i independent rows with the covariance H̄/n̄ has the mean s_i H̄ and entries
of the variance V_ab = n_i (C_aa C_bb + C_ab²), C = H̄/n̄. The best linear estimate of H_i is

    Ĥ = ŝ H̄ + V (V + cov N)⁻¹ (H̃ − ŝ H̄)

entry by entry, and the common part of the diagonal by one more solve (cov N is diagonal plus rank
one). For small masks it is H̃, for large ones ŝ H̄.

**Positive semidefinite.** H_i ⪰ 0, H̃_i need not be: the projection of Ĥ onto such matrices is never
further from H_i.

H̄ and n̄. An adversary that has the statistics of all honest agents has their mean without masks,
which cancel. Otherwise members take their own Hessians, at the end of the run, and their own rows.
The number of all rows counts as public. An adversary without either knows H̃_i alone, and projects
it.

Limits. The attack claims an estimate if its predicted error is at most 20 %: less certain ones hit
within 10 % by luck now and then. Rows that are not alike (other units, other populations) are
further from ŝ H̄ than predicted; shrinkage corrects that only if masks are small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.masked import (
    ShareSizes,
    honest_laplacian,
    masked_objective,
    no_statistic,
)
from hushgrad.privacy.attacks.pdg import unfit
from hushgrad.privacy.knowledge import Knowledge, Own

type Floats = NDArray[np.float64]

_SURE = 0.2  # predicted relative error up to which an estimate is claimed
_STEP = 1e-5  # of differences of a member's own gradient
_MOST = 64  # agents whose statistics are fitted for a mean
_FAINT = 1e-24  # of the mean square of H̄'s entries: less variance of masks than rounding has


@dataclass(frozen=True, eq=False)
class Pool:
    """The usual agent: the mean Hessian of agents, and their mean number of rows."""

    mean: Floats  # (d, d) H̄
    rows: float | None  # n̄


@dataclass(frozen=True, eq=False)
class Structured:
    """A Hessian and a number of rows, and how far off both are expected to be."""

    hessian: Floats  # (d, d)
    error: float  # relative, predicted
    count: float | None  # n_i
    count_error: float  # relative, predicted


@dataclass(frozen=True, kw_only=True)
class StructuredHessian(Attack):
    """H_i and the number of i's rows from its masked Hessian and what is usual."""

    name = "structured-hessian"
    title = "Structured Hessian"

    def applies(self, view: Knowledge, target: int) -> str | None:
        return unfit(view, target) or no_statistic(view, target)

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        objective = masked_objective(view, target)
        if objective is None:
            return ()
        honest, L = honest_laplacian(view)
        partners = float(L[honest.index(target), honest.index(target)])
        pool = _pool(view)
        found = structured(objective[:, :-1], partners, ShareSizes.of(view), pool)
        estimates: list[Estimate] = []
        if found.error <= _SURE:
            estimates.append(
                Estimate(
                    attack=self.name, target=target, quantity="curvature", value=found.hessian
                )
            )  # fmt: skip
        if found.count is not None and found.count_error <= _SURE:
            count = np.array([found.count])
            estimates.append(
                Estimate(attack=self.name, target=target, quantity="count", value=count)
            )
        return tuple(estimates)


def structured(masked: Floats, partners: float, sizes: ShareSizes, pool: Pool | None) -> Structured:
    """The estimates from H̃ (d, d) with the masks of some honest partners in it."""
    d = len(masked)
    white, common = partners * sizes.white**2, partners * sizes.identity**2
    if pool is None or not _is_hessian(pool.mean):
        hessian = positive(masked)
        noise = math.sqrt(d * d * white + d * common)  # of all entries, squares added
        return Structured(hessian, noise / max(_norm(hessian), 1e-300), None, math.inf)
    upper = np.triu_indices(d)
    y, mean = masked[upper], pool.mean[upper]
    on_diagonal = (upper[0] == upper[1]).astype(float)
    white = max(white, _FAINT * float(mean @ mean) / len(mean))
    weights = _solve(np.full(len(y), white), common, on_diagonal, mean)
    information = float(mean @ weights)
    scale = float(weights @ y) / information
    V = _spread(pool, max(scale, 0.0))[upper]
    entries = scale * mean + V * _solve(V + white, common, on_diagonal, y - scale * mean)
    hessian = np.zeros((d, d))
    hessian[upper] = entries
    hessian = positive(hessian + hessian.T - np.diag(np.diag(hessian)))
    of_scale = 1.0 / information + float((weights / information) ** 2 @ V)
    noise = white + common * on_diagonal
    left = V * noise / (V + noise) + (noise / (V + noise) * mean) ** 2 * of_scale
    error = math.sqrt(float((2.0 - on_diagonal) @ left))  # off the diagonal entries count twice
    return Structured(
        hessian,
        error / max(_norm(hessian), 1e-300),
        None if pool.rows is None else scale * pool.rows,
        math.sqrt(of_scale) / max(abs(scale), 1e-300),
    )


def positive(H: Floats) -> Floats:
    """The nearest positive semidefinite matrix to a symmetric one."""
    values, axes = np.linalg.eigh((H + H.T) / 2)
    return (axes * np.maximum(values, 0.0)) @ axes.T


def _solve(diagonal: Floats, common: float, u: Floats, value: Floats) -> Floats:
    """(diag + common u uᵀ)⁻¹ value, by Sherman and Morrison; no entry of diag is zero."""
    plain, along = value / diagonal, u / diagonal
    return plain - along * (common * float(u @ plain) / (1.0 + common * float(u @ along)))


def _spread(pool: Pool, scale: float) -> Floats:
    """V (d, d): by how much Hessians of independent rows vary about scale · H̄."""
    usual = pool.rows if pool.rows else len(pool.mean)  # without rows: as few as a Hessian needs
    C = pool.mean / usual
    return scale * usual * (np.outer(np.diag(C), np.diag(C)) + C * C)


def _pool(view: Knowledge) -> Pool | None:
    """H̄ and n̄ of all honest agents, or else of the members; None for who has neither."""
    honest = [i for i in range(view.n_agents) if i not in view.members]
    if len(honest) <= _MOST and all(no_statistic(view, i) is None for i in honest):
        found = [masked_objective(view, i) for i in honest]
        known = [objective[:, :-1] for objective in found if objective is not None]
        if len(known) == len(honest):
            return Pool(np.mean(known, axis=0), _rows_of(view, honest))
    if not view.members:
        return None
    members = sorted(view.members)
    own = [view.own(j) for j in members]
    rows = [agent.n_rows for agent in own if agent.n_rows is not None]
    mean = np.mean([_hessian(agent) for agent in own], axis=0)
    return Pool(mean, float(np.mean(rows)) if len(rows) == len(own) else None)


def _rows_of(view: Knowledge, honest: list[int]) -> float | None:
    """The mean number of rows of honest agents: of all rows those that members do not have."""
    own = [view.own(j).n_rows for j in view.members]
    known = [n for n in own if n is not None]
    if view.n_rows is None or len(known) < len(own):
        return None
    return (view.n_rows - sum(known)) / len(honest)


def _hessian(agent: Own) -> Floats:
    """Of a member's own f, at the end of the run."""
    x = agent.x[-1]
    step = _STEP * (1.0 + float(np.abs(x).max()))
    at = [[agent.gradient(x + sign * step * e) for sign in (1, -1)] for e in np.eye(len(x))]
    H = np.array([(ahead - behind) / (2 * step) for ahead, behind in at])
    return (H + H.T) / 2


def _is_hessian(H: Floats) -> bool:
    return bool(np.isfinite(H).all() and H.any() and (np.diag(H) > 0).all())


def _norm(H: Floats) -> float:
    return float(np.linalg.norm(H))
