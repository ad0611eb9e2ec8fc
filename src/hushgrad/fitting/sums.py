"""Numbers as vectors of whole numbers, whose sums over sites are exact.

Sites pool numbers by masked averages: float64 arithmetic with masks 10⁴ times as large as the
entries, whose result is off by about 2⁻³⁶ of an entry's size. So a site sends every number as
limbs, whole numbers of about 24 bits:

    value ≈ 2^(e − 24 L) · Σ_l limb_l 2^(24 l),        |limb_l| ≤ 2²³ for l < L − 1

The sum of limbs over the sites is a whole number too. Every site rounds its pooled limbs to whole
numbers, so all sites go on with the same bits, on every network, and with the bits that a sum
without masks has. A limb that is not nearly whole shows that an average has not settled.

Numbers of known size have three limbs: 2^e bounds them, and their last bit is 2^(e − 72), so that a
loss far below the size of all rows keeps its digits. Sums of raw data have sizes that nobody knows
before. They have twelve limbs, from 2⁻¹⁴⁴ to 2¹⁴⁴.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from secrets import randbits

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import FitError

type Vector = NDArray[np.float64]

BITS = 24
SIZE = 2.0**BITS  # an entry's size, which is public: masks are multiples of it
NARROW = 3  # limbs of a number of known size
WIDE = 12  # limbs of a number of unknown size
WIDE_LOW = -144  # log2 of its last bit
MOST = 2.0**64  # a value of raw data; its square, summed over many rows, is below 2¹⁴⁴
_ROOM = 2.0**16  # a narrow number may be so many times larger than its scale
_NOISE = 33  # bits: 2⁹ times the size of an entry, and far below the masks of a site
_WHOLE = 0.25  # a pooled limb is nearer than this to a whole number


def narrow(values: Vector, exponent: int) -> Vector | None:
    """Values (n,) of about 2^exponent as limbs (3n,); None: one is not finite or far too large."""
    rest = values * 2.0 ** (NARROW * BITS - exponent)
    if not np.isfinite(rest).all() or (np.abs(rest) > _ROOM * SIZE**NARROW).any():
        return None
    limbs: list[Vector] = []
    for place in reversed(range(NARROW)):
        limbs.append(np.rint(rest / SIZE**place))
        rest = rest - limbs[-1] * SIZE**place  # exact: the digits below the limb
    return np.concatenate(limbs)


def noise(count: int) -> Vector:
    """Random whole numbers (count,) in place of limbs that are none, in sums that nobody uses.

    Zeros would leave the numbers of the other sites alone in the sum.
    """
    return np.array([float(randbits(_NOISE + 1) - 2**_NOISE) for _ in range(count)])


def from_narrow(limbs: Vector, exponent: int) -> Vector:
    """The values (n,) of pooled limbs (3n,)."""
    total = np.zeros(len(limbs) // NARROW)
    for limb in np.split(limbs, NARROW)[::-1]:  # the lowest first
        total = total / SIZE + limb
    return total * 2.0 ** (exponent - BITS)


def wide(values: Sequence[Fraction]) -> Vector:
    """Exact values (n,) as limbs (12n,)."""
    return np.array([_limbs(round(value / Fraction(2) ** WIDE_LOW)) for value in values]).reshape(
        -1
    )


def _limbs(whole: int) -> list[float]:
    found: list[float] = []
    for _ in range(WIDE - 1):
        rest = (whole + (1 << BITS - 1)) >> BITS
        found.append(float(whole - (rest << BITS)))
        whole = rest
    return [*found, float(whole)]


def from_wide(limbs: Vector) -> list[Fraction]:
    """The exact values (n,) of pooled limbs (12n,)."""
    unit = Fraction(2) ** WIDE_LOW
    return [
        unit * sum(int(limb) << BITS * place for place, limb in enumerate(row))
        for row in limbs.reshape(-1, WIDE)
    ]


def settled(pooled: Vector, length: int) -> Vector:
    """The pooled limbs as whole numbers, the same at every site."""
    if pooled.shape != (length,):
        raise FitError(
            f"sites pool vectors of one length, but {length} numbers left this site and the pooled "
            f"vector has shape {pooled.shape}. Compare the contracts of the sites."
        )
    whole = np.rint(pooled)
    with np.errstate(invalid="ignore"):
        worst = float(np.abs(pooled - whole).max())
    if not worst < _WHOLE:
        raise FitError(
            f"pooled limbs are whole numbers, but one is {worst:.2g} off: the average had not "
            "settled. Give the averages more rounds, or use smaller masks."
        )
    return whole + 0.0  # −0 would differ from 0 in its bits
