"""The part of a run that a report needs: its samples, reduced to curves and to one record.

Pictures and exports take any object with the attributes of `SampledRun`, which `hushgrad.Run` has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import InputError

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]


class SampledRun(Protocol):
    """A finished run of one algorithm, as reports read it."""

    @property
    def label(self) -> str: ...
    @property
    def error(self) -> Floats: ...  # (trials, samples)
    @property
    def consensus(self) -> Floats: ...  # (trials, samples)
    @property
    def metrics(self) -> Mapping[str, Floats]: ...  # (trials, samples) each
    @property
    def iterations(self) -> Ints: ...  # (samples,)
    @property
    def median_error(self) -> Floats: ...  # (samples,)
    @property
    def x(self) -> Floats: ...  # (trials, agents, d)
    @property
    def solution(self) -> Floats: ...  # (d,) or (trials, d)
    @property
    def status(self) -> tuple[str, ...]: ...  # per trial
    @property
    def trials(self) -> Ints: ...  # (trials,) their numbers
    @property
    def seed(self) -> int: ...
    @property
    def traffic(self) -> Any: ...  # a `simulate.result.Traffic`
    @property
    def seconds(self) -> float: ...
    @property
    def config(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Curve:
    """One run's metric over its trials; a diverged trial counts as infinite."""

    label: str
    iterations: Ints  # (samples,)
    middle: Floats  # (samples,) the median
    low: Floats | None  # (samples,) the band, None for one trial
    high: Floats | None  # (samples,)
    n_trials: int
    n_diverged: int
    ceiling: float  # the largest value that a trial came back from, 0 where all diverged

    @property
    def title(self) -> str:
        """The label, with the number of trials that the picture does not show."""
        if not self.n_diverged:
            return self.label
        if self.n_trials == 1:
            return f"{self.label} (diverged)"
        return f"{self.label} ({self.n_diverged} of {self.n_trials} diverged)"


def curve(
    run: SampledRun, metric: str = "error", band: tuple[float, float] | None = (0.1, 0.9)
) -> Curve:
    """Median and quantiles of a run's error, consensus, or one of its metrics."""
    known = {"error": run.error, "consensus": run.consensus, **run.metrics}
    if metric not in known:
        raise InputError(
            f"{run.label} has the metrics {', '.join(known)}, but metric = {metric!r}. "
            "Sample your own with hg.run(…, metrics={name: function})."
        )
    if band is not None and not 0 <= band[0] < band[1] <= 1:
        raise InputError(
            f"a band lies between two quantiles, 0 ≤ low < high ≤ 1, but band = {band!r}. "
            "Use (0.1, 0.9), or None for no band."
        )
    values = np.where(np.isfinite(known[metric]), known[metric], np.inf)
    lost = np.array([s.startswith("diverged") for s in run.status]) | np.isinf(values).any(axis=1)
    n = len(values)
    low, high = (None, None) if band is None or n == 1 else _quantiles(values, band)
    return Curve(
        label=run.label,
        iterations=run.iterations,
        middle=np.median(values, axis=0),
        low=low,
        high=high,
        n_trials=n,
        n_diverged=int(lost.sum()),
        ceiling=float(values[~lost].max(initial=0.0)),
    )


def _quantiles(values: Floats, band: tuple[float, float]) -> Floats:
    """(2, samples); between a finite and an infinite value, infinite."""
    with np.errstate(invalid="ignore"):
        found = np.quantile(values, band, axis=0)
    return np.where(np.isnan(found), np.inf, found)


def summary(run: SampledRun) -> dict[str, Any]:
    """A run in one record of plain values: a row of a table."""
    last = run.median_error[-1]
    first = run.median_error[0]
    reached = np.flatnonzero(run.median_error <= 1e-6 * first)
    return {
        "algorithm": run.label,
        "trials": len(run.trials),
        "iterations": int(run.iterations[-1]),
        "median_error": float(last),
        "worst_error": float(
            np.where(np.isfinite(run.error[:, -1]), run.error[:, -1], np.inf).max()
        ),
        "iterations_to_1e-6": int(run.iterations[reached[0]]) if len(reached) else None,
        "converged": sum(s == "converged" for s in run.status),
        "diverged": sum(s.startswith("diverged") for s in run.status),
        "messages_per_link": run.traffic.messages_per_link,
        "rounds_per_iteration": run.traffic.rounds_per_iteration,
        "bytes_per_iteration": run.traffic.bytes_per_iteration,
        "links": run.traffic.links,
        "extra_links": run.traffic.extra_links,
        "seconds": run.seconds,
    }
