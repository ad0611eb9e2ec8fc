"""Regressions with standard errors by cluster in forty digits, from the equations. Needs mpmath."""

import mpmath as mp

DIGITS = 40


def clustered(kind, X, y, groups, *, start, offset=None):
    """(b, errors, z, p) by Newton's method; the factor of errors is that of statsmodels."""
    with mp.workdps(DIGITS):
        n, p = X.shape
        rows = [[mp.mpf(float(v)) for v in row] for row in X]
        outcome = [mp.mpf(float(v)) for v in y]
        more = [mp.mpf(0)] * n if offset is None else [mp.mpf(float(v)) for v in offset]
        b, step = mp.matrix([mp.mpf(float(v)) for v in start]), mp.inf
        while step > mp.mpf(10) ** (10 - DIGITS):
            H, scores = mp.zeros(p), {int(g): mp.zeros(p, 1) for g in groups}
            for x, value, by, group in zip(rows, outcome, more, groups, strict=True):
                mean, curvature = _mean(kind, mp.fdot(x, b) + by)
                score = scores[int(group)]
                for i in range(p):
                    score[i] += (value - mean) * x[i]
                    for j in range(i + 1):
                        H[i, j] += curvature * x[i] * x[j]
            for i in range(p):
                for j in range(i):
                    H[j, i] = H[i, j]
            inverse = H**-1
            change = inverse * sum(scores.values(), mp.zeros(p, 1))
            b, step = b + change, max(abs(c / v) for c, v in zip(change, b, strict=True))
        m = len(scores)
        meat = sum((s * s.T for s in scores.values()), mp.zeros(p))
        covariance = inverse * meat * inverse * mp.mpf(m) / (m - 1) * mp.mpf(n - 1) / (n - p)
        errors = [mp.sqrt(covariance[i, i]) for i in range(p)]
        z = [v / e for v, e in zip(b, errors, strict=True)]
        return list(b), errors, z, [mp.erfc(abs(v) / mp.sqrt(2)) for v in z]


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
