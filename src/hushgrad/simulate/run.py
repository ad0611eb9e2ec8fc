"""`run` and `compare`: from an algorithm, a problem and a network to a result.

Arguments are checked here, once, by arguments.py; the engines trust them.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrad.agent.masking import mask_risks
from hushgrad.agent.stages import n_stages, stage_lengths
from hushgrad.algorithms.base import Algorithm, stepsize_risks
from hushgrad.errors import InputError, RiskWarning, optional
from hushgrad.files.digest import content_digest
from hushgrad.graphs import RuleGraph
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.simulate.arguments import check_parts, named, seed_of, starts, trial_numbers, whole
from hushgrad.simulate.checkpoint import Checkpoint
from hushgrad.simulate.exposure import judge_run
from hushgrad.simulate.progress import Progress
from hushgrad.simulate.recording import Recording
from hushgrad.simulate.request import LOST, Outcome, RunRequest, Tamper
from hushgrad.simulate.result import Comparison, Run
from hushgrad.simulate.staged import simulate_stages
from hushgrad.simulate.transcript import Transcript
from hushgrad.theory.auto import resolve
from hushgrad.theory.exposure import check_accepted
from hushgrad.theory.tight import expected_iterations

SAMPLES = 200  # about as many as a picture shows

type Engine = Literal["stacked", "agents"]

ENGINES: tuple[Engine, ...] = get_args(Engine.__value__)


def run(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    iterations: int,
    trials: int | Iterable[int] = 1,
    seed: int = 0,
    record_every: int | None = None,
    transcript: bool = False,
    x0: ArrayLike | None = None,
    progress: bool | Callable[[int, int], None] | None = None,
    tolerance: float = 1e-6,
    metrics: Mapping[str, Callable[[Any, Problem], Any]] | None = None,
    engine: Engine = "stacked",
    label: str | None = None,
    checkpoint: str | Path | None = None,
    driver: Callable[[RunRequest], Outcome] | None = None,
    tamper: Tamper | None = None,
    accept_exposure: Iterable[str] = (),
    mesh: Any = None,
    checkpoint_every: float = 0.5,
) -> Run:
    """Run an algorithm and sample its error.

    trials         how many, or their numbers: trial t is the same alone and among others
    record_every   iterations between samples; by default about 200 samples in all
    transcript     keep every wire message in `run.transcript`
    x0             zeros, or (d,) for all agents, or (agents, d), or (trials, agents, d)
    progress       True, False, a function (done, total), or None: a bar on a terminal
    tolerance      a trial is `converged` when its last error is below this times max(1, ‖θ*‖)
    metrics        {name: f(x (trials, agents, d), problem) → (trials,)}, sampled along
    engine         "stacked": all agents at once, in JAX; "agents": each alone, in NumPy
    checkpoint     a directory where an interrupted run leaves its state; the same call continues,
                   also on another number of devices
    checkpoint_every
                   minutes between states of a run that nobody interrupts
    driver         a function that runs the request in place of an engine, such as
                   `network.local.processes.Processes`
    tamper         a function (k, sender, receiver, message) → the message that is really sent, as
                   an agent that breaks the protocol would; needs engine="agents"
    accept_exposure
                   names of weaknesses (`hg.theory.WEAKNESSES`) that the user accepts: a run in
                   stages whose sums reveal too much is refused without "sums", before it starts
                   or at the start of a stage; other names silence warnings
    mesh           None, "auto" or a `jax.sharding.Mesh`: devices among which the stacked engine
                   divides the agents (docs/beyond-one-machine.md); it needs no transcript
    """
    check_parts(algorithm, problem, network)
    n_iterations = whole("iterations", iterations, 1)
    every = (
        -(-n_iterations // SAMPLES)
        if record_every is None
        else whole("record_every", record_every, 1)
    )
    numbers = trial_numbers(trials, problem)
    start = starts(x0, len(numbers), problem)
    seed = seed_of(seed)
    if not isinstance(tolerance, (int, float)) or not tolerance > 0:
        raise InputError(f"tolerance is a positive number, but tolerance = {tolerance!r}.")
    if not isinstance(checkpoint_every, (int, float)) or not checkpoint_every > 0:
        raise InputError(
            f"checkpoint_every is a number of minutes > 0, but it is {checkpoint_every!r}."
        )
    for reserved in {"error", "consensus"} & set(metrics or {}):
        raise InputError(f"every run has the metric '{reserved}' already. Choose another name.")
    if engine not in ENGINES:
        raise InputError(
            f'an engine is "stacked" or "agents", but engine = {engine!r}. Processes are started '
            "from a study: hushgrad run study.toml --engine processes."
        )
    if checkpoint is not None and (transcript or engine == "agents"):
        raise InputError(
            "a run is continued from its state only on the stacked engine and without a "
            f"transcript, but checkpoint = '{checkpoint}'. Leave checkpoint out."
        )
    if mesh is not None and (transcript or engine == "agents" or driver is not None):
        raise InputError(
            "agents are divided among devices only on the stacked engine and without a transcript, "
            f"but mesh = {mesh!r}, engine = {engine!r}, transcript = {transcript}. Leave mesh out."
        )
    if tamper is not None and (engine != "agents" or driver is not None):
        raise InputError(
            'messages are tampered with agent by agent, which needs engine="agents" and no driver, '
            f"but engine = {engine!r}, driver = {driver!r}."
        )
    algorithm = algorithm.on(network)
    algorithm.check(network)
    algorithm, chosen = resolve(algorithm, problem, network)
    stages = n_stages(algorithm, is_quadratic=problem.is_quadratic)
    if stages > 1 and (start != start[:, :1]).any():
        raise InputError(
            "a run in stages starts at one x⁰ for all agents, because their quadratic models must "
            "be models at one point, but x0 differs between agents. Give all agents the same x0."
        )
    lengths = _stages(algorithm, n_iterations, stages)
    exposed, revealed, limited = judge_run(
        algorithm, problem, network,
        stages=len(lengths), trial=int(numbers[0]), x0=start[0], accepted=accept_exposure,
    )  # fmt: skip
    for risk in (
        *algorithm.risks(network, problem.smoothness()),
        *stepsize_risks(algorithm),
        *mask_risks(algorithm, network),
        *exposed,
    ):
        if chosen is None or "may diverge" not in risk:  # "auto" is stable, whatever λL is
            warnings.warn(risk, RiskWarning, stacklevel=2)
    samples = np.unique(np.append(np.arange(0, n_iterations + 1, every), n_iterations))
    started = time.perf_counter()
    name = label or algorithm.label
    title = name if progress is False else _expecting(name, algorithm, problem, network, tolerance)
    with Progress(progress, title, n_iterations * len(numbers)) as bar:
        request = RunRequest(
            algorithm=algorithm,
            problem=problem,
            network=network,
            seed=seed,
            trials=numbers,
            x0=start,
            samples=samples,
            metrics=dict(metrics or {}),
            recording=Recording(len(numbers), n_iterations) if transcript else None,
            limited=limited,
            accepted=check_accepted(accept_exposure),
            tick=bar.tick,
            checkpoint=Checkpoint(
                None if checkpoint is None else Path(checkpoint),
                ""
                if checkpoint is None
                else _identity(
                    algorithm, problem, network, seed, numbers, start, samples, metrics or ()
                ),
                every=60.0 * checkpoint_every,
            ),
            tamper=tamper,
            mesh=mesh,
        )
        outcome = _outcome(request, engine, driver, stages)
    error = np.where(outcome.error > LOST, np.inf, outcome.error)
    solution = problem.solution()
    solution = solution if problem.n_trials is None else solution[problem.places(numbers)]
    return Run(
        title=algorithm.title,
        label=name,
        error=error,
        consensus=outcome.consensus,
        iterations=samples[: error.shape[1]],
        x=outcome.x,
        solution=solution,
        status=_statuses(error[:, -1], outcome.diverged, solution, tolerance),
        trials=numbers,
        seed=seed,
        traffic=outcome.traffic,
        seconds=time.perf_counter() - started if outcome.seconds is None else outcome.seconds,
        metrics=outcome.metrics,
        config={
            "algorithm": describe(algorithm),
            "problem": {"name": problem.name, "n_agents": problem.n_agents, "dim": problem.dim},
            "network": {
                "n_agents": network.n_agents,
                "n_links": network.graph.n_links,
                "is_directed": network.is_directed,
                "mixing": network.mixing,
            },
            "iterations": n_iterations,
            "record_every": every,
            "stages": lengths,
            "revealed": None if revealed is None else revealed.to_json(),
            "tolerance": tolerance,
            "auto": None if chosen is None else chosen.to_json(),
            "engine": engine if driver is None else type(driver).__name__.lower(),
        },
        transcript=Transcript(numbers, outcome.channels) if transcript else None,
        trace=outcome.trace,
        x0=start,
        mask_scale=outcome.mask_scale,
        algorithm=algorithm,
        problem=problem,
        network=network,
    )


def _expecting(
    name: str, algorithm: Algorithm, problem: Problem, network: Network, tolerance: float
) -> str:
    """The title of the bar: with the expected iterations, if a terminal shows it."""
    if not sys.stderr.isatty():
        return name
    needed = expected_iterations(algorithm, problem, network, tolerance)
    if needed is None:
        return name
    about = "at least" if needed.is_bound else "about"
    return f"{name} ({about} {needed.iterations:.0f} iterations to {tolerance:g})"


def _outcome(
    request: RunRequest,
    engine: Engine,
    driver: Callable[[RunRequest], Outcome] | None,
    stages: int,
) -> Outcome:
    if driver is not None:  # deployed agents go from stage to stage by themselves
        return driver(request)
    if not stages:
        return driver_of(engine)(request)
    return simulate_stages(request, driver_of(engine), stages)


def driver_of(engine: Engine) -> Callable[[RunRequest], Outcome]:
    """The function that runs a request on this engine."""
    if engine == "stacked":
        optional("jax", "sim")
        from hushgrad.simulate.stacked.driver import simulate
    else:
        from hushgrad.simulate.in_memory import simulate
    return simulate


def compare(
    algorithms: Sequence[Algorithm] | Mapping[str, Algorithm],
    problem: Problem,
    network: Network,
    **options: Any,
) -> Comparison:
    """Run several algorithms alike; options are those of `run`. A mapping gives the labels."""
    every = named(algorithms, "comparison").items()
    return Comparison(tuple(run(a, problem, network, label=label, **options) for label, a in every))


def describe(value: Any) -> Any:
    """Parameters as JSON can say them: {"kind": class, field: value}."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__} | {
            f.name: describe(getattr(value, f.name)) for f in fields(value)
        }
    if isinstance(value, tuple):
        return [describe(entry) for entry in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)


def _stages(algorithm: Algorithm, iterations: int, stages: int) -> list[int]:
    """The iterations of each stage; none where the run computes with f_i itself."""
    if not stages:
        return []
    return list(stage_lengths(iterations, stages, getattr(algorithm, "curvature", "newton")))


def _identity(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    seed: int,
    trials: NDArray[np.int64],
    x0: NDArray[np.float64],
    samples: NDArray[np.int64],
    metrics: Iterable[str],
) -> str:
    """A digest of everything that decides the numbers of a run."""
    graph = network.graph
    if isinstance(graph, RuleGraph) and not x0.strides[1]:  # no array has all agents
        links, x0 = [graph.text, network.mixing], x0[:, :1]
    else:
        weights = [network.weights(kind) for kind in algorithm.needs.values()]
        links = [graph.senders, graph.receivers, *(p for w in weights for p in (w.own, w.links))]
    return content_digest(
        [
            repr(algorithm),
            problem.name,
            getattr(problem.loss, "__qualname__", ""),
            *problem.identity,
            *links,
            str(seed),
            trials,
            x0,
            samples,
            *sorted(metrics),
        ]
    )


def _statuses(
    last: NDArray[np.float64],
    diverged: NDArray[np.int64],
    solution: NDArray[np.float64],
    tolerance: float,
) -> tuple[str, ...]:
    scale = np.maximum(1.0, np.linalg.norm(np.atleast_2d(solution), axis=1))
    small = np.broadcast_to(last <= tolerance * scale, last.shape)
    return tuple(
        f"diverged at {k}" if k >= 0 else "converged" if ok else "iteration limit"
        for k, ok in zip(diverged.tolist(), small.tolist(), strict=True)
    )
