"""Discrete Gaussians on the integers, from 64-bit words, by integer arithmetic alone.

    P(X = x) ∝ exp(−x²/2σ²),    X = Y₀ + 2¹² Y₁ + 2²³ Y₂ + t Y₃,    Y_l with σ₀ = 2¹³

A cumulative table turns each word into one Y_l, so a number takes four words, and the same words
give the same integers on every machine. The step t is any integer between 2²⁷ and 2³⁴, so σ ≈ 2¹³ t
is what the caller asks for. The sum below a level is at least twice as wide as the step of that
level. Then X differs from a discrete Gaussian of σ² = σ₀² (1 + 4¹² + 4²³ + t²) by a part of about
2 exp(−2π²·4) < 2⁻¹¹² (Peikert, *An efficient and parallel Gaussian sampler for lattices*, 2010).
The 64 bits of the table weigh more: they move less than 2⁻⁴⁹ of the probability of a Y_l, so n
numbers differ from ideal ones with a probability below n · 2⁻⁴⁷.

The shares of masks (zero_sum.py) are such integers, times a grid.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

type Integers = NDArray[np.int64]
type Words = NDArray[np.uint64]

LEVELS = 4  # words for one number
BASE_BITS = 13  # log2 of σ₀
BITS = 47  # log2 of the largest σ: a float64 holds the sum of many shares exactly
_SHIFTS = (0, 12, 23)  # log2 of the steps of Y₀, Y₁, Y₂
_CELL_BITS = 13  # of a float, after its exponent, tell the cell of a word
_LOWEST = 2**24  # words from there on are in cells with at most one entry of the table
_AT_ONCE = 2**15  # words, whose arrays fit into a cache

_FIXED = 128  # bits of the fixed-point numbers from which the table is made


def gaussians(words: Words, step: int | Integers) -> Integers:
    """X (…) with σ = 2¹³ · step, from words (4, …); step is one for all, or (…)."""
    Y = base(words)
    total = Y[-1] * step
    for level, shift in enumerate(_SHIFTS):
        total += Y[level] << shift
    return total


def base(words: Words) -> Integers:
    """Y (…) with σ₀, one for each word: its place in the cumulative table."""
    flat = np.ascontiguousarray(words).ravel()
    Y = np.empty(flat.shape, np.int64)
    for start in range(0, len(flat), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        Y[some] = _base(flat[some])
    return Y.reshape(words.shape)


def _base(words: Words) -> Integers:
    """Y of some words (n,).

    The table is symmetric: the complement of a word gives −Y. So the first bit is the sign, and the
    others are looked up in the lower half. Smaller entries are denser. So are floats: the exponent
    and the first bits of a word as a float tell the place, or leave two to choose from.
    """
    table = _base_table()
    sign = words.view(np.int64) >> 63  # 0 or −1
    low = words ^ sign.view(np.uint64)
    found = table.places.take(_cell(low), mode="clip")
    found += table.cumulative.take(found) <= low
    if low.min() < _LOWEST:  # in cells with many entries: one word in 2³⁹
        rare = low < _LOWEST
        found[rare] = np.searchsorted(table.cumulative, low[rare], side="right")
    return (found - table.size ^ sign) - sign


class _Table(NamedTuple):
    size: int
    cumulative: Words  # the lower half, and 2⁶³
    places: NDArray[np.int32]  # the first entry beyond the least word of each cell


def _cell(low: Words) -> Integers:
    """The cell of words below 2⁶³, by 53 of their bits, which a float holds exactly."""
    bits = (low >> np.uint64(10)).view(np.int64).astype(np.float64).view(np.int64)
    return (bits >> 52 - _CELL_BITS) - _FIRST_CELL


_FIRST_CELL = 1023 << _CELL_BITS  # of the float 1.0


@functools.cache
def _base_table() -> _Table:
    lower = np.array(lower_half(BASE_BITS), np.uint64)[::-1]
    places = np.empty(53 << _CELL_BITS, np.int32)
    for start in range(0, len(places), _AT_ONCE):  # all at once would take 15 MB of an agent
        some = places[start : start + _AT_ONCE]
        cells = np.arange(start, start + len(some)) + _FIRST_CELL
        floats = np.ceil((cells << 52 - _CELL_BITS).view(np.float64))
        least = floats.astype(np.uint64) << np.uint64(10)
        some[:] = np.searchsorted(lower, least, side="right")
    return _Table(len(lower), np.append(lower, np.uint64(1 << 63)), places)


def lower_half(bits: int) -> array[int]:
    """2⁶⁴ P(Y ≤ −1), 2⁶⁴ P(Y ≤ −2), … of σ = 2^bits, rounded, as far as they are not 0.

    They are made of Python's integers, so no machine makes others. The weights are made twice,
    because lists of such integers would add 10 MB to the peak of an agent.
    """
    tail = sum(_weights(bits))
    total = (1 << _FIXED) + 2 * tail
    lower = array("Q")
    for weight in _weights(bits):
        entry = ((tail << 65) // total + 1) >> 1
        if not entry:
            break
        lower.append(entry)
        tail -= weight
    return lower


def _weights(bits: int) -> Iterator[int]:
    """e^(−x²/2σ²) for x = 1, 2, …, in fixed point."""
    ratio = _exp_minus_power_of_two(-2 * bits - 1)  # e^(−1/2σ²)
    square = ratio * ratio >> _FIXED
    weight = 1 << _FIXED
    while weight >> (_FIXED - 80):  # the weights below 2⁻⁸⁰ are far below the last bit
        weight = weight * ratio >> _FIXED
        ratio = ratio * square >> _FIXED
        yield weight


def _exp_minus_power_of_two(exponent: int) -> int:
    """exp(−2^exponent) in fixed point, exponent < 0, by its series."""
    total = term = 1 << _FIXED
    n = 0
    while term:
        n += 1
        term = (term >> -exponent) // n
        total += -term if n % 2 else term
    return total
