"""The result of a plan: the table of every stage, in one document.

`hg.fit` returns it for a plan, and `hushgrad fit` writes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrad.files.atomic import output_directory, write_file
from hushgrad.files.strict_json import strict_json
from hushgrad.fitting.contracts import contract, contract_text
from hushgrad.fitting.page import Participant, Record, fit_page
from hushgrad.fitting.pooled_sums import TablesResult, sums_csv
from hushgrad.fitting.pooled_tables import PooledTables
from hushgrad.fitting.result import FitResult, coefficients_csv, promised
from hushgrad.fitting.rows import Rows
from hushgrad.fitting.site_check import SiteCheck
from hushgrad.fitting.sums import Vector

if TYPE_CHECKING:
    from hushgrad.fitting.plan import Data, FitPlan


type Fitted = FitResult | PlanResult  # what a programme ends with


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanResult:
    """The result of each stage, by its name: `result["deaths"]`."""

    declared: FitPlan
    results: Mapping[str, FitResult | TablesResult]
    contract: str  # digest
    rounds: int | None = None  # of all averages; None: no network
    masks: float | None = None  # the standard deviation of a share; None: no masks
    unbounded: str | None = None  # the reason why a row has no bound; None: it has one

    def __getitem__(self, name: str) -> FitResult | TablesResult:
        return self.results[name]

    @property
    def fits(self) -> dict[str, FitResult]:
        """The stages that are fits."""
        return {name: found for name, found in self.results.items() if isinstance(found, FitResult)}

    @property
    def estimate(self) -> Vector:
        """The coefficients of all fits, one after another."""
        return np.concatenate([np.zeros(0), *(found.estimate for found in self.fits.values())])

    @property
    def n_averages(self) -> int:
        return sum(len(found.stages) for found in self.results.values())

    @property
    def numbers_pooled(self) -> int:
        """The number of pooled numbers that every site has seen, over all averages."""
        return sum(found.numbers_pooled for found in self.results.values())

    @property
    def share_pooled(self) -> float:
        """The pooled numbers as a share of the entries of all rows of the largest stage."""
        entries = [found.n_rows * _width(found) for found in self.results.values()]
        return self.numbers_pooled / max(entries)

    @property
    def mu(self) -> float | None:
        """μ of all averages of all stages, as that of a fit (`FitResult.mu`)."""
        if self.unbounded is not None or self.masks is None:
            return None
        parts = [stage.row_part for found in self.results.values() for stage in found.stages]
        known = [part for part in parts if part is not None]
        return math.hypot(*known) / self.masks if len(known) == len(parts) else None

    @property
    def checks(self) -> dict[str, SiteCheck]:
        """The checks of the fits on the rows of single sites, by stage and site."""
        return {
            f"{stage}: {site}": check
            for stage, found in self.fits.items()
            for site, check in found.checks.items()
        }

    @property
    def is_quadratic(self) -> bool:
        return all(found.is_quadratic for found in self.fits.values()) and bool(self.fits)

    def table(self) -> str:
        """Every stage's table as text, for a terminal."""
        lines: list[str] = []
        for n, (name, found) in enumerate(self.results.items()):
            text = found.table(alone=False) if isinstance(found, FitResult) else found.table()
            lines.append(f"stage {n + 1} of {len(self.results)}: {name}\n{text}")
        rounds = "" if self.rounds is None else f", {self.rounds} rounds"
        masks = ""
        if self.masks is not None:
            masks = f"masks: {promised(self.mu, self.unbounded)}\n"
        lines.append(
            f"{self.n_averages} averages{rounds}, {self.numbers_pooled} pooled numbers\n"
            f"{masks}contract {self.contract}\n"
        )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values, the contract included."""
        results = {
            name: {k: v for k, v in found.to_json().items() if not k.startswith("contract")}
            | {"mu_of_all_stages": self.mu}
            for name, found in self.results.items()
        }
        return {
            "results": results,
            "estimate": self.estimate,
            "names": [f"{name}: {each}" for name, f in self.fits.items() for each in f.names],
            "rounds": self.rounds,
            "masks": self.masks,
            "mu": self.mu,
            "unbounded": self.unbounded,
            "n_averages": self.n_averages,
            "numbers_pooled": self.numbers_pooled,
            "share_pooled": self.share_pooled,
            "contract": contract(self.declared),
            "contract_digest": self.contract,
        }

    @classmethod
    def from_json(cls, declared: FitPlan, document: Mapping[str, Any]) -> PlanResult:
        """The result that `to_json` wrote."""
        results: dict[str, FitResult | TablesResult] = {}
        digest = {"contract_digest": document["contract_digest"]}
        for name, stage in declared.stages.items():
            own = document["results"][name]
            results[name] = (
                TablesResult.from_json(stage, own)
                if isinstance(stage, PooledTables)
                else FitResult.from_json(stage, own | digest)
            )
        return cls(
            declared=declared,
            results=results,
            contract=document["contract_digest"],
            rounds=document["rounds"],
            masks=document["masks"],
            unbounded=document["unbounded"],
        )

    def save(self, directory: str | Path) -> Path:
        """Write `result.json`, a CSV file for each stage, a page for each fit; gives the place."""
        directory = output_directory(directory)
        document = self.to_json()
        write_file(directory / "result.json", strict_json(document))
        for name, text in csv_files(document).items():
            write_file(directory / name, text)
        sites = dict.fromkeys(site for found in self.fits.values() for site in found.checks)
        names = [Participant(name=site, role="simulated") for site in sites]
        record = Record(participants=tuple(names), rounds=self.rounds)
        for name, text in self.pages(record).items():
            write_file(directory / name, text)
        return directory

    def pages(self, record: Record) -> dict[str, str]:
        """A page of HTML for each fit, by the name of its file."""
        found: dict[str, str] = {}
        for n, (name, fit) in enumerate(self.results.items()):
            if isinstance(fit, FitResult):
                stage = (
                    f"{name}, {n + 1} of {len(self.results)}; all stages together pooled "
                    f"{self.numbers_pooled} numbers"
                )
                if self.masks is not None:
                    stage += f"; masks: {promised(self.mu, self.unbounded)}"
                own = replace(
                    record,
                    more={**(record.more or {}), "stage of a plan": stage},
                    contract=contract_text(contract(self.declared)),
                )
                found[f"{name}.html"] = fit_page(fit, own, fit.checks)
        return found


def masked(found: Fitted, masks: float | None) -> Fitted:
    """The result of averages with masks of this size."""
    if isinstance(found, FitResult):
        return replace(found, masks=masks)
    fits = {name: replace(fit, masks=masks) for name, fit in found.fits.items()}
    return replace(found, results={**found.results, **fits}, masks=masks)


def checked(found: Fitted, data: Mapping[str, Data]) -> Fitted:
    """The result with the checks of every fit on the rows of these sites."""
    if isinstance(found, FitResult):
        return _checked(found, {site: of for site, of in data.items() if isinstance(of, Rows)})
    results = dict(found.results)
    for n, (name, fit) in enumerate(found.results.items()):
        if isinstance(fit, FitResult):
            own = {site: of[n] for site, of in data.items() if isinstance(of, tuple)}
            rows = {site: part for site, part in own.items() if isinstance(part, Rows)}
            results[name] = _checked(fit, rows)
    return replace(found, results=results)


def _checked(fit: FitResult, rows: Mapping[str, Rows]) -> FitResult:
    return replace(fit, checks={site: fit.checked(site, own) for site, own in rows.items()})


def csv_files(document: Mapping[str, Any]) -> dict[str, str]:
    """The CSV files beside the `to_json` of a fit or of a plan, by name."""
    if "results" not in document:
        return {"coefficients.csv": coefficients_csv(document)}
    return {
        f"{name}.csv": sums_csv(found) if found.get("kind") == "sum" else coefficients_csv(found)
        for name, found in document["results"].items()
    }


def _width(found: FitResult | TablesResult) -> int:
    return len(found.names) if isinstance(found, FitResult) else len(found.declared.columns)
