"""Newton's method on pooled sums: every site takes the same steps.

At the point γ each site yields its flags, f_i, g_i and the upper triangle of H_i, and receives the
sums of all sites. The penalty ½ γᵀPγ is public, so it is added to the sums. The step −H⁻¹g is
halved while the pooled loss grows. The method ends when gᵀH⁻¹g, about the squared distance to the
minimum in standard errors, is small.

Steps are made of pooled sums, whose bits are equal everywhere, by arithmetic with the same bits on
every machine (`arithmetic.py`): all sites are at the same γ, to the last bit. A site that takes its
last step says so beside its next sums, and one vote among the pooled ones ends the method at all.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hushgrad.errors import FitError
from hushgrad.fitting import arithmetic
from hushgrad.fitting.bounds import RowParts
from hushgrad.fitting.model import Model
from hushgrad.fitting.site_sums import SiteSums
from hushgrad.fitting.sums import NARROW, Vector, flag, narrow, noise, settled

MOST_STEPS = 50
MOST_HALVINGS = 30
LAST_STEP = 1e-8  # gᵀH⁻¹g before the last step: about its square remains after it
# gᵀH⁻¹g that a last step may leave. Towards a minimum at infinity a step takes off only a factor e.
_AT_END = 1e-11
_BOUNDED = 3  # steps of Huber's fit with a bound of the Hessian, before Newton's
_DEPENDENT = 1e-9  # the part of a column's variance that the columns before it leave
_FLAT = 1e-8  # curvature left of the first one, in some direction: the minimum is at infinity
_GROWTH = 1e-12  # of a pooled loss, by rounding

type Sums = Generator[Vector, Vector, Vector]


@dataclass(frozen=True)
class FitStage:
    """One average of the fit."""

    name: str
    n_numbers: int  # pooled numbers
    loss: float | None = None  # the pooled loss, penalty included
    decrement: float | None = None  # gᵀH⁻¹g
    row_part: float | None = None  # the largest norm of one row's part; None: no bound declared


@dataclass(frozen=True)
class Minimum:
    """The point at which Newton's method ended."""

    gamma: Vector  # (p,) standardised
    loss: float  # without the penalty
    null_loss: float
    H: Vector | None  # (p, p) with the penalty; None: it was never pooled
    stages: tuple[FitStage, ...]

    @property
    def bread(self) -> Vector:
        """H⁻¹, (p, p)."""
        assert self.H is not None
        return np.linalg.inv(self.H)


@dataclass(frozen=True)
class PooledPoint:
    """Pooled numbers at one point."""

    gamma: Vector  # (p,)
    votes: int  # of sites that take their last step
    is_too_far: bool  # some row's part is not finite or huge: the rest means nothing
    f: float  # the loss without the penalty
    F: float  # and with it
    g: Vector  # (p,) of F
    H: Vector  # (p, p) of F
    null_loss: float
    n_numbers: int
    row_part: float | None

    def stage(self, name: str) -> FitStage:
        loss = None if self.is_too_far else self.F
        return FitStage(name, self.n_numbers, loss, row_part=self.row_part)


def pooled(limbs: Vector) -> Sums:
    """Yield one site's limbs, receive their sums as whole numbers."""
    return settled((yield limbs), len(limbs))


def minimise(
    model: Model,
    local: SiteSums,
    start: Vector,
    P: Vector,
    exponent: int,
    null: float,
    parts: RowParts,
) -> Generator[Vector, Vector, Minimum]:
    """The minimum of the pooled loss from `start`, with sums of about 2^exponent."""
    pooling = _Pooling(model, local, P, exponent, parts)
    now = yield from pooling.evaluate(start, bounding=model.kind == "huber", null=null)
    if now.is_too_far:
        raise FitError(far(model))
    check_independent(model.names, now.H, _GROWTH * 2.0**exponent)
    null_loss, first_H = now.null_loss if model.kind != "cox" else now.f, now.H
    stages = [now.stage("first step")]
    for n in range(MOST_STEPS):
        try:
            step = -arithmetic.solve(now.H, now.g)
        except np.linalg.LinAlgError:  # with a penalty: the intercept alone has none
            raise FitError(_no_curvature(model, now.gamma)) from None
        decrement = -arithmetic.dot(now.g, step)
        stages[-1] = replace(stages[-1], decrement=decrement)
        if now.votes and decrement < _AT_END:
            gamma = now.gamma + step
            loss = now.F - decrement / 2 - half_penalty(P, gamma)
            return Minimum(gamma, loss, null_loss, now.H, tuple(stages))
        is_bound = model.kind == "huber" and n < _BOUNDED  # the Hessian of this step
        vote = model.kind in ("linear", "ridge") or (decrement < LAST_STEP and not is_bound)
        bounding = model.kind == "huber" and n + 1 < _BOUNDED
        now = yield from pooling.descend(now, step, stages, vote=vote, bounding=bounding)
        if model.is_inferred:
            _check_finite(model, now, first_H)
    raise FitError(
        f"Newton's method needs fewer than {MOST_STEPS} steps where a finite minimum exists, but "
        f"the decrement is {stages[-2].decrement}. {_largest(model.names, now.gamma)} Leave a "
        "column out, or use a penalty."
    )


@dataclass(frozen=True)
class _Pooling:
    """The things that all evaluations of one fit at one site have in common."""

    model: Model
    local: SiteSums
    P: Vector  # (p, p) diagonal; the penalty is ½ γᵀPγ
    exponent: int  # sums are about 2^exponent
    parts: RowParts

    def descend(
        self,
        before: PooledPoint,
        step: Vector,
        stages: list[FitStage],
        *,
        vote: bool,
        bounding: bool,
    ) -> Generator[Vector, Vector, PooledPoint]:
        """The point after a step, which is halved while the pooled loss grows."""
        for _ in range(MOST_HALVINGS):
            now = yield from self.evaluate(before.gamma + step, vote=vote, bounding=bounding)
            grows = before.F + _GROWTH * 2.0**self.exponent < now.F
            if not now.is_too_far and not grows:
                stages.append(now.stage("step"))
                return now
            stages.append(now.stage("halved step"))
            step, vote = step / 2, False
        raise FitError(far(self.model))

    def evaluate(
        self,
        gamma: Vector,
        *,
        bounding: bool,
        vote: bool = False,
        null: float | None = None,
    ) -> Generator[Vector, Vector, PooledPoint]:
        """Pool the loss, its gradient and its Hessian at γ; `null`: the null loss too."""
        p = len(gamma)
        n_numbers = 1 + p + p * (p + 1) // 2 + (null is not None)
        far, limbs = self.local.at(gamma, self.exponent, bounding=bounding, null=null)
        part = self.parts.newton(gamma, null)
        if far:
            limbs = noise(NARROW * n_numbers)
        self.parts.progress.add(n_numbers)
        got = yield from pooled(np.concatenate([[float(vote), flag(is_far=far > 0)], limbs]))
        values = narrow(self.exponent).join(got[2:])
        f = float(values[0])
        return PooledPoint(
            gamma=gamma,
            votes=int(got[0]),
            is_too_far=bool(got[1]),
            f=f,
            F=f + half_penalty(self.P, gamma),
            g=values[1 : p + 1] + self.P.diagonal() * gamma,
            H=symmetric(values[p + 1 :], p) + self.P,
            null_loss=0.0 if null is None else float(values[-1]),
            n_numbers=n_numbers,
            row_part=self.parts.far() if got[1] else part,
        )


def half_penalty(P: Vector, gamma: Vector) -> float:
    """½ γᵀPγ of a diagonal P (p, p)."""
    return arithmetic.dot(P.diagonal() * gamma, gamma) / 2


def symmetric(upper: Vector, p: int) -> Vector:
    """H (p, p) of its upper triangle, row by row."""
    H = np.zeros((p, p))
    H[np.triu_indices(p)] = upper[: p * (p + 1) // 2]
    return H + np.triu(H, 1).T


def check_independent(names: Sequence[str], H: Vector, rounding: float) -> None:
    """Refuse a column without curvature, and one that the columns before it determine."""
    diagonal = np.diagonal(H)
    for n in range(len(H)):
        if not diagonal[n] > rounding:
            raise FitError(
                f"the loss does not depend on {names[n]!r} at the start. Leave the column out."
            )
    size = np.sqrt(diagonal)
    C = H / np.outer(size, size)
    for n in range(1, len(C)):
        weights = np.linalg.solve(C[:n, :n], C[:n, n])
        if C[n, n] - C[:n, n] @ weights < _DEPENDENT:
            parts = [names[j] for j in range(n) if abs(weights[j]) > 1e-4]
            raise FitError(
                f"the columns of a model are independent, but {names[n]!r} is a combination of "
                f"{', '.join(repr(part) for part in parts)}. Leave one of them out, or use a "
                "penalty."
            )


def _check_finite(model: Model, now: PooledPoint, first_H: Vector) -> None:
    """Refuse a fit whose minimum is at infinity: separated outcomes, levels without events."""
    if model.kind == "logistic" and model.weights is None and now.f < math.log(2):
        # Were a row on the wrong side, that row alone would add log 2 or more.
        raise FitError(
            "the columns separate the outcomes of all rows, so the coefficients have no finite "
            f"values. {_largest(model.names, now.gamma)} Leave a column out, or use a penalty."
        )
    half = np.linalg.inv(np.linalg.cholesky(first_H))
    values, vectors = np.linalg.eigh(half @ now.H @ half.T)
    if values[0] < _FLAT:
        raise FitError(_no_curvature(model, half.T @ vectors[:, 0]))


def _largest(names: Sequence[str], gamma: Vector) -> str:
    order = np.argsort(-np.abs(gamma))
    order = [n for n in order if names[n] != "intercept"][:3]
    top = abs(gamma[order[0]])
    named = ", ".join(repr(names[n]) for n in order if abs(gamma[n]) > 0.1 * top)
    return f"The largest standardised coefficients are those of {named}."


def far(model: Model) -> str:
    """The message for a step that stays too long."""
    return (
        f"a step of the fit stays too long after {MOST_HALVINGS} halvings: the pooled loss does "
        f"not fall. Look for outliers in {', '.join(model.columns)}, or use a penalty."
    )


def _no_curvature(model: Model, direction: Vector) -> str:
    if model.kind == "huber":
        return (
            f"too few residuals are within delta = {model.delta} for a Hessian. Use a larger "
            "delta, or more rows."
        )
    return (
        "the pooled loss has no curvature left in one direction, so a coefficient has no finite "
        f"value (separation, or a level without events). {_largest(model.names, direction)} Leave "
        "that column out, join levels, or use a penalty."
    )
