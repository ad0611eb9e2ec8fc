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
_CELL_BITS = 16  # first bits of a word; 92 % of the words are in cells with at most one entry

_FIXED = 128  # bits of the fixed-point numbers from which the table is made


def gaussians(words: Words, step: int) -> Integers:
    """X (…) with σ = 2¹³ · step, from words (4, …)."""
    total = base(words[-1]) * step
    for level, shift in enumerate(_SHIFTS):
        total += base(words[level]) << shift
    return total


def base(words: Words) -> Integers:
    """Y (…) with σ₀, one for each word: its place in the cumulative table.

    The first bits of a word tell the place, or leave two to choose from. The tails, where the table
    is denser, are searched.
    """
    table = _base_table()
    cell = (words >> np.uint64(64 - _CELL_BITS)).astype(np.intp)
    found = table.places[cell]
    found += table.cumulative[found] <= words
    tail = table.is_dense[cell]
    found[tail] = np.searchsorted(table.cumulative, words[tail], side="right")
    return found + table.first


class _Table(NamedTuple):
    first: int
    cumulative: Words
    places: Integers  # where the words of a cell, which have their first bits in common, begin
    is_dense: NDArray[np.bool_]  # a cell with two entries of the table or more


@functools.cache
def _base_table() -> _Table:
    lower = np.array(_lower_half(BASE_BITS), np.uint64)
    cumulative = np.concatenate([lower[::-1], -lower])  # −n is 2⁶⁴ − n in 64 bits
    cells = np.arange(1 << _CELL_BITS, dtype=np.uint64) << np.uint64(64 - _CELL_BITS)
    places = np.searchsorted(cumulative, cells, side="right")
    return _Table(-len(lower), cumulative, places, np.diff(places, append=len(cumulative)) > 1)


def cumulative_table(bits: int) -> tuple[int, list[int]]:
    """(first, [2⁶⁴ P(Y ≤ first), 2⁶⁴ P(Y ≤ first + 1), …]) of σ = 2^bits, symmetric about 0.

    The values are rounded, and end where the next one would be 0 or 2⁶⁴.
    """
    lower = _lower_half(bits)
    return -len(lower), [*reversed(lower), *[2**64 - entry for entry in lower]]


def _lower_half(bits: int) -> array[int]:
    """2⁶⁴ P(Y ≤ −1), 2⁶⁴ P(Y ≤ −2), … as far as they are not 0.

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
