"""The curvature of a problem at θ*, on which tight rates and automatic stepsizes rest.

certificate.py, auto.py and proposals.py start from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hushgrad.problems import Problem

type Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LocalCurvature:
    """The Hessians of all f_i at θ*, and what follows from them."""

    hessians: Floats  # (m, d, d) ∇²f_i(θ*)
    is_exact: bool  # every f_i is quadratic, so the Hessians are the same at every θ

    @property
    def largest(self) -> float:
        """max_i ‖∇²f_i(θ*)‖."""
        return float(np.abs(self.extremes).max())

    @cached_property
    def extremes(self) -> Floats:
        """(m, 2): the smallest and the largest eigenvalue of each Hessian."""
        values = np.linalg.eigvalsh(self.hessians)
        return values[:, [0, -1]]

    @cached_property
    def strong(self) -> float:
        """σ: the smallest eigenvalue of (1/m) Σ ∇²f_i(θ*); 0 where it is rounding."""
        values = np.linalg.eigvalsh(self.hessians.mean(axis=0))
        return float(values[0]) if values[0] > 1e-12 * values[-1] else 0.0


def local_curvature(problem: Problem, trial: int | None = None) -> LocalCurvature:
    """The Hessians at θ*; `trial` is needed if every trial has a problem of its own."""
    solution = problem.solution()
    if problem.n_trials is not None:
        trial = 0 if trial is None else trial
        solution = solution[int(problem.places(np.array([trial]))[0])]
    theta = np.array(solution)
    # with θ also as the point of the stage before, no safeguard enlarges the Hessian
    found = [problem.local_curvature(i, trial)(theta, theta) for i in range(problem.n_agents)]
    H = np.stack(found)
    return LocalCurvature((H + H.swapaxes(1, 2)) / 2, problem.is_quadratic)


def slopes_at_solution(problem: Problem, trial: int | None = None) -> tuple[Floats, Floats]:
    """∇f_i(θ*) of every agent (m, d), and θ* (d,)."""
    solution = problem.solution()
    if problem.n_trials is not None:
        trial = 0 if trial is None else trial
        solution = solution[int(problem.places(np.array([trial]))[0])]
    theta = np.array(solution)
    return np.stack(
        [problem.local_gradient(i, trial)(theta) for i in range(problem.n_agents)]
    ), theta
