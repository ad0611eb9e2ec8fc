"""The best guess without messages: an estimate must clearly beat it before it counts.

    g_i^k, g_i(θ*)    0; for a coalition also the mean of its own; and, as Σ_i g_i(θ*) = 0, minus
                      the sum of its own divided among the others. θ* is known to participants.
    H_i, n_i          the mean over the other agents: what is usual counts as public, as it is
                      where all losses have the same curvature; of n_i also their median
    x_i^k             θ*; for a coalition also the mean of its own
    a direction       any: the angle to a random line that is undercut with a given chance

verdict.py tries every guess and takes the best one, as if somebody knew which one that is.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.knowledge import Knowledge
from hushgrad.privacy.truth import Truth

type Floats = NDArray[np.float64]

_ANGLES = 200_001  # grid on [0, π/2]


def gradient_guesses(view: Knowledge, k: NDArray[np.int64]) -> list[Floats]:
    """Of g_i^k, (len(k), d) each."""
    own = [view.own(j).gradients[k] for j in sorted(view.members)]
    return _guesses(view, np.zeros((len(k), view.dim)), own)


def optimum_guesses(view: Knowledge, theta: Floats) -> list[Floats]:
    """Of g_i(θ*), (d,) each."""
    own = [view.own(j).gradient(theta) for j in sorted(view.members)]
    return _guesses(view, np.zeros(view.dim), own)


def _guesses(view: Knowledge, zero: Floats, own: list[Floats]) -> list[Floats]:
    if not own:
        return [zero]
    others = view.n_agents - len(own)
    # where there is one other it is no guess any more: attacks/optimum.py
    balance = [-np.sum(own, axis=0) / others] if others > 1 else []
    return [zero, np.mean(own, axis=0), *balance]


def curvature_guesses(truth: Truth, target: int) -> list[Floats]:
    """Of H_i, (d, d) each."""
    others = [truth.hessian(j) for j in range(truth.n_agents) if j != target]
    known = [H for H in others if H is not None]
    zero = np.zeros((len(truth.solution),) * 2)
    return [zero, np.mean(known, axis=0)] if known else [zero]


def count_guesses(truth: Truth, target: int) -> list[Floats]:
    """Of n_i, (1,) each."""
    others = [truth.n_rows(j) for j in range(truth.n_agents) if j != target]
    known = [n for n in others if n is not None]
    return [np.array([np.mean(known)]), np.array([np.median(known)])] if known else [np.zeros(1)]


def position_guesses(view: Knowledge, theta: Floats, k: NDArray[np.int64]) -> list[Floats]:
    """Of x_i^k, (len(k), d) each."""
    own = [view.own(j).x[k] for j in sorted(view.members)]
    rest = np.broadcast_to(theta, (len(k), view.dim))
    return [rest, np.mean(own, axis=0)] if own else [rest]


@lru_cache
def lucky_sine(dim: int, chance: float) -> float:
    """The sine of the angle between random lines that is undercut with this chance.

    The angle φ ∈ [0, π/2] has the density ∝ sin^{d−2} φ; for d = 1 all lines are the same.

    >>> lucky_sine(1, 0.05)
    0.0
    >>> round(lucky_sine(2, 0.05), 4), round(np.sin(0.05 * np.pi / 2), 4)
    (0.0785, np.float64(0.0785))
    """
    if dim == 1:
        return 0.0
    phi = np.linspace(0.0, np.pi / 2, _ANGLES)
    density = np.sin(phi) ** (dim - 2)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return float(np.sin(np.interp(chance, below / below[-1], phi)))
