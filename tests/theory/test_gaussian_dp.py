"""Numbers of Gaussian differential privacy against many decimal digits, and against their laws."""

import math
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrad.errors import PrivacyError
from hushgrad.theory.gaussian_dp import advantage, delta, epsilon, tradeoff

MU = st.floats(1e-9, 30.0)
DIGITS = 280  # Φ(−x) = ½ − series loses x²/2 · 0.43 digits: 210 at x = 31


@cache
def pi():
    """Machin's formula."""

    def arctan_inverse(n):
        total, term, k = Decimal(0), Decimal(1) / n, 0
        while abs(term) > Decimal(10) ** -(DIGITS + 5):
            total += term / (2 * k + 1) * (1 if k % 2 == 0 else -1)
            term, k = term / (n * n), k + 1
        return total

    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


def normal_cdf(x):
    """Φ(x) = ½ + φ(x) Σ x^(2n+1) / (1·3·5···(2n+1)), to all digits of the context."""
    total, term, n = Decimal(0), x, 0
    while abs(term) > Decimal(10) ** -(DIGITS + 5) or n < 5:
        total += term
        n += 1
        term = term * x * x / (2 * n + 1)
    return Decimal("0.5") + (-x * x / 2).exp() / (2 * pi()).sqrt() * total


def exact_delta(eps, mu):
    with localcontext() as context:
        context.prec = DIGITS
        eps, mu = Decimal(eps), Decimal(mu)
        first = normal_cdf(-eps / mu + mu / 2)
        return first - eps.exp() * normal_cdf(-eps / mu - mu / 2)


# z = ε/μ is up to 25: δ down to about 1e-137, far below any δ that people state
@given(st.floats(1e-9, 12.0), st.floats(0.0, 25.0))
def test_delta_has_twelve_digits_also_in_the_tails(mu, z):
    exact = exact_delta(z * mu, mu)
    assert abs(Decimal(delta(z * mu, mu)) / exact - 1) < Decimal("1e-12")


@given(MU, st.floats(-30, -0.1))
def test_epsilon_is_the_smallest_that_reaches_delta(mu, exponent):
    goal = 10**exponent
    found = epsilon(goal, mu)
    assert delta(found, mu) <= goal * (1 + 1e-12)
    if found:
        assert delta(found * (1 - 1e-6), mu) >= goal * (1 - 1e-12)


@given(MU, st.floats(0.0, 5.0))
def test_the_curve_and_delta_are_conjugate(mu, eps):
    """δ(ε) = 1 + f*(−e^ε): the best of all tests 1 − f(α) − e^ε α."""
    alphas = np.concatenate([np.logspace(-18, -0.3, 2000), 1 - np.logspace(-12, -0.3, 500)])
    best = max(1 - tradeoff(a, mu) - math.exp(eps) * a for a in alphas)
    # the grid of α misses the best α by a little, and 1 − f(α) rounds
    assert best <= delta(eps, mu) + 1e-14
    assert best >= delta(eps, mu) * 0.999 - 1e-14


@given(MU)
def test_the_advantage_is_delta_at_epsilon_zero(mu):
    assert advantage(mu) == pytest.approx(delta(0.0, mu), rel=1e-12)


@given(st.floats(1e-12, 1 - 1e-12), MU)
def test_the_curve_is_its_own_inverse(alpha, mu):
    missed = tradeoff(alpha, mu)
    if missed > 1e-300 and 1 - missed > 1e-6:  # 1 − f has no digits left beyond
        assert tradeoff(missed, mu) == pytest.approx(alpha, rel=1e-8)


def test_limits():
    assert delta(1.0, 0.0) == 0.0
    assert delta(1.0, math.inf) == advantage(math.inf) == 1.0
    assert epsilon(1e-6, 0.0) == 0.0
    assert epsilon(1e-6, math.inf) == epsilon(0.0, 1.0) == math.inf
    assert epsilon(0.9, 1.0) == 0.0
    assert tradeoff(0.0, 1.0) == 1.0
    assert tradeoff(1.0, 1.0) == tradeoff(0.5, math.inf) == 0.0
    assert delta(1e300, 1e-300) == 0.0
    assert 5e5 < epsilon(1e-6, 1e3) < 5.1e5  # about μ²/2 + 4.75 μ


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: delta(-1.0, 1.0), "epsilon ≥ 0, but epsilon = -1"),
        (lambda: delta(1.0, math.nan), "mu ≥ 0, but mu = nan"),
        (lambda: epsilon(2.0, 1.0), "0 ≤ delta ≤ 1, but delta = 2"),
        (lambda: tradeoff(1.5, 1.0), "0 ≤ alpha ≤ 1, but alpha = 1.5"),
    ],
)
def test_values_out_of_range_are_named(call, told):
    with pytest.raises(PrivacyError, match=told):
        call()
