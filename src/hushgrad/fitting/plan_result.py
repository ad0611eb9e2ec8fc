"""The result of a plan: the table of every stage, in one document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrad.files.atomic import output_directory, write_file
from hushgrad.files.strict_json import strict_json
from hushgrad.fitting.contracts import contract
from hushgrad.fitting.pooled_sums import TablesResult, sums_csv
from hushgrad.fitting.result import FitResult, coefficients_csv
from hushgrad.fitting.sums import Vector

if TYPE_CHECKING:
    from hushgrad.fitting.plan import FitPlan


type Fitted = FitResult | PlanResult  # what a programme ends with


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanResult:
    """The result of each stage, by its name: `result["deaths"]`."""

    declared: FitPlan
    results: Mapping[str, FitResult | TablesResult]
    contract: str  # digest
    rounds: int | None = None  # of all averages; None: no network

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
        """How many pooled numbers every site has seen, over all averages."""
        return sum(found.numbers_pooled for found in self.results.values())

    @property
    def share_pooled(self) -> float:
        """The pooled numbers as a share of the entries of all rows of the largest stage."""
        entries = [found.n_rows * _width(found) for found in self.results.values()]
        return self.numbers_pooled / max(entries)

    @property
    def is_quadratic(self) -> bool:
        return all(found.is_quadratic for found in self.fits.values()) and bool(self.fits)

    def table(self) -> str:
        """Every stage's table as text, for a terminal."""
        lines: list[str] = []
        for n, (name, found) in enumerate(self.results.items()):
            text = found.table()
            if isinstance(found, FitResult):  # the last two lines are those of the whole plan
                text = "\n".join(text.splitlines()[:-2]) + "\n"
            lines.append(f"stage {n + 1} of {len(self.results)}: {name}\n{text}")
        rounds = "" if self.rounds is None else f", {self.rounds} rounds"
        lines.append(
            f"{self.n_averages} averages{rounds}, {self.numbers_pooled} pooled numbers\n"
            f"contract {self.contract}\n"
        )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values, the contract included."""
        results = {
            name: {k: v for k, v in found.to_json().items() if not k.startswith("contract")}
            for name, found in self.results.items()
        }
        return {
            "results": results,
            "estimate": self.estimate,
            "names": [f"{name}: {each}" for name, f in self.fits.items() for each in f.names],
            "rounds": self.rounds,
            "n_averages": self.n_averages,
            "numbers_pooled": self.numbers_pooled,
            "share_pooled": self.share_pooled,
            "contract": contract(self.declared),
            "contract_digest": self.contract,
        }

    def save(self, directory: str | Path) -> Path:
        """Write `result.json` and one CSV file for each stage; gives the directory."""
        directory = output_directory(directory)
        document = self.to_json()
        write_file(directory / "result.json", strict_json(document))
        for name, text in csv_files(document).items():
            write_file(directory / name, text)
        return directory

    def with_rounds(self, rounds: int) -> PlanResult:
        return replace(self, rounds=rounds)


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
