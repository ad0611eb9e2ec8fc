"""The declaration of a fit: which regression of which outcome on which columns, and every rule.

All sites must declare the same model. `contracts.py` makes the document that they compare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

from hushgrad.errors import ModelError
from hushgrad.fitting.formula import read_formula, read_term, term_text
from hushgrad.fitting.pooled_tables import MIN_CELL
from hushgrad.fitting.terms import DesignBlock, Part, Term, blocks
from hushgrad.schema.places import allowed_names, suggestion

type Kind = Literal["linear", "ridge", "logistic", "poisson", "huber", "cox"]
type Errors = Literal["model", "sandwich", "site"]

KINDS: tuple[str, ...] = get_args(Kind.__value__)
INTERCEPT = "intercept"
CV = "cv"  # in place of a penalty
MOST_PENALTIES = 20
MOST_MATRIX = 200  # coefficients of a fit that pools Hessians by itself
VALIDATED = ("ridge", "logistic", "poisson")  # the kinds whose penalty may be chosen
AGREED = "agreed"  # in place of the levels of a factor

_CHOICES: dict[str, tuple[str, ...]] = {
    "kind": KINDS,
    "penalise": ("standardised", "raw"),
    "penalty_rule": ("min", "one_se"),
    "hessian": ("auto", "matrix", "products"),
    "ties": ("efron", "breslow"),
    "missing": ("refuse", "drop"),
    "standard_errors": get_args(Errors.__value__),
}
_LEAVE = "Leave it out."


@dataclass(frozen=True, kw_only=True)
class Model:
    """One regression, declared. A model holds no data.

    kind             "linear", "ridge", "logistic", "poisson", "huber", or "cox"
    formula          "y ~ a + b + a:b", in place of outcome, columns, terms, offset and intercept
    outcome          the column of y; for Cox the column of times
    columns          the columns of x, in the order of the table
    terms            products of columns, such as "age:stage", "log(dose)"; none: each column is one
    factors          {column: levels}; the first level is the reference. {column: "agreed"}: the
                     sites agree on the levels in a first average
    references       {column: level} of factors whose levels are agreed; else the first in order
    most_levels      of a factor whose levels are agreed
    min_cell         a site that has fewer rows of an agreed level does not start
    event            Cox: the column that says whether the time ended with an event (1 or 0)
    positive, negative
                     the two codes of a logistic outcome or of an event; both None: 1 and 0
    offset           Poisson: a column that is added to the linear predictor, such as log exposure
    weights          a column of weights of the rows, 1e-9 to 1e9 (not for Cox). A row counts once
    penalty          λ of the penalty ½ λ Σ_j (b_j s_j)². The intercept has no penalty. "cv": chosen
                     out of `penalties` by cross-validation
    penalties, folds of cross-validation; row n of a site is in fold n mod folds
    penalty_rule     "min": the smallest loss; "one_se": the largest λ within one standard error
    penalise         "standardised": s_j is the pooled standard deviation; "raw": s_j = 1
    hessian          "matrix": Newton steps on pooled Hessians; "products": on pooled products H v,
                     with a penalty and without standard errors; "auto": products from 201 on
    delta            Huber: residuals up to delta, in units of y, count squared
    ties             Cox: "efron" or "breslow"
    missing          "refuse" a row with a missing value, or "drop" it and count it
    missing_values   the texts that mean: missing
    ranges           {column: (low, high)}: a value outside is refused
    units            {column: unit}, words that sites compare
    standard_errors  "model", "sandwich" (HC0), or "site" (clustered by site)
    level            of the confidence intervals
    """

    kind: Kind
    formula: InitVar[str | None] = None
    outcome: str = ""
    columns: Sequence[str] = ()
    terms: Sequence[str] = ()
    factors: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    references: Mapping[str, str] = field(default_factory=dict[str, str])
    most_levels: int = 12
    min_cell: int = MIN_CELL
    event: str | None = None
    positive: str | None = None
    negative: str | None = None
    intercept: bool = True
    offset: str | None = None
    weights: str | None = None
    penalty: float | Literal["cv"] = 0.0
    penalties: Sequence[float] = ()
    folds: int = 5
    penalty_rule: Literal["min", "one_se"] = "min"
    penalise: Literal["standardised", "raw"] = "standardised"
    hessian: Literal["auto", "matrix", "products"] = "auto"
    delta: float | None = None
    ties: Literal["efron", "breslow"] = "efron"
    missing: Literal["refuse", "drop"] = "refuse"
    missing_values: Sequence[str] = ("", "NA", "NaN", "nan")
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    units: Mapping[str, str] = field(default_factory=dict[str, str])
    standard_errors: Errors = "model"
    level: float = 0.95

    def __post_init__(self, formula: str | None) -> None:
        if formula is not None:
            self._take(formula)
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                hint = suggestion(value, allowed) if isinstance(value, str) else ""
                raise _mistake(
                    name, value, f"is one of a few words.{hint} {allowed_names(allowed)}"
                )
        _check_names(self)
        _check_numbers(self)
        if len(set(self.names)) < len(self.names):
            raise _mistake("columns", self.names, "give each coefficient its own name. Rename one.")
        for name, value, kinds, way_out in (
            ("event", self.event, ("cox",), _LEAVE),
            ("offset", self.offset, ("poisson",), _LEAVE),
            ("delta", self.delta, ("huber",), _LEAVE),
            ("positive", self.positive, ("logistic", "cox"), _LEAVE),
            ("penalty", self.penalty or None, ("ridge", "logistic", "poisson", "huber", "cox"),
             'Use kind = "ridge".'),
        ):  # fmt: skip
            if value is not None and self.kind not in kinds:
                raise _mistake(
                    name, value, f"belongs to {' and '.join(kinds)}, not to {self.kind}. {way_out}"
                )
        self._check_kind()

    @property
    def has_intercept(self) -> bool:
        """Cox has none: the baseline hazard takes its place."""
        return self.intercept and self.kind != "cox"

    @property
    def pools_hessian(self) -> bool:
        """Whether Newton's steps use H itself, or products H v."""
        if self.hessian == "auto":
            return len(self.names) <= MOST_MATRIX
        return self.hessian == "matrix"

    @property
    def is_inferred(self) -> bool:
        """Whether the fit has standard errors: estimates with a penalty are biased, so none."""
        return self.penalty == 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coefficients: intercept, columns, and column[level] of factors.

        Before the sites have agreed on levels, as many as there can be.
        """
        found = [name for block in self.blocks for name in block.names(self.levels)]
        return (INTERCEPT, *found) if self.has_intercept else tuple(found)

    @property
    def open_factors(self) -> tuple[str, ...]:
        """The factors whose levels the sites agree on."""
        return tuple(name for name, levels in self.factors.items() if levels == AGREED)

    @cached_property
    def levels(self) -> Mapping[str, Sequence[str]]:
        """The levels of all factors; those that are not known yet have numbers as names."""
        unknown = tuple(f"?{n}" for n in range(self.most_levels))
        return {name: unknown if of == AGREED else of for name, of in self.factors.items()}

    def closed(self, levels: Mapping[str, Sequence[str]]) -> Model:
        """The model with agreed levels."""
        return replace(self, factors={**self.factors, **levels}, references={})

    @cached_property
    def blocks(self) -> list[DesignBlock]:
        """The columns of the design without the intercept, by terms."""
        terms: list[Term] = [read_term(text) for text in self.terms]
        if not terms:
            terms = [(Part(column),) for column in self.columns]
        has_constant = self.has_intercept or self.kind == "cox"
        return blocks(terms, self.factors, has_intercept=has_constant)

    def _take(self, formula: str) -> None:
        """Set the fields that a formula stands for."""
        found = read_formula(formula)
        given = {"outcome": self.outcome, "columns": self.columns, "terms": self.terms,
                 "offset": self.offset, "intercept": not self.intercept}  # fmt: skip
        for name, value in given.items():
            if value:
                raise _mistake(name, getattr(self, name), "does not stand beside a formula.")
        columns = tuple(dict.fromkeys(part.column for term in found.terms for part in term))
        is_plain = all(len(term) == 1 and term[0].is_plain for term in found.terms)
        taken = {
            "outcome": found.outcome,
            "columns": columns,
            "terms": () if is_plain else tuple(term_text(term) for term in found.terms),
            "offset": found.offset,
            "intercept": found.intercept,
        }
        if found.event is not None:
            taken["event"] = found.event
        for name, value in taken.items():
            object.__setattr__(self, name, value)  # frozen for everybody else

    def _check_kind(self) -> None:
        if self.kind == "cox":
            if self.event is None:
                raise _mistake("event", None, "names Cox's column of events. Give it.")
            if self.weights is not None:
                raise _mistake("weights", self.weights, f"belongs to no Cox model. {_LEAVE}")
        if self.penalty == CV:
            if self.kind not in VALIDATED:
                rule = f"belongs to {', '.join(VALIDATED)}, not to {self.kind}."
                raise _mistake("penalty", self.penalty, rule)
        elif self.penalties:
            raise _mistake("penalties", self.penalties, 'belongs to penalty = "cv". Leave it out.')
        if self.kind == "ridge" and self.penalty == 0:
            raise _mistake("penalty", self.penalty, 'of a ridge is > 0. Or use kind = "linear".')
        if self.kind == "huber" and self.delta is None:
            raise _mistake("delta", None, "of Huber's loss is a number in units of y. Give it.")
        if not self.pools_hessian and (self.kind not in VALIDATED or not _is_number(self.penalty)
                                       or self.penalty == 0):  # fmt: skip
            count = len(self.names)
            raise _mistake(
                "hessian", self.hessian,
                f"of {count} coefficients: without a pooled Hessian nobody sees dependent columns, "
                f"so the fit is a {', '.join(VALIDATED)} with a penalty > 0. Give a penalty, or "
                f'hessian = "matrix", which pools {count * (count + 1) // 2} numbers at each step.',
            )  # fmt: skip
        if self.standard_errors != "model" and (self.kind == "cox" or not self.is_inferred):
            raise _mistake(
                "standard_errors", self.standard_errors,
                "belongs to fits without penalty, and not to Cox. Use \"model\".",
            )  # fmt: skip


def _check_names(model: Model) -> None:
    for table in ("factors", "references", "ranges", "units"):
        if not isinstance(getattr(model, table), Mapping):
            raise _mistake(table, getattr(model, table), "is a table from columns to values.")
    if not isinstance(model.intercept, bool):
        raise _mistake("intercept", model.intercept, "is true or false.")
    if not model.outcome or not isinstance(model.outcome, str):
        raise _mistake("outcome", model.outcome, "names the column of y. Give it, or a formula.")
    if isinstance(model.columns, str) or not model.columns:
        raise _mistake("columns", model.columns, "is a list of names, at least one.")
    special = (model.outcome, model.event, model.offset, model.weights)
    named = [*model.columns, *(name for name in special if name is not None)]
    for name in named:
        if not isinstance(name, str) or not name:
            raise _mistake("columns", name, "are named by texts that are not empty.")
        if named.count(name) > 1:
            raise _mistake("columns", name, "is named twice: a column has one role. Remove one.")
        if name == INTERCEPT:
            raise _mistake("columns", name, "is the name of the constant. Rename the column.")
    for table, known in (("factors", model.columns), ("ranges", named), ("units", named)):
        for name in getattr(model, table):
            if name not in known:
                raise _mistake(
                    table, name, f"is no column of the model.{suggestion(name, known)} "
                    f"{allowed_names(known)}",
                )  # fmt: skip
    _check_terms(model)
    for name in model.references:
        if name not in model.open_factors:
            raise _mistake("references", name, f'is no factor of levels = "{AGREED}". Remove it.')
    for name, levels in model.factors.items():
        if levels == AGREED:
            continue
        texts = [level for level in levels if isinstance(level, str) and level]
        if isinstance(levels, str) or len(set(texts)) < max(2, len(levels)):
            rule = f'is a list of two or more different texts, or "{AGREED}".'
            raise _mistake(f"factors.{name}", levels, rule)
        if name in model.ranges:
            raise _mistake(f"ranges.{name}", model.ranges[name], "is a factor's. Remove it.")
        for level in levels:
            if level in model.missing_values:
                raise _mistake(f"factors.{name}", level, "is in missing_values too. Remove one.")
    if (model.positive is None) != (model.negative is None) or (
        model.positive is not None and model.positive == model.negative
    ):
        raise _mistake(
            "positive", (model.positive, model.negative),
            "and negative are two different texts, given together: a third code is then refused.",
        )  # fmt: skip


def _check_terms(model: Model) -> None:
    if isinstance(model.terms, str):
        raise _mistake("terms", model.terms, 'is a list of terms such as ["age", "age:stage"].')
    terms = [read_term(text) for text in model.terms]
    used = {part.column for term in terms for part in term}
    for term in terms:
        for part in term:
            if part.column not in model.columns:
                raise _mistake(
                    "terms", part.column, "has a name that is no column of the model."
                    f"{suggestion(part.column, model.columns)} {allowed_names(model.columns)}",
                )  # fmt: skip
            if part.column in model.factors and not part.is_plain:
                raise _mistake("terms", part.text, "has a logarithm or a power of a factor.")
    for column in model.columns:
        if terms and column not in used:
            raise _mistake("columns", column, "has a name that no term uses. Leave it out.")


def _check_numbers(model: Model) -> None:
    for name, ok, rule in (
        ("penalty", lambda v: v >= 0, 'is a finite number ≥ 0, or "cv".'),
        ("delta", lambda v: v > 0, "is a finite number > 0."),
        ("level", lambda v: 0 < v < 1, "is a number between 0 and 1, such as 0.95."),
    ):
        value = getattr(model, name)
        if value == CV and name == "penalty":
            _check_penalties(model)
        elif value is not None and not (_is_number(value) and ok(value)):
            raise _mistake(name, value, rule)
    for name, low, high in (("most_levels", 2, 100), ("min_cell", 1, 10**6), ("folds", 2, 20)):
        value = getattr(model, name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _mistake(name, value, f"is a whole number from {low} to {high}.")
    for name, pair in model.ranges.items():
        if len(pair) != 2 or not all(_is_number(v) for v in pair) or not pair[0] < pair[1]:
            raise _mistake(f"ranges.{name}", pair, "is two numbers, low < high.")


def _check_penalties(model: Model) -> None:
    given = model.penalties
    if isinstance(given, str) or not 2 <= len(given) <= MOST_PENALTIES:
        rule = f'is a list of 2 to {MOST_PENALTIES} numbers, with penalty = "cv".'
        raise _mistake("penalties", given, rule)
    if not all(_is_number(v) and v > 0 for v in given) or len(set(given)) < len(given):
        raise _mistake("penalties", given, "are different numbers > 0.")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)


def _mistake(name: str, value: Any, rule: str) -> ModelError:
    return ModelError(f"model: {name} {rule} It is {value!r}.")
