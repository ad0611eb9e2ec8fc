"""The first average of a fit: counts, sums of raw columns, and the digest of the contract.

Here ends a fit that cannot be: no events, one class, a constant column, a level without rows.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hushgrad.errors import FitError
from hushgrad.fitting.bounds import RowParts
from hushgrad.fitting.model import Model
from hushgrad.fitting.newton import FitStage, pooled
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.site_sums import TOTALS, totals
from hushgrad.fitting.sums import MOST_ROWS, WIDE, Vector

_CONSTANT = Fraction(1, 10**24)  # the variance of a constant, in squares of its size: rounding
_SMALLEST = Fraction(2) ** -120  # a variance that the last bit of wide sums leaves as it is
_WORDS = 5  # limbs of the contract's digest: 120 bits
_DIGITS = 6  # hexadecimal ones of a limb of 24 bits


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

    @property
    def outcome(self) -> tuple[Fraction, Fraction]:
        """Σy and Σy²."""
        return self.totals["sum"], self.totals["square"]


def count(
    model: Model, rows: Rows, digest: str, parts: RowParts
) -> Generator[Vector, Vector, tuple[Counts, FitStage]]:
    """Pool the counts of all sites."""
    pieces = (digest[_DIGITS * n : _DIGITS * (n + 1)] for n in range(_WORDS))
    words = [float(int(part, 16)) for part in pieces]
    events = rows.y.sum() if model.kind == "logistic" else rows.event.sum()
    plain = np.array([1.0, *words, float(len(rows.y)), float(rows.n_dropped), events])
    if len(rows.y) > MOST_ROWS:
        raise FitError(
            f"a site has at most {MOST_ROWS} rows, but this one has {len(rows.y)}: the digits of "
            "its sums would not be small beside the masks. Let it take part as two sites."
        )
    sums, part = totals(model, rows), parts.counts()
    got = yield from pooled(np.concatenate([plain, sums]))
    n_sites = int(got[0])
    if (got[1 : 1 + _WORDS] != n_sites * plain[1 : 1 + _WORDS]).any():
        raise FitError(
            "all sites declare one model, but the digests of their contracts differ. Compare the "
            f"contracts; this site's digest is {digest}."
        )
    n_rows, n_dropped, n_events = (int(v) for v in got[1 + _WORDS : len(plain)])
    if (got[1 + _WORDS : len(plain)] < plain[1 + _WORDS :]).any():
        raise FitError(
            "pooled counts include those of this site, but one of rows, dropped rows and events is "
            "smaller: a site has sent a false count. Ask the sites."
        )
    found = WIDE.exact(got[len(plain) :])
    width = rows.X.shape[1]
    counts = Counts(
        n_sites, n_rows, n_dropped, n_events,
        dict(zip(TOTALS, found, strict=False)),
        found[len(TOTALS) : len(TOTALS) + width], found[len(TOTALS) + width :],
    )  # fmt: skip
    return counts, FitStage(
        "counts and moments", len(plain) + len(sums) // WIDE.n_limbs, row_part=part
    )


def check_counts(model: Model, counts: Counts) -> None:
    """Refuse pooled rows that have no fit, by name."""
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
    if model.kind in ("linear", "ridge", "huber") and _is_constant(n, *counts.outcome):
        raise FitError(f"the outcome {model.outcome!r} is constant. There is nothing to fit.")
    for name, first, second in zip(names, counts.first, counts.second, strict=True):
        if _is_constant(n, first, second) and (model.has_intercept or model.kind == "cox"):
            raise FitError(
                f"the column {name!r} is constant: {float(first / n):g} in all {n} rows of all "
                "sites, to twelve digits. Leave it out, join levels, or subtract a constant."
            )
        if second < n * _SMALLEST:
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


def variance(n: int, first: Fraction, second: Fraction) -> Fraction:
    """Of n numbers with the sum `first` and the sum of squares `second`."""
    return (second - first * first / n) / n


def _is_constant(n: int, first: Fraction, second: Fraction) -> bool:
    return variance(n, first, second) <= max(_CONSTANT * second / n, _SMALLEST)
