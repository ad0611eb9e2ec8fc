"""The statistic of a stage as a sum over rows, each rounded to the grid of its mask.

The part of a row (x, y) in the statistic (H, q) of an agent at θ is (h x xᵀ, p x). The numbers h
and p depend on t = xᵀθ, on xᵀθ one stage before, on y and on public constants:

    squares     h = 1                               p = −y
    logistic    h = s(u) s(−u)                      p = −y (s(−u) + u h),    u = y t
                h = tanh(u/2) / 2u                  p = −y/2     if the last step threw the row off
    Huber       h = 1                               p = −y       where |t − y| ≤ delta
                h = (delta/|t − y|) a               p = ±delta (1 − a) − h y    beyond, 0 ≤ a ≤ 1

`losses.py` says why. A fixed curvature has h = ¼ or 1, and its q is the gradient: p = ∂ℓ/∂t.

A row's part is rounded to multiples of the grid before it is added. Sums of integers are exact, so
the sum over all rows of all agents does not depend on who holds a row (docs/guarantee.md). For the
same reason every operation here is one multiplication, division or addition of IEEE 754, element
by element: no BLAS and no library's exponential, whose last bits depend on the machine and on the
place of a row. The penalty belongs to an agent, not to a row, and is public.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import AlgorithmError

type Floats = NDArray[np.float64]
# t, t one stage before or None, y, delta → h, p; all (rows,)
type Coefficients = Callable[[Floats, Floats | None, Floats, float], tuple[Floats, Floats]]

_AT_ONCE = 2**16  # numbers of a temporary array: they fit into a cache
_EXACT = 2.0**53  # float64 holds every integer up to here
_LN2_HIGH = 6.93147180369123816490e-01  # with 32 bits, so that k · high is exact
_LN2_LOW = 1.90821492927058770002e-10  # ln 2 − high
_LEAST = -700.0  # e^x is above zero and not denormal


class Grids(NamedTuple):
    """The powers of two to whose multiples q and H are rounded; 0: no mask, and no rounding."""

    linear: float
    quadratic: float


# θ, θ one stage before or None, an agent's data, grids, is_fixed → H (d, d), q (d,)
type RowSum = Callable[[Any, Any, Any, Grids, bool], tuple[Floats, Floats]]


def squares(
    theta: Floats, before: Floats | None, data: Any, grids: Grids, is_fixed: bool
) -> tuple[Floats, Floats]:
    """A quadratic f has one curvature, so `is_fixed` changes nothing."""
    del is_fixed
    return _sum(_squares, theta, before, data, grids)


def logistic(
    theta: Floats, before: Floats | None, data: Any, grids: Grids, is_fixed: bool
) -> tuple[Floats, Floats]:
    if is_fixed:
        return _with_penalty(_sum(logistic_fixed_row, theta, None, data, grids), theta, data, grids)
    return _sum(logistic_row, theta, before, data, grids)


def huber(
    theta: Floats, before: Floats | None, data: Any, grids: Grids, is_fixed: bool
) -> tuple[Floats, Floats]:
    if is_fixed:
        return _with_penalty(_sum(huber_fixed_row, theta, None, data, grids), theta, data, grids)
    return _sum(huber_row, theta, before, data, grids)


def _squares(t: Floats, last: Floats | None, y: Floats, delta: float) -> tuple[Floats, Floats]:
    del last, delta
    return np.ones_like(t), -y


def logistic_row(t: Floats, last: Floats | None, y: Floats, delta: float) -> tuple[Floats, Floats]:
    del delta
    u = y * t
    doubt, e = _doubt(u)
    h = e / (1 + e) / (1 + e)
    p = -y * (doubt + u * h)
    if last is None:
        return h, p
    is_thrown = (u < 0) & (np.abs(t - last) > 1.0)
    size = np.abs(u)
    near = 0.25 - size * size / 48  # the series, where 1 − e would lose digits
    safe = np.where(size < 1e-3, near, (1 - e) / (1 + e) / (2 * np.maximum(size, 1e-3)))
    return np.where(is_thrown, safe, h), np.where(is_thrown, -y / 2, p)


def logistic_fixed_row(
    t: Floats, last: Floats | None, y: Floats, delta: float
) -> tuple[Floats, Floats]:
    del last, delta
    return np.full_like(t, 0.25), -y * _doubt(y * t)[0]


def huber_row(t: Floats, last: Floats | None, y: Floats, delta: float) -> tuple[Floats, Floats]:
    r = t - y
    size = np.abs(r)
    beyond = size - delta
    part = np.ones_like(t)
    if last is not None:
        half = np.minimum(1.0, 0.5 * np.abs(t - last) / np.maximum(beyond, 1e-300))
        part = half * half
    h = delta / np.maximum(size, delta) * part
    p = np.sign(r) * (delta * (1 - part)) - h * y
    return np.where(beyond <= 0, 1.0, h), np.where(beyond <= 0, -y, p)


def huber_fixed_row(
    t: Floats, last: Floats | None, y: Floats, delta: float
) -> tuple[Floats, Floats]:
    del last
    return np.ones_like(t), np.minimum(np.maximum(t - y, -delta), delta)


def _doubt(u: Floats) -> tuple[Floats, Floats]:
    """s(−u) = 1/(1 + e^u), and e^−|u|."""
    e = exponential(-np.abs(u))
    return np.where(u > 0, e, 1.0) / (1 + e), e


def exponential(x: Floats) -> Floats:
    """e^x of x ≤ 0, to a few units of the last place, with the same bits on every machine.

    >>> exponential(np.array([0.0, -1.0])).tolist()
    [1.0, 0.36787944117144233]
    """
    x = np.maximum(x, _LEAST)
    k = np.rint(x * (1 / 0.6931471805599453))
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW  # |r| ≤ ln 2 / 2
    series = np.ones_like(r)
    for n in range(14, 0, -1):
        series = 1 + r * series / n
    return np.ldexp(series, k.astype(np.int64))


def _sum(
    coefficients: Coefficients,
    theta: Floats,
    before: Floats | None,
    data: Any,
    grids: Grids,
) -> tuple[Floats, Floats]:
    X, y = data["X"], data["y"]
    n, d = X.shape
    weight = np.broadcast_to(data["weight"], n)  # 1, or 0 for rows that fill up an array
    delta = float(data.get("delta", 0.0))
    H, q, size = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    at_once = max(1, _AT_ONCE // d)
    with np.errstate(over="ignore", invalid="ignore"):  # `_check` refuses such numbers
        for start in range(0, n, at_once):
            some = slice(start, start + at_once)
            x = np.ascontiguousarray(X[some].T)  # (d, rows)
            last = None if before is None else _dot(x, before)
            h, p = coefficients(_dot(x, theta), last, y[some], delta)
            linear = _rounded(x, p * weight[some], grids.linear)
            q += linear.sum(axis=1)
            size += np.abs(linear).sum(axis=1)
            scaled = (h * weight[some]) / (grids.quadratic or 1.0)
            few = max(1, _AT_ONCE // x.size)
            room, left = np.empty((few, *x.shape)), scaled * x
            for a in range(0, d, few):  # some rows of H at once, from the diagonal on
                of_a = left[a : a + few]
                parts = np.multiply(of_a[:, None], x[a:], out=room[: len(of_a), : d - a])
                H[a : a + few, a:] += np.einsum("abr->ab", _integers(parts, grids.quadratic))
        # a sum of integers is exact in any order while the sum of their sizes is below 2⁵³
        _check("q", size.max(initial=0.0), grids.linear)
        # 2 |x_a x_b| ≤ x_a² + x_b², and a row rounds by at most ½
        _check("H", H.diagonal().max(initial=0.0) + n, grids.quadratic)
    whole = (np.triu(H) + np.triu(H, 1).T) * (grids.quadratic or 1.0)
    whole[np.arange(d), np.arange(d)] += _on_grid(data["penalty"], grids.quadratic)
    return whole, q * (grids.linear or 1.0)


def _with_penalty(
    found: tuple[Floats, Floats], theta: Floats, data: Any, grids: Grids
) -> tuple[Floats, Floats]:
    """q of a fixed curvature is the gradient, to which the penalty belongs."""
    return found[0], found[1] + _on_grid(data["penalty"] * theta, grids.linear)


def _dot(x: Floats, theta: Floats) -> Floats:
    """xᵀθ of columns x (d, rows), entry by entry in the order of θ."""
    return np.add.accumulate(x * theta[:, None], axis=0)[-1] + 0.0  # + 0.0: no negative zero


def _rounded(x: Floats, factor: Floats, grid: float) -> Floats:
    """factor · x as multiples of the grid."""
    return _integers(factor / (grid or 1.0) * x, grid)


def _integers(values: Floats, grid: float) -> Floats:
    return np.rint(values, out=values) if grid else values


def _on_grid(values: Floats, grid: float) -> Floats:
    return np.rint(values / grid) * grid if grid else values


def _check(name: str, largest: float, grid: float) -> None:
    if grid and not largest <= _EXACT:
        raise AlgorithmError(
            f"a sum with these masks is exact up to {_EXACT * grid:.3g}, but the rows of an agent "
            f"add up to {largest * grid:.3g} in an entry of {name}, far larger than its mask. Use "
            "a smaller stepsize, or declare a larger scale."
        )
