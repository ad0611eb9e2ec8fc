"""Regressions in forty digits, from the equations: the judge between libraries. Needs mpmath."""

import pytest

mp = pytest.importorskip("mpmath")

DIGITS = 40


def newton(kind, X, y, *, start, groups=None, offset=None, penalties=None):
    """(b, the inverse of the Hessian, scores by group) by Newton's method.

    penalties    λ_j of ½ Σ λ_j b_j²
    """
    n, p = X.shape
    zeros = [0.0] * max(n, p)
    rows = [[mp.mpf(float(v)) for v in row] for row in X]
    outcome, more, of = (
        [mp.mpf(float(v)) for v in values]
        for values in (y, zeros[:n] if offset is None else offset, penalties or zeros[:p])
    )
    groups = [0] * n if groups is None else [int(g) for g in groups]
    b, step = mp.matrix([mp.mpf(float(v)) for v in start]), mp.inf
    while step > mp.mpf(10) ** (10 - DIGITS):
        H, scores = mp.diag(of), {g: mp.zeros(p, 1) for g in groups}
        for x, value, by, group in zip(rows, outcome, more, groups, strict=True):
            mean, curvature = _mean(kind, mp.fdot(x, b) + by)
            for i in range(p):
                scores[group][i] += (value - mean) * x[i]
                part = curvature * x[i]
                for j in range(i + 1):
                    H[i, j] += part * x[j]
        for i in range(p):
            for j in range(i):
                H[j, i] = H[i, j]
        inverse = H**-1
        pull = mp.matrix([t * v for t, v in zip(of, b, strict=True)])
        change = inverse * (sum(scores.values(), mp.zeros(p, 1)) - pull)
        b, step = b + change, max(abs(c / v) for c, v in zip(change, b, strict=True))
    return b, inverse, scores


def clustered(kind, X, y, groups, **more):
    """(b, errors, z, p) with standard errors by group; their factor is that of statsmodels."""
    with mp.workdps(DIGITS):
        b, inverse, scores = newton(kind, X, y, groups=groups, **more)
        n, p, m = *X.shape, len(scores)
        meat = sum((s * s.T for s in scores.values()), mp.zeros(p))
        covariance = inverse * meat * inverse * mp.mpf(m) / (m - 1) * mp.mpf(n - 1) / (n - p)
        errors = [mp.sqrt(covariance[i, i]) for i in range(p)]
        z = [v / e for v, e in zip(b, errors, strict=True)]
        return list(b), errors, z, [mp.erfc(abs(v) / mp.sqrt(2)) for v in z]


def coefficients(kind, X, y, **more):
    """b alone."""
    with mp.workdps(DIGITS):
        return list(newton(kind, X, y, **more)[0])


def off(found, right):
    """The largest relative difference, of numbers that a float can hold."""
    with mp.workdps(DIGITS):
        pairs = zip(found, right, strict=True)
        return float(max(abs(float(a) / b - 1) for a, b in pairs if abs(b) > mp.mpf(10) ** -300))


def _mean(kind, eta):
    """The mean of an outcome, and minus the second derivative of its log-likelihood."""
    if kind == "linear":
        return eta, mp.mpf(1)
    mean = mp.exp(eta)
    if kind == "logistic":
        mean = mean / (1 + mean)
        return mean, mean * (1 - mean)
    return mean, mean
