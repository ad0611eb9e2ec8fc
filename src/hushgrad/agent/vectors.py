"""Arithmetic with an agent's vectors (d,): sums of products in a fixed order, without BLAS.

A restarted agent must repeat its messages to the bit, whatever the number of threads. So no number
here depends on anything but the operands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from sys import float_info

import numpy as np
from numpy.typing import NDArray

type Vector = NDArray[np.float64]  # (d,)

FINITE = float_info.max  # the largest number that is finite
_FEW = 32  # numbers


def is_finite(vector: Vector) -> bool:
    """Whether every number is finite."""
    return is_within(vector, FINITE)


def is_within(vector: Vector, most: float) -> bool:
    """Whether every number is finite and at most `most` in size."""
    # a few numbers are quicker as Python's; no number is larger than the Euclidean norm, and a norm
    # below infinity has neither NaN nor infinity in it
    if len(vector) <= _FEW and math.hypot(*vector.tolist()) <= most <= FINITE:
        return True
    return bool(vector.max() <= most and vector.min() >= -most)


def size(vector: Vector) -> float:
    """‖v‖_∞; a few numbers are compared at less cost one by one."""
    if len(vector) <= _FEW:
        return max(map(abs, vector.tolist()))
    return float(np.abs(vector).max())


def total(vectors: Sequence[Vector]) -> Vector:
    """The sum from the first to the last; none of them is changed."""
    if len(vectors) == 1:
        return vectors[0]
    found = vectors[0] + vectors[1]
    for vector in vectors[2:]:  # `found` is new, so no further memory is needed
        found += vector
    return found


def combine(weights: Sequence[float], vectors: Sequence[Vector]) -> Vector:
    """Σ_n w_n v_n from the first to the last; one vector of weight 1 is given as it is."""
    found, is_new = None, False
    for w, vector in zip(weights, vectors, strict=True):
        if found is not None and is_new and w == -1.0:
            found -= vector  # the same bits as + -1.0 * vector, with one pass less
        elif w:
            part = vector if w == 1.0 else w * vector
            if found is None:
                found, is_new = part, part is not vector
            elif is_new:
                found += part
            else:
                found, is_new = found + part, True
    return np.zeros_like(vectors[0]) if found is None else found


def divide(
    weights: Sequence[Sequence[float]], vectors: Sequence[Vector]
) -> tuple[list[Vector], Vector]:
    """The messages, with a row of weights for each, and the rest of the vectors' sum.

    The rest is the sum less the messages as they are, so that rounding errors do not accumulate.
    """
    messages = [combine(row, vectors) for row in weights]
    rest, is_new = total(vectors), len(vectors) > 1
    for message in messages:
        if is_new:
            rest -= message
        else:  # a vector of the step stays
            rest, is_new = rest - message, True
    return messages, rest
