"""Tails and quantiles of the normal and of Student's distribution, without SciPy.

An agent's machine has NumPy alone. Student's tail is an incomplete beta function,

    P(|T| > t) = I_x(ν/2, ½),    x = ν / (ν + t²)

by a continued fraction, evaluated in Lentz's way. Relative errors are about 1e-13.

`inference.py` makes p-values and intervals with them.
"""

from __future__ import annotations

import math
from statistics import NormalDist

_TINY = 1e-300
_MOST_TERMS = 10_000
_ROOT_PI = math.sqrt(math.pi)  # Γ(½)
_LARGE = 100.0
_NORMAL = NormalDist()


def two_sided(statistic: float, df: float | None) -> float:
    """P(|Z| > |statistic|); with `df` degrees of freedom of Student's distribution.

    >>> round(two_sided(1.96, None), 4), round(two_sided(2.0, 10), 4)
    (0.05, 0.0734)
    """
    if df is None:
        return math.erfc(abs(statistic) / math.sqrt(2))
    square = statistic * statistic
    return _beta(df / (df + square), square / (df + square), df / 2, 0.5)


def quantile(level: float, df: float | None) -> float:
    """The t with P(|T| ≤ t) = level.

    >>> round(quantile(0.95, None), 6), round(quantile(0.95, 10), 6)
    (1.959964, 2.228139)
    """
    start = -_NORMAL.inv_cdf((1 - level) / 2)
    if df is None:
        return start
    low, high = 0.0, start
    while two_sided(high, df) > 1 - level:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if two_sided(middle, df) > 1 - level else (low, middle)
    return middle


def _beta(x: float, rest: float, a: float, b: float) -> float:
    """I_x(a, b), the regularised incomplete beta function of b = ½; rest is 1 − x."""
    if x == 0 or rest == 0:
        return 0.0 if x == 0 else 1.0
    log_x = math.log1p(-rest) if rest < 0.5 else math.log(x)
    front = math.exp(_log_ratio(a) + a * log_x + b * math.log(rest)) / _ROOT_PI
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, rest, a, b) / a
    return 1 - front * _fraction(rest, x, b, a) / b


def _log_ratio(a: float) -> float:
    """log Γ(a + ½)/Γ(a): for large a a series, where the difference would lose its digits."""
    if a < _LARGE:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return math.log(a) / 2 - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5)


def _fraction(x: float, rest: float, a: float, b: float) -> float:
    """A continued fraction of I_x(a, b) without cancellation near x = 1; rest is 1 − x.

    I_x(a, b) = x^a rest^b / (B(a, b) · K),     K = β_0 + α_1/(β_1 + α_2/(β_2 + …))
    α_m = (a + m − 1)(a + b + m − 1) m (b − m) x² / (a + 2m − 1)²
    β_m = m + m(b − m)x/(a + 2m − 1) + (a + m)(a rest − b x + 1 + m(1 + rest))/(a + 2m + 1)

    Gives a/K, evaluated in Lentz's way (DLMF 3.10, 8.17).
    """
    excess = a * rest - b * x + 1
    f = _away(a * excess / (a + 1))
    c, d = f, 0.0
    for m in range(1, _MOST_TERMS):
        before = a + 2 * m - 1
        top = (a + m - 1) * (a + b + m - 1) * m * (b - m) * x * x / (before * before)
        below = m + m * (b - m) * x / before + (a + m) * (excess + m * (1 + rest)) / (before + 2)
        d = 1 / _away(below + top * d)
        c = _away(below + top / c)
        f *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return a / f


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
