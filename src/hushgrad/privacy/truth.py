"""The truth about a run, by which the judge (verdict.py) measures attacks; no attack sees it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hushgrad.masks import Mask
from hushgrad.privacy.replay import Replay, gradients, masks, replays, stepsizes, trace_of
from hushgrad.privacy.row_matching import true_rows
from hushgrad.privacy.rows import affine, data_of, n_rows
from hushgrad.simulate.result import Run

type Floats = NDArray[np.float64]

_STEP = 1e-4  # of differences: truncation 1e-8, rounding 1e-12
_SMOOTH = 1e-2  # relative change of a Hessian between two steps: a tenth of what verdicts ask


class Truth:
    """The secrets of one trial of a run with a transcript; `trial` counts the run's trials."""

    def __init__(self, run: Run, *, trial: int = 0):
        self._run, self._row = run, trial
        self.x = trace_of(run, trial)  # (n + 1, m, d)
        solution = np.atleast_2d(run.solution)
        self.solution: Floats = solution[trial if len(solution) > 1 else 0]  # (d,) θ*
        self._kept: dict[int, Floats] = {}
        self._curvatures: dict[int, Floats | None] = {}
        self._objectives: dict[int, Floats | None] = {}

    @property
    def n_agents(self) -> int:
        return self.x.shape[1]

    @cached_property
    def _agents(self) -> dict[int, Replay]:
        return replays(self._run, self._row, range(self.n_agents))

    @cached_property
    def _masks(self) -> list[Mask] | None:
        return masks(self._run, self._row)

    def gradients(self, i: int) -> Floats:
        """g_i^k = ∇f_i(x_i^k), (n, d): the agent's own, without masks."""
        if i not in self._kept:
            self._kept[i] = gradients(self._run, self._row, i, self.x[:-1, i])
        return self._kept[i]

    def lam(self, i: int) -> Floats:
        """λ_i^k, (n,)."""
        return stepsizes(self._agents[i], self._run.algorithm)

    def h(self, i: int) -> Floats:
        """λ_i^k times the gradient as the agent stepped, (n, d), mask included."""
        g = self.gradients(i)
        if self._masks is not None:
            mask = self._masks[i]
            g = g + mask.c + (0.0 if mask.Q is None else self.x[:-1, i] @ mask.Q)
        return self.lam(i)[:, None] * g

    @cached_property
    def at_optimum(self) -> Floats:
        """g_i(θ*), (m, d)."""
        theta = self.solution[None]
        return np.concatenate(
            [gradients(self._run, self._row, i, theta) for i in range(self.n_agents)]
        )

    def objective(self, i: int) -> Floats | None:
        """[H_i | q_i] (d, d + 1) of g_i(θ) = H_i θ + q_i; None where f_i is not quadratic."""
        if i not in self._objectives:
            self._objectives[i] = affine(
                lambda thetas: gradients(self._run, self._row, i, thetas), len(self.solution)
            )
        return self._objectives[i]

    def rows(self, i: int) -> Floats | None:
        """The rows of agent i's data (n_i, d), up to their signs; None where it has none."""
        problem = self._run.problem
        trial = None if problem.n_trials is None else int(self._run.trials[self._row])
        return true_rows(problem, i, trial)

    def hessian(self, i: int) -> Floats | None:
        """H_i (d, d), of an f_i that is not quadratic at θ*; None where f_i is bent there.

        Gradients on both sides of θ*, at two distances, must tell the same Hessian.
        """
        if i not in self._curvatures:
            objective = self.objective(i)
            if objective is None:
                near, far = self._differences(i, _STEP), self._differences(i, 2 * _STEP)
                is_smooth = np.linalg.norm(near - far) <= _SMOOTH * np.linalg.norm(near)
                self._curvatures[i] = near if is_smooth else None
            else:
                self._curvatures[i] = objective[:, :-1]
        return self._curvatures[i]

    def _differences(self, i: int, step: float) -> Floats:
        """The symmetric part of the central differences of ∇f_i at θ*, (d, d)."""
        d = len(self.solution)
        step *= 1.0 + float(np.abs(self.solution).max())
        aside = step * np.concatenate([np.eye(d), -np.eye(d)])
        at = gradients(self._run, self._row, i, self.solution + aside)
        H = (at[:d] - at[d:]) / (2 * step)
        return (H + H.T) / 2

    def n_rows(self, i: int) -> int | None:
        """n_i, where the problem's data are rows."""
        problem, trial = data_of(self._run, self._row)
        return n_rows(problem, i, trial)
