"""The result of a fit: a table of coefficients with all names, and files that can be kept.

`hg.fit` returns it, and `hushgrad fit` writes it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hushgrad.files.atomic import output_directory, write_file
from hushgrad.files.strict_json import strict_json
from hushgrad.fitting.bounds import undeclared
from hushgrad.fitting.conjugate import PRODUCT
from hushgrad.fitting.contracts import contract
from hushgrad.fitting.cross_validation import CrossValidation
from hushgrad.fitting.model import Model
from hushgrad.fitting.newton import FitStage
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.site_check import SiteCheck, site_check
from hushgrad.fitting.sums import Vector
from hushgrad.theory import gaussian_dp

DELTA = 1e-6  # at which ε is told
_ERRORS = {"model": "errors by the model", "sandwich": "HC0 errors", "site": "errors by site"}


@dataclass(frozen=True, kw_only=True, eq=False)
class FitResult:
    """Coefficients in the user's units, their uncertainty, and how the fit went.

    Fields that a kind of model does not have are None: a fit with a penalty has no standard errors,
    Huber's has no likelihood.
    """

    model: Model
    names: tuple[str, ...]  # (p,)
    estimate: Vector  # (p,)
    standard_error: Vector | None  # (p,)
    statistic: Vector | None  # (p,) estimate / standard_error
    p_value: Vector | None  # (p,) two-sided
    low: Vector | None  # (p,) the confidence interval
    high: Vector | None  # (p,)
    covariance: Vector | None  # (p, p)
    distribution: Literal["t", "z"]  # of the statistic
    n_sites: int
    n_rows: int  # without dropped rows
    n_dropped: int
    n_events: int | None
    loss: float  # without the penalty
    log_likelihood: float | None
    null_log_likelihood: float | None  # of a constant alone; Cox: of no columns
    deviance: float | None
    null_deviance: float | None
    aic: float | None
    variance: float | None  # of the residuals of a linear fit
    stages: tuple[FitStage, ...]  # one per average
    contract: str  # digest
    levels: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    # of factors whose levels the sites agreed on: {column: {level: number of sites}}
    validation: CrossValidation | None = None  # how the penalty was chosen
    spread: Vector | None = None  # (p,) pooled standard deviations; 1 of the intercept
    rounds: int | None = None  # communication rounds of all averages; None: no network
    checks: Mapping[str, SiteCheck] = field(default_factory=dict[str, SiteCheck])  # local, by site
    masks: float | None = None  # the standard deviation of a share; None: no masks

    def __getitem__(self, name: str) -> float:
        """The coefficient of this name."""
        return float(self.estimate[self.names.index(name)])

    @property
    def penalty(self) -> float:
        """The penalty of the fit, declared or chosen by cross-validation."""
        return float(self.model.penalty) if self.validation is None else self.validation.chosen

    @property
    def n_averages(self) -> int:
        return len(self.stages)

    @property
    def numbers_pooled(self) -> int:
        """The number of pooled numbers that every site has seen, over all averages."""
        return sum(stage.n_numbers for stage in self.stages)

    @property
    def share_pooled(self) -> float:
        """The pooled numbers as a share of the entries of all rows."""
        return self.numbers_pooled / (self.n_rows * len(self.names))

    @property
    def is_quadratic(self) -> bool:
        """Whether one step suffices: then sums fix the rows only up to a rotation."""
        return self.model.kind in ("linear", "ridge")

    @property
    def mu(self) -> float | None:
        """μ of all averages between two honest partners, at resistance 1 (docs/guarantee.md).

        None: there were no masks, or the model declares no bound of a row.
        """
        parts = [stage.row_part for stage in self.stages]
        if self.masks is None or any(part is None for part in parts):
            return None
        return math.hypot(*(part for part in parts if part is not None)) / self.masks

    def table(self, *, alone: bool = True) -> str:
        """The whole result as text, for a terminal; not `alone`: without what a plan tells."""
        width = max(len(name) for name in self.names)
        heads = ["estimate"]
        columns = [self.estimate]
        if self.standard_error is not None:
            percent = f"{100 * self.model.level:g} %"
            heads += ["std. error", self.distribution, "p", f"{percent} low", f"{percent} high"]
            more = (self.standard_error, self.statistic, self.p_value, self.low, self.high)
            columns += [column for column in more if column is not None]
        lines = [self._title(), f"{'':{width}}" + "".join(f"  {head:>11}" for head in heads)]
        for n, name in enumerate(self.names):
            cells = [_number(head, float(c[n])) for head, c in zip(heads, columns, strict=True)]
            lines.append(f"{name:{width}}" + "".join(f"  {cell:>11}" for cell in cells))
        return "\n".join([*lines, *self._notes(alone)]) + "\n"

    def _title(self) -> str:
        rows = f"{self.n_rows} rows"
        if self.n_dropped:
            rows += f" ({self.n_dropped} dropped)"
        events = "" if self.n_events is None else f", {self.n_events} events"
        return (
            f"{self.model.kind} fit of {self.model.outcome}: {self.n_sites} sites, {rows}{events}"
        )

    def _notes(self, alone: bool) -> list[str]:
        notes = [
            f"{label} {value:.6g}"
            for label, value in (
                ("deviance", self.deviance),
                ("null deviance", self.null_deviance),
                ("log-likelihood", self.log_likelihood),
                ("AIC", self.aic),
                ("residual variance", self.variance),
            )
            if value is not None
        ]
        if self.standard_error is None:
            penalty = f"{self.penalty:g} ({self.model.penalise} columns)"
            notes.append(f"penalty {penalty}: no standard errors")
            if any(stage.name == PRODUCT for stage in self.stages):
                notes.append("no Hessian pooled, but products with vectors")
        else:
            kind = "sandwich" if self.model.kind == "huber" else self.model.standard_errors
            notes.append(_ERRORS[kind])
        rounds = "" if self.rounds is None else f", {self.rounds} rounds"
        pooled = f"{self.n_averages} averages{rounds}, {self.numbers_pooled} pooled numbers"
        agreed = [
            f"levels of {column}, agreed (sites): "
            + ", ".join(f"{level} ({count})" for level, count in found.items())
            for column, found in self.levels.items()
        ]
        curve = [] if self.validation is None else self.validation.lines()
        lines = [", ".join(notes), *curve, *agreed]
        if not alone:
            return lines
        if self.masks is not None:
            pooled += f"\nmasks: {promised(self.mu, undeclared(self.model))}"
        return [*lines, pooled, f"contract {self.contract}"]

    def to_json(self) -> dict[str, Any]:
        """Everything pooled as plain values, the contract included; nothing local."""
        plain = {
            name: getattr(self, name)
            for name in (
                "names", "estimate", "standard_error", "statistic", "p_value", "low", "high",
                "covariance", "distribution", "n_sites", "n_rows", "n_dropped", "n_events", "loss",
                "log_likelihood", "null_log_likelihood", "deviance", "null_deviance", "aic",
                "variance", "spread", "penalty", "levels", "rounds", "masks", "mu", "n_averages",
                "numbers_pooled",
                "share_pooled",
            )
        }  # fmt: skip
        if self.validation is not None:
            plain |= {"validation": vars(self.validation)}
        stages = [vars(stage) for stage in self.stages]
        document = contract(self.model)
        return plain | {"stages": stages, "contract": document, "contract_digest": self.contract}

    @classmethod
    def from_json(cls, model: Model, document: Mapping[str, Any]) -> FitResult:
        """The result that `to_json` wrote."""
        given: dict[str, Any] = {
            f.name: document[f.name] for f in fields(cls) if f.name in document
        }
        for name, value in given.items():
            given[name] = np.array(value) if isinstance(value, list) else value
        given["names"] = tuple(document["names"])
        given["contract"] = document["contract_digest"]
        given["stages"] = tuple(FitStage(**stage) for stage in document["stages"])
        if "validation" in document:
            curve: dict[str, Any] = {
                name: np.array(value) if isinstance(value, list) else value
                for name, value in document["validation"].items()
            }
            given["validation"] = CrossValidation(**curve)
        return cls(model=model, **given)

    def to_csv(self) -> str:
        """The coefficients as CSV, one line each, with all digits."""
        return coefficients_csv(vars(self))

    def checked(self, site: str, rows: Rows) -> SiteCheck:
        """The check of the fit on the rows of one site; nothing of it leaves the site."""
        gain = None
        if self.model.kind == "cox" and self.log_likelihood is not None and self.n_events:
            gain = (self.log_likelihood - (self.null_log_likelihood or 0.0)) / self.n_events
        model = self.model
        if self.levels:
            levels = {column: tuple(found) for column, found in self.levels.items()}
            model, rows = model.closed(levels), rows.closed(levels)
        return site_check(
            model, rows, self.estimate, site=site, loss=self.loss, deviance=self.deviance,
            n_rows=self.n_rows, gain=gain,
        )  # fmt: skip

    def page(self, path: str | Path) -> Path:
        """Write the fit as one page of HTML, with the checks of all sites; gives the path."""
        from hushgrad.fitting.page import Participant, Record, fit_page

        names = [Participant(name=name, role="simulated") for name in self.checks]
        record = Record(participants=tuple(names), rounds=self.rounds)
        return write_file(Path(path), fit_page(self, record, self.checks))

    def save(self, directory: str | Path) -> Path:
        """Write `result.json`, `coefficients.csv` and `page.html` into a directory; gives it."""
        directory = output_directory(directory)
        write_file(directory / "result.json", strict_json(self.to_json()))
        write_file(directory / "coefficients.csv", self.to_csv())
        self.page(directory / "page.html")
        return directory


def promised(mu: float | None, reason: str | None) -> str:
    """The promise of masks about the place of a row; `reason` says why they promise nothing."""
    if mu is None:
        return f"no guarantee, {reason}"
    if math.isinf(mu):
        return "no guarantee, since a step led too far for a row"
    return (
        f"μ = {mu:.2g}, ε = {gaussian_dp.epsilon(DELTA, mu):.2g} at δ = {DELTA:g}, advantage "
        f"{gaussian_dp.advantage(mu):.2g}, of the site that holds a row"
    )


def coefficients_csv(document: Mapping[str, Any]) -> str:
    """The coefficients of `FitResult.to_json` as CSV."""
    heads = ("name", "estimate", "standard_error", "statistic", "p_value", "low", "high")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for n, name in enumerate(document["names"]):
        columns = [document[head] for head in heads[1:]]
        writer.writerow([name, *("" if c is None else repr(float(c[n])) for c in columns)])
    return text.getvalue()


def _number(head: str, value: float) -> str:
    return f"{value:.2e}" if head == "p" and value < 1e-4 else f"{value:.5g}"
