"""Runs in stages: every stage is an ordinary run on the agents' masked quadratic models.

`run` calls `simulate_stages` with an engine. The engine runs one stage after the other, each from
the estimate with which agent 0 ended the last one. `hushgrad.agent.stages` says what a stage is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.masking import mask_grids, masked_statistics
from hushgrad.agent.stages import (
    LEADER,
    Statistic,
    check_dim,
    covering,
    from_start,
    is_about_start,
    stage_lengths,
    statistic,
    vector_statistic,
    within_stage,
)
from hushgrad.algorithms.base import Masked
from hushgrad.errors import RiskWarning
from hushgrad.problems import Problem
from hushgrad.problems.determined import reach, rows_of
from hushgrad.problems.models import (
    linear_gradient,
    linear_value,
    model_gradient,
    model_hessian,
    model_value,
)
from hushgrad.problems.rows import Grids
from hushgrad.simulate.checkpoint import Checkpoint
from hushgrad.simulate.exposure import check_stage, outgrown_risks
from hushgrad.simulate.recording import Recording
from hushgrad.simulate.request import Metric, Outcome, RunRequest, Tamper
from hushgrad.simulate.result import Traffic

type Floats = NDArray[np.float64]
type Driver = Callable[[RunRequest], Outcome]
# H (trials, agents, d, d) and q (trials, agents, d); scale (trials,); stage → the same, masked
type Masking = Callable[[Statistic, Floats, int], Statistic]


def simulate_stages(
    request: RunRequest, driver: Driver, stages: int, *, masking: Masking | None = None
) -> Outcome:
    """All stages of a run, as if they were one; `masking` replaces the seeded masks."""
    algorithm = request.algorithm
    assert isinstance(algorithm, Masked)
    if algorithm.masks_curvature:
        check_dim(request.problem.dim)
    curvature = getattr(algorithm, "curvature", "newton")
    lengths = stage_lengths(int(request.samples[-1]), stages, curvature)
    masking = masking or _seeded(request, algorithm)
    x, before, scale = request.x0, None, None
    outcomes: list[Outcome] = []
    starts: list[Floats] = []
    for s, (length, begin) in enumerate(zip(lengths, [0, *accumulate(lengths)], strict=False)):
        alive = np.ones(len(x), bool) if not outcomes else outcomes[-1].diverged < 0
        if s:  # all agents make their models at one point
            x = np.broadcast_to(x[:, LEADER : LEADER + 1], x.shape)
        held = np.where(alive[:, None, None], x, 0.0)  # a trial that has diverged runs on at 0
        starts.append(held[:, LEADER])
        if request.limited is not None:
            among = [start[alive] for start in starts]
            check_stage(request.limited, algorithm, request.problem, request.trials[alive], among)
        if scale is None:
            every = statistics(request.problem, algorithm, request.trials, held, before)
            least = np.maximum(
                algorithm.least_unit, _reach(request.problem, algorithm, request.trials)
            )
            scale = covering(every, held, least)
        grids = mask_grids(algorithm, request.network, request.problem.dim, scale)
        about_start = is_about_start(algorithm, is_quadratic=request.problem.is_quadratic)
        every = statistics(
            request.problem, algorithm, request.trials, held, before,
            grids=grids, about_start=about_start,
        )  # fmt: skip
        if s:
            for risk in outgrown_risks(
                algorithm, request.problem, request.network, every, scale, s, request.accepted
            ):
                warnings.warn(risk, RiskWarning, stacklevel=3)
        masked = masking(every, scale, s)
        masked = from_start(masked, held) if about_start else masked
        outcome = _stage(request, s, begin, length, held, masked, driver)
        outcomes.append(_with_losses(outcome, alive))
        x, before = outcome.x, held
        if (outcomes[-1].diverged >= 0).all():
            break
    request.checkpoint.clear()
    return replace(_joined(outcomes), mask_scale=scale)


def _seeded(request: RunRequest, algorithm: Masked) -> Masking:
    """The masks that the seed gives."""

    def masked(every: Statistic, scale: Floats, stage: int) -> Statistic:
        return masked_statistics(
            algorithm,
            request.network,
            every,
            scale,
            seed=request.seed,
            trials=request.trials,
            stage=stage,
        )

    return masked


def statistics(
    problem: Problem,
    algorithm: Masked,
    trials: NDArray[np.int64],
    x: Floats,
    before: Floats | None,
    *,
    grids: Sequence[Grids] | None = None,
    about_start: bool = False,
) -> Statistic:
    """The statistics of every agent at x (trials, agents, d).

    With the grids of every trial, the statistics of problems that are sums over rows are sums of
    rounded rows. Those of other problems are rounded when they are masked.
    """
    is_fixed = getattr(algorithm, "curvature", None) == "fixed"
    n, m, d = x.shape
    of_H = d if algorithm.masks_curvature else 0
    every = Statistic(np.empty((n, m, of_H, of_H)), np.empty((n, m, d)))
    alike = [range(n)] if problem.n_trials is None else [range(t, t + 1) for t in range(n)]
    for alike_trials in alike:  # trials that have the same problem
        trial = None if problem.n_trials is None else int(trials[alike_trials[0]])
        for i in range(m):
            last = [None if before is None else before[t, i] for t in range(n)]
            by_rows = None
            if grids is not None and algorithm.masks_curvature:
                by_rows = problem.local_rows(i, trial)
            if by_rows is not None and grids is not None:
                for t in alike_trials:
                    found = by_rows(x[t, i], last[t], grids[t], is_fixed)
                    every.H[t, i], every.q[t, i] = found
                continue
            gradient = problem.local_gradient(i, trial)
            if not algorithm.masks_curvature:
                every.q[list(alike_trials), i] = vector_statistic(gradient, d).q
                continue
            curve = problem.local_curvature(i, trial, majorised=is_fixed)
            for t in alike_trials:
                every.H[t, i], every.q[t, i] = statistic(
                    gradient, curve, x[t, i], last[t], about_start=about_start
                )
    return every


def _reach(problem: Problem, algorithm: Masked, trials: NDArray[np.int64]) -> Floats:
    """Per trial, what no q_i exceeds in any stage; 0 where q_i is constant, or nobody knows."""
    loss, found = problem.row_loss, np.zeros(len(trials))
    if loss is None or not algorithm.masks_curvature:
        return found
    is_fixed = getattr(algorithm, "curvature", None) == "fixed"
    for t, trial in enumerate(trials.tolist()):
        if t and problem.n_trials is None:
            found[t] = found[0]
            continue
        only = None if problem.n_trials is None else trial
        own = (rows_of(problem.agent_data(i, only)) for i in range(problem.n_agents))
        found[t] = max(reach(loss, rows, is_fixed=is_fixed) for rows in own)
    return found


def model_problem(
    name: str, every: Statistic, solution: Floats, trials: NDArray[np.int64]
) -> Problem:
    """The problem of a stage; solution (trials, d) is the point from which errors are measured."""
    order = np.argsort(trials)  # a problem's trials ascend
    common: dict[str, Any] = {
        "dim": every.q.shape[-1],
        "solution": solution[order],
        "quadratic": True,
        "per_trial": True,
        "trial_numbers": trials[order],
        "name": name,
    }
    if not every.H.size:
        return Problem(linear_value, {"q": every.q[order]}, gradient=linear_gradient, **common)
    return Problem(
        model_value,
        {"H": every.H[order], "q": every.q[order]},
        gradient=model_gradient,
        smoothness=_largest_curvature,
        hessian=model_hessian,
        **common,
    )


def _largest_curvature(data: Any) -> float:
    return float(np.linalg.norm(data["H"], 2, axis=(-2, -1)).max())


def _stage(
    request: RunRequest,
    s: int,
    begin: int,
    length: int,
    x0: Floats,
    every: Statistic,
    driver: Driver,
) -> Outcome:
    """One stage, which begins at iteration `begin` of the run. It takes the run's samples in its
    iterations, and one at its end.
    """
    kept = request.checkpoint.load(s)
    if kept is not None:
        request.tick(length * len(x0))
        return _unpacked(kept)
    problem = request.problem
    solution = problem.solution()
    if problem.n_trials is None:
        solution = np.broadcast_to(solution, (len(x0), problem.dim))
    else:
        solution = solution[problem.places(request.trials)]
    samples, wanted = stage_samples(request.samples, begin, length)
    directory = request.checkpoint.directory
    outcome = driver(
        replace(
            request,
            algorithm=within_stage(request.algorithm),  # type: ignore[arg-type]  # Masked
            problem=model_problem(problem.name, every, solution, request.trials),
            stage=s,
            tamper=_from(begin, request.tamper),
            x0=x0,
            samples=samples,
            metrics={name: _on(problem, metric) for name, metric in request.metrics.items()},
            recording=None if request.recording is None else Recording(len(x0), length),
            checkpoint=Checkpoint(
                None if directory is None else directory / f"stage-{s}",
                f"{request.checkpoint.identity} {s}",
                request.checkpoint.stop,
            ),
        )
    )
    outcome = _only(outcome, wanted, begin)
    request.checkpoint.save(s, _packed(outcome).items())
    return outcome


def _from(begin: int, tamper: Tamper | None) -> Tamper | None:
    """The tampering in a stage that begins then: iterations count over the run."""
    if tamper is None:
        return None
    return lambda k, sender, receiver, payload: tamper(begin + k, sender, receiver, payload)


def stage_samples(
    samples: NDArray[np.int64], begin: int, length: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The samples that a stage takes, counted from its begin, and which of them are the run's.

    A stage also samples its start and its end.
    """
    own = samples[(samples > begin) & (samples <= begin + length)] - begin
    taken = np.unique(np.concatenate([[0], own, [length]]))
    wanted = np.isin(taken + begin, samples)
    wanted[0] &= begin == 0
    return taken, wanted


def _on(problem: Problem, metric: Metric) -> Metric:
    """The user's metric of the problem that the user gave."""
    return lambda x, _: metric(x, problem)


def _only(outcome: Outcome, wanted: NDArray[np.bool_], begin: int) -> Outcome:
    """The samples of the run among those of a stage, with iterations counted over the run."""
    wanted = wanted[: outcome.error.shape[1]]
    if outcome.error.shape[1] < len(wanted) or (outcome.diverged >= 0).all():
        wanted = wanted | (np.arange(len(wanted)) == len(wanted) - 1)
    return replace(
        outcome,
        error=outcome.error[:, wanted],
        consensus=outcome.consensus[:, wanted],
        metrics={name: values[:, wanted] for name, values in outcome.metrics.items()},
        diverged=np.where(outcome.diverged >= 0, outcome.diverged + begin, -1),
        channels=tuple(replace(c, iterations=c.iterations + begin) for c in outcome.channels),
    )


def _with_losses(outcome: Outcome, alive: NDArray[np.bool_]) -> Outcome:
    """Trials that diverged in an earlier stage have no numbers any more."""
    if alive.all():
        return outcome
    lost = ~alive
    for values in (outcome.error, outcome.consensus, *outcome.metrics.values()):
        values[lost] = np.nan
    outcome.x[lost] = np.nan
    return replace(outcome, diverged=np.where(lost, 0, outcome.diverged))


def _joined(outcomes: Sequence[Outcome]) -> Outcome:
    first, last = outcomes[0], outcomes[-1]
    diverged = np.full(len(first.diverged), -1)
    for outcome in outcomes:
        diverged = np.where((diverged < 0) & (outcome.diverged >= 0), outcome.diverged, diverged)

    def along(name: str) -> Floats:
        return np.concatenate([getattr(o, name) for o in outcomes], axis=1)

    traces = [o.trace for o in outcomes if o.trace is not None]
    trace = None
    if traces:  # a stage begins where the last one ended
        trace = np.concatenate([t[:, :-1] for t in traces[:-1]] + [traces[-1]], axis=1)
    return replace(
        last,
        error=along("error"),
        consensus=along("consensus"),
        metrics={
            name: np.concatenate([o.metrics[name] for o in outcomes], axis=1)
            for name in first.metrics
        },
        diverged=diverged,
        traffic=max((o.traffic for o in outcomes), key=lambda t: t.rounds_per_iteration),
        channels=tuple(c for o in outcomes for c in o.channels),
        trace=trace,
    )


def _packed(outcome: Outcome) -> dict[str, Any]:
    """The arrays of a finished stage, for a checkpoint; a run with a transcript has none."""
    arrays: dict[str, Any] = {
        name: getattr(outcome, name) for name in ("error", "consensus", "x", "diverged")
    }
    arrays |= {f"metric_{name}": values for name, values in outcome.metrics.items()}
    return arrays | {f"traffic_{f.name}": getattr(outcome.traffic, f.name) for f in fields(Traffic)}


def _unpacked(arrays: Any) -> Outcome:
    return Outcome(
        **{name: arrays[name] for name in ("error", "consensus", "x", "diverged")},
        metrics={n[7:]: values for n, values in arrays.items() if n.startswith("metric_")},
        traffic=Traffic(**{f.name: arrays[f"traffic_{f.name}"].item() for f in fields(Traffic)}),
    )
