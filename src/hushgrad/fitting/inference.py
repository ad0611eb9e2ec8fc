"""From the minimum to the table: covariances, intervals, likelihoods, in the user's units."""

from __future__ import annotations

import math

import numpy as np

from hushgrad.errors import FitError
from hushgrad.fitting.counts import Counts
from hushgrad.fitting.distributions import quantile, two_sided
from hushgrad.fitting.model import Model
from hushgrad.fitting.newton import FitStage, Minimum
from hushgrad.fitting.result import FitResult
from hushgrad.fitting.site_sums import Coordinates
from hushgrad.fitting.sums import Vector

_NO_VARIANCE = 1e-20  # of a sandwich, in units of that of H⁻¹: rounding


def summarise(
    model: Model,
    counts: Counts,
    at: Coordinates,
    end: Minimum,
    meat: Vector | None,
    stages: tuple[FitStage, ...],
    digest: str,
) -> FitResult:
    """The result of a fit; every number in it is a function of pooled sums."""
    shift, T = at.back()
    estimate = shift + T @ end.gamma
    n, p = counts.n_rows, len(estimate)
    is_t = model.kind == "linear" and meat is None
    df = n - p if is_t else None
    covariance = None
    if model.is_inferred:
        inner = _covariance(model, counts, end, meat)
        covariance = T @ inner @ T.T
        _check_variances(model, n, np.diagonal(covariance), T**2 @ np.diagonal(end.bread))
    likelihood, null_likelihood = _log_likelihoods(model, counts, at, end)
    deviance, null_deviance = _deviances(model, counts, at, end)
    se = None if covariance is None else np.sqrt(np.diagonal(covariance))
    statistic = None if se is None else estimate / se
    reach = quantile(model.level, df)
    return FitResult(
        model=model,
        names=model.names,
        estimate=estimate,
        standard_error=se,
        statistic=statistic,
        p_value=None if statistic is None else np.array([two_sided(v, df) for v in statistic]),
        low=None if se is None else estimate - reach * se,
        high=None if se is None else estimate + reach * se,
        covariance=covariance,
        distribution="t" if is_t else "z",
        n_sites=counts.n_sites,
        n_rows=n,
        n_dropped=counts.n_dropped,
        n_events=counts.n_events if model.kind in ("logistic", "cox") else None,
        loss=end.loss * at.y_scale**2,
        log_likelihood=likelihood,
        null_log_likelihood=null_likelihood,
        deviance=deviance,
        null_deviance=null_deviance,
        aic=None if likelihood is None else 2 * p - 2 * likelihood,
        variance=2 * end.loss * at.y_scale**2 / (n - p) if model.kind == "linear" else None,
        stages=stages,
        contract=digest,
        spread=np.concatenate([np.ones(int(model.has_intercept)), at.spread]),
    )


def _covariance(model: Model, counts: Counts, end: Minimum, meat: Vector | None) -> Vector:
    """The covariance of γ̂: H⁻¹, times the variance of y for a linear fit, or a sandwich."""
    bread = end.bread
    n, p = counts.n_rows, len(bread)
    if meat is None:
        return bread * (2 * end.loss / (n - p) if model.kind == "linear" else 1.0)
    covariance = bread @ meat @ bread
    if model.standard_errors != "site":
        return covariance
    m = counts.n_sites
    return covariance * (m / (m - 1) * (n - 1) / (n - p))


def _check_variances(model: Model, n: int, found: Vector, usual: Vector) -> None:
    """Refuse variances that are rounding; `usual`: what H⁻¹ gives, for a variance of 1."""
    small = found <= _NO_VARIANCE * usual
    if small.any():
        raise FitError(
            f"the residuals tell no variance of {model.names[int(np.argmax(small))]!r}: {n} rows "
            f"are too few for {len(small)} coefficients. Leave columns out, or use standard_errors "
            '= "model".'
        )


def _log_likelihoods(
    model: Model, counts: Counts, at: Coordinates, end: Minimum
) -> tuple[float | None, float | None]:
    """The log-likelihood of the fit and that of a constant alone."""
    if not model.is_inferred or model.kind == "huber":
        return None, None
    constant = float(counts.totals["constant"])
    if model.kind == "linear":
        n, unit = counts.n_rows, 4 * math.pi * at.y_scale**2 / counts.n_rows
        fitted, null = (n / 2 * (math.log(unit * f) + 1) for f in (end.loss, end.null_loss))
        return constant - fitted, constant - null
    return constant - end.loss, constant - end.null_loss


def _deviances(
    model: Model, counts: Counts, at: Coordinates, end: Minimum
) -> tuple[float | None, float | None]:
    """Twice the loss above that of a model with a parameter for every row; Huber and Cox: none."""
    if model.kind in ("huber", "cox"):
        return None, None
    least = float(counts.totals["saturated"])
    unit = 2 * at.y_scale**2
    return unit * end.loss - 2 * least, unit * end.null_loss - 2 * least
