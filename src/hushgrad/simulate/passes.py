"""Operations on vectors, planned once, done in one pass over them: block by block, in C (passes.c)
or, without a compiler, piece by piece in NumPy. The bits are the same.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.simulate import compiler
from hushgrad.simulate.long import PIECE, pieces
from hushgrad.simulate.trace import Number, Symbol, Vector, in_order

type Floats = NDArray[np.float64]

_BLOCK = 512  # numbers that are worked on together in C
_FLAGS = ("-O3", "-ffp-contract=off", f"-DBLOCK={_BLOCK}")  # each operation is rounded by itself

_NEGATE, _OF_NUMBERS = 4, 5  # in passes.c's order, from where on one operand is a number
_CODES = {"+": 0, "-": 1, "*": 2, "/": 3}
_WITH_NUMBER = {"+": 5, "-": 6, "*": 8, "/": 9}  # vector ∘ number
_FROM_NUMBER = {"+": 5, "-": 7, "*": 8, "/": 10}  # number ∘ vector
_IN_NUMPY: tuple[Any, ...] = (
    np.add, np.subtract, np.multiply, np.divide, lambda a, _, out: np.negative(a, out),
    np.add, np.subtract, lambda a, s, out: np.subtract(s, a, out), np.multiply, np.divide,
    lambda a, s, out: np.divide(s, a, out),
)  # fmt: skip


@functools.cache
def _library() -> Any:
    found = compiler.library("passes.c", *_FLAGS)
    if found is not None:
        size, pointer = ctypes.c_int64, ctypes.c_void_p
        found.hushgrad_pass.argtypes = (pointer, size, pointer, size, pointer, size, size)
        found.hushgrad_finite.argtypes = (pointer, size)
    return found


def is_finite(vector: Floats) -> bool:
    """Whether all numbers of a long vector are."""
    library = _library()
    if library is None or not vector.flags.c_contiguous:
        return bool(np.isfinite(vector).all())
    return bool(library.hushgrad_finite(vector.ctypes.data, len(vector)))


class Pass:
    """What to compute of vectors that are `known`, and of numbers, to have `wanted`.

    `same` are symbols that stand for others.
    """

    def __init__(
        self,
        wanted: Iterable[Vector],
        known: Collection[Symbol],
        same: dict[Symbol, Vector] | None = None,
    ):
        self._same = same or {}
        self.numbers: list[Number | float] = []
        self.wanted = tuple([u for u in dict.fromkeys(map(self._of, wanted)) if u not in known])
        every = in_order(self.wanted, known, same)
        self._order = [u for u in every if isinstance(u, Vector)]  # what is computed, one by one
        used = [self._of(v) for u in self._order for v in u.given]
        self.given = tuple(dict.fromkeys([v for v in used if isinstance(v, Vector) and v in known]))
        self._plan()

    def _of(self, symbol: Any) -> Any:
        return self._same.get(symbol, symbol)

    def _plan(self) -> None:
        """Registers: what is given, what is wanted, then rooms that are used again and again."""
        places: dict[Symbol, int] = {u: n for n, u in enumerate((*self.given, *self.wanted))}
        self.n_long = len(places)
        last = {self._of(u): n for n, made in enumerate(self._order) for u in made.given
                if isinstance(u, Vector)}  # fmt: skip
        free: list[int] = []
        self.n_rooms = 0
        self.operations: list[tuple[int, int, int, int]] = []  # code, out, a, b
        for n, made in enumerate(self._order):
            operands = [self._of(u) for u in made.given]
            code, a, b = self._operation(made, operands, places)
            rooms = {places[u] for u in operands if isinstance(u, Vector) and last[u] == n}
            free += [room for room in sorted(rooms) if room >= self.n_long]
            if made not in places:
                if not free:
                    free.append(self.n_long + self.n_rooms)
                    self.n_rooms += 1
                places[made] = free.pop()
            self.operations.append((code, places[made], a, b))

    def _operation(
        self, made: Vector, operands: list[Any], places: dict[Symbol, int]
    ) -> tuple[int, int, int]:
        if made.operation == "-u":
            return _NEGATE, places[operands[0]], 0
        assert made.operation is not None
        a, b = operands
        if isinstance(a, Vector) and isinstance(b, Vector):
            return _CODES[made.operation], places[a], places[b]
        vector, number, codes = (
            (a, b, _WITH_NUMBER) if isinstance(a, Vector) else (b, a, _FROM_NUMBER)
        )
        self.numbers.append(number)
        return codes[made.operation], places[vector], len(self.numbers) - 1

    @functools.cached_property
    def _for_c(self) -> tuple[Any, Floats, Any]:
        """The operations, rooms, and registers in which these are."""
        rooms = np.empty((self.n_rooms, _BLOCK))
        start = rooms.ctypes.data
        addresses = [0] * self.n_long + [start + 8 * _BLOCK * n for n in range(self.n_rooms)]
        return (
            np.array(self.operations, np.int32).reshape(-1, 4), rooms,
            (ctypes.c_void_p * len(addresses))(*addresses),
        )  # fmt: skip

    def run(
        self, given: Sequence[Floats], wanted: Sequence[Floats], numbers: Sequence[float]
    ) -> bool:
        """Compute what is wanted, (dim,) each, in the order of `given` and `wanted`; whether the
        last of it is finite.
        """
        if not self.operations:
            return True
        vectors, library, dim = (*given, *wanted), _library(), len(wanted[0])
        if any(u.shape != (dim,) or u.dtype != np.float64 for u in vectors):  # C would not notice
            raise ValueError(f"vectors of a pass are of {dim} numbers, but not all of these")
        if library is None:
            return self._run_in_numpy(vectors, numbers)
        operations, _, registers = self._for_c
        for n, u in enumerate(vectors):
            registers[n] = u.ctypes.data
        held = (ctypes.c_double * len(numbers))(*numbers)
        return bool(
            library.hushgrad_pass(
                operations.ctypes.data, len(operations), registers, self.n_long, held,
                dim, self.n_long - 1,
            )
        )  # fmt: skip

    def _run_in_numpy(self, vectors: Sequence[Floats], numbers: Sequence[float]) -> bool:
        rooms, is_finite = np.empty((self.n_rooms, PIECE)), True
        for where in pieces(len(vectors[-1])):
            size = where.stop - where.start
            registers = [*(u[where] for u in vectors), *rooms[:, :size]]
            for code, out, a, b in self.operations:
                second = numbers[b] if code >= _OF_NUMBERS else registers[b]
                _IN_NUMPY[code](registers[a], second, registers[out])
            is_finite &= bool(np.isfinite(registers[self.n_long - 1]).all())
        return is_finite
