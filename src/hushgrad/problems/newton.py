"""Damped Newton in float64, down to the rounding level of the gradient, for `Problem.solution`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ProblemError

type Vector = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
ITERATIONS = 100  # a minimum of fourth order shrinks by 2/3 in each: 91 of them reach 1e-16
TRIALS = 60  # of a steplength, each half of the last
ARMIJO = 1e-4
FLATTENED = 0.5  # of the slope; Newton towards a minimiser at infinity leaves 1/e of it
BLIND = 1e-13  # a predicted decrease below this part of Σ|f_i| drowns in the rounding of the value
STALLED = 0.9  # at the rounding level the gradient's norm no longer falls below this part of itself
RELATIVE = 1e-10  # what counts as rounding: far above eps·√n, far below any slope that is meant
NOISE = 1e-12  # the same for residuals, whose size is known only through √(‖H‖ Σ|f_i|)


class Point(NamedTuple):
    """The sum of the losses at one θ, with the sizes of its terms, which set the rounding level."""

    theta: Vector  # (d,)
    value: float  # Σ f_i
    value_scale: float  # Σ |f_i|
    gradient: Vector  # (d,), Σ ∇f_i
    gradient_scale: float  # Σ ‖∇f_i‖

    @property
    def slope(self) -> float:
        return float(np.linalg.norm(self.gradient))

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.value) and np.isfinite(self.gradient).all())


def add_points(parts: Sequence[Point]) -> Point:
    """The sum of all agents' losses from the sums of parts of them."""
    if len(parts) == 1:
        return parts[0]
    return Point(
        parts[0].theta,
        sum(p.value for p in parts),
        sum(p.value_scale for p in parts),
        np.sum([p.gradient for p in parts], axis=0),
        sum(p.gradient_scale for p in parts),
    )


class _Direction(NamedTuple):
    step: Vector  # (d,)
    rounding: float  # the gradient norm that is as good as zero beside its terms
    noise: float  # the gradient norm that rounding inside the losses may leave
    lowest: float  # smallest eigenvalue over the largest in size


def minimise(
    evaluate: Callable[[Vector], Point], hessian: Callable[[Vector], Any], start: Vector
) -> Vector:
    """θ* of a convex sum; from θ = 0 the one of least norm if the same directions stay flat.

    Stops when no step lowers the gradient any more, and then asks whether what is left of it is
    rounding: beside Σ‖∇f_i‖ + ‖H‖‖θ‖, or beside the residuals. The first scale falls with the
    gradient when the minimiser lies at infinity, and the second is asked of stalled runs only, so
    that such a run is not taken for converged.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a step too far is not finite, and refused
        return _minimise(evaluate, hessian, start)


def _minimise(
    evaluate: Callable[[Vector], Point], hessian: Callable[[Vector], Any], start: Vector
) -> Vector:
    point = evaluate(start)
    if not point.is_finite:
        raise ProblemError(
            f"Newton starts at θ = 0, but there the losses add up to {point.value}, with gradient "
            f"norm {point.slope}. Pass solution=, or shift θ so that the loss is finite at 0."
        )
    for iteration in range(ITERATIONS + 1):
        direction = _direction(point, np.asarray(hessian(point.theta)))
        # where all losses vanish, ever smaller values would be found below one unit of rounding
        is_over = iteration == ITERATIONS or point.slope <= EPS / RELATIVE * direction.rounding
        better = None if is_over else _search(evaluate, point, direction)
        if better is None:
            return _checked(point, direction, iteration)
        point = better
    raise AssertionError("the last iteration returns or raises")


def _direction(point: Point, hessian: Vector) -> _Direction:
    if not np.isfinite(hessian).all():
        raise ProblemError(
            f"The Hessian must be finite, but it is not at ‖θ‖ = {np.linalg.norm(point.theta):.3g} "
            f"(gradient norm {point.slope:.3g}). Pass solution=, or smooth the loss."
        )
    eigenvalues, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    sizes = np.abs(eigenvalues)  # a negative curvature is descended too; the end is checked
    top = float(sizes.max())
    rounding = RELATIVE * (point.gradient_scale + top * float(np.linalg.norm(point.theta)))
    flat = sizes <= 4 * len(sizes) * EPS * top
    part = vectors.T @ point.gradient
    step = np.where(flat, 0.0, -part / np.where(flat, 1.0, sizes))
    noise = NOISE * float(np.sqrt(top * point.value_scale))
    in_flat = float(np.linalg.norm(part[flat]))
    if in_flat > max(rounding, noise):  # downhill where H vanishes; the search finds how far
        step[flat] = -part[flat] / (top or in_flat)
    lowest = float(eigenvalues[0]) / (top or 1.0)
    return _Direction(vectors @ step, rounding, noise, lowest)


def _search(
    evaluate: Callable[[Vector], Point], point: Point, direction: _Direction
) -> Point | None:
    """A better θ + t·p, the full step t = 1 if it will do; None when there is none.

    Bisects, or doubles, until the value has fallen enough and the slope along p has flattened (the
    strong Wolfe conditions): Newton's own length is meaningless where the Hessian is singular or
    jumps.
    """
    decrease = -float(point.gradient @ direction.step)
    if not decrease > 0:
        return None
    best: Point | None = None
    low, high, t = 0.0, np.inf, 1.0
    for _ in range(TRIALS):
        new = evaluate(point.theta + t * direction.step)
        is_blind = t * decrease <= BLIND * point.value_scale
        if is_blind and new.is_finite and new.slope < STALLED * point.slope:
            return new
        ascent = float(new.gradient @ direction.step)
        if not new.is_finite or is_blind or new.value > point.value - ARMIJO * t * decrease:
            high = t
        else:
            if best is None or new.value < best.value:
                best = new
            if abs(ascent) <= FLATTENED * decrease:
                return new
            low, high = (t, high) if ascent < 0 else (low, t)
        t = 2 * t if np.isinf(high) else (low + high) / 2
    return best


def _checked(point: Point, direction: _Direction, iterations: int) -> Vector:
    stalled = iterations < ITERATIONS  # a gradient that still falls has not met its noise
    if point.slope > max(direction.rounding, direction.noise if stalled else 0.0):
        raise ProblemError(
            f"Newton reached the gradient norm {point.slope:.3g} after {iterations} iterations, at "
            f"‖θ‖ = {np.linalg.norm(point.theta):.3g}, and not the rounding level "
            f"{direction.rounding:.3g}: the sum of the losses has no minimiser, or is not smooth "
            "and convex. Add a regulariser, or pass solution=."
        )
    if direction.lowest < -1e-8:
        raise ProblemError(
            f"Newton reached the gradient norm {point.slope:.3g} where the Hessian has the "
            f"negative eigenvalue {direction.lowest:.3g} (relative to the largest): the sum of the "
            "losses is not convex and this is no minimum. Pass solution=."
        )
    return point.theta
