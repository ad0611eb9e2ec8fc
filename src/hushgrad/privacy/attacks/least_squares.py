"""Levenberg and Marquardt's method, for the attacks that fit rows.

The damped systems are solved by orthogonal elimination, in columns of length one: no singular value
is below the damping, whatever the data.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]

EXACT = 1e-27  # squared relative residual: rounding

_WORSE, _BETTER = 3.0, 0.25  # factors of the damping
_LEAST = 1e-13  # damping: far above rounding in the elimination
_TRIES = 14  # dampings until a step is given up
_FAINT = 1e-8  # of the longest column: shorter ones are not lengthened to one
_STALL = 1e-3  # relative gain within _PATIENCE steps: less, and the fit is at its end
_PATIENCE = 8


class FitPoint(Protocol):
    """Unknowns with their residuals, which are relative: about 1 where nothing is explained."""

    @property
    def residual(self) -> Floats: ...

    def jacobian(self) -> tuple[Floats, Floats]:
        """(residuals, unknowns), and the least length of each column that is told from rounding."""
        ...

    def moved(self, step: Floats) -> Self: ...


def square(point: FitPoint) -> float:
    """Infinite where the residual is not finite."""
    found = float(np.sum(point.residual**2))
    return found if np.isfinite(found) else np.inf


def descended[P: FitPoint](point: P, steps: int) -> P:
    """The point after some steps downhill, fewer where it is at its end."""
    damping, history = 1.0, [square(point)]
    for _ in range(steps):
        after, damping = _improved(point, damping)
        if after is None:
            break
        point = after
        history.append(square(point))
        is_slow = len(history) > 2 * _PATIENCE and history[-1] > (1 - _STALL) * history[-_PATIENCE]
        if is_slow or history[-1] <= EXACT:
            break
    return point


def _improved[P: FitPoint](point: P, damping: float) -> tuple[P | None, float]:
    """One step downhill and the next damping; None where no damping leads down."""
    J, least = point.jacobian()
    n = J.shape[1]
    if not n or not np.isfinite(J).all():
        return None, damping
    size = np.linalg.norm(J, axis=0)
    size = np.maximum(np.maximum(size, _FAINT * size.max()), least)
    system = np.linalg.qr(np.column_stack([J / size, -point.residual.ravel()]), mode="r")
    before = square(point)
    for _ in range(_TRIES):
        damped = np.concatenate([system, damping * np.eye(n, n + 1)])
        triangle = np.linalg.qr(damped, mode="r")
        step = np.linalg.solve(triangle[:n, :n], triangle[:n, n]) / size
        after = point.moved(step)
        if square(after) < before:
            return after, max(_BETTER * damping, _LEAST)
        damping *= _WORSE
    return None, damping
