"""Vectors of a step that are computed late, and all at once.

A step is linear in its vectors: [messages, whole, next state] = C(k) · [state, gradients, sums].
The step machine therefore gives a step `Combination`s, which only note their coefficients, and
`combine` applies the small matrix C(k) to the vectors, for two numbers and for a million alike.
An operation that is not linear computes the combination first and goes on with its array.

Every number is a sum of products in a fixed order, without BLAS. So one and the same step gives the
same bits after a restart, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

type Vector = NDArray[np.float64]  # (d,)
type Parts = Mapping[int, tuple[float, Vector]]  # id of a vector → its coefficient, the vector

# Numbers of a vector that are combined together: with a few messages they stay in the cache.
PIECE = 4_096


class Combination:
    """Σ_n c_n v_n: a vector (1, d, 1) as a step sees it. Its vectors must not change."""

    __slots__ = ("_array", "dim", "parts")

    def __init__(self, dim: int, parts: Parts):
        self.dim, self.parts = dim, parts
        self._array: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, vector: Vector) -> Combination:
        return cls(len(vector), {id(vector): (1.0, vector)})

    # ---- linear operations

    def __add__(self, other: Any) -> Any:
        summand = _combination(other, self.dim)
        if summand is None:
            return self.array + _computed(other)
        parts = dict(self.parts)
        for key, (c, vector) in summand.parts.items():
            parts[key] = (parts[key][0] + c, vector) if key in parts else (c, vector)
        return Combination(self.dim, parts)

    __radd__ = __add__

    def __neg__(self) -> Combination:
        return self._scaled(-1.0)

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        number = _number(other)
        return self.array * _computed(other) if number is None else self._scaled(number)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        number = _number(other)
        return self._scaled(1.0 / number) if number else self.array / _computed(other)

    def _scaled(self, number: float) -> Combination:
        return Combination(self.dim, {key: (number * c, v) for key, (c, v) in self.parts.items()})

    # ---- an array to everything else

    @property
    def vector(self) -> Vector:
        """(d,), computed once; not to be changed."""
        return self.array[0, :, 0]

    @property
    def array(self) -> NDArray[np.float64]:
        """(1, d, 1), computed once; not to be changed."""
        if self._array is None:
            if len(self.parts) == 1:
                ((c, vector),) = self.parts.values()
                found = vector if c == 1.0 else c * vector
            else:
                coefficients = np.array([[c for c, _ in self.parts.values()]])
                found = combine(coefficients, [vector for _, vector in self.parts.values()])
            self._array = found.reshape(1, -1, 1)
        return self._array

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, self.dim, 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
        """An array meets a combination: linear operations stay late, all others compute."""
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
    """A factor as a plain number, if the value is one."""
    if isinstance(value, (float, int)):
        return value
    if isinstance(value, np.ndarray) and value.size == 1:
        return value.item()
    return None


def _combination(value: Any, dim: int) -> Combination | None:
    """A summand of vectors of this dimension; None if only arrays can be added."""
    if isinstance(value, Combination):
        return value if value.dim == dim else None
    if isinstance(value, np.ndarray) and value.shape == (1, dim, 1):
        return Combination.of(value[0, :, 0])
    return None


def _computed(value: Any) -> Any:
    return value.array if isinstance(value, Combination) else value


def late(value: Any) -> Combination:
    """An array (1, d, 1) or a combination as a combination."""
    return value if isinstance(value, Combination) else Combination.of(np.asarray(value)[0, :, 0])


def computed(value: Any) -> NDArray[np.float64]:
    """An array or a combination as an array (1, d, 1)."""
    return value.array if isinstance(value, Combination) else np.asarray(value, np.float64)


def combine(coefficients: NDArray[np.float64], vectors: Sequence[Vector]) -> NDArray[np.float64]:
    """C · V: rows (r, n) of coefficients with n vectors (d,) give (r, d), summed from left to
    right.
    """
    dim = len(vectors[0])
    columns = [coefficients[:, n : n + 1] for n in range(len(vectors))]
    if dim <= PIECE:
        return _combined(columns, vectors)
    found = np.empty((len(coefficients), dim))
    for start in range(0, dim, PIECE):
        where = slice(start, start + PIECE)
        found[:, where] = _combined(columns, [vector[where] for vector in vectors])
    return found


def _combined(columns: list[NDArray[np.float64]], vectors: Sequence[Vector]) -> Any:
    found = columns[0] * vectors[0]
    for n in range(1, len(vectors)):
        found += columns[n] * vectors[n]
    return found
