"""Formulas: `died ~ age + stage + age:stage`. A small parser, and errors that point at a character.

    formula     outcome ~ item + item …     `- 1` or `+ 0`: no intercept
    outcome     name, or Surv(time, event) of a Cox model
    item        product, or offset(name), 1, 0
    product     a:b is the product of two parts, a*b is a + b + a:b
    part        name, log(name), name^2 … name^9
    name        letters, digits, _ and . ; any other name stands between `backticks`

Terms are sorted by their number of parts, as in R, so the main effects stand first. A formula is a
way to write the fields of a `Model`: two models whose fields are equal have one contract.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Never

from hushgrad.errors import ModelError
from hushgrad.fitting.terms import Part, Term

MOST_POWER = 9
_TOKEN = re.compile(r"\s*(?:(?P<name>[^\W\d][\w.]*)|`(?P<odd>[^`]+)`|(?P<number>\d+)|(?P<sign>.))")
_PLAIN = re.compile(r"[^\W\d][\w.]*")


@dataclass(frozen=True)
class Formula:
    """The content of a formula."""

    outcome: str
    event: str | None
    terms: tuple[Term, ...]
    offset: str | None
    intercept: bool


@dataclass(frozen=True)
class _Token:
    kind: str  # "name", "odd", "number", "sign", "end"
    text: str
    place: int


def read_formula(text: str) -> Formula:
    """Read a formula; a ModelError points at the first character that is wrong.

    >>> found = read_formula("died ~ age * stage + log(`body mass`) - 1")
    >>> found.outcome, [term_text(term) for term in found.terms], found.intercept
    ('died', ['age', 'stage', 'log(`body mass`)', 'age:stage'], False)
    """
    if not isinstance(text, str):
        raise ModelError(f"model: formula is a text such as 'y ~ a + b', but it is {text!r}.")
    reader = _Reader("formula", text)
    outcome, event = reader.outcome()
    reader.sign("~", "the outcome stands left of the sign ~")
    reader.items()
    terms = sorted(reader.terms, key=len)
    if not terms:
        reader.fail("a formula has at least one column on its right side", len(text.rstrip()))
    return Formula(outcome, event, tuple(terms), reader.offset, reader.intercept)


def read_term(text: str) -> Term:
    """Read one term, such as `age:stage` or `log(dose)`."""
    reader = _Reader("terms", text)
    term = reader.interaction()
    if reader.now.kind != "end":
        reader.fail("a term is a product such as age:stage")
    return term


def term_text(term: Term) -> str:
    """The text of a term, which `read_term` reads."""
    return ":".join(_part_text(part) for part in term)


def _part_text(part: Part) -> str:
    name = part.column if _PLAIN.fullmatch(part.column) else f"`{part.column}`"
    return Part(name, part.function, part.power).text


@dataclass
class _Reader:
    """A text that is read from left to right."""

    key: str  # of the model, for messages
    text: str
    terms: list[Term] = field(default_factory=list[Term])
    offset: str | None = None
    intercept: bool = True

    def __post_init__(self) -> None:
        self._tokens = _tokens(self.text)
        self._at = 0

    @property
    def now(self) -> _Token:
        return self._tokens[self._at]

    def fail(self, rule: str, place: int | None = None) -> Never:
        at = self.now.place if place is None else place
        found = f"{self.text[at]!r}" if at < len(self.text) else "the end"
        raise ModelError(
            f"model: {self.key}: {rule}, but character {at + 1} is {found}.\n"
            f"  {self.text}\n  {' ' * at}^"
        )

    def sign(self, sign: str, rule: str) -> None:
        if not self._takes(sign):
            self.fail(rule)

    def _takes(self, *signs: str) -> bool:
        if self.now.kind == "sign" and self.now.text in signs:
            self._at += 1
            return True
        return False

    def _next(self) -> _Token:
        token = self.now
        self._at += 1
        return token

    def _calls(self, function: str) -> bool:
        after = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if self.now.kind == "name" and self.now.text == function and after.text == "(":
            self._at += 2
            return True
        return False

    def name(self) -> str:
        if self.now.kind not in ("name", "odd"):
            self.fail("the name of a column is expected here")
        return self._next().text

    def outcome(self) -> tuple[str, str | None]:
        if not self._calls("Surv"):
            return self.name(), None
        time = self.name()
        self.sign(",", "Surv has two columns, Surv(time, event)")
        event = self.name()
        self.sign(")", "Surv(time, event) ends with a parenthesis")
        return time, event

    def items(self) -> None:
        is_minus = self._takes("-")
        while True:
            self.item(is_minus=is_minus)
            if self.now.kind == "end":
                return
            if self.now.text not in ("+", "-"):
                self.fail("terms are joined by +, : or *")
            is_minus = self._next().text == "-"

    def item(self, *, is_minus: bool) -> None:
        start = self.now
        if start.kind == "number":
            if start.text not in ("0", "1"):
                self.fail("the only numbers in a sum are 1 and 0, for the intercept")
            self.intercept = (self._next().text == "1") != is_minus
            return
        if is_minus:
            self.fail("only the intercept can be taken away, by - 1")
        if self._calls("offset"):
            if self.offset is not None:
                self.fail("a formula has one offset", start.place)
            self.offset = self.name()
            self.sign(")", "offset(name) has one column")
            return
        factors = [self.interaction()]
        while self._takes("*"):
            factors.append(self.interaction())
        for n in range(1, len(factors) + 1):
            for some in combinations(factors, n):
                self._add(some)

    def _add(self, some: Sequence[Term]) -> None:
        term = tuple(dict.fromkeys(part for one in some for part in one))  # a:a is a
        if set(term) not in [set(other) for other in self.terms]:
            self.terms.append(term)

    def interaction(self) -> Term:
        parts = [self.part()]
        while self._takes(":"):
            parts.append(self.part())
        return tuple(dict.fromkeys(parts))

    def part(self) -> Part:
        function = "log" if self._calls("log") else ""
        if not function and self._tokens[min(self._at + 1, len(self._tokens) - 1)].text == "(":
            self.fail("the functions of a formula are log(…) and offset(…)")
        column = self.name()
        if function:
            self.sign(")", "log(name) has one column")
        power = 1
        if self._takes("^"):
            if self.now.kind != "number" or not 1 <= int(self.now.text) <= MOST_POWER:
                self.fail(f"a power is a whole number from 1 to {MOST_POWER}")
            power = int(self._next().text)
        return Part(column, function, power)


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    place = 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        assert match is not None
        kind = match.lastgroup
        assert kind is not None
        found.append(_Token(kind, match[kind], match.start(kind) - (kind == "odd")))
        place = match.end()
    return [*found, _Token("end", "", len(text.rstrip()))]
