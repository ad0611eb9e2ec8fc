"""Long vectors: what is to be computed with them is written down, then done piece by piece.

One operation after the other would read and write a long vector from memory for each of them;
pieces stay in the cache from the first to the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

PIECE = 8_192  # numbers that are worked on together

_PLAIN = frozenset((np.add, np.subtract, np.multiply, np.divide, np.negative))  # entry by entry


def is_long(dim: int) -> bool:
    return dim > PIECE


def pieces(dim: int) -> Iterator[slice]:
    for start in range(0, dim, PIECE):
        yield slice(start, min(start + PIECE, dim))


class Long(NDArrayOperatorsMixin):
    """A vector (1, d, 1) as an algorithm sees it: numbers, or an operation on others.

    Sums, differences, products and quotients are written down; for all else it is an array.
    """

    def __init__(self, numbers: NDArray[np.float64] | None, dim: int):
        self._numbers, self.dim = numbers, dim  # (d,), or None before they are computed
        self._operation: Any = None
        self._given: tuple[Long | float, ...] = ()

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> Long:
        return cls(numbers, len(numbers))

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
        if method == "__call__" and not options and ufunc in _PLAIN:
            parts = [part for u in given if (part := _part(u, self.dim)) is not None]
            if len(parts) == len(given):
                later = Long(None, self.dim)
                later._operation, later._given = ufunc, tuple(parts)
                return later
        return getattr(ufunc, method)(
            *(u.array if isinstance(u, Long) else u for u in given), **options
        )

    # += and its like make another vector, as they do of JAX's arrays
    __iadd__ = NDArrayOperatorsMixin.__add__
    __isub__ = NDArrayOperatorsMixin.__sub__
    __imul__ = NDArrayOperatorsMixin.__mul__
    __itruediv__ = NDArrayOperatorsMixin.__truediv__
    __ipow__ = NDArrayOperatorsMixin.__pow__

    def piece(self, where: slice, out: NDArray[np.float64]) -> NDArray[np.float64]:
        """Some of its numbers, for reading: where they are, or computed into `out`."""
        if self._numbers is not None:
            return self._numbers[where]
        given: list[Any] = []
        room = out
        for u in self._given:
            found = u.piece(where, room) if isinstance(u, Long) else u
            if found is room:  # which is taken now
                room = np.empty(len(out))
            given.append(found)
        return self._operation(*given, out)

    @property
    def numbers(self) -> NDArray[np.float64]:
        """(d,), computed once."""
        if self._numbers is None:
            numbers = np.empty(self.dim)
            for where in pieces(self.dim):
                self.piece(where, numbers[where])
            self._numbers, self._given = numbers, ()
        return self._numbers

    # ---- an array to all others

    @property
    def array(self) -> NDArray[np.float64]:
        return self.numbers[None, :, None]

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, self.dim, 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype, copy=copy)

    def __getitem__(self, where: Any) -> Any:
        return self.array[where]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)


def _part(u: Any, dim: int) -> Long | float | None:
    """What a long vector of this dimension can be combined with piece by piece."""
    if isinstance(u, Long):
        return u if u.dim == dim else None
    if isinstance(u, (int, float)):
        return float(u)
    if isinstance(u, np.ndarray) and u.size == 1:
        return float(u.item())
    if isinstance(u, np.ndarray) and u.shape == (1, dim, 1):
        return Long.of(u[0, :, 0])
    return None


def flat(vector: Any) -> NDArray[np.float64]:
    """(d,) of (1, d, 1)."""
    return vector.numbers if isinstance(vector, Long) else vector[0, :, 0]


def numbers(vector: Any) -> NDArray[np.float64]:
    """(d,), computed."""
    return vector.numbers if isinstance(vector, Long) else vector


def lift(vector: Any) -> Any:
    """Of (d,), what is to be computed piece by piece if it is long."""
    return vector if isinstance(vector, Long) or not is_long(len(vector)) else Long.of(vector)


def plain(vector: Any) -> NDArray[np.float64]:
    """(1, d, 1), computed."""
    return vector.array if isinstance(vector, Long) else vector
