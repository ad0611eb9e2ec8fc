"""A fit as a programme of pooled sums: what one site yields, and what it does with the sums.

    fit = programme(model, rows)          # one generator at each site
    sums = next(fit)                      # one flat float64 vector of whole numbers
    sums = fit.send(pooled)               # pooled: the sum of this vector over all sites
    …                                     # StopIteration.value is the FitResult

Stages: (0) the levels of factors, where the sites agree on them; (1) counts, means and standard
deviations, with a digest of the contract; (2) Newton steps on (f, g, H) in standardised
coordinates; (3) on request the middle of a sandwich. The generator reads no file and knows no
network. Whoever drives it pools: the simulator (`hg.fit`) drives all sites in lockstep.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from hushgrad.errors import FitError
from hushgrad.fitting import arithmetic
from hushgrad.fitting.bounds import RowParts
from hushgrad.fitting.conjugate import minimise_by_products
from hushgrad.fitting.contracts import contract, contract_digest
from hushgrad.fitting.counts import Counts, check_counts, count, variance
from hushgrad.fitting.cross_validation import cross_validate
from hushgrad.fitting.inference import summarise
from hushgrad.fitting.levels import agree_levels
from hushgrad.fitting.model import CV, Model
from hushgrad.fitting.newton import FitStage, Minimum, minimise, pooled
from hushgrad.fitting.progress import FitProgress
from hushgrad.fitting.result import FitResult
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.site_sums import Coordinates, SiteSums
from hushgrad.fitting.sums import NARROW, Vector, flag, narrow, noise

_PERFECT = 1e-20  # half the mean square of residuals that are 1e-10 of the spread of the outcome


def programme(
    model: Model, rows: Rows, progress: FitProgress | None = None, digest: str | None = None
) -> Generator[Vector, Vector, FitResult]:
    """The fit of one site's rows; it yields the site's sums and is sent the pooled sums.

    progress    is told, before a vector is yielded: what all sums so far tell of single rows
                (determined.py); the numbers of the vector; the largest part of one row in it
                (bounds.py), None if there is no bound
    digest      of the contract, if the fit is a stage of a plan
    """
    progress = progress or FitProgress()
    digest = digest or contract_digest(contract(model))
    if model.open_factors:
        levels, stages = yield from agree_levels(model, rows, digest, progress)
        of = {column: tuple(found) for column, found in levels.items()}
        end = yield from programme(model.closed(of), rows.closed(of), progress, digest)
        return replace(end, model=model, levels=levels, stages=(*stages, *end.stages))
    parts = RowParts(model, progress)
    counts, stage = yield from count(model, rows, digest, parts)
    check_counts(model, counts)
    at = _coordinates(model, counts)
    local = SiteSums(model, rows, at, counts.n_rows)
    progress.every_told.append(None if model.kind in ("linear", "ridge") else local.told)
    null = _null(model, counts, at)
    start = np.zeros(len(model.names))
    if model.has_intercept:
        start[0] = null
    exponent = arithmetic.power_above(max(counts.n_rows, *_sizes(model, counts)))
    parts.enter(at, exponent, counts.n_rows)
    validation, folds = None, ()
    declared = model
    if model.penalty == CV:
        unit = _penalty(model, at, 1.0)
        validation, folds = yield from cross_validate(
            model, rows, at, start, unit, exponent, counts.n_rows, progress, local.told
        )
        model = replace(model, penalty=validation.chosen, penalties=())
    P = _penalty(model, at, float(model.penalty))
    method = minimise if model.pools_hessian else minimise_by_products
    end = yield from method(model, local, start, P, exponent, null, parts)
    _check_residuals(model, counts, end)
    meat, stages = None, (stage, *folds, *end.stages)
    if model.standard_errors != "model" or model.kind == "huber":
        part = parts.sandwich(end.gamma)
        n_numbers = progress.add(len(start) * (len(start) + 1) // 2)
        meat = yield from _sandwich(model, local, end.gamma, exponent)
        stages = (*stages, FitStage("sandwich", n_numbers, row_part=part))
    found = summarise(model, counts, at, end, meat, stages, digest)
    return replace(found, model=declared, validation=validation)


def _coordinates(model: Model, counts: Counts) -> Coordinates:
    n = counts.n_rows
    mean = np.array([float(first / n) for first in counts.first])
    spread = np.sqrt([
        max(0.0, float(variance(n, first, second)))  # below 0 by rounding, if there is no intercept
        for first, second in zip(counts.first, counts.second, strict=True)
    ])  # fmt: skip
    is_centred = model.has_intercept or model.kind == "cox"
    rms = np.sqrt([float(second / n) for second in counts.second])
    y_sum, y_square = counts.outcome
    is_linear = model.kind in ("linear", "ridge", "huber")
    return Coordinates(
        centre=mean if is_centred else 0 * mean,
        scale=spread if is_centred else rms,
        spread=spread,
        y_centre=float(y_sum / n) if is_linear and model.has_intercept else 0.0,
        y_scale=math.sqrt(variance(n, y_sum, y_square)) if is_linear else 1.0,
        has_intercept=model.has_intercept,
    )


def _null(model: Model, counts: Counts, at: Coordinates) -> float:
    """The linear predictor of the model that has a constant alone, in standardised units."""
    total = counts.totals
    weight, outcome = total["weight"], total["weighted"]
    if model.kind == "logistic":
        return _log(outcome / (weight - outcome))
    if model.kind == "poisson":
        return _log(outcome / total["exposure"])
    return (float(outcome / weight) - at.y_centre) / at.y_scale if model.kind != "cox" else 0.0


def _log(x: Fraction) -> float:
    return float(arithmetic.log(np.array(float(x))))


def _penalty(model: Model, at: Coordinates, penalty: float) -> Vector:
    """P (p, p) of ½ γᵀPγ. For the linear kinds the loss is in units of y_scale²."""
    size = at.spread if model.penalise == "standardised" else np.ones_like(at.spread)
    per_column = penalty * (size / at.scale) ** 2
    return np.diag([0.0, *per_column] if model.has_intercept else per_column)


def _sizes(model: Model, counts: Counts) -> tuple[float, float]:
    outcome = counts.totals["weighted"] if model.kind == "poisson" else 0
    return float(counts.totals["weight"]), float(outcome)


def _check_residuals(model: Model, counts: Counts, end: Minimum) -> None:
    """Refuse a fit without residuals: their size would be rounding, and so would all errors."""
    is_scaled = model.kind in ("linear", "huber") and model.is_inferred  # the loss is of y/spread
    if is_scaled and end.loss < _PERFECT * counts.n_rows:
        raise FitError(
            f"the columns determine {model.outcome!r} to ten digits, so there are no residuals to "
            "judge the coefficients by. Leave out the column that is the outcome in another form."
        )


def _sandwich(
    model: Model, local: SiteSums, gamma: Vector, exponent: int
) -> Generator[Vector, Vector, Vector]:
    """The middle of the sandwich, (p, p)."""
    by_site = model.standard_errors == "site"
    size = 2 * exponent  # squares of sums
    far, limbs = local.meat(gamma, size, by_site=by_site)
    p = len(gamma)
    if far:
        limbs = noise(NARROW * p * (p + 1) // 2)
    got = yield from pooled(np.concatenate([[flag(is_far=far > 0)], limbs]))
    if got[0]:
        raise FitError("the scores of a row are too large for a sandwich. Check outliers.")
    upper = np.zeros((p, p))
    upper[np.triu_indices(p)] = narrow(size).join(got[1:])
    return upper + np.triu(upper, 1).T
