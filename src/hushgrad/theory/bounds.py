"""Public bounds on one row's part of an agent's statistic (H_i, q_i). `guarantee` needs one.

A stage masks H_i, the curvature of f_i at the stage's start θ, and q_i = ∇f_i(θ) − H_i θ. Both are
sums over rows. A bound holds for every row that the contract admits and for every θ, because an
active participant can steer θ. With t = xᵀθ, the part of a row (x, y) is (h x xᵀ, p x):

    ridge       h = 1                  p = −y
    logistic    h = s(u) s(−u) ≤ ¼     p = −y (s(−u) + u s(u) s(−u)),   u = y t, y = ±1
    Huber       h = 1, p = −y  where |t − y| < delta;    else h = 0, p = ±delta

with s(u) = 1/(1 + e⁻ᵘ). The bracket of the logistic p has the derivative
−u s(u) s(−u) tanh(u/2) ≤ 0, so it falls from 1 to 0 and |p| ≤ 1.
With a fixed curvature, which is masked once, a stage masks the gradient ∇f_i(θ) instead of q_i:
p = −y s(−u), also |p| ≤ 1, or |p| ≤ delta. The safeguards of stages (problems/losses.py) choose
another h for some rows, never above these bounds: a logistic row that the last step threw off has
p = −y/2, and a Huber row beyond delta has p = ±delta (1 − a) − a (delta/|t − y|) y, 0 ≤ a ≤ 1.

A symmetric matrix counts every entry once, as its mask does: the sum of squares over the upper
triangle of x xᵀ is at most ‖x‖⁴, and a row along an axis reaches it. The identity part of a
quadratic mask adds to the covariance of the noise, so it only helps; no bound counts on it.
A penalty that does not depend on the rows has no part in Δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hushgrad.errors import PrivacyError


@dataclass(frozen=True, kw_only=True)
class RowBound:
    """‖Δq‖ ≤ `linear` and ‖ΔH‖ ≤ `quadratic` for the part (ΔH, Δq) of any admitted row.

    ‖ΔH‖ is the root of the sum of squares over the upper triangle, the diagonal included.
    """

    linear: float
    quadratic: float = 0.0

    def __post_init__(self) -> None:
        for name in ("linear", "quadratic"):
            check_size(f"the bound {name}", getattr(self, name))


def ridge_row(norm: float, target: float) -> RowBound:
    """The bound for ridge regression on rows with ‖x‖ ≤ norm and |y| ≤ target.

    An intercept is an entry of x: it counts in the norm.
    """
    check_size("norm", norm)
    check_size("target", target)
    return RowBound(linear=norm * target, quadratic=norm * norm)


def logistic_row(norm: float) -> RowBound:
    """The bound for logistic regression on rows with ‖x‖ ≤ norm, at any θ.

    >>> logistic_row(2.0)
    RowBound(linear=2.0, quadratic=1.0)
    """
    check_size("norm", norm)
    return RowBound(linear=norm, quadratic=norm * norm / 4)


def huber_row(norm: float, target: float, delta: float) -> RowBound:
    """The bound for Huber's loss on rows with ‖x‖ ≤ norm and |y| ≤ target, at any θ."""
    check_size("norm", norm)
    check_size("target", target)
    check_size("delta", delta)
    return RowBound(linear=norm * max(target, delta), quadratic=norm * norm)


def mean_row(norm: float) -> RowBound:
    """The bound for an average of vectors: one row adds a vector of norm ≤ norm."""
    check_size("norm", norm)
    return RowBound(linear=norm)


def check_size(name: str, value: object) -> None:
    """Refuse what is no finite number ≥ 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise PrivacyError(
            f"A guarantee needs finite public bounds ≥ 0, but {name} = {value!r}. Clip or "
            "standardise the columns by public numbers, and state the bound that follows."
        )
