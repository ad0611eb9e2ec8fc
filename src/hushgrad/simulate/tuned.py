"""The result of `tune`: the cells of every method, the best one, tables and the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import InputError
from hushgrad.files.strict_json import strict_json
from hushgrad.report.sensitivity import latex_tuning, plot_sensitivity
from hushgrad.simulate.result import Traffic

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
type Measure = Literal["iterations", "rounds", "bytes", "gradients", "error"]

MEASURES: tuple[Measure, ...] = get_args(Measure.__value__)
GROWN = 1e3  # times the first error: a run that ends with more diverges, though it is still finite


@dataclass(frozen=True)
class Cell:
    """One setting of one method."""

    settings: Mapping[str, Any]  # name → value
    algorithm: Algorithm
    iterations: int | None  # to ε; None: not reached, or a trial diverged
    rounds: int | None
    bytes: float | None  # on all links together
    gradients: float | None  # calls of one agent
    error: float  # the median over the trials at the end; infinite if a trial diverged
    n_diverged: int  # trials
    median_error: Floats  # (samples,)
    refused: str | None = None  # why the cell cannot run; it counts as diverged

    @classmethod
    def of(
        cls,
        settings: Mapping[str, Any],
        algorithm: Algorithm,
        samples: Ints,
        error: Floats,  # (trials, samples)
        traffic: Traffic | None,  # None: the cell was refused
        refused: str | None,
        *,
        target: float,
    ) -> Cell:
        median = np.median(error, axis=0)
        most = GROWN * np.maximum(error[:, 0], target)
        lost = int((error[:, -1] > most).sum())
        reached = [] if lost else np.flatnonzero(median <= target)
        costs: dict[str, Any] = dict.fromkeys(MEASURES[:-1])
        if len(reached) and traffic is not None:
            k = int(samples[reached[0]])
            costs = {
                "iterations": k,
                "rounds": k * traffic.rounds_per_iteration,
                "bytes": k * traffic.bytes_per_iteration,
                "gradients": k * traffic.gradients_per_iteration,
            }
        return cls(
            settings=settings,
            algorithm=algorithm,
            **costs,
            error=np.inf if lost else float(median[-1]),
            n_diverged=lost,
            median_error=median,
            refused=refused,
        )

    def cost(self, by: Measure) -> float:
        """The measure; infinite where ε was not reached or a trial diverged."""
        value: float | None = getattr(self, by)
        return np.inf if value is None else float(value)

    def record(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        costs = {by: getattr(self, by) for by in MEASURES}
        own = {"settings": dict(self.settings), "diverged": self.n_diverged}
        return {**own, **costs, "refused": self.refused}


@dataclass(frozen=True)
class Tuned:
    """All cells of one method."""

    label: str
    cells: tuple[Cell, ...]

    def best(self, by: Measure = "iterations") -> Cell | None:
        """The cheapest cell, the more accurate one of equals; the most accurate one if no cell
        reaches ε; None if all diverge.
        """
        alive = [cell for cell in self.cells if not cell.n_diverged]
        return min(alive, key=lambda cell: (cell.cost(by), cell.error), default=None)

    def is_at_edge(self, cell: Cell) -> bool:
        """Whether a smaller or larger number than those of the grid may be better."""
        for name, value in cell.settings.items():
            values = {c.settings[name] for c in self.cells}
            if len(values) > 1 and all(isinstance(v, (int, float)) for v in values):
                alive = {c.settings[name] for c in self.cells if not c.n_diverged}
                # a best cell next to those that diverge lies at no edge
                if value == min(values) or (value == max(values) and alive == values):
                    return True
        return False


@dataclass(frozen=True)
class Tuning:
    """A grid of several methods on one problem. `tune` makes it."""

    methods: tuple[Tuned, ...]
    by: Measure
    target: float  # ε
    iterations: int  # of every cell
    n_trials: int
    seed: int

    def __iter__(self) -> Any:
        return iter(self.methods)

    def __len__(self) -> int:
        return len(self.methods)

    def __getitem__(self, key: int | str) -> Tuned:
        if isinstance(key, int):
            return self.methods[key]
        for method in self.methods:
            if method.label == key:
                return method
        raise KeyError(f"no method is called {key!r}; there are {[m.label for m in self.methods]}")

    @property
    def best(self) -> dict[str, Algorithm | None]:
        """The best algorithm of every method, ready to run; None where all cells diverge."""
        return {
            method.label: None if (cell := method.best(self.by)) is None else cell.algorithm
            for method in self.methods
        }

    def rows(self) -> list[dict[str, Any]]:
        """One record per method: its best cell, and how many cells diverge."""
        records: list[dict[str, Any]] = []
        for method in self.methods:
            cell = method.best(self.by)
            empty = {"settings": {}, **dict.fromkeys(MEASURES)}
            own = empty if cell is None else cell.record()
            records.append(
                {
                    "algorithm": method.label,
                    **{name: own[name] for name in ("settings", *MEASURES)},
                    "cells": len(method.cells),
                    "diverged_cells": sum(c.n_diverged > 0 for c in method.cells),
                    "at_edge": cell is not None and method.is_at_edge(cell),
                }
            )
        return records

    def __str__(self) -> str:
        head = ("method", "best", "iterations", "rounds", "bytes", "gradients", "error", "diverge")
        lines = [head, *(_line(row) for row in self.rows())]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        text = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        trials = f"{self.n_trials} trial{'s' * (self.n_trials != 1)}"
        wish = (
            "the least error" if self.by == "error" else f"the fewest {self.by} to {self.target:g}"
        )
        text.append(f"Best by {wish}; {self.iterations} iterations, {trials} in every cell.")
        edges = [row["algorithm"] for row in self.rows() if row["at_edge"]]
        if edges:
            text.append(f"At the edge of the grid, so widen it: {', '.join(edges)}.")
        return "\n".join(text)

    __repr__ = __str__

    def to_json(self) -> str:
        """Everything as one strict JSON document; a cell that diverges has null for numbers."""
        return strict_json(self.document())

    def document(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "target": self.target,
            "iterations": self.iterations,
            "trials": self.n_trials,
            "seed": self.seed,
            "best": self.rows(),
            "methods": [
                {"algorithm": m.label, "cells": [c.record() for c in m.cells]} for m in self.methods
            ],
        }

    def latex(self) -> str:
        """A booktabs table of the best cells."""
        return latex_tuning(self.rows(), self.target)

    def plot(
        self,
        path: str | Path | None = None,
        *,
        y: Measure | None = None,
        x: str | None = None,
        title: str | None = None,
    ) -> Any:
        """The picture of the error, or of the cost to ε, by a number; the best of each is marked.

        y    a measure; by default what the tuning was by
        x    the name of a number of the grid, by default the first; of cells that differ in other
             settings too, the best is drawn

        Crosses at the upper edge are cells that diverge; gaps, cells that do not reach ε.
        """
        measure = self.by if y is None else y
        if measure not in MEASURES:
            raise InputError(f"a picture shows one of {', '.join(MEASURES)}, but y = {y!r}.")
        name = self._axis(x)
        lines = [
            (m.label, *_line_of(m, name, measure))
            for m in self.methods
            if name in m.cells[0].settings
        ]
        return plot_sensitivity(
            lines, path, xlabel=name, measure=measure, target=self.target, title=title
        )

    def _axis(self, x: str | None) -> str:
        """The number that the picture has along its x axis."""
        numeric = dict.fromkeys(
            name
            for method in self.methods
            for name in method.cells[0].settings
            if all(isinstance(cell.settings[name], (int, float)) for cell in method.cells)
        )
        if not numeric or (x is not None and x not in numeric):
            has = ", ".join(numeric) or "none"
            given = "" if x is None else f", but x = {x!r}"
            raise InputError(f"a picture has a number of the grid along x: it has {has}{given}.")
        return next(iter(numeric)) if x is None else x


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One method as the words of a table."""

    def shown(value: Any) -> str:
        return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

    best = ", ".join(f"{name} = {shown(value)}" for name, value in row["settings"].items()) or "–"
    costs = (shown(row[by]) for by in MEASURES[:2])
    more = ("–" if row[by] is None else f"{row[by]:.4g}" for by in MEASURES[2:])
    return row["algorithm"], best, *costs, *more, f"{row['diverged_cells']} of {row['cells']}"


def _line_of(method: Tuned, name: str, by: Measure) -> tuple[list[float], list[float], list[bool]]:
    """x, y (infinite: not reached) and whether all cells at x diverge, x ascending."""
    at: dict[float, list[Cell]] = {}
    for cell in method.cells:
        at.setdefault(float(cell.settings[name]), []).append(cell)
    xs = sorted(at)
    ys = [min(cell.cost(by) for cell in at[x]) for x in xs]
    return xs, ys, [all(cell.n_diverged for cell in at[x]) for x in xs]
