"""Numbers as vectors of whole numbers, whose sums over rows and sites are exact.

Sites pool numbers by masked averages: float64 arithmetic with masks 10⁴ times as large as the
public size of entries, 2²⁴. So every number is sent as limbs, whole numbers:

    value ≈ 2^top · limb_0 + Σ_l 2^(top − 12 l) · limb_l,        l = 1 … count

Each *row's* part of a sum becomes limbs by itself, |limb_l| ≤ 2¹¹ for l ≥ 1, and a site adds the
limbs of its rows. No digit is carried from limb to limb. So the pooled limbs are sums over all rows
of all sites, and do not depend on the site that holds a row (docs/guarantee.md). A lower limb of n
rows is at most 2¹¹ n, which allows for `MOST_ROWS` rows at a site.

The sum of limbs over the sites is a whole number too. Every site rounds its pooled limbs to whole
numbers, so all sites go on with the same bits, on every network, and with the bits that a sum
without masks has. A limb that is not nearly whole shows that an average has not settled.

Sums of known size have six limbs (`narrow`): 2^e bounds them, and their last bit is 2^(e − 84), so
that a loss far below the size of all rows keeps its digits. Sums of raw data have sizes that nobody
knows before. They have 23 limbs (`WIDE`), from 2⁻¹⁴⁴ to 2¹⁴⁴.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from secrets import randbits

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import FitError

type Vector = NDArray[np.float64]

SIZE = 2.0**24  # an entry's size, which is public: masks are multiples of it
MOST = 2.0**64  # a value of raw data; its square, summed over many rows, is below 2¹⁴⁴
MOST_ROWS = 2**21  # of a site: lower limbs are then below 2³², a 38th of the masks
_BITS = 12  # of a limb below the first
_ROOM = 16  # a row's part may be 2^room times larger than the size of a sum, if rows are few
_EXACT = 52  # bits of a sum of first limbs, so that it is exact in any order
_NOISE = 33  # bits: 2⁹ times the size of an entry, and far below the masks of a site
_FLAG = 20  # bits: of small size beside the masks
_WHOLE = 0.25  # a pooled limb is nearer than this to a whole number


@dataclass(frozen=True)
class Places:
    """The limbs of one kind of number."""

    top: int  # log₂ of the unit of the first limb
    count: int  # limbs below the first one

    @property
    def n_limbs(self) -> int:
        return 1 + self.count

    def unit(self, place: int) -> float:
        return 2.0 ** (self.top - _BITS * place)

    def add(self, values: Vector) -> Vector:
        """The limbs (limbs, …) of values (…, rows): each value's own, added over the rows."""
        found = np.zeros((self.n_limbs, *values.shape[:-1]))
        rest = values
        for place in range(self.n_limbs):
            unit = self.unit(place)
            if np.abs(rest).max(initial=0.0) <= unit / 2:
                continue  # all limbs of this place are 0
            limb = np.rint(rest / unit)
            found[place] = limb.sum(axis=-1)
            limb *= unit
            rest = rest - limb  # exact: the digits below the limb
        return found

    def most(self, sizes: Vector) -> Vector:
        """The largest limbs (limbs, n) of a row's parts of these sizes (n,)."""
        found = np.array([np.floor(sizes / self.unit(n) + 0.5) for n in range(self.n_limbs)])
        found[1:] = np.minimum(found[1:], 2.0 ** (_BITS - 1))
        return found

    def join(self, limbs: Vector) -> Vector:
        """The values (n,) of pooled limbs (limbs · n,)."""
        total = np.zeros(len(limbs) // self.n_limbs)
        for limb in np.split(limbs, self.n_limbs)[::-1]:  # the lowest first
            total = total / 2.0**_BITS + limb
        return total * self.unit(0)

    def exact(self, limbs: Vector) -> list[Fraction]:
        """The exact values (n,) of pooled limbs (limbs · n,)."""
        unit = Fraction(2) ** (self.top - _BITS * self.count)
        return [
            unit * sum(int(limb) << _BITS * (self.count - place) for place, limb in enumerate(of))
            for of in limbs.reshape(self.n_limbs, -1).T
        ]


WIDE = Places(120, 22)
_BELOW = 5  # limbs of a number of known size, below its first


def narrow(exponent: int) -> Places:
    """The limbs of sums of about 2^exponent."""
    return Places(exponent - 24, _BELOW)


NARROW = narrow(0).n_limbs


def is_near(values: Vector, exponent: int, n_rows: int) -> NDArray[np.bool_]:
    """Whether each row's parts (…, rows) are finite and not far larger than 2^exponent, (rows,).

    n_rows    of all sites: so many first limbs have an exact sum
    """
    with np.errstate(invalid="ignore"):
        near = np.abs(values) <= most_near(exponent, n_rows)
    return near.all(axis=tuple(range(values.ndim - 1)))


def most_near(exponent: int, n_rows: int) -> float:
    """The largest part of a row that is not too far."""
    room = min(_ROOM, _EXACT - 24 - (n_rows - 1).bit_length())
    return 2.0 ** (exponent + room)


def flag(*, is_far: bool) -> float:
    """The number beside the sums of a site: 0, or a random one > 0 if a row of it is too far.

    The number of such rows would answer a question about rows on one side of a plane, which a
    participant who steers the fit could ask again and again.
    """
    return float(1 + randbits(_FLAG)) if is_far else 0.0


def noise(count: int) -> Vector:
    """Random whole numbers (count,) in place of limbs that are none, in sums that nobody uses.

    Zeros would leave the numbers of the other sites alone in the sum.
    """
    return np.array([float(randbits(_NOISE + 1) - 2**_NOISE) for _ in range(count)])


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
