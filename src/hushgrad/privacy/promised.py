"""The promise of an audited run's masks, beside the findings of attacks: the guarantee of its rows.

docs/guarantee.md derives the numbers. They need a public bound on a row. A simulation knows its
rows, so the largest of them takes the place of the bound; the page says so. Only a run whose
messages depend on masked statistics alone, a run in stages, has a guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrad.agent.masking import mask_sizes
from hushgrad.algorithms.base import Masked
from hushgrad.privacy.adversaries import Adversary
from hushgrad.problems import Problem
from hushgrad.simulate.result import Run
from hushgrad.theory.bounds import RowBound, huber_row, logistic_row, mean_row, ridge_row
from hushgrad.theory.promise import MOST_AGENTS, guarantee

DELTA = 1e-6


@dataclass(frozen=True, kw_only=True)
class Promised:
    """The guarantee against one adversary, for the agent that fares worst."""

    adversary: str
    agent: int
    hidden_among: int  # honest agents; 1: nothing is hidden
    mu: float | None  # None: infinite
    epsilon: float | None  # at δ = 1e-6; None: infinite
    advantage: float


@dataclass(frozen=True, kw_only=True)
class Promises:
    """The guarantee of a run."""

    bound: str
    stages: int
    lines: tuple[Promised, ...]


def promises(
    run: Run, row: int, adversaries: Iterable[Adversary], agents: Iterable[int]
) -> Promises | None:
    """The guarantee of one trial against each adversary; None if the run has none."""
    algorithm, m = run.algorithm, run.network.n_agents
    stages = len(run.config["stages"] or ())
    if not isinstance(algorithm, Masked) or not stages or run.mask_scale is None:
        return None
    masks, found = algorithm.masking, largest_row(run.problem)
    if masks is None or found is None or not 2 <= m <= MOST_AGENTS:
        return None
    bound, said = found
    sizes = mask_sizes(algorithm, run.network, run.problem.dim, float(run.mask_scale[row]))
    wanted = set(agents)
    lines: list[Promised] = []
    for coalition in sorted({tuple(sorted(a.members)) for a in adversaries}, key=_by_size):
        told = guarantee(
            masks, m, sizes=sizes, bound=bound, stages=stages, delta=DELTA, coalition=coalition,
            curvature=getattr(algorithm, "curvature", "newton"),
        )  # fmt: skip
        worst = max((e for e in told.exposures if e.agent in wanted), key=lambda e: e.mu)
        lines.append(
            Promised(
                adversary=_name(coalition),
                agent=worst.agent,
                hidden_among=worst.hidden_among,
                mu=_finite(worst.mu),
                epsilon=_finite(worst.epsilon),
                advantage=worst.advantage,
            )
        )
    return Promises(bound=said, stages=stages, lines=tuple(lines))


def largest_row(problem: Problem) -> tuple[RowBound, str] | None:
    """The bound that the largest rows of a problem reach, and a sentence about it."""
    if problem.n_trials is not None:
        return None
    data: Any = problem.data
    if problem.name == "average":
        norm = float(np.linalg.norm(data["a"], axis=-1).max())
        return mean_row(norm), f"the largest vector of these data, ‖a‖ = {norm:.3g}"
    if problem.name not in ("ridge", "logistic", "huber"):
        return None
    held = data["weight"] > 0
    norm = float(np.linalg.norm(data["X"], axis=-1)[held].max())
    target = float(np.abs(data["y"][held]).max())
    said = f"the largest row of these data, ‖x‖ = {norm:.3g}"
    if problem.name == "logistic":
        return logistic_row(norm), said
    said += f" and |y| = {target:.3g}"
    if problem.name == "huber":
        return huber_row(norm, target, float(data["delta"][0])), said
    return ridge_row(norm, target), said


def _name(coalition: tuple[int, ...]) -> str:
    if not coalition:
        return "outsider"
    return f"agent{'s' * (len(coalition) > 1)} {', '.join(map(str, coalition))}"


def _by_size(coalition: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return len(coalition), coalition


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
