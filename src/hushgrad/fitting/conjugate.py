"""Newton's method without a Hessian: conjugate gradients on pooled products H v.

A fit of p coefficients pools p(p + 1)/2 numbers for each Hessian. With many coefficients these are
too many. A product H v = Zᵀ diag(w) Z v is a sum over rows with p numbers, exact as every pooled
sum, and conjugate gradients solve H s = −g with some tens of products:

    minimise   F(γ) = f(γ) + ½ γᵀPγ,       s ≈ −H⁻¹g,       γ ← γ + s

The iteration is preconditioned by the diagonal of H + P, and stops at a residual that shrinks with
the gradient. A step is halved while the pooled loss grows. There is no stepsize to choose.

All decisions are functions of pooled whole numbers by correctly rounded operations (`math.fsum` for
inner products, elementwise arithmetic), so every site takes the same ones to the last bit.

Without H nobody sees dependent columns or separated outcomes, so these fits have a penalty, with
which the minimum is unique. They have no standard errors anyway.

`programmes.py` takes it in place of `newton.py` if a model says `hessian = "products"`.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from hushgrad.errors import FitError
from hushgrad.fitting import arithmetic
from hushgrad.fitting.bounds import RowParts
from hushgrad.fitting.model import Model
from hushgrad.fitting.newton import (
    MOST_HALVINGS,
    FitStage,
    Minimum,
    far,
    half_penalty,
    pooled,
)
from hushgrad.fitting.site_sums import SiteSums
from hushgrad.fitting.sums import NARROW, Vector, flag, narrow, noise

MOST_AVERAGES = 2000  # products and points together
PRODUCT = "product"  # the name of the stage
_ROOM = 4  # bits: entries of H v for ‖v‖ < 1 exceed the number of rows by far less than p
_LAST = 1e-10  # −gᵀs before the last step, about the squared distance in standard errors
_LOOSE, _TIGHT = 1e-2, 1e-8  # residuals of conjugate gradients, as parts of the gradient
_GROWTH = 1e-12  # of a pooled loss, by rounding


@dataclass(frozen=True)
class _At:
    """Pooled numbers at one point."""

    gamma: Vector  # (p,)
    is_too_far: bool
    F: float  # with the penalty
    g: Vector  # (p,)
    diagonal: Vector  # (p,) of H + P
    null_loss: float


def minimise_by_products(
    model: Model,
    local: SiteSums,
    start: Vector,
    P: Vector,
    exponent: int,
    null: float,
    parts: RowParts,
) -> Generator[Vector, Vector, Minimum]:
    """The minimum of the pooled loss from `start`; P (p, p) is diagonal."""
    work = _Products(model, local, P, exponent, parts, [])
    now = yield from work.evaluate(start, "first step", null=null)
    if now.is_too_far:
        raise FitError(far(model))
    null_loss = now.null_loss
    while True:
        step, decrement = yield from work.solve(now)
        if decrement < _LAST:
            gamma = now.gamma + step
            loss = now.F - decrement / 2 - half_penalty(P, gamma)
            return Minimum(gamma, loss, null_loss, None, tuple(work.stages))
        now = yield from work.descend(now, step)


@dataclass(frozen=True)
class _Products:
    model: Model
    local: SiteSums
    P: Vector  # (p, p) diagonal
    exponent: int
    parts: RowParts
    stages: list[FitStage]

    def _pool(
        self, own: tuple[int, Vector], n_numbers: int, exponent: int
    ) -> Generator[Vector, Vector, tuple[Vector, bool]]:
        """The pooled numbers of a site's own limbs, and whether a row of some site is too far."""
        if len(self.stages) == MOST_AVERAGES:
            raise FitError(
                f"conjugate gradients have not converged after {MOST_AVERAGES} averages. Use a "
                'larger penalty, fewer columns, or hessian = "matrix".'
            )
        rows_far, limbs = own
        limbs = noise(NARROW * n_numbers) if rows_far else limbs
        self.parts.progress.add(n_numbers)
        got = yield from pooled(np.concatenate([[flag(is_far=rows_far > 0)], limbs]))
        return narrow(exponent).join(got[1:]), bool(got[0])

    def evaluate(
        self, gamma: Vector, name: str, null: float | None = None
    ) -> Generator[Vector, Vector, _At]:
        """Pool the loss, its gradient and the diagonal of its Hessian."""
        p = len(gamma)
        n_numbers, P = 1 + 2 * p + (null is not None), self.P.diagonal()
        own = self.local.first_order(gamma, self.exponent, null=null)
        part = self.parts.first_order(gamma, null)
        got, is_too_far = yield from self._pool(own, n_numbers, self.exponent)
        part = self.parts.far() if is_too_far else part
        F = float(got[0]) + half_penalty(self.P, gamma)
        self.stages.append(FitStage(name, n_numbers, None if is_too_far else F, row_part=part))
        g, diagonal = got[1 : p + 1] + P * gamma, got[p + 1 : 2 * p + 1] + P
        return _At(gamma, is_too_far, F, g, diagonal, 0.0 if null is None else float(got[-1]))

    def descend(self, before: _At, step: Vector) -> Generator[Vector, Vector, _At]:
        """The point after a step, which is halved while the pooled loss grows."""
        for _ in range(MOST_HALVINGS):
            now = yield from self.evaluate(before.gamma + step, "step")
            if not now.is_too_far and before.F + _GROWTH * 2.0**self.exponent >= now.F:
                return now
            step = step / 2
            # the products belong to the point before
        raise FitError(far(self.model))

    def solve(self, now: _At) -> Generator[Vector, Vector, tuple[Vector, float]]:
        """s ≈ −H⁻¹g and −gᵀs, by conjugate gradients."""
        self.local.stand(now.gamma)  # a halved step may have left the curvature elsewhere
        scale = np.where(now.diagonal > 0, now.diagonal, 1.0)
        s, r = np.zeros_like(now.g), -now.g
        z = r / scale
        v, rho = z, arithmetic.dot(r, z)
        first = rho
        part = _TIGHT if self.model.kind == "ridge" else min(_LOOSE, max(_TIGHT, math.sqrt(rho)))
        for _ in range(2 * len(s)):
            if rho <= part * part * first or rho == 0:
                break
            Hv = yield from self._product(now.gamma, v)
            alpha = rho / arithmetic.dot(v, Hv)
            s, r = s + alpha * v, r - alpha * Hv
            z = r / scale
            before, rho = rho, arithmetic.dot(r, z)
            v = z + (rho / before) * v
        return s, arithmetic.dot(-now.g, s)

    def _product(self, gamma: Vector, v: Vector) -> Generator[Vector, Vector, Vector]:
        """(H + P) v, pooled for a multiple of v with a norm below 1."""
        unit = 2.0 ** math.frexp(math.sqrt(arithmetic.dot(v, v)))[1]
        exponent = self.exponent + _ROOM
        own = self.local.product(v / unit, exponent)
        part = self.parts.product(gamma, v / unit, exponent)
        got, is_too_far = yield from self._pool(own, len(v), exponent)
        if is_too_far:
            raise FitError(far(self.model))
        self.stages.append(FitStage(PRODUCT, len(v), row_part=part))
        return unit * got + self.P.diagonal() * v
