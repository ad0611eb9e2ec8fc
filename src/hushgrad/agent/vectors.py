"""Arithmetic with an agent's vectors (d,): sums of products in a fixed order, without BLAS.

A restarted agent must repeat its messages to the bit, whatever the number of threads. So no number
here depends on anything but the operands. Long vectors are worked on piece by piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

type Vector = NDArray[np.float64]  # (d,)

PIECE = 8_192  # numbers in one piece of a long vector, so few that a piece stays in the cache
_FEW = 32  # numbers


def is_finite(vector: Vector) -> bool:
    """Whether every number is finite; a few numbers are judged at less cost one by one."""
    if len(vector) <= _FEW:
        return all(map(math.isfinite, vector.tolist()))
    return bool(np.isfinite(vector).all())


def total(vectors: Sequence[Vector]) -> Vector:
    """The sum from the first to the last; none of them is changed."""
    if len(vectors) == 1:
        return vectors[0]
    found = vectors[0] + vectors[1]
    for vector in vectors[2:]:
        found += vector
    return found


def combine(weights: Sequence[float], vectors: Sequence[Vector]) -> Vector:
    """Σ_n w_n v_n from the first to the last; one vector of weight 1 is given as it is."""
    if len(weights) == 1:
        return vectors[0] if weights[0] == 1.0 else weights[0] * vectors[0]
    dim = len(vectors[0])
    if dim <= PIECE:
        return total([w * v for w, v in zip(weights, vectors, strict=True)])
    found = np.empty(dim)
    for where in _pieces(dim):
        found[where] = total([w * v[where] for w, v in zip(weights, vectors, strict=True)])
    return found


def divide(weights: NDArray[np.float64], vectors: Sequence[Vector]) -> tuple[list[Vector], Vector]:
    """The messages and the rest of the whole: a row of weights for each message, then the whole's.

    The rest is the whole less the messages as they are, so that rounding errors do not accumulate.
    """
    dim = len(vectors[0])
    if dim <= PIECE:
        *messages, rest = np.einsum("in,nd->id", weights, np.array(vectors))
        for message in messages:
            rest -= message
        return messages, rest
    sent, rest = np.empty((len(weights) - 1, dim)), np.empty(dim)  # `rest` outlives the messages
    for where in _pieces(dim):
        known = np.array([vector[where] for vector in vectors])
        np.einsum("in,nd->id", weights[:-1], known, out=sent[:, where])
        np.einsum("in,nd->id", weights[-1:], known, out=rest[None, where])
        for message in sent:
            rest[where] -= message[where]
    return list(sent), rest


def _pieces(dim: int) -> Iterator[slice]:
    """The pieces of a vector, in the order in which they are computed."""
    return (slice(start, start + PIECE) for start in range(0, dim, PIECE))
