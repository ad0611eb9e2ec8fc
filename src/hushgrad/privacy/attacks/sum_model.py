"""The fit behind `sum_fit`: rows z_r whose sums are those that stages tell.

In units of what is usual, z_r = μ + L y_r: the first stage tells the mean and the second moments of
the rows, so that starts y_r ~ N(0, I) look like the population. All starts descend together by
Levenberg and Marquardt's method. The shortest step in y is the most plausible one, so that the fit
means something too where the numbers are fewer than the unknowns: systems then have the size of
the numbers, not of the unknowns. The best start is polished by orthogonal elimination.

How well a row is determined follows from the Jacobian J at the end. With y ~ N(0, I) before and
numbers with a relative error ε, y has afterwards the covariance

    C = I − Jᵀ (J Jᵀ + ε² I)⁻¹ J,      error of row r = √tr(L C_rr Lᵀ) / ‖z_r‖

A row with an error near 1 is a guess. A row that alone has weight at some θ_s (all others are far
from the plane zᵀθ_s = 0) is determined, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.least_squares import descended

type Floats = NDArray[np.float64]

_DONE = 1e-20  # squared relative residual: rounding is left
_EQUATIONS = 1.2  # per unknown: an unknown number of rows is not looked for beyond
_STEPS, _LAST = 60, 200  # of all starts, and of the best one
_BATCH = 64  # starts at a time
_EXACT = 1e-9  # ε, the relative accuracy of sums
_ZERO = 1e-6  # length of a θ_0 that is zero, up to how well messages tell it
_WORSE, _BETTER = 4.0, 0.3  # factors of the damping


class HonestSums(NamedTuple):
    """The sums of one stage over a component."""

    theta: Floats  # (d,)
    H: Floats  # (d, d) Σ H_i(θ)
    q: Floats  # (d,) Σ g_i(θ) − Σ H_i(θ) θ


@dataclass(frozen=True)
class SumRows:
    """Rows that explain the sums, and how well."""

    rows: Floats  # (n, d)
    error: Floats  # (n,) predicted, relative: 1 is a guess
    residual: float  # squared, relative


def fit_sums(
    sums: Sequence[HonestSums],
    *,
    n_rows: int | None = None,
    curvature: str = "newton",
    starts: int = 200,
    effort: float = 1e10,
    seed: int = 0,
) -> SumRows:
    """Rows whose sums these are.

    n_rows      how many, if that is public; None: the fewest that explain the sums
    curvature   of the stages: "newton" as hushgrad.problems.losses has it, or "fixed", ¼ XᵀX
    starts      independent beginnings, of which the best is taken
    effort      multiplications, over all starts: a few seconds; fewer starts if they need more
    """
    told = _Told.of(sums, curvature)
    d = told.theta.shape[1]
    if n_rows is not None:
        return _fit(told, n_rows, starts, effort, seed)
    most = max(1, int(told.value.size / (_EQUATIONS * d)))
    best: SumRows | None = None
    for n in range(1, most + 1):
        found = _fit(told, n, max(1, starts // most), effort / most, seed)
        if best is None or found.residual < best.residual:
            best = found
        if best.residual <= _DONE:
            break
    assert best is not None
    return best


def _fit(told: _Told, n: int, starts: int, effort: float, seed: int) -> SumRows:
    usual = _Usual.of(told, n)
    numbers, unknowns = told.value.size, n * told.theta.shape[1] + 1
    cost = 4.0 * _STEPS * numbers * unknowns * min(numbers, unknowns)
    left = max(1, min(starts, int(effort / cost)))
    rng = np.random.default_rng(seed)
    best, least = np.zeros(unknowns), np.inf
    while left > 0 and least > _DONE:
        y = rng.normal(size=(min(left, _BATCH), unknowns))
        y[:, -1] = 0.0
        y, square = _together(told, usual, y, _STEPS)
        at = int(np.argmin(square))
        if square[at] < least:
            best, least = y[at], float(square[at])
        left -= len(y)
    end = _Point(told, usual, best)
    if unknowns <= numbers:
        end = descended(end, _LAST)
    rows, _ = usual.rows(end.y[None])
    return SumRows(rows[0], _errors(end, usual), float(np.sum(end.residual**2)))


@dataclass(frozen=True)
class _Usual:
    """Rows in units of what is usual: z = μ + L y."""

    mean: Floats  # (d,)
    L: Floats  # (d, d)

    @staticmethod
    def of(told: _Told, n: int) -> _Usual:
        """From the first stage: −2 g = Σ z and 4 H = Σ z zᵀ if it began at θ = 0."""
        d = told.theta.shape[1]
        is_zero = float(np.linalg.norm(told.theta[0])) < _ZERO
        mean = -2.0 * told.g[0] / n if is_zero else np.zeros(d)
        values, axes = np.linalg.eigh(4.0 * told.H[0] / n - np.outer(mean, mean))
        values = np.maximum(values, 1e-6 * values.max(initial=1e-300))
        return _Usual(mean, axes * np.sqrt(values))

    def rows(self, y: Floats) -> tuple[Floats, Floats]:
        """Z (starts, n, d) and ρ (starts,) of unknowns (starts, n d + 1)."""
        d = len(self.mean)
        return self.mean + y[:, :-1].reshape(len(y), -1, d) @ self.L.T, y[:, -1]


@dataclass(frozen=True)
class _Told:
    """The numbers of all stages, in units of their size."""

    theta: Floats  # (S, d)
    H: Floats  # (S, d, d)
    g: Floats  # (S, d)
    value: Floats  # (numbers,)
    size: Floats  # (2,) of Hessians and of gradients
    upper: tuple[NDArray[np.int64], NDArray[np.int64]]
    weight: Floats  # (d (d + 1) / 2,) 1 on the diagonal, √2 off it: the norm of a matrix
    curved: int  # stages that tell a Hessian: all, or the first if the curvature is fixed

    @staticmethod
    def of(sums: Sequence[HonestSums], curvature: str) -> _Told:
        theta = np.array([s.theta for s in sums], np.float64)
        H = np.array([s.H for s in sums], np.float64)
        g = np.array([s.q for s in sums], np.float64) + np.einsum("sab,sb->sa", H, theta)
        size = np.maximum([np.linalg.norm(H), np.linalg.norm(g)], 1e-300)
        rows, columns = np.triu_indices(theta.shape[1])
        weight = np.where(rows == columns, 1.0, np.sqrt(2.0))
        curved = 1 if curvature == "fixed" else len(theta)
        shown = (weight * H[:curved, rows, columns] / size[0]).ravel()
        value = np.concatenate([shown, g.ravel() / size[1]])
        return _Told(theta, H, g, value, size, (rows, columns), weight, curved)

    def weights(self, t: Floats) -> tuple[Floats, Floats]:
        """∂²ℓ/∂t² as stages have it, and its derivative, at margins t (starts, S, n).

        A row that the last step threw far off has the weight tanh(t/2)/2t instead. The first stage
        is at θ = 0 or has the weight ¼ of a fixed curvature.
        """
        t = t[:, : self.curved]
        bent = np.tanh(t / 2)
        weight = (1 - bent * bent) / 4
        slope = -weight * bent  # σ''(t) = −σ'(t) tanh(t/2)
        if self.curved == 1:
            return np.full_like(t, 0.25), np.zeros_like(t)
        thrown = np.zeros(t.shape, bool)
        thrown[:, 1:] = (t[:, 1:] < 0) & (np.abs(np.diff(t, axis=1)) > 1.0)
        if not thrown.any():
            return weight, slope
        size = np.maximum(np.abs(t), 1e-6)
        safe = np.tanh(size / 2) / (2 * size)
        turned = np.sign(t) * ((1 - bent**2) / (4 * size) - np.abs(bent) / (2 * size**2))
        return np.where(thrown, safe, weight), np.where(thrown, turned, slope)

    def residual(self, Z: Floats, rho: Floats) -> Floats:
        """(starts, numbers) of rows Z (starts, n, d)."""
        a, b = self.upper
        t = np.einsum("sd,knd->ksn", self.theta, Z)
        doubt = 0.5 - 0.5 * np.tanh(t / 2)
        H = self.weights(t)[0] @ (Z[..., a] * Z[..., b]) + rho[:, None, None] * (a == b)
        g = rho[:, None, None] * self.theta - doubt @ Z
        shown = (self.weight * H / self.size[0]).reshape(len(Z), -1)
        return np.concatenate([shown, (g / self.size[1]).reshape(len(Z), -1)], axis=1) - self.value

    def jacobian(self, Z: Floats, L: Floats) -> Floats:
        """(starts, numbers, n d + 1), in the units L of rows."""
        (starts, n, d), (a, b) = Z.shape, self.upper
        t = np.einsum("sd,knd->ksn", self.theta, Z)
        doubt = 0.5 - 0.5 * np.tanh(t / 2)
        weight, bend = self.weights(t)
        along = self.theta @ L  # (S, d)
        products = self.weight * Z[..., a] * Z[..., b] / self.size[0]  # (starts, n, pairs)
        # of H: w'(t) θ_e z_a z_b + w(t) (δ_ae z_b + z_a δ_be)
        turned = L[a] * Z[..., b, None] + L[b] * Z[..., a, None]  # (starts, n, pairs, d)
        turned *= self.weight[:, None] / self.size[0]
        turned = turned.swapaxes(1, 2)[:, None]  # (starts, 1, pairs, n, d)
        bent = (bend[:, :, None] * products.swapaxes(1, 2)[:, None])[..., None]
        H = weight[:, :, None, :, None] * turned + bent * along[: self.curved, None, None]
        # of g: σ'(t) θ_e z_c − doubt δ_ce
        steep = (doubt * (1 - doubt))[:, :, None] * Z.swapaxes(1, 2)[:, None]
        g = steep[..., None] * along[:, None, None] - doubt[:, :, None, :, None] * L[:, None]
        flat = np.concatenate(
            [np.tile(self.weight * (a == b), self.curved) / self.size[0],
             (self.theta / self.size[1]).ravel()]
        )  # fmt: skip
        parts = [H.reshape(starts, -1, n * d), g.reshape(starts, -1, n * d) / self.size[1]]
        rho = np.broadcast_to(flat[:, None], (starts, len(flat), 1))
        return np.concatenate([np.concatenate(parts, axis=1), rho], axis=2)


@dataclass(frozen=True)
class _Point:
    """One start, for `descended`."""

    told: _Told
    usual: _Usual
    y: Floats  # (n d + 1,)

    @property
    def residual(self) -> Floats:
        return self.told.residual(*self.usual.rows(self.y[None]))[0]

    def jacobian(self) -> tuple[Floats, Floats]:
        J = self.told.jacobian(self.usual.rows(self.y[None])[0], self.usual.L)[0]
        return J, np.full(J.shape[1], 1e-300)

    def moved(self, step: Floats) -> _Point:
        return replace(self, y=self.y + step)


def _together(told: _Told, usual: _Usual, y: Floats, steps: int) -> tuple[Floats, Floats]:
    """All starts y after some steps, and their squared residuals."""
    r = told.residual(*usual.rows(y))
    square = (r * r).sum(axis=1)
    damping = np.full(len(y), 1e-2)
    for _ in range(steps):
        J = told.jacobian(usual.rows(y)[0], usual.L)
        step = _steps(J, r, damping)
        tried = told.residual(*usual.rows(y + step))
        after = (tried * tried).sum(axis=1)
        better = after < square  # False where a residual is not finite
        y = np.where(better[:, None], y + step, y)
        r = np.where(better[:, None], tried, r)
        square = np.where(better, after, square)
        damping = np.clip(np.where(better, _BETTER, _WORSE) * damping, 1e-12, 1e6)
        if square.min() <= _DONE:
            break
    return y, square


def _steps(J: Floats, r: Floats, damping: Floats) -> Floats:
    """Damped steps (starts, unknowns), by the smaller of the two normal systems."""
    numbers, unknowns = J.shape[1:]
    transposed = J.swapaxes(1, 2)
    system = transposed @ J if unknowns <= numbers else J @ transposed
    diagonal = np.einsum("kaa->ka", system)  # a view: of the system itself
    diagonal += damping[:, None] * diagonal.mean(axis=1, keepdims=True) + 1e-300
    if unknowns <= numbers:
        return -np.linalg.solve(system, transposed @ r[..., None])[..., 0]
    return -(transposed @ np.linalg.solve(system, r[..., None]))[..., 0]


def _errors(end: _Point, usual: _Usual) -> Floats:
    """(n,) what is left of the uncertainty of each row, against its length."""
    J, d = end.jacobian()[0], len(usual.mean)
    Z = usual.rows(end.y[None])[0][0]
    axes, sizes, _ = np.linalg.svd(J.T, full_matrices=False)  # (unknowns, min), (min,)
    known = axes * (sizes / np.sqrt(sizes**2 + _EXACT**2))
    known = known[:-1].reshape(len(Z), d, -1)  # (n, d, min)
    left = np.eye(d) - known @ known.swapaxes(1, 2)  # C_rr
    spread = np.einsum("ad,rde,ae->r", usual.L, left, usual.L)
    return np.sqrt(np.maximum(spread, 0.0)) / np.maximum(np.linalg.norm(Z, axis=1), 1e-300)
