"""Operations on vectors, planned once, done in one pass over them: number by number in C that is
written for it, or, without a compiler, piece by piece in NumPy. Every operation is rounded by
itself: the bits are the same.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.long import PIECE, pieces
from hushgrad.agent.trace import Number, Symbol, Vector, in_order

type Floats = NDArray[np.float64]

_FLOAT = np.dtype(np.float64)
_FLAGS = ("-O3", "-ffp-contract=off")  # each operation is rounded by itself
_MOST = 400  # operations that are compiled, in less than a second

_NEGATE, _OF_NUMBERS = 4, 5  # codes; from where on one operand is a number
_CODES = {"+": 0, "-": 1, "*": 2, "/": 3}
_WITH_NUMBER = {"+": 5, "-": 6, "*": 8, "/": 9}  # vector ∘ number
_FROM_NUMBER = {"+": 5, "-": 7, "*": 8, "/": 10}  # number ∘ vector
_IN_NUMPY: tuple[Any, ...] = (
    np.add, np.subtract, np.multiply, np.divide, lambda a, _, out: np.negative(a, out),
    np.add, np.subtract, lambda a, s, out: np.subtract(s, a, out), np.multiply, np.divide,
    lambda a, s, out: np.divide(s, a, out),
)  # fmt: skip
_IN_C = ("{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "-{a}",
         "{a} + {s}", "{a} - {s}", "{s} - {a}", "{a} * {s}", "{a} / {s}", "{s} / {a}")  # fmt: skip

_FUNCTION = """\
#include <stdint.h>
#include <string.h>

/* The highest bit is set for infinities and NaN alone: one more overflows their exponent. */
static inline uint64_t odd(double number) {{
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  return (bits & 0x7ff0000000000000) + 0x0010000000000000;
}}

/* Gives whether all numbers of the last vector are finite. */
int hushgrad_pass(double *const *vectors, const double *restrict numbers, int64_t dim) {{
  {vectors}
  uint64_t seen = 0;
  for (int64_t i = 0; i < dim; i++) {{
    {operations}
    seen |= odd({last});
  }}
  return !(seen >> 63);
}}
"""


@functools.cache
def _compiled(text: str) -> Any:
    del text
    return None  # agents compile nothing


def _address(vector: Floats) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(vector))
    except TypeError:  # it is read-only, which takes longer
        return vector.ctypes.data


_CHECK = _FUNCTION.format(
    vectors="const double *restrict v0 = vectors[0];", operations="", last="v0[i]"
)


def prepare() -> None:
    """Compile what `is_finite` would compile when it is first asked."""
    _compiled(_CHECK)


def is_finite(vector: Floats) -> bool:
    """Whether all numbers of a long vector are."""
    function = _compiled(_CHECK)
    if function is None or not vector.flags.c_contiguous or not vector.size:
        return bool(np.isfinite(vector).all())
    return bool(function(ctypes.byref(ctypes.c_void_p(_address(vector))), None, len(vector)))


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
        # the function that does it, with room for addresses and numbers
        self._in_c: tuple[Any, Any, Any] | None = None
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

    def prepare(self) -> None:
        """Compile it, if it can be; until then, NumPy does it."""
        if not 0 < len(self.operations) <= _MOST:
            return
        function = _compiled(self._text())
        if function is not None:
            rooms = (ctypes.c_void_p * self.n_long)(), (ctypes.c_double * len(self.numbers))()
            self._in_c = (function, *rooms)

    def _text(self) -> str:
        """Of the function. Where rooms were, are variables; no vector is another one."""
        n_given = len(self.given)
        kinds = ["const double"] * n_given + ["double"] * len(self.wanted)
        vectors = [f"{kind} *restrict v{n} = vectors[{n}];" for n, kind in enumerate(kinds)]
        names = {n: f"v{n}[i]" for n in range(n_given)}
        lines: list[str] = []
        for n, (code, out, a, b) in enumerate(self.operations):
            value = _IN_C[code].format(a=names[a], b=names.get(b), s=f"numbers[{b}]")
            lines.append(f"const double n{n} = {value};")
            names[out] = f"n{n}"
            if out < self.n_long:
                lines.append(f"v{out}[i] = n{n};")
        return _FUNCTION.format(
            vectors="\n  ".join(vectors),
            operations="\n    ".join(lines),
            last=names[self.n_long - 1],
        )

    def run(
        self, given: Sequence[Floats], wanted: Sequence[Floats], numbers: Sequence[float]
    ) -> bool:
        """Compute what is wanted, (dim,) each, in the order of `given` and `wanted`; whether the
        last of it is finite.
        """
        if not self.operations:
            return True
        vectors, shape = (*given, *wanted), wanted[0].shape
        for u in vectors:
            if u.shape != shape or u.dtype != _FLOAT:  # C would not notice
                raise ValueError(f"vectors of a pass are of {shape[0]} numbers, but not all here")
        compiled = self._in_c
        if compiled is None:
            return self._run_in_numpy(vectors, numbers)
        function, addresses, held = compiled
        for n, u in enumerate(vectors):
            addresses[n] = _address(u)
        held[:] = numbers
        return bool(function(addresses, held, shape[0]))

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
