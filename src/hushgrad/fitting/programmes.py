"""A fit as a programme of pooled sums: what one site yields, and what it does with the sums.

    fit = programme(model, rows)          # one generator at each site
    sums = next(fit)                      # one flat float64 vector of whole numbers
    sums = fit.send(pooled)               # pooled: the sum of this vector over all sites
    …                                     # StopIteration.value is the FitResult

Stages: (1) counts, means and standard deviations, with a digest of the contract; (2) Newton steps
on (f, g, H) in standardised coordinates; (3) on request the middle of a sandwich. The generator
reads no file and knows no network. Whoever drives it pools: the simulator (`hg.fit`) drives all
sites in lockstep.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hushgrad.errors import FitError
from hushgrad.fitting.contracts import contract, contract_digest
from hushgrad.fitting.inference import summarise
from hushgrad.fitting.model import Model
from hushgrad.fitting.newton import Stage, minimise, pooled
from hushgrad.fitting.result import FitResult
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.site_sums import TOTALS, Coordinates, SiteSums, totals
from hushgrad.fitting.sums import BITS, Vector, from_narrow, from_wide, narrow, wide

_WORDS = 5  # limbs of the contract's digest: 120 bits


@dataclass(frozen=True)
class Counts:
    """Pooled counts and sums of the raw rows."""

    n_sites: int
    n_rows: int
    n_dropped: int
    n_events: int  # positives of a logistic outcome, events of Cox
    totals: dict[str, Fraction]  # TOTALS
    first: list[Fraction]  # (columns,) Σx
    second: list[Fraction]  # (columns,) Σx²


def programme(model: Model, rows: Rows) -> Generator[Vector, Vector, FitResult]:
    """The fit of one site's rows; it yields the site's sums and is sent the pooled sums."""
    digest = contract_digest(contract(model))
    counts, stage = yield from _count(model, rows, digest)
    _check_counts(model, counts)
    at = _coordinates(model, counts)
    local = SiteSums(model, rows, at)
    null = _null(model, counts, at)
    start = np.zeros(len(model.names))
    if model.has_intercept:
        start[0] = null
    exponent = math.ceil(math.log2(max(counts.n_rows, *_sizes(model, counts))))
    end = yield from minimise(model, local, start, _penalty(model, at), exponent, null)
    meat, stages = None, (stage, *end.stages)
    if model.standard_errors != "model" or model.kind == "huber":
        meat = yield from _sandwich(model, local, end.gamma, exponent)
        stages = (*stages, Stage("sandwich", len(meat) * (len(meat) + 1) // 2))
    return summarise(model, counts, at, end, meat, stages, digest)


def _count(
    model: Model, rows: Rows, digest: str
) -> Generator[Vector, Vector, tuple[Counts, Stage]]:
    words = [float(int(digest[6 * n : 6 * n + 6], 16)) for n in range(_WORDS)]
    events = rows.y.sum() if model.kind == "logistic" else rows.event.sum()
    plain = np.array([1.0, *words, float(len(rows.y)), float(rows.n_dropped), events])
    sums = totals(model, rows)
    got = yield from pooled(np.concatenate([plain, wide(sums)]))
    n_sites = int(got[0])
    if (got[1 : 1 + _WORDS] != n_sites * plain[1 : 1 + _WORDS]).any():
        raise FitError(
            "all sites declare one model, but the digests of their contracts differ. Compare the "
            f"contracts; this site's digest is {digest}."
        )
    n_rows, n_dropped, n_events = (int(v) for v in got[1 + _WORDS : len(plain)])
    found = from_wide(got[len(plain) :])
    width = rows.X.shape[1]
    counts = Counts(
        n_sites, n_rows, n_dropped, n_events,
        dict(zip(TOTALS, found, strict=False)),
        found[len(TOTALS) : len(TOTALS) + width], found[len(TOTALS) + width :],
    )  # fmt: skip
    return counts, Stage("counts and moments", len(plain) + len(sums))


def _check_counts(model: Model, counts: Counts) -> None:
    names = [name for name in model.names if name != "intercept" or not model.has_intercept]
    n, p = counts.n_rows, len(model.names)
    if n <= p and model.is_inferred:
        raise FitError(
            f"a fit needs more rows than coefficients, but {n} rows are there for {p}. Leave "
            "columns out, or use a penalty."
        )
    if model.standard_errors == "site" and counts.n_sites < 3:
        raise FitError(
            "errors that are clustered by site need three sites or more, but "
            f"{counts.n_sites} took part: of two sites the middle of the sandwich would tell both "
            'scores. Use standard_errors = "sandwich".'
        )
    if model.kind == "logistic" and counts.n_events in (0, n):
        raise FitError(
            f"a logistic fit needs both outcomes, but {counts.n_events} of {n} rows are positive. "
            f"Check the codes of {model.outcome!r}."
        )
    if model.kind == "cox" and not counts.n_events:
        raise FitError(f"a Cox fit needs events, but {model.event!r} is 0 in all {n} rows.")
    if model.kind == "poisson" and not counts.totals["weighted"]:
        raise FitError(f"a Poisson fit needs counts, but {model.outcome!r} is 0 in all {n} rows.")
    if model.kind in ("linear", "ridge", "huber") and not _variance(n, *_outcome(counts)):
        raise FitError(f"the outcome {model.outcome!r} is constant. There is nothing to fit.")
    for name, first, second in zip(names, counts.first, counts.second, strict=True):
        if not _variance(n, first, second) and (model.has_intercept or model.kind == "cox"):
            raise FitError(
                f"the column {name!r} is constant: {float(first / n):g} in all {n} rows of all "
                "sites. Leave it out, or join levels."
            )
        if not second:
            raise FitError(f"the column {name!r} is 0 in all {n} rows. Leave it out.")
    place = 0
    for column in model.columns:
        levels = model.factors.get(column)
        width = 1 if levels is None else len(levels) - 1
        if levels is not None and sum(counts.first[place : place + width]) == n:
            raise FitError(
                f"no row of any site has the reference level {levels[0]!r} of {column!r}. Agree on "
                "another first level."
            )
        place += width


def _outcome(counts: Counts) -> tuple[Fraction, Fraction]:
    return counts.totals["sum"], counts.totals["square"]


def _variance(n: int, first: Fraction, second: Fraction) -> Fraction:
    return (second - first * first / n) / n


def _coordinates(model: Model, counts: Counts) -> Coordinates:
    n = counts.n_rows
    mean = np.array([float(first / n) for first in counts.first])
    spread = np.sqrt([
        float(_variance(n, first, second))
        for first, second in zip(counts.first, counts.second, strict=True)
    ])  # fmt: skip
    is_centred = model.has_intercept or model.kind == "cox"
    rms = np.sqrt([float(second / n) for second in counts.second])
    y_sum, y_square = _outcome(counts)
    y_spread = math.sqrt(_variance(n, y_sum, y_square))
    is_linear = model.kind in ("linear", "ridge", "huber")
    return Coordinates(
        centre=mean if is_centred else 0 * mean,
        scale=spread if is_centred else rms,
        spread=spread,
        y_centre=float(y_sum / n) if is_linear and model.has_intercept else 0.0,
        y_scale=y_spread if is_linear else 1.0,
        has_intercept=model.has_intercept,
    )


def _null(model: Model, counts: Counts, at: Coordinates) -> float:
    """The linear predictor of the model that has a constant alone, in standardised units."""
    total = counts.totals
    weight, outcome = total["weight"], total["weighted"]
    if model.kind == "logistic":
        return math.log(outcome / (weight - outcome))
    if model.kind == "poisson":
        return math.log(outcome / total["exposure"])
    return (float(outcome / weight) - at.y_centre) / at.y_scale if model.kind != "cox" else 0.0


def _penalty(model: Model, at: Coordinates) -> Vector:
    """P (p, p) of ½ γᵀPγ. For the linear kinds the loss is in units of y_scale²."""
    size = at.spread if model.penalise == "standardised" else np.ones_like(at.spread)
    per_column = model.penalty * (size / at.scale) ** 2
    return np.diag([0.0, *per_column] if model.has_intercept else per_column)


def _sizes(model: Model, counts: Counts) -> tuple[float, float]:
    outcome = counts.totals["weighted"] if model.kind == "poisson" else 0
    return float(counts.totals["weight"]), float(outcome)


def _sandwich(
    model: Model, local: SiteSums, gamma: Vector, exponent: int
) -> Generator[Vector, Vector, Vector]:
    """The middle of the sandwich, (p, p)."""
    by_site = model.standard_errors == "site"
    size = exponent + exponent // 2 if by_site else exponent  # scores of sites add up
    limbs = narrow(local.meat(gamma, by_site=by_site), size)
    bad = np.array([float(limbs is None)])
    p = len(gamma)
    limbs = np.zeros(p * (p + 1)) if limbs is None else limbs
    got = yield from pooled(np.concatenate([bad, limbs]))
    if got[0]:
        raise FitError("the scores of a site are too large for a sandwich. Check outliers.")
    upper = np.zeros((p, p))
    upper[np.triu_indices(p)] = from_narrow(got[1:], size)
    return upper + np.triu(upper, 1).T


assert BITS == 24  # six hexadecimal digits are one limb
