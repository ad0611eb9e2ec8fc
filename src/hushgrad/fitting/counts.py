"""The first average of a fit: counts, sums of raw columns, and the digest of the contract.

A fit that cannot be ends here: no events, one class, a constant column, a level without rows.
`programmes.py` begins with this average.
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


@dataclass(frozen=True)
class Agreed:
    """The first numbers of a vector, from which all sites see that they declare the same."""

    digest: str  # of this site's contract
    own: Vector  # (6,) one, then the words of the digest

    def check(self, got: Vector) -> tuple[int, Vector]:
        """The number of sites and the rest of a pooled vector; a FitError if contracts differ."""
        n_sites, length = int(got[0]), len(self.own)
        if (got[1:length] != n_sites * self.own[1:]).any():
            raise FitError(
                "all sites declare one model, but the digests of their contracts differ. Compare "
                f"the contracts; this site's digest is {self.digest}."
            )
        return n_sites, got[length:]


def agree_on(digest: str) -> Agreed:
    parts = (digest[_DIGITS * n : _DIGITS * (n + 1)] for n in range(_WORDS))
    return Agreed(digest, np.array([1.0, *(float(int(part, 16)) for part in parts)]))


def check_size(n_rows: int) -> None:
    """Refuse more rows than a site may have."""
    if n_rows > MOST_ROWS:
        raise FitError(
            f"a site has at most {MOST_ROWS} rows, but this one has {n_rows}: the digits of its "
            "sums would not be small beside the masks. Let it take part as two sites."
        )


def count(
    model: Model, rows: Rows, digest: str, parts: RowParts
) -> Generator[Vector, Vector, tuple[Counts, FitStage]]:
    """Pool the counts of all sites."""
    words = agree_on(digest)
    events = rows.y.sum() if model.kind == "logistic" else rows.event.sum()
    plain = np.array([float(len(rows.y)), float(rows.n_dropped), events])
    check_size(len(rows.y))
    sums, part = totals(model, rows), parts.counts()
    n_numbers = len(words.own) + len(plain) + len(sums) // WIDE.n_limbs
    parts.progress.add(n_numbers)
    got = yield from pooled(np.concatenate([words.own, plain, sums]))
    n_sites, got = words.check(got)
    n_rows, n_dropped, n_events = (int(v) for v in got[: len(plain)])
    if (got[: len(plain)] < plain).any():
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
    return counts, FitStage("counts and moments", n_numbers, row_part=part)


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
    for block in model.blocks:
        width = block.width(model.levels)
        if block.is_contrast and sum(counts.first[place : place + width]) == n:
            column = block.factors[0][0]
            raise FitError(
                f"no row of any site has the reference level {model.levels[column][0]!r} of "
                f"{column!r}. Agree on another first level."
            )
        place += width


def variance(n: int, first: Fraction, second: Fraction) -> Fraction:
    """Of n numbers with the sum `first` and the sum of squares `second`."""
    return (second - first * first / n) / n


def _is_constant(n: int, first: Fraction, second: Fraction) -> bool:
    return variance(n, first, second) <= max(_CONSTANT * second / n, _SMALLEST)
