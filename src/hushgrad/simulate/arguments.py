"""The arguments of a run, checked: `run`, `compare` and `tune` take the same ones."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import InputError, ProblemError
from hushgrad.mixing import Network
from hushgrad.problems import Problem


def check_parts(algorithm: object, problem: object, network: object) -> None:
    for name, value, kind, example in (
        ("algorithm", algorithm, Algorithm, "hg.PDGDS()"),
        ("problem", problem, Problem, "hg.problems.estimation()"),
        ("network", network, Network, "hg.Network(hg.graphs.ring(5))"),
    ):
        if not isinstance(value, kind):
            hint = " (an instance, not the class)" if isinstance(value, type) else ""
            raise InputError(
                f"{name} is a {kind.__name__}{hint}, but got {value!r}. Write {example}."
            )
    assert isinstance(problem, Problem)
    assert isinstance(network, Network)
    if problem.n_agents != network.n_agents:
        raise ProblemError(
            f"problem and network have the same agents, but the problem has {problem.n_agents} and "
            f"the network {network.n_agents}. Give both the same n_agents."
        )


def whole(name: str, value: object, least: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # others raise
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise InputError(f"{name} is a whole number ≥ {least}, but {name} = {value!r}.")
    return number


def seed_of(seed: object) -> int:
    number = whole("seed", seed, 0)
    if number >= 2**64:
        raise InputError(f"a seed has 64 bits, but seed = {number}. Choose seed < 2**64.")
    return number


def trial_numbers(trials: int | Iterable[int], problem: Problem) -> NDArray[np.int64]:
    if isinstance(trials, Iterable):
        numbers = np.array([whole("a trial's number", t, 0) for t in trials], np.int64)
        if not len(numbers) or len(np.unique(numbers)) < len(numbers):
            raise InputError(
                f"trials are different numbers, at least one, but trials = {list(numbers)}."
            )
    else:
        numbers = np.arange(whole("trials", trials, 1))
    limit = 2**32 - 1 if problem.n_trials is None else problem.n_trials
    if numbers.max() >= limit:
        raise InputError(
            f"this problem has {limit} trials, but trial {numbers.max()} is asked for. "
            "Build the problem with more trials."
        )
    return numbers


def starts(x0: ArrayLike | None, n_trials: int, problem: Problem) -> NDArray[np.float64]:
    m, d = problem.n_agents, problem.dim
    start = np.zeros(d) if x0 is None else np.array(x0, np.float64)
    if start.shape not in ((d,), (m, d), (n_trials, m, d)):
        raise InputError(
            f"x0 has shape (d,) = ({d},), (agents, d) = ({m}, {d}) or (trials, agents, d) = "
            f"({n_trials}, {m}, {d}), but x0 has shape {start.shape}."
        )
    if not np.isfinite(start).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(start))[0])
        raise InputError(f"x0 is finite, but x0[{', '.join(map(str, where))}] = {start[where]}.")
    return np.broadcast_to(start, (n_trials, m, d))


def named(
    algorithms: Algorithm | Sequence[Algorithm] | Mapping[str, Algorithm], what: str
) -> dict[str, Algorithm]:
    """Algorithms by label; a mapping gives the labels."""
    if isinstance(algorithms, Algorithm):
        algorithms = [algorithms]
    every = (
        dict(algorithms)
        if isinstance(algorithms, Mapping)
        else dict(zip(_labels(algorithms), algorithms, strict=True))
    )
    if not every:
        raise InputError(f"a {what} needs at least one algorithm, but the list is empty.")
    return every


def _labels(algorithms: Sequence[Algorithm]) -> list[str]:
    """Labels that differ, numbered where the algorithms' own do not."""
    labels = [a.label for a in algorithms]
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[:n].count(label) + 1}"
        for n, label in enumerate(labels)
    ]
