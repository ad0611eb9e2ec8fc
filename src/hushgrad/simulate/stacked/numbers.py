"""The numbers of an algorithm: taken out of it, and put into it again as arguments of a program.

Runs that differ in numbers alone share one compiled program (program.py). A number is a parameter
of the algorithm or of one of its parts (stepsize, deviation, split, masks) whose value is a float,
or a tuple of floats: one for each agent. Whole numbers, words and None decide which lines run, and
stay in the program. So does a part that keeps values which it computed from its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Algorithm

type Number = float | tuple[float, ...]  # of all agents, or one for each

_ANY = math.inf  # stands for a number in a pattern; no whole number equals it


class NumbersSeenError(Exception):
    """A step looks at numbers that differ from trial to trial, so trials cannot share it."""


def _is_number(value: object) -> bool:
    if isinstance(value, tuple):
        entries = cast("tuple[object, ...]", value)
        return bool(entries) and all(isinstance(entry, float) for entry in entries)
    return isinstance(value, float)


def _is_part(value: object) -> bool:
    """Whether the fields of a parameter object say everything about it."""
    if not is_dataclass(value) or isinstance(value, type):
        return False
    names = {f.name for f in fields(value)}
    return all(f.init for f in fields(value)) and all(
        name in names or isinstance(getattr(type(value), name, None), cached_property)
        for name in getattr(value, "__dict__", ())
    )


def _mapped(value: Any, change: Callable[[Number], Any]) -> Any:
    """The parameter with its numbers changed, in the order of the fields.

    The constructor would refuse numbers that a program does not know yet.
    """
    if _is_number(value):
        return change(value)
    if not _is_part(value):
        return value
    made = object.__new__(type(value))
    for field in fields(value):
        object.__setattr__(made, field.name, _mapped(getattr(value, field.name), change))
    return made


def numbers_of(algorithm: Algorithm) -> list[Number]:
    """The numbers of an algorithm and of its parts."""
    found: list[Number] = []
    _mapped(algorithm, found.append)
    return found


def pattern_of(algorithm: Algorithm) -> Algorithm:
    """The algorithm without its numbers: all that decides which program it needs."""
    return _mapped(algorithm, lambda number: (_ANY,) if isinstance(number, tuple) else _ANY)


def with_numbers(pattern: Algorithm, numbers: Sequence[Any]) -> Algorithm:
    """The algorithm of a pattern with these numbers, in the order of `numbers_of`."""
    rest: Iterator[Any] = iter(numbers)
    return _mapped(pattern, lambda _: next(rest))


@dataclass(frozen=True)
class Numbers:
    """One number of all trials, as a step computes with it."""

    values: NDArray[np.float64]  # () or (agents,); (1, 1, trials) or (agents, trials) if it varies
    varies: bool  # from trial to trial

    def of(self, part: NDArray[np.int64]) -> NDArray[np.float64]:
        """The number in these trials."""
        return self.values[..., part] if self.varies else self.values


def stacked_numbers(algorithms: Sequence[Algorithm]) -> list[Numbers]:
    """The numbers of the algorithms of all trials, which have one pattern."""
    distinct = {id(a): numbers_of(a) for a in algorithms}
    if len(distinct) == 1:
        return [Numbers(np.array(n), False) for n in distinct[id(algorithms[0])]]
    found: list[Numbers] = []
    for every in zip(*(distinct[id(a)] for a in algorithms), strict=True):
        values = np.array(every)  # (trials,) or (trials, agents)
        if (values == values[0]).all():
            found.append(Numbers(values[0], False))
        else:
            found.append(Numbers(values.T if values.ndim == 2 else values[None, None], True))
    return found
