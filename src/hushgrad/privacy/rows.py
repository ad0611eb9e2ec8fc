"""The rows of an agent's data, where a problem has rows: how many, and what each adds to f_i.

The truth counts them; the game of membership (attacks/membership.py) takes one as its candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.problems import Problem, autodiff
from hushgrad.problems.row_places import row_places
from hushgrad.simulate.result import Run

_LINEAR = 1e-9  # relative departure of a gradient from Hθ + q that counts as rounding

type Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Suspicion:
    """The rows that the game of membership shows its adversary, of an agent in one stage."""

    objective: Floats  # (d, d + 1) [H_i | q_i]
    rows: Floats  # (n_i, d, d + 1) what each row adds to it


def data_of(run: Run, row: int) -> tuple[Problem, int | None]:
    """The problem that holds the data of a trial, and the trial's number in it.

    Of a stage (stages.py) that is the problem of the whole run: its own has models only.
    """
    problem = run.config.get("whole", run).problem
    return problem, None if problem.n_trials is None else int(run.trials[row])


def suspicions_of(run: Run, row: int) -> dict[int, Suspicion]:
    """Of every agent of a run, or of a stage of one; empty where the data are no rows."""
    problem, trial = data_of(run, row)
    if problem is run.problem:
        return suspicions(problem, trial)
    assert run.x0 is not None
    is_fixed = getattr(run.algorithm, "curvature", None) == "fixed"
    curve = problem.curved.get("majorised" if is_fixed else "curvature")
    found: dict[int, Suspicion] = {}
    for i in range(problem.n_agents):
        count = n_rows(problem, i, trial)
        if not count or curve is None:
            return {}
        x, before = run.x0[0, i], run.config["before"]
        last = None if before is None else before[0, i]
        data = [problem.agent_data(i, trial)]
        data += [row_alone(problem, i, r, trial) for r in range(count)]
        parts: list[Floats] = []
        for part in data:
            H = np.asarray(curve(x, last, part), np.float64)
            parts.append(np.column_stack([H, _gradients(problem, part)(x[None])[0] - H @ x]))
        found[i] = Suspicion(parts[0], np.array(parts[1:]))
    return found


def suspicions(problem: Problem, trial: int | None = None) -> dict[int, Suspicion]:
    """Of every agent; empty where the data are no rows or some f_i is not quadratic."""
    found: dict[int, Suspicion] = {}
    for i in range(problem.n_agents):
        count = n_rows(problem, i, trial)
        if not count:
            return {}
        data = [problem.agent_data(i, trial)]
        data += [row_alone(problem, i, r, trial) for r in range(count)]
        objective, *rows = [affine(_gradients(problem, part), problem.dim) for part in data]
        if objective is None or any(row is None for row in rows):
            return {}
        found[i] = Suspicion(objective, np.array(rows))
    return found


def affine(gradients: Callable[[Floats], Floats], dim: int) -> Floats | None:
    """[H | q] (d, d + 1) of gradients Hθ + q at many θ (n, d); None where they are not affine."""
    probe = np.random.default_rng(0).normal(size=dim)
    at = gradients(np.concatenate([np.zeros((1, dim)), np.eye(dim), probe[None]]))
    q, H = at[0], (at[1:-1] - at[0]).T
    off = np.linalg.norm(at[-1] - H @ probe - q)
    size = np.linalg.norm(H) * np.linalg.norm(probe) + np.linalg.norm(q)
    return np.column_stack([H, q]) if off <= _LINEAR * size else None


def _gradients(problem: Problem, data: Any) -> Callable[[Floats], Floats]:
    function, needs_jax = problem.differentiated
    if needs_jax:
        function = autodiff.in_float64(problem.gradient_function)
    return lambda thetas: np.array(
        [np.asarray(function(theta, data), np.float64) for theta in thetas]
    )


def n_rows(problem: Problem, i: int, trial: int | None = None) -> int | None:
    """n_i; None where the problem's data are no rows. Rows of padding do not count."""
    kept = _rows(problem, i, trial)
    return None if kept is None else len(kept)


def total_rows(problem: Problem, trial: int | None = None) -> int | None:
    """Σ_i n_i; None where the data of some agent are no rows."""
    counts = [n_rows(problem, i, trial) for i in range(problem.n_agents)]
    known = [n for n in counts if n is not None]
    return sum(known) if len(known) == len(counts) else None


def row_alone(problem: Problem, i: int, row: int, trial: int | None = None) -> Any:
    """The data of agent i with one of its rows and no regulariser: of f_i what this row adds."""
    data, kept = problem.agent_data(i, trial), _rows(problem, i, trial)
    assert kept is not None
    one = kept[[row]]
    if "X" in data:
        alone = {name: data[name][one] for name in ("X", "y", "weight")}
        return {**data, **alone, "penalty": 0.0 * data["penalty"]}
    return {**data, "M": data["M"][one], "z": data["z"][one], "sigma": 0.0 * data["sigma"]}


def _rows(problem: Problem, i: int, trial: int | None) -> NDArray[np.int64] | None:
    """The places of rows that are data."""
    return row_places(problem.agent_data(i, trial))
