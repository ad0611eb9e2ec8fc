"""The outcome of a network of processes, and its difference from the simulator.

processes.py makes the outcome after all agents have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.stages import n_stages, stage_lengths
from hushgrad.errors import DivergedError, HushgradError
from hushgrad.network.state.samples import SAMPLES, read_samples
from hushgrad.simulate.checkpoint import Checkpoint
from hushgrad.simulate.request import Outcome, RunRequest, apply_metric, is_lost, measure
from hushgrad.simulate.run import driver_of
from hushgrad.simulate.staged import simulate_stages, stage_samples

type Floats = NDArray[np.float64]


def outcome_of(
    request: RunRequest, states: Sequence[Path], *, failure: HushgradError | None, seconds: float
) -> Outcome:
    """The outcome from the samples of all agents; raises a failure that is not divergence."""
    trail = _Trail(request, states)
    error, consensus = (np.full((1, trail.reached), np.nan) for _ in range(2))
    metrics = {name: np.full((1, trail.reached), np.nan) for name in request.metrics}
    solution = np.atleast_2d(request.problem.solution())[0]
    reached, diverged = 0, -1
    while reached < trail.reached and diverged < 0:
        x = trail.at(reached)[None]
        error[:, reached], consensus[:, reached] = measure(x, solution)
        for name, metric in request.metrics.items():
            metrics[name][:, reached] = apply_metric(name, metric, x, request.problem)
        if is_lost(error[:, reached])[0]:
            diverged = int(request.samples[reached])
        reached += 1
    if diverged < 0 and isinstance(failure, DivergedError):
        diverged = int(request.samples[reached - 1])
    if diverged < 0 and failure is not None:
        raise failure
    simulated = _simulated(request, trail, reached)
    apart = simulated.metrics["difference"][:, :reached]
    missing = np.full((1, reached - apart.shape[1]), np.nan)  # the simulator ended earlier
    metrics = {name: values[:, :reached] for name, values in metrics.items()}
    return Outcome(
        error=error[:, :reached],
        consensus=consensus[:, :reached],
        x=trail.at(reached - 1)[None],
        metrics=metrics | {"difference": np.concatenate([apart, missing], axis=1)},
        diverged=np.array([diverged]),
        traffic=simulated.traffic,  # the agents send the same messages
        mask_scale=simulated.mask_scale,
        seconds=seconds,
    )


class _Trail:
    """The estimates of all agents at the samples."""

    def __init__(self, request: RunRequest, states: Sequence[Path]):
        self._x0 = request.x0[0]
        kept = [read_samples(state / SAMPLES, request.problem.dim) for state in states]
        self._rows = [x for _, x in kept]
        wanted = request.samples[1:]
        # the samples that every agent has
        self.reached = 1 + min(
            int(np.argmin(np.append(k == wanted[: len(k)], [False]))) for k, _ in kept
        )

    def at(self, n: int) -> Floats:
        """(agents, d) at sample n."""
        return self._x0 if n == 0 else np.array([rows[n - 1] for rows in self._rows])


def _simulated(request: RunRequest, trail: _Trail, reached: int) -> Outcome:
    """Run the same request in the simulator, with the metric `difference` from the agents."""
    apart = largest = 0.0
    stages = n_stages(request.algorithm, is_quadratic=request.problem.is_quadratic)
    calls = _calls(request, stages)

    def difference(x: Floats, problem: Any) -> float:
        nonlocal apart, largest
        del problem
        sample = next(calls)
        if sample is None or sample >= reached:
            return np.nan
        apart = max(apart, float(np.abs(trail.at(sample) - x[0]).max()))
        largest = max(largest, float(np.abs(x).max()))
        return apart / largest if largest else apart

    same = replace(
        request,
        metrics={"difference": difference},
        tick=lambda _: None,
        checkpoint=Checkpoint(None, ""),
    )
    driver = driver_of("stacked" if find_spec("jax") else "agents")
    return simulate_stages(same, driver, stages) if stages else driver(same)


def _calls(request: RunRequest, stages: int) -> Iterator[int | None]:
    """The number of the sample for which the simulator calls a metric; None: none of the run's."""
    if not stages:
        yield from range(len(request.samples))
        return
    curvature = getattr(request.algorithm, "curvature", "newton")
    lengths = stage_lengths(int(request.samples[-1]), stages, curvature)
    sample = 0
    for begin, length in zip([0, *accumulate(lengths)], lengths, strict=False):
        for is_wanted in stage_samples(request.samples, begin, length)[1].tolist():
            yield sample if is_wanted else None
            sample += is_wanted
