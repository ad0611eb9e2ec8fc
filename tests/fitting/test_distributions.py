"""Tails and quantiles without SciPy are SciPy's."""

import math

import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

from hushgrad.fitting.distributions import quantile, two_sided

STATISTICS = [0.0, 1e-7, 0.01, 0.3, 0.9, 1.0, 1.1, 1.5, -1.9, 2.5, 3.0, 5.0, 8.0, 25.0, 37.0]


@pytest.mark.parametrize("df", [1, 2, 3, 5, 17, 99, 199, 201, 1234, 1e5, 1e7, 1e9])
def test_students_tail_and_quantile(df):
    ours = [two_sided(t, df) for t in STATISTICS]
    theirs = [2 * special.stdtr(df, -abs(t)) for t in STATISTICS]
    if df == 1:  # SciPy's own has 3e-11 near 0
        theirs = [2 * math.atan2(1, abs(t)) / math.pi for t in STATISTICS]
    assert_allclose(ours, theirs, rtol=1e-12)
    levels = [0.5, 0.9, 0.95, 0.999]
    assert_allclose(
        [quantile(v, df) for v in levels],
        stats.t.ppf([(1 + v) / 2 for v in levels], df),
        rtol=1e-10,
    )


def test_the_normal_tail_and_quantile():
    ours = [two_sided(z, None) for z in STATISTICS]
    assert_allclose(ours, [2 * stats.norm.sf(abs(z)) for z in STATISTICS], rtol=1e-12)
    assert_allclose(quantile(0.95, None), stats.norm.ppf(0.975), rtol=1e-13)
