"""The terms of a model as columns of its design: numbers, powers, logarithms, factors, products.

A term is a product of parts, `age:stage` or `log(dose):age^2`. `formula.py` reads terms; `Model`
keeps their texts; `rows.py` makes numbers of them.

A factor has one column of 0 and 1 for each level, or one for each level but the first. The second
form is used where the full set would repeat what earlier terms span. For each product of numeric
parts let F be the factors of a term. The full set of columns of F spans every subset of F. Subsets
that earlier terms of the same numeric parts span are left out, and what remains is put together
again to as few blocks as possible: {b} and {a, b} without the first levels of a are {b} with all
levels of a. So `stage + age:stage` has the slope of age in every stage, `age * stage` has the
differences of slopes, and `0 + stage` has the mean of every stage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from hushgrad.fitting import arithmetic
from hushgrad.fitting.sums import Vector

type Levels = Sequence[str]


@dataclass(frozen=True)
class Part:
    """One part of a term: a column, its logarithm, or a power of it."""

    column: str
    function: str = ""  # "" or "log"
    power: int = 1

    @property
    def text(self) -> str:
        name = f"log({self.column})" if self.function else self.column
        return name if self.power == 1 else f"{name}^{self.power}"

    @property
    def is_plain(self) -> bool:
        return not self.function and self.power == 1

    def of(self, values: Vector) -> Vector:
        """The part's numbers, from those of its column."""
        found = arithmetic.log(values) if self.function else values
        part = found
        for _ in range(self.power - 1):
            part = part * found
        return part


type Term = tuple[Part, ...]


@dataclass(frozen=True)
class DesignBlock:
    """Columns of the design that belong together."""

    numeric: Term
    factors: tuple[tuple[str, bool], ...]  # column, and whether the first level has a column too
    order: tuple[str, ...]  # the texts of the parts, in the order of the term

    def names(self, levels: Mapping[str, Levels]) -> list[str]:
        """`age:stage[II]`; the first factor varies fastest."""
        chosen = [self._levels(levels, factor)[0] for factor in self.factors]
        found: list[str] = []
        for one in product(*reversed(chosen)):
            of = dict(zip((column for column, _ in self.factors), reversed(one), strict=True))
            texts = {part.text: part.text for part in self.numeric}
            texts |= {column: f"{column}[{level}]" for column, level in of.items()}
            found.append(":".join(texts[text] for text in self.order))
        return found

    def width(self, levels: Mapping[str, Levels]) -> int:
        return math.prod(len(self._levels(levels, factor)[0]) for factor in self.factors)

    def columns(
        self,
        numbers: Mapping[str, Vector],
        codes: Mapping[str, Vector],
        levels: Mapping[str, Levels],
    ) -> Vector:
        """(n, width), from numeric columns (n,) and the place of each row's level (n,)."""
        every = [*numbers.values(), *codes.values()]
        product_ = np.ones(len(every[0]))
        for part in self.numeric:
            product_ = product_ * part.of(numbers[part.column])
        found = product_[:, None]
        for factor in self.factors:
            _, first = self._levels(levels, factor)
            places = np.arange(first, len(levels[factor[0]]))
            marks = codes[factor[0]][:, None] == places
            found = (marks[:, :, None] * found[:, None, :]).reshape(len(found), -1)
        return found

    @staticmethod
    def _levels(levels: Mapping[str, Levels], factor: tuple[str, bool]) -> tuple[Levels, int]:
        column, is_full = factor
        first = 0 if is_full else 1
        return levels[column][first:], first

    @property
    def is_contrast(self) -> bool:
        """Whether the block is a factor alone, without its first level."""
        return not self.numeric and len(self.factors) == 1 and not self.factors[0][1]


def blocks(
    terms: Iterable[Term], factors: Iterable[str], *, has_intercept: bool
) -> list[DesignBlock]:
    """The blocks of the design, in the order of the terms; the intercept has none."""
    named = set(factors)
    nothing: frozenset[str] = frozenset()
    spanned: dict[frozenset[Part], set[frozenset[str]]] = {frozenset(): set()}
    if has_intercept:
        spanned[frozenset()].add(nothing)
    found: list[DesignBlock] = []
    for term in terms:
        numeric = tuple(part for part in term if part.column not in named)
        mine = [part.column for part in term if part.column in named]
        known = spanned.setdefault(frozenset(numeric), set())
        subsets = [frozenset(some) for n in range(len(mine) + 1) for some in combinations(mine, n)]
        for block in _joined([some for some in subsets if some not in known], mine):
            order = tuple(part.text for part in term if part in numeric or part.column in block)
            coded = tuple((column, block[column]) for column in mine if column in block)
            found.append(DesignBlock(numeric, coded, order))
        known.update(subsets)
    return found


def _joined(subsets: Sequence[frozenset[str]], order: Sequence[str]) -> list[dict[str, bool]]:
    """Subsets of factors without their first levels, joined to blocks {factor: has all levels}."""
    found = [dict.fromkeys(some, False) for some in subsets]
    for factor in order:
        for small in list(found):
            large = small | {factor: False}
            if factor not in small and large in found:
                found[found.index(large)] = small | {factor: True}
                found.remove(small)
    return found
