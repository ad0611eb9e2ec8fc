"""The tasks of worker.py: a workload against the limit, a point of scaling, DGD against peers."""

from __future__ import annotations

import math
import resource
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import hushgrad as hg
from benchmarks.simulator.limit import Limit, NoCompilerError, TrialsLimit
from benchmarks.simulator.runners import Clocked, Engine, Floats, Runner, interleave
from benchmarks.simulator.workloads import (
    CHECKED,
    SEED,
    STEPS,
    TOLERANCE,
    WORKLOADS,
    Workload,
    algorithm,
    by_autodiff,
)

MB = 1e6


def workload(name: str, threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Time the engine and the limit in interleaved rounds; with one thread, in every form."""
    chosen = WORKLOADS[name]
    network, problem = chosen.build()
    x0 = np.random.default_rng(SEED).normal(size=(network.n_agents, problem.dim))
    case = _Case(chosen, network, problem, x0, threads)
    before = _memory_before()
    engine, costs = _first_engine(case)
    memory = {"peak_mb": _peak(), "engine_mb": _peak() - before}  # before the limit takes memory

    runners: dict[str, Runner] = {"engine ds": engine}
    if threads == 1:
        if chosen.has_autodiff:
            runners["engine autodiff"] = case.engine("ds", by_autodiff(problem))
        runners |= {f"engine {form}": case.engine(form) for form in chosen.forms if form != "ds"}
    skipped: list[str] = []
    limits: dict[str, Limit | TrialsLimit] = {}
    try:
        forms = [r.split()[1] for r in runners if not r.endswith("autodiff")]
        limits = {f"limit {form}": case.limit(form) for form in forms}
        runners |= limits
    except NoCompilerError as error:
        skipped.append(f"the C limit of {name}: {error}")

    clocked = {title: Clocked(runner) for title, runner in runners.items()}
    if not chosen.is_slow:
        for each in clocked.values():
            each.run(CHECKED)
        agreement = _agreement(clocked)
        for each in clocked.values():
            each.calibrate(seconds)
        interleave(list(clocked.values()), rounds)
    else:  # on one core the rounds make the CHECKED iterations
        for each in clocked.values():
            each.n = -(-CHECKED // rounds) if threads == 1 else 3
        interleave(list(clocked.values()), rounds)
        agreement = _agreement(clocked)
    times = {title: each.summary() for title, each in clocked.items()}
    return {
        "title": chosen.title,
        "trials": chosen.trials,
        "threads": threads,
        "rounds": rounds,
        **costs,
        "memory": memory,
        "agreement": agreement,
        "times": times,
        "ratios": _ratios(times),
        "vector_bits": {title: 64 * limit.kernel.width for title, limit in limits.items()},
        "stolen": _stolen(times) if threads == 1 else None,
        "skipped": skipped,
    }


class _Case:
    """A built workload, which makes runners."""

    def __init__(
        self,
        chosen: Workload,
        network: hg.Network,
        problem: hg.Problem,
        x0: Floats,
        threads: int,
    ):
        self.chosen, self.network, self.problem = chosen, network, problem
        self.x0, self.threads = x0, threads

    def engine(self, form: str, problem: hg.Problem | None = None) -> Engine:
        return Engine(
            algorithm(form), problem or self.problem, self.network, self.x0,
            trials=self.chosen.trials, threads=self.threads,
        )  # fmt: skip

    def limit(self, form: str) -> Limit | TrialsLimit:
        scale, power = STEPS[form]
        settings: dict[str, Any] = {"scale": scale, "power": power, "seed": SEED}
        parts = (self.network, self.problem, self.x0)
        if self.chosen.trials > 1:
            trials = self.chosen.trials
            return TrialsLimit(*parts, trials=trials, threads=self.threads, **settings)
        return Limit(*parts, form=form, threads=self.threads, **settings)


def _first_engine(case: _Case) -> tuple[Engine, dict[str, float]]:
    """The engine at iteration 0, and its seconds of set-up and compilation."""
    started = time.perf_counter()
    engine = case.engine("ds")
    ready = time.perf_counter()
    first, _ = Clocked(engine).run(1)
    steady, _ = Clocked(engine).run(1)
    engine.restart()
    return engine, {"setup_seconds": ready - started, "compile_seconds": max(0.0, first - steady)}


def _agreement(clocked: Mapping[str, Clocked]) -> dict[str, Any]:
    """The distance between the engine and the limit, relative to the largest number."""
    result: dict[str, Any] = {}
    for title, each in clocked.items():
        role, form = title.split()
        limit = clocked.get("limit ds" if form == "autodiff" else f"limit {form}")
        if role == "engine" and limit is not None:
            x, y = each.runner.x, limit.runner.x
            apart = float(np.abs(x - y).max() / np.abs(y).max())
            result[form] = {
                "iterations": each.k,
                "difference": apart if math.isfinite(apart) else None,  # JSON knows no NaN
                "ok": apart <= TOLERANCE,
            }
    return result


def _ratios(times: Mapping[str, Any]) -> dict[str, Any]:
    """The ratio of two times in a round: median, least and most over the rounds."""

    def ratio(above: str, below: str) -> dict[str, float] | None:
        if above not in times or below not in times:
            return None
        rounds = [a / b for a, b in zip(times[above]["wall"], times[below]["wall"], strict=True)]
        return {"median": statistics.median(rounds), "least": min(rounds), "most": max(rounds)}

    found = {
        "ds": ratio("engine ds", "limit ds"),
        "autodiff": ratio("engine autodiff", "limit ds"),
        "lazy": ratio("engine lazy", "engine ds"),
        "square": ratio("engine square", "engine ds"),
        "lazy to limit": ratio("engine lazy", "limit lazy"),
        "square to limit": ratio("engine square", "limit square"),
    }
    return {what: value for what, value in found.items() if value is not None}


def _stolen(times: Mapping[str, Any]) -> float:
    """The part of our core's time that other processes took."""
    wall = sum(sum(each["wall"]) * each["iterations_per_round"] for each in times.values())
    cpu = sum(sum(each["cpu"]) * each["iterations_per_round"] for each in times.values())
    return max(0.0, 1 - cpu / wall)


def _peak() -> float:
    """The peak memory of this process, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MB


def _memory_before() -> float:
    """The memory of this process with JAX, before the engine starts, in MB."""
    jnp.zeros(1).block_until_ready()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return _peak()
    return pages * resource.getpagesize() / MB


def point(
    n_agents: int, s: int, d: int, degree: int, trials: int, seconds: float
) -> dict[str, Any]:
    """PDG-DS at one size: the time of an iteration, and the memory that the engine adds."""
    network = hg.Network(hg.graphs.random_regular(n_agents, degree))
    problem = hg.problems.estimation(n_agents=n_agents, s=s, d=d)
    problem.solution()
    before = _memory_before()
    engine = Engine(algorithm("ds"), problem, network, np.zeros((n_agents, d)), trials=trials)
    clocked = Clocked(engine)
    clocked.calibrate(seconds * (1 + trials / 1000))  # every block of trials is a separate call
    interleave([clocked], 3)
    return {
        "seconds_per_iteration": clocked.summary()["seconds_per_iteration"],
        "engine_mb": max(0.0, _peak() - before),
    }


def gradient_descent(file: str, iterations: int, repeats: int, ends: list[int]) -> dict[str, Any]:
    """Time DGD through `hg.run`; also return the iterates after the peers' iterations."""
    given = np.load(file)
    network = hg.Network(given["edges"])
    problem = hg.problems.estimation_from(given["M"], given["z"], sigma=given["sigma"])
    dgd = hg.DGD(stepsize=hg.stepsizes.constant(float(given["stepsize"])))

    def run(n: int) -> Any:
        return hg.run(dgd, problem, network, iterations=n, progress=False).x[0]

    x = {n: run(n).tolist() for n in ends}  # the first run compiles
    times: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter()
        run(iterations)
        times.append((time.perf_counter() - started) / iterations)
    return {"seconds_per_iteration": statistics.median(times), "x": x}
