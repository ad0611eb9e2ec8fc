"""The workloads a to f, their algorithms and their targets; measure.py runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import hushgrad as hg
from hushgrad.algorithms.base import Algorithm
from hushgrad.problems import losses

SEED = 1
CHECKED = 100  # iterations after which the engine and the limit must still agree …
TOLERANCE = 1e-12  # … to this part of the largest number

# The stepsizes are so small that the iterates of every workload stay finite in a long run.
# name: (scale, power) of λ = scale / n^power
STEPS = {"ds": (0.05, 1), "lazy": (0.002, 0), "square": (0.002, 0)}


@dataclass(frozen=True)
class Workload:
    """A problem on a network, and the measurements that it takes part in."""

    name: str
    title: str
    build: Callable[[], tuple[hg.Network, hg.Problem]]
    trials: int = 1
    forms: tuple[str, ...] = ("ds",)
    has_autodiff: bool = False
    is_slow: bool = False  # a hundred iterations take seconds, so the timed rounds make them
    is_quick: bool = True  # part of `--quick`


def _paper() -> tuple[hg.Network, hg.Problem]:
    return hg.Network(hg.graphs.paper()), hg.problems.estimation(n_agents=5, s=3, d=2)


def _hundred() -> tuple[hg.Network, hg.Problem]:
    graph = hg.graphs.erdos_renyi(100, 6 / 99, seed=1)
    return hg.Network(graph, "lazy_metropolis"), hg.problems.estimation(n_agents=100, s=20, d=50)


def _ring() -> tuple[hg.Network, hg.Problem]:
    graph = hg.graphs.small_world(10_000, 6, p=0.0)  # a ring, with chords to the next two agents
    return hg.Network(graph), hg.problems.estimation(n_agents=10_000, s=5, d=10)


def _logistic() -> tuple[hg.Network, hg.Problem]:
    m, n, d = 20, 2000, 1000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, n, d)) / np.sqrt(d)
    data = {
        "X": X,
        "y": np.sign(X @ rng.normal(size=d)),
        "weight": np.ones((m, n)),
        "penalty": np.full((m, d), 1 / m),
    }
    # hg.problems.logistic without θ*, which takes seconds at this size and which no step needs
    problem = hg.Problem(
        losses.logistic,
        data,
        dim=d,
        gradient=losses.logistic_gradient,
        solution=np.zeros(d),
        name="logistic",
    )
    return hg.Network(hg.graphs.ring(m)), problem


def _million() -> tuple[hg.Network, hg.Problem]:
    graph = hg.graphs.random_regular(1_000_000, 6)
    return hg.Network(graph), hg.problems.estimation(n_agents=1_000_000, s=3, d=10)


ALL_FORMS = ("ds", "lazy", "square")

WORKLOADS = {
    w.name: w
    for w in (
        Workload("a", "5 agents, s = 3, d = 2, one long run", _paper,
                 forms=ALL_FORMS, has_autodiff=True),
        Workload("b", "the same, 1000 trials at once", _paper, trials=1000, has_autodiff=True),
        Workload("c", "100 agents of mean degree 6, s = 20, d = 50", _hundred,
                 forms=ALL_FORMS, has_autodiff=True),
        Workload("d", "10 000 agents on a ring with chords, degree 6, s = 5, d = 10", _ring,
                 forms=ALL_FORMS, has_autodiff=True),
        Workload("e", "20 agents, logistic, d = 1000, 2000 samples each", _logistic,
                 is_slow=True),
        Workload("f", "1 000 000 agents, random regular of degree 6, s = 3, d = 10", _million,
                 is_slow=True, is_quick=False),
    )
}  # fmt: skip

# (workload, form) → the largest allowed median ratio, on one core of a quiet machine.
# ds and autodiff are compared with the C limit of PDG-DS, lazy and square with the engine's PDG-DS.
TARGETS: dict[tuple[str, str], float] = {
    **{(name, "ds"): most for name, most in zip("abcdef", (3, 2, 2, 1.8, 1.6, 1.5), strict=True)},
    **{(name, "autodiff"): most for name, most in zip("abcd", (3, 4, 2, 1.9), strict=True)},
    **{(name, "lazy"): 1.6 for name in "acd"},
    **{(name, "square"): 2.0 for name in "acd"},
}


def algorithm(form: str) -> Algorithm:
    scale, power = STEPS[form]
    if form == "ds":
        return hg.PDGDS(stepsize=hg.stepsizes.diminishing(scale=scale, power=power))
    return hg.PDGNDS(form=form, stepsize=hg.stepsizes.constant(scale))  # type: ignore[arg-type]  # one of the two words


def _plain_loss(theta: Any, data: Any) -> Any:
    """The loss of the estimation problem as a user would write it."""
    residual = data["z"] - data["M"] @ theta
    return (residual**2).sum() + data["sigma"] * (theta**2).sum()


def by_autodiff(problem: hg.Problem) -> hg.Problem:
    """The same estimation problem, given by its loss alone."""
    return hg.Problem(_plain_loss, problem.data, dim=problem.dim, solution=problem.solution())
