"""Combinations: vectors of a step that are computed as late as possible.

A step is linear in its vectors: [messages, whole, next state] = C(k) · [state, gradients, sums].
The step machine therefore gives a step `Combination`s, which only note coefficients. A round
applies the coefficients to the vectors, for two numbers and for a million alike, and piece by piece
where vectors are long. An operation that is not linear computes the combination first and goes on
with its array.

Every number is a sum of products in a fixed order, without BLAS. So a step gives the same bits
after a restart, whatever the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

type Vector = NDArray[np.float64]  # (d,)
type Parts = dict[int, tuple[float, Vector]]  # id of a vector → its coefficient, the vector

# The numbers in one piece of a long vector, so few that they stay in the cache.
PIECE = 8_192
_WHOLE = (slice(None),)
_FEW = 32  # numbers


def is_long(dim: int) -> bool:
    """Whether a vector is worked on piece by piece."""
    return dim > PIECE


def pieces(dim: int) -> Iterator[slice] | tuple[slice, ...]:
    """The pieces of a vector, in the order in which they are computed."""
    if not is_long(dim):
        return _WHOLE
    return (slice(start, start + PIECE) for start in range(0, dim, PIECE))


def is_finite(vector: Vector) -> bool:
    """Whether every number is finite; a few numbers are judged at less cost one by one."""
    if len(vector) <= _FEW:
        return all(map(math.isfinite, vector.tolist()))
    return bool(np.isfinite(vector).all())


class Combination:
    """Σ_n c_n v_n: a vector (1, d, 1) as a step sees it. Its vectors must not change."""

    __slots__ = ("_vector", "dim", "parts")

    def __init__(self, dim: int, parts: Parts, vector: Vector | None = None):
        self.dim, self.parts, self._vector = dim, parts, vector

    @classmethod
    def of(cls, vector: Vector) -> Combination:
        return cls(len(vector), {id(vector): (1.0, vector)}, vector)

    # ---- linear operations

    def __add__(self, other: Any) -> Any:
        summand = _combination(other, self.dim)
        if summand is None:
            return self.array + _computed(other)
        parts = self.parts.copy()
        for key, (c, vector) in summand.parts.items():
            parts[key] = (parts[key][0] + c if key in parts else c, vector)
        return Combination(self.dim, parts)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        summand = _combination(other, self.dim)
        if summand is None:
            return self.array - _computed(other)
        parts = self.parts.copy()
        for key, (c, vector) in summand.parts.items():
            parts[key] = (parts[key][0] - c if key in parts else -c, vector)
        return Combination(self.dim, parts)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> Combination:
        return Combination(self.dim, {key: (-c, v) for key, (c, v) in self.parts.items()})

    def __mul__(self, other: Any) -> Any:
        number = _number(other)
        if number is None:
            return self.array * _computed(other)
        return Combination(self.dim, {key: (number * c, v) for key, (c, v) in self.parts.items()})

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        number = _number(other)
        return (1.0 / number) * self if number else self.array / _computed(other)

    # ---- numbers

    def piece(self, where: slice) -> Vector:
        """A piece of the vector, for reading only."""
        if self._vector is not None:
            return self._vector[where]
        found: Any = None
        for c, vector in self.parts.values():
            part = vector[where]
            if found is None:
                found = c * part
            elif c == 1.0:
                found += part
            elif c == -1.0:
                found -= part
            else:
                found += c * part
        return found

    @property
    def is_settled(self) -> bool:
        """Whether the combination is one vector, as it is."""
        return len(self.parts) == 1 and id(self._vector) in self.parts

    @property
    def vector(self) -> Vector:
        """The vector (d,), computed once; for reading only."""
        if self._vector is None:
            self._vector = self._computed()
        return self._vector

    def _computed(self) -> Vector:
        if not is_long(self.dim) or len(self.parts) == 1:
            return self.piece(_WHOLE[0])
        found = np.empty(self.dim)
        for where in pieces(self.dim):
            found[where] = self.piece(where)
        return found

    # ---- the interface of an array

    @property
    def array(self) -> NDArray[np.float64]:
        """The vector as an array (1, d, 1)."""
        return self.vector[None, :, None]

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, self.dim, 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
        """Note a linear operation of NumPy with a combination; compute any other operation."""
        operation = _LINEAR.get(ufunc)
        if operation is not None and method == "__call__" and not options:
            return operation(*given)
        return getattr(ufunc, method)(*map(_computed, given), **options)

    def __rtruediv__(self, other: Any) -> Any:
        return _computed(other) / self.array

    def __pow__(self, other: Any) -> Any:
        return self.array ** _computed(other)

    def __getitem__(self, where: Any) -> Any:
        return self.array[where]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)


_LINEAR = {
    np.add: lambda a, b: a + b if isinstance(a, Combination) else b + a,
    np.subtract: lambda a, b: a - b if isinstance(a, Combination) else -b + a,
    np.multiply: lambda a, b: a * b if isinstance(a, Combination) else b * a,
    np.divide: lambda a, b: a / b if isinstance(a, Combination) else b.__rtruediv__(a),
    np.negative: lambda a: -a,
}


def _number(value: Any) -> float | None:
    """The value as a plain number; None if it is not a single number."""
    if isinstance(value, (float, int)):
        return value
    if isinstance(value, np.ndarray) and value.size == 1:
        return value.item()
    return None


def _combination(value: Any, dim: int) -> Combination | None:
    """The value as a combination of vectors (dim,); None if it has another shape."""
    if type(value) is Combination:
        return value if value.dim == dim else None
    if isinstance(value, np.ndarray) and value.shape == (1, dim, 1):
        return Combination.of(value[0, :, 0])
    return None


def _computed(value: Any) -> Any:
    return value.array if isinstance(value, Combination) else value


def late(value: Any) -> Combination:
    """An array (1, d, 1) or a combination as a combination."""
    if type(value) is Combination:
        return value
    return Combination.of(np.asarray(value, np.float64)[0, :, 0])


def settled(value: Any) -> Combination:
    """A combination of one vector, computed now, so that no other vector stays in memory."""
    combination = late(value)
    return combination if combination.is_settled else Combination.of(combination.vector)
