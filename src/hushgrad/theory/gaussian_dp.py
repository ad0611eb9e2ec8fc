"""Gaussian differential privacy: what the best test between two Gaussians of distance μ achieves.

Two worlds give an observation N(0, 1) or N(μ, 1). A test that falsely says "second" with
probability α misses the second world with probability at least

    f(α) = Φ(Φ⁻¹(1 − α) − μ)                                   the trade-off curve

Equivalently, for every ε the worlds are (ε, δ)-indistinguishable with

    δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)

and the best test guesses the world with the advantage 2Φ(μ/2) − 1 over a coin. `promise.py`
computes μ of masked statistics; here are the numbers that follow from μ.

The formula of δ subtracts nearly equal numbers. With a = ε/μ − μ/2, b = a + μ and Mills' ratio
M(x) = Φ(−x)/φ(x) = ∫ exp(−xt − t²/2) dt over t > 0, the same δ is a product without cancellation:

    δ(ε) = φ(a) (M(a) − M(b)) = φ(a) ∫ exp(−at − t²/2) (1 − e^(−μt)) dt
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from hushgrad.errors import PrivacyError

_FOLDS = 40.0  # the integral ends where its integrand has fallen by e⁻⁴⁰, below the last bit
_NODES = 64  # Gauss–Legendre nodes: the integrand is smooth, the rule is exact to rounding
_HALVINGS = 2100  # a bisection of any two float64 numbers ends before


def tradeoff(alpha: float, mu: float) -> float:
    """f(α): the smallest probability of a miss at the probability α of a false alarm.

    >>> tradeoff(0.05, 0.0)
    0.95
    >>> round(tradeoff(0.05, 1.0), 4)
    0.7405
    """
    _check("alpha", alpha, most=1.0)
    _check("mu", mu)
    if alpha == 0.0:
        return 1.0
    if alpha == 1.0 or math.isinf(mu):
        return 0.0
    if mu == 0.0:
        return 1.0 - alpha
    return math.erfc((NormalDist().inv_cdf(alpha) + mu) / math.sqrt(2)) / 2


def advantage(mu: float) -> float:
    """2Φ(μ/2) − 1: by how much the best test beats a coin; 0 nothing, 1 certainty.

    >>> round(advantage(0.01), 6)
    0.003989
    """
    _check("mu", mu)
    return math.erf(mu / math.sqrt(8))


def delta(epsilon: float, mu: float) -> float:
    """δ(ε), without cancellation; 0.0 only where δ is below the smallest float.

    >>> f"{delta(1.0, 0.1):.5e}"
    '1.23084e-25'
    """
    _check("epsilon", epsilon)
    _check("mu", mu)
    return math.exp(_log_delta(epsilon, mu))


def epsilon(delta: float, mu: float) -> float:
    """The smallest ε with δ(ε) ≤ delta, rounded up.

    >>> round(epsilon(1e-6, 0.1), 4)
    0.3969
    """
    _check("delta", delta, most=1.0)
    _check("mu", mu)
    if delta == 0.0:
        return 0.0 if mu == 0.0 else math.inf
    if math.isinf(mu):
        return 0.0 if delta == 1.0 else math.inf
    goal = math.log(delta)
    if _log_delta(0.0, mu) <= goal:
        return 0.0
    low, high = 0.0, max(mu, mu * mu)
    while _log_delta(high, mu) > goal:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if _log_delta(middle, mu) > goal else (low, middle)
    return high


def _log_delta(epsilon: float, mu: float) -> float:
    if mu == 0.0 or math.isinf(epsilon):
        return -math.inf
    if math.isinf(mu):
        return 0.0
    a = epsilon / mu - mu / 2
    if math.isinf(a):
        return -math.inf
    if a < -1.0:  # then μ > 2, and the second term is less than half of the first
        return math.log(_tail(a) - math.exp(-a * a / 2) * _mills(a + mu) / math.sqrt(2 * math.pi))
    nodes, weights = _rule()
    length = 2 * _FOLDS / (a + math.sqrt(a * a + 2 * _FOLDS))  # at + t²/2 = _FOLDS
    t = length * nodes
    integral = length * float(weights @ (np.exp(-t * (a + t / 2)) * -np.expm1(-mu * t)))
    if integral == 0.0:  # μ is below the smallest float that the integral can hold
        return -math.inf
    return -a * a / 2 - math.log(2 * math.pi) / 2 + math.log(integral)


def _tail(x: float) -> float:
    """Φ(−x)."""
    return math.erfc(x / math.sqrt(2)) / 2


def _mills(x: float) -> float:
    """M(x) for x > −1."""
    nodes, weights = _rule()
    length = 2 * _FOLDS / (x + math.sqrt(x * x + 2 * _FOLDS))
    t = length * nodes
    return length * float(weights @ np.exp(-t * (x + t / 2)))


@cache
def _rule() -> tuple[Any, Any]:
    """Gauss–Legendre nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (nodes + 1) / 2, weights / 2


def _check(name: str, value: float, most: float = math.inf) -> None:
    if not 0.0 <= value <= most:
        rule = f"0 ≤ {name} ≤ {most:g}" if most < math.inf else f"{name} ≥ 0"
        raise PrivacyError(f"Gaussian differential privacy needs {rule}, but {name} = {value!r}.")
