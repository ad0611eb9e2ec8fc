"""Functions with the same bits on every machine and at every place of an array.

A row's part in the sums of a fit must not depend on the site that holds the row, and all sites must
take the same steps (docs/guarantee.md). So everything here is a sequence of single additions,
multiplications, divisions and roundings of IEEE 754, element by element: no BLAS, and no function
of a library, whose last bits depend on the processor and on a number's place in an array.

Every module of this package that computes a pooled number or a step uses it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hushgrad.problems.rows import exponential

type Vector = NDArray[np.float64]

_LN2_HIGH = 6.93147180369123816490e-01  # with 32 bits, so that k · high is exact
_LN2_LOW = 1.90821492927058770002e-10  # ln 2 − high
_MOST = 700.0  # e^x is finite
_TERMS = 18  # of Σ s^2n/(2n + 1) for |s| ≤ 1/3: the rest is below 2⁻⁵⁶
_SPLIT = 2.0**27 + 1  # Veltkamp's constant: a half of a number has 26 bits
_LOG_2PI = 1.8378770664093453
_SMALL = 20  # counts whose factorial is taken as it is


def power_above(x: float) -> int:
    """The least e with 2^e ≥ x, of x > 0.

    >>> power_above(8.0), power_above(8.1)
    (3, 4)
    """
    m, e = math.frexp(x)
    return e - (m == 0.5)


def exp(x: Vector) -> Vector:
    """e^x to a few units of the last place; ∞ from x = 700 on.

    >>> exp(np.array([0.0, 1.0, 800.0])).tolist()
    [1.0, 2.718281828459045, inf]
    """
    small = exponential(-np.abs(x))
    return np.where(x > _MOST, np.inf, np.where(x > 0, 1 / small, small))


def log1p(x: Vector) -> Vector:
    """log(1 + x) of 0 ≤ x ≤ 1, as 2 artanh(x/(2 + x))."""
    return _artanh(x / (2 + x))


def log(x: Vector) -> Vector:
    """The logarithm of finite x > 0.

    >>> log(np.array([1.0, 8.0])).tolist()
    [0.0, 2.0794415416798357]
    """
    m, k = np.frexp(np.asarray(x, np.float64))  # x = m 2^k, ½ ≤ m < 1
    is_low = m < math.sqrt(0.5)
    m, k = np.where(is_low, 2 * m, m), k - is_low
    return k * _LN2_HIGH + (_artanh((m - 1) / (m + 1)) + k * _LN2_LOW)


def _artanh(s: Vector) -> Vector:
    """2 artanh(s) of |s| ≤ 1/3."""
    square = s * s
    series = np.full_like(s, 1 / (2 * _TERMS + 1))
    for n in range(_TERMS - 1, -1, -1):
        series = 1 / (2 * n + 1) + square * series
    return 2 * s * series


def log_factorial(y: Vector) -> Vector:
    """log y! of whole y ≥ 0: from a table, and by Stirling's series from 20 on."""
    table = log(np.array([float(math.factorial(n)) for n in range(_SMALL)]))
    large = np.maximum(y, float(_SMALL))
    inverse = 1 / large
    square = inverse * inverse
    series = np.zeros_like(large)
    for part in (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        series = series * square + part
    root = (_LOG_2PI + log(large)) / 2
    stirling = large * (log(large) - 1) + root + series * inverse
    return np.where(y < _SMALL, table[np.minimum(y, _SMALL - 1).astype(np.intp)], stirling)


def square(x: Vector) -> tuple[Vector, Vector]:
    """x² as the exact sum of two numbers (Dekker); x is below 2⁵⁰⁰ in size."""
    whole = x * x
    large = _SPLIT * x
    high = large - (large - x)
    low = x - high
    return whole, ((high * high - whole) + 2 * high * low) + low * low


def dot(a: Vector, b: Vector) -> float:
    """aᵀb, each product rounded and their sum rounded once."""
    return math.fsum((a * b).tolist())


def predictor(columns: Vector, gamma: Vector) -> Vector:
    """zᵀγ of every row; columns (p, rows)."""
    eta = np.zeros(columns.shape[1])
    for column, entry in zip(columns, gamma, strict=True):
        eta += column * entry
    return eta


def solve(H: Vector, b: Vector) -> Vector:
    """H⁻¹ b of a positive definite H, by L D Lᵀ; LinAlgError if H is none."""
    A, x, n = H.copy(), b.copy(), len(b)
    for k in range(n):
        if not A[k, k] > 0:
            raise np.linalg.LinAlgError("not positive definite")
        column = A[k + 1 :, k] / A[k, k]
        A[k + 1 :, k + 1 :] -= column[:, None] * A[k, k + 1 :]
        A[k + 1 :, k] = column
        x[k + 1 :] -= column * x[k]
    x /= A.diagonal()
    for k in range(n - 1, 0, -1):
        x[:k] -= A[k, :k] * x[k]
    return x
