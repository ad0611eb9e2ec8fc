"""What really was, to judge an attack by; no attack is given it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hushgrad.masks import Mask
from hushgrad.privacy.replay import Replay, gradients, masks, replays, stepsizes, trace_of
from hushgrad.simulate.result import Run

type Floats = NDArray[np.float64]

_LINEAR = 1e-9  # relative departure of a gradient from Hθ + q that counts as rounding


class Truth:
    """The secrets of one trial of a run with a transcript; `trial` counts the run's trials."""

    def __init__(self, run: Run, *, trial: int = 0):
        self._run, self._row = run, trial
        self.x = trace_of(run, trial)  # (n + 1, m, d)
        solution = np.atleast_2d(run.solution)
        self.solution: Floats = solution[trial if len(solution) > 1 else 0]  # (d,) θ*
        self._kept: dict[int, Floats] = {}

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
        d = len(self.solution)
        probe = np.random.default_rng(0).normal(size=d)
        thetas = np.concatenate([np.zeros((1, d)), np.eye(d), probe[None]])
        at = gradients(self._run, self._row, i, thetas)
        q, H = at[0], (at[1:-1] - at[0]).T
        off = np.linalg.norm(at[-1] - H @ probe - q)
        size = np.linalg.norm(H) * np.linalg.norm(probe) + np.linalg.norm(q)
        return np.column_stack([H, q]) if off <= _LINEAR * size else None

    def hessian(self, i: int) -> Floats | None:
        """H_i (d, d) where f_i is quadratic, else None."""
        objective = self.objective(i)
        return None if objective is None else objective[:, :-1]
