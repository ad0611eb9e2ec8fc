"""Newton's method on pooled sums: every site takes the same steps.

At the point γ each site yields its flags, f_i, g_i and the upper triangle of H_i, and receives the
sums of all sites. The penalty ½ γᵀPγ is public, so it is added to the sums. The step −H⁻¹g is
halved while the pooled loss grows. The method ends when gᵀH⁻¹g, about the squared distance to the
minimum in standard errors, is small.

Decisions that could hang on the last bits of one machine are votes: a site that takes its last step
says so beside its next sums, and one vote among the pooled ones ends the method at all sites. Only
pooled sums, whose bits are equal everywhere, decide whether a step is halved.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from hushgrad.errors import FitError
from hushgrad.fitting.model import Model
from hushgrad.fitting.site_sums import SiteSums
from hushgrad.fitting.sums import Vector, from_narrow, narrow, settled

MOST_STEPS = 50
MOST_HALVINGS = 30
LAST_STEP = 1e-8  # gᵀH⁻¹g before the last step: about its square remains after it
_AT_END = 1e-6  # gᵀH⁻¹g that a last step may leave; else the method goes on
_BOUNDED = 3  # steps of Huber's fit with a bound of the Hessian, before Newton's
_DEPENDENT = 1e-9  # the part of a column's variance that the columns before it leave
_FLAT = 1e-8  # curvature left of the first one, in some direction: the minimum is at infinity
_GROWTH = 1e-12  # of a pooled loss, by rounding

type Sums = Generator[Vector, Vector, Vector]


@dataclass(frozen=True)
class Stage:
    """One average of the fit."""

    name: str
    n_numbers: int  # pooled numbers
    loss: float | None = None  # the pooled loss, penalty included
    decrement: float | None = None  # gᵀH⁻¹g


@dataclass(frozen=True)
class Minimum:
    """Where Newton's method ended."""

    gamma: Vector  # (p,) standardised
    loss: float  # without the penalty
    null_loss: float
    H: Vector  # (p, p) with the penalty
    stages: tuple[Stage, ...]


def pooled(limbs: Vector) -> Sums:
    """Yield one site's limbs, receive their sums as whole numbers."""
    return settled((yield limbs), len(limbs))


def minimise(
    model: Model, local: SiteSums, start: Vector, P: Vector, exponent: int, null: float
) -> Generator[Vector, Vector, Minimum]:
    """The minimum of the pooled loss from `start`, with sums of about 2^exponent."""
    p, is_quadratic = len(start), model.kind in ("linear", "ridge")
    gamma, step, factor = start, np.zeros(p), 1.0
    best, first_H, null_loss = math.inf, None, 0.0
    vote, halvings = False, 0
    stages: list[Stage] = []
    for n in range(MOST_STEPS):
        bounding = model.kind == "huber" and n < _BOUNDED
        sums = local.at(gamma + factor * step, bounding=bounding)
        if n == 0:
            sums = np.append(sums, 0.0 if model.kind == "cox" else local.null_loss(null))
        limbs = narrow(sums, exponent)
        flags = [float(vote), float(limbs is None)]
        limbs = np.zeros(2 * len(sums)) if limbs is None else limbs
        got = yield from pooled(np.concatenate([flags, limbs]))
        votes, too_far, values = got[0], got[1], from_narrow(got[2:], exponent)
        point = gamma + factor * step
        f, g, H = values[0], values[1 : p + 1] + P @ point, _symmetric(values[p + 1 :], p) + P
        F = f + point @ P @ point / 2
        if n == 0:
            null_loss = f if model.kind == "cox" else values[-1]
        if too_far or best + _GROWTH * 2.0**exponent < F:
            stages.append(Stage("halved step", len(sums), None if too_far else float(F)))
            halvings += 1
            if halvings > MOST_HALVINGS:
                raise FitError(_far(model, n))
            factor, vote = factor / 2, False
            continue
        gamma, best, factor, halvings = point, F, 1.0, 0
        if first_H is None:
            check_independent(model.names, H)
            first_H = H
        elif model.is_inferred:
            _check_finite(model, f, H, first_H, gamma)
        step = -np.linalg.solve(H, g)
        decrement = float(-g @ step)
        stages.append(Stage("Newton step", len(sums), float(F), decrement))
        if votes and decrement < _AT_END:
            gamma = gamma + step
            return Minimum(gamma, float(f), float(null_loss), H, tuple(stages))
        vote = not bounding and (is_quadratic or decrement < LAST_STEP)
    raise FitError(
        f"Newton's method needs fewer than {MOST_STEPS} steps where a finite minimum exists, but "
        f"the decrement is {stages[-1].decrement}. {_largest(model.names, gamma)} Leave a column "
        "out, or use a penalty."
    )


def _symmetric(upper: Vector, p: int) -> Vector:
    H = np.zeros((p, p))
    H[np.triu_indices(p)] = upper[: p * (p + 1) // 2]
    return H + np.triu(H, 1).T


def check_independent(names: Sequence[str], H: Vector) -> None:
    """Refuse a column that the columns before it determine."""
    size = np.sqrt(np.diagonal(H))
    for n in range(len(H)):
        if not size[n] > 0:
            raise FitError(
                f"the loss does not depend on {names[n]!r} at the start. Leave the column out."
            )
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


def _check_finite(model: Model, f: float, H: Vector, first_H: Vector, gamma: Vector) -> None:
    """Refuse a fit whose minimum is at infinity: separated outcomes, levels without events."""
    if model.kind == "logistic" and model.weights is None and f < math.log(2):
        # Were a row on the wrong side, that row alone would add log 2 or more.
        raise FitError(
            "the columns separate the outcomes of all rows, so the coefficients have no finite "
            f"values. {_largest(model.names, gamma)} Leave a column out, or use a penalty."
        )
    half = np.linalg.inv(np.linalg.cholesky(first_H))
    values, vectors = np.linalg.eigh(half @ H @ half.T)
    if values[0] < _FLAT:
        named = _largest(model.names, half.T @ vectors[:, 0])
        raise FitError(
            "the pooled loss has no curvature left in one direction, so a coefficient has no "
            f"finite value (separation, or a level without events). {named} "
            "Leave that column out, join levels, or use a penalty."
        )


def _largest(names: Sequence[str], gamma: Vector) -> str:
    order = np.argsort(-np.abs(gamma))
    order = [n for n in order if names[n] != "intercept"][:3]
    top = abs(gamma[order[0]])
    named = ", ".join(repr(names[n]) for n in order if abs(gamma[n]) > 0.1 * top)
    return f"The largest standardised coefficients are those of {named}."


def _far(model: Model, n: int) -> str:
    return (
        f"step {n} of the fit stays too long after {MOST_HALVINGS} halvings: the pooled loss does "
        f"not fall. Look for outliers in {', '.join(model.columns)}, or use a penalty."
    )
