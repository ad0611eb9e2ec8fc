"""`tune`: a grid of stepsizes, or of any other parameters, run as one batch for each method.

The cells of a grid differ in numbers, and numbers are arguments of compiled programs: all cells and
all their trials run side by side, as the trials of one run do. Every cell has the trials that
`run` would give it alone. Cells that differ in more than numbers run in batches of their own. A run
in stages, and a method whose step looks at its numbers, runs cell after cell.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrad import masks, splits, stepsizes
from hushgrad.agent.stages import n_stages
from hushgrad.algorithms.base import Algorithm, Stepping
from hushgrad.errors import AlgorithmError, InputError, RiskWarning
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.simulate.arguments import check_parts, named, seed_of, starts, trial_numbers, whole
from hushgrad.simulate.checkpoint import Checkpoint
from hushgrad.simulate.progress import Progress
from hushgrad.simulate.request import LOST, RunRequest
from hushgrad.simulate.result import Traffic
from hushgrad.simulate.run import driver_of, run
from hushgrad.simulate.stacked.numbers import NumbersSeenError, pattern_of
from hushgrad.simulate.tuned import MEASURES, Cell, Measure, Tuned, Tuning
from hushgrad.stepsizes import Constant, ConstantEach, Diminishing, Schedule

type Floats = NDArray[np.float64]
type Settings = Mapping[str, Any]  # what a cell sets: dotted names and values

SAMPLES = 500  # iterations to ε are counted in samples
POINTS = 31  # of the grid that is taken where the user gives none …
LEAST, MOST = 0.01, 10.0  # … from LEAST / L to MOST / L

# the builder of each part, which checks the numbers that a grid gives it
_BUILDERS: dict[type, Callable[..., Any]] = {
    stepsizes.Constant: stepsizes.constant,
    stepsizes.Diminishing: stepsizes.diminishing,
    stepsizes.Harmonic: stepsizes.harmonic,
    stepsizes.Geometric: stepsizes.geometric,
    stepsizes.Bursts: stepsizes.bursts,
    splits.PrivateConstantSplit: splits.private_constant,
    splits.IsotropicSplit: splits.isotropic,
    masks.ZeroSum: masks.zero_sum,
}


def tune(
    algorithms: Algorithm | Sequence[Algorithm] | Mapping[str, Algorithm],
    problem: Problem,
    network: Network,
    *,
    iterations: int,
    stepsizes: Iterable[float | Schedule] | None = None,
    grid: Mapping[str, Iterable[Any]] | None = None,
    target: float = 1e-6,
    by: Measure = "iterations",
    trials: int | Iterable[int] = 1,
    seed: int = 0,
    record_every: int | None = None,
    x0: ArrayLike | None = None,
    progress: bool | Callable[[int, int], None] | None = None,
    accept_exposure: Iterable[str] = (),
) -> Tuning:
    """The best stepsize, or the best cell of a grid, of every method.

    stepsizes      numbers λ for `constant`, or scales for `diminishing`, or schedules; without them
                   and without a grid, 31 numbers from 0.01/L to 10/L
    grid           {"stepsize.value": […], "split.own": […], …}: the product of these values. A name
                   leads from the algorithm to a parameter of it or of its parts, and applies to the
                   methods that have it
    target         ε: the median over the trials of max_i ‖x_i − θ*‖ that a cell should reach
    by             "iterations", "rounds", "bytes" (on all links), "gradients" (calls of an agent),
                   all to ε; or "error" at the end
    record_every   iterations between samples; by default about 500 samples in all

    trials, seed, x0, progress and accept_exposure are those of `run`. A cell of which a trial
    diverges is marked, and is never the best.
    """
    every = named(algorithms, "tuning")
    for algorithm in every.values():
        check_parts(algorithm, problem, network)
    n_iterations = whole("iterations", iterations, 1)
    each = (
        -(-n_iterations // SAMPLES)
        if record_every is None
        else whole("record_every", record_every, 1)
    )
    if not isinstance(target, (int, float)) or not 0 < target < np.inf:
        raise InputError(f"target is a finite number > 0, but target = {target!r}.")
    if by not in MEASURES:
        raise InputError(f"a tuning is by {', '.join(MEASURES)}, but by = {by!r}.")
    axes = _axes(stepsizes, grid, problem)
    cells = {
        label: [(s, a.on(network)) for s, a in _cells(algorithm, axes)]
        for label, algorithm in every.items()
    }
    _check_used(axes, [settings for made in cells.values() for settings, _ in made])
    numbers = trial_numbers(trials, problem)
    plan = _Plan(
        problem,
        network,
        seed_of(seed),
        numbers,
        starts(x0, len(numbers), problem),
        np.unique(np.append(np.arange(0, n_iterations + 1, each), n_iterations)),
        tuple(accept_exposure),
    )
    work = sum(len(made) for made in cells.values()) * len(numbers) * n_iterations
    tuned: list[Tuned] = []
    with Progress(progress, "tune", work) as bar:
        for label, made in cells.items():
            for _, algorithm in made:
                algorithm.check(network)
            found = _run_cells(plan, [algorithm for _, algorithm in made], bar.tick)
            tuned.append(
                Tuned(
                    label,
                    tuple(
                        Cell.of(settings, algorithm, plan.samples, *done, target=float(target))
                        for (settings, algorithm), done in zip(made, found, strict=True)
                    ),
                )
            )
    return Tuning(tuple(tuned), by, float(target), n_iterations, len(numbers), plan.seed)


# ---- the grid


def _axes(
    given: Iterable[float | Schedule] | None,
    grid: Mapping[str, Iterable[Any]] | None,
    problem: Problem,
) -> dict[str, list[Any]]:
    """The names and values of the grid, the stepsizes first."""
    axes: dict[str, list[Any]] = {}
    if given is not None:
        axes["stepsize"] = list(given)
    elif not grid:
        L = problem.smoothness()
        axes["stepsize"] = [float(v) for v in np.geomspace(LEAST / L, MOST / L, POINTS)]
    for name, values in (grid or {}).items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InputError(f"a grid gives each name a list of values, but {name!r}: {values!r}.")
        axes[name] = list(values)
    for name, values in axes.items():
        if not values:
            raise InputError(f"a grid has at least one value for each name, but {name} has none.")
    return axes


def _cells(algorithm: Algorithm, axes: Mapping[str, list[Any]]) -> list[tuple[Settings, Algorithm]]:
    """The product of the values that the method has parameters for; the last varies fastest."""
    names = [n for n in axes if _has(algorithm, n)]
    made: list[tuple[Settings, Algorithm]] = []
    for values in itertools.product(*(axes[name] for name in names)):
        cell = algorithm
        for name, value in zip(names, values, strict=True):
            cell = _set_stepsize(cell, value) if name == "stepsize" else _set(cell, name, value)
        shown = {
            name: value if isinstance(value, (int, float, str)) else repr(value)
            for name, value in zip(names, values, strict=True)
        }
        made.append((shown, cell))
    return made


def _check_used(axes: Mapping[str, list[Any]], settings: Sequence[Settings]) -> None:
    for name in axes:
        if not any(name in each for each in settings):
            raise InputError(
                f"a grid names parameters such as 'stepsize.value' or 'split.own', but no method "
                f"has {name!r} as it is given. Write the part out, as in "
                "PDGNDS(split=hg.splits.private_constant(own=0.45))."
            )


def _has(part: Any, name: str) -> bool:
    first, _, rest = name.partition(".")
    if not is_dataclass(part) or first not in {f.name for f in fields(part)}:
        return False
    return not rest or _has(getattr(part, first), rest)


def _set(part: Any, name: str, value: Any) -> Any:
    """The part with another value at the end of a dotted name, checked as its builder does."""
    first, _, rest = name.partition(".")
    inner = _set(getattr(part, first), rest, value) if rest else value
    builder = _BUILDERS.get(type(part))
    if builder is None:
        return replace(part, **{first: inner})
    return builder(**{f.name: getattr(part, f.name) for f in fields(part)} | {first: inner})


def _set_stepsize(algorithm: Algorithm, value: float | Schedule) -> Algorithm:
    assert isinstance(algorithm, Stepping)
    before = algorithm.stepsize
    if isinstance(value, Schedule):
        return replace(algorithm, stepsize=value)
    if isinstance(before, Diminishing):
        return replace(algorithm, stepsize=_set(before, "scale", value))
    if isinstance(before, (Constant, ConstantEach)):
        after = stepsizes.constant(value, deviation=before.deviation)
        return replace(algorithm, stepsize=after)
    raise InputError(
        f"numbers replace the value of constant or the scale of diminishing, but "
        f"{type(algorithm).__name__} has {type(before).__name__}. Give schedules as stepsizes."
    )


# ---- the runs


class _Plan(NamedTuple):
    """All that the cells have in common."""

    problem: Problem
    network: Network
    seed: int
    trials: NDArray[np.int64]
    x0: Floats  # (trials, agents, d)
    samples: NDArray[np.int64]
    accepted: tuple[str, ...]


class Found(NamedTuple):
    """The run of a cell."""

    error: Floats  # (trials, samples), infinite from the sample on at which a trial is lost
    traffic: Traffic | None
    refused: str | None = None  # why the cell cannot run


def _run_cells(
    plan: _Plan, algorithms: Sequence[Algorithm], tick: Callable[[int], None]
) -> list[Found]:
    """The cells of one method, in their order."""
    groups: dict[Any, list[int]] = {}
    for place, algorithm in enumerate(algorithms):
        groups.setdefault(repr(pattern_of(algorithm)), []).append(place)
    found: dict[int, Found] = {}
    for places in groups.values():
        own = [algorithms[place] for place in places]
        found |= zip(places, _run_batch(plan, own, tick), strict=True)
    return [found[place] for place in range(len(algorithms))]


def _run_batch(
    plan: _Plan, algorithms: Sequence[Algorithm], tick: Callable[[int], None]
) -> list[Found]:
    """Cells that differ in numbers alone."""
    if n_stages(algorithms[0], is_quadratic=plan.problem.is_quadratic):
        return [_run_alone(plan, algorithm, tick) for algorithm in algorithms]
    n, cells = len(plan.trials), len(algorithms)
    request = RunRequest(
        algorithm=algorithms[0],
        problem=plan.problem,
        network=plan.network,
        seed=plan.seed,
        trials=np.tile(plan.trials, cells),
        x0=np.tile(plan.x0, (cells, 1, 1)),
        samples=plan.samples,
        metrics={},
        recording=None,
        tick=tick,
        checkpoint=Checkpoint(None, ""),
        variants=tuple(algorithm for algorithm in algorithms for _ in range(n)),
    )
    try:
        outcome = driver_of("stacked")(request)
    except NumbersSeenError:
        return [_run_alone(plan, algorithm, tick) for algorithm in algorithms]
    error = _whole_errors(outcome.error, len(plan.samples))
    return [Found(error[c * n : (c + 1) * n], outcome.traffic) for c in range(cells)]


def _run_alone(plan: _Plan, algorithm: Algorithm, tick: Callable[[int], None]) -> Found:
    iterations = int(plan.samples[-1])
    every = int(plan.samples[1])
    shape = len(plan.trials), len(plan.samples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RiskWarning)  # a grid goes beyond what is safe
        try:
            done = run(
                algorithm, plan.problem, plan.network, iterations=iterations, record_every=every,
                trials=plan.trials.tolist(), seed=plan.seed, x0=plan.x0, progress=False,
                accept_exposure=plan.accepted,
            )  # fmt: skip
        except AlgorithmError as refused:  # such as masks that its stepsize makes too small
            return Found(np.full(shape, np.inf), None, str(refused))
        finally:
            tick(iterations * len(plan.trials))
    return Found(_whole_errors(done.error, len(plan.samples)), done.traffic)


def _whole_errors(error: Floats, samples: int) -> Floats:
    """Errors at all samples; infinite from the sample on at which a trial is lost."""
    missing = ((0, 0), (0, samples - error.shape[1]))
    error = np.pad(error, missing, constant_values=np.inf)
    lost = np.logical_or.accumulate(~(error <= LOST), axis=1)
    return np.where(lost, np.inf, error)
