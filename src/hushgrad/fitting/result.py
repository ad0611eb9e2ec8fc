"""The result of a fit: a table of coefficients with all names, and files that can be kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hushgrad.files.atomic import output_directory, write_file
from hushgrad.files.strict_json import strict_json
from hushgrad.fitting.contracts import contract
from hushgrad.fitting.model import Model
from hushgrad.fitting.newton import FitStage
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.site_check import SiteCheck, site_check
from hushgrad.fitting.sums import Vector

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
    spread: Vector | None = None  # (p,) pooled standard deviations; 1 of the intercept
    rounds: int | None = None  # communication rounds of all averages; None: no network
    checks: Mapping[str, SiteCheck] = field(default_factory=dict[str, SiteCheck])  # local, by site

    def __getitem__(self, name: str) -> float:
        """The coefficient of this name."""
        return float(self.estimate[self.names.index(name)])

    @property
    def n_averages(self) -> int:
        return len(self.stages)

    @property
    def numbers_pooled(self) -> int:
        """How many pooled numbers every site has seen, over all averages."""
        return sum(stage.n_numbers for stage in self.stages)

    @property
    def share_pooled(self) -> float:
        """The pooled numbers as a share of the entries of all rows."""
        return self.numbers_pooled / (self.n_rows * len(self.model.names))

    @property
    def is_quadratic(self) -> bool:
        """Whether one step suffices: then sums fix the rows only up to a rotation."""
        return self.model.kind in ("linear", "ridge")

    def table(self) -> str:
        """The whole result as text, for a terminal."""
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
        return "\n".join([*lines, *self._notes()]) + "\n"

    def _title(self) -> str:
        rows = f"{self.n_rows} rows"
        if self.n_dropped:
            rows += f" ({self.n_dropped} dropped)"
        events = "" if self.n_events is None else f", {self.n_events} events"
        return (
            f"{self.model.kind} fit of {self.model.outcome}: {self.n_sites} sites, {rows}{events}"
        )

    def _notes(self) -> list[str]:
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
            penalty = f"{self.model.penalty:g} ({self.model.penalise} columns)"
            notes.append(f"penalty {penalty}: no standard errors")
        else:
            kind = "sandwich" if self.model.kind == "huber" else self.model.standard_errors
            notes.append(_ERRORS[kind])
        rounds = "" if self.rounds is None else f", {self.rounds} rounds"
        pooled = f"{self.n_averages} averages{rounds}, {self.numbers_pooled} pooled numbers"
        return [", ".join(notes), pooled, f"contract {self.contract}"]

    def to_json(self) -> dict[str, Any]:
        """Everything pooled as plain values, the contract included; nothing local."""
        plain = {
            name: getattr(self, name)
            for name in (
                "names", "estimate", "standard_error", "statistic", "p_value", "low", "high",
                "covariance", "distribution", "n_sites", "n_rows", "n_dropped", "n_events", "loss",
                "log_likelihood", "null_log_likelihood", "deviance", "null_deviance", "aic",
                "variance", "spread", "rounds", "n_averages", "numbers_pooled", "share_pooled",
            )
        }  # fmt: skip
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
        return cls(model=model, **given)

    def to_csv(self) -> str:
        """The coefficients as CSV, one line each, with all digits."""
        return coefficients_csv(vars(self))

    def checked(self, site: str, rows: Rows) -> SiteCheck:
        """How well the fit describes the rows of one site; nothing of it leaves the site."""
        gain = None
        if self.model.kind == "cox" and self.log_likelihood is not None and self.n_events:
            gain = (self.log_likelihood - (self.null_log_likelihood or 0.0)) / self.n_events
        return site_check(
            self.model, rows, self.estimate, site=site, loss=self.loss, deviance=self.deviance,
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
