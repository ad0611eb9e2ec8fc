"""The losses of rows, Σ_r weight_r · ℓ(x_rᵀθ, y_r) + ½ Σ_c penalty_c θ_c², for NumPy and JAX alike.

An agent's data is X (n, d), y (n,), weight (n,) and penalty (d,); huber's delta is a scalar. The
data of all agents, which solutions and curvatures take, has a leading agent axis. `regression.py`
makes problems of them, and `rows.py` has the statistics of stages once more, row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import optional
from hushgrad.problems import rows
from hushgrad.problems.checks import largest_gram_eigenvalue, least_squares
from hushgrad.problems.newton import Point, minimise
from hushgrad.problems.rows import RowSum

type Vector = NDArray[np.float64]

COARSER = 4.0  # the ratio of successive deltas on the way to a small one


def _penalty(theta: Any, data: Any) -> Any:
    return (data["penalty"] * theta) @ theta / 2


def squares(theta: Any, data: Any) -> Any:
    residual = data["X"] @ theta - data["y"]
    return (data["weight"] * residual) @ residual / 2 + _penalty(theta, data)


def squares_gradient(theta: Any, data: Any) -> Any:
    X = data["X"]
    return X.T @ (data["weight"] * (X @ theta - data["y"])) + data["penalty"] * theta


def logistic(theta: Any, data: Any) -> Any:
    xp = _namespace(theta, data["X"])
    margin = data["y"] * (data["X"] @ theta)
    return data["weight"] @ xp.logaddexp(0.0, -margin) + _penalty(theta, data)


def logistic_gradient(theta: Any, data: Any) -> Any:
    xp = _namespace(theta, data["X"])
    X, y = data["X"], data["y"]
    # 1/(1 + e^t) as exp(−log(1 + e^t)): no overflow, and no digits lost where it is tiny
    doubt = xp.exp(-xp.logaddexp(0.0, y * (X @ theta)))
    return data["penalty"] * theta - X.T @ (data["weight"] * y * doubt)


def huber(theta: Any, data: Any) -> Any:
    residual = data["X"] @ theta - data["y"]
    clipped = residual.clip(-data["delta"], data["delta"])
    return (data["weight"] * clipped) @ (residual - clipped / 2) + _penalty(theta, data)


def huber_gradient(theta: Any, data: Any) -> Any:
    X = data["X"]
    clipped = (X @ theta - data["y"]).clip(-data["delta"], data["delta"])
    return X.T @ (data["weight"] * clipped) + data["penalty"] * theta


def squares_curvature(theta: Any, before: Any, data: Any) -> Vector:
    del theta, before
    return _curvature(np.ones(len(data["X"])), data)


def logistic_curvature(theta: Any, before: Any, data: Any) -> Vector:
    """The Hessian at θ, and a safe one for rows that a Newton step has thrown far off.

    A row with a margin far below zero pulls with all its force, but its second derivative vanishes.
    Many such rows would let a Newton step overshoot. If the last step moved such a row by more than
    1, its weight is tanh(z/2)/2z, with which the quadratic model lies above the loss everywhere
    (Jaakkola and Jordan). Near θ* no row moves that far, and the Hessian is exact.
    """
    z = data["X"] @ theta
    weight = np.exp(-np.logaddexp(0.0, z) - np.logaddexp(0.0, -z))
    if before is not None:
        is_thrown = (data["y"] * z < 0) & (np.abs(z - data["X"] @ before) > 1.0)
        size = np.maximum(np.abs(z), 1e-6)
        weight = np.where(is_thrown, np.tanh(size / 2) / (2 * size), weight)
    return _curvature(weight, data)


def logistic_majorised(theta: Any, before: Any, data: Any) -> Vector:
    """¼ XᵀX: no second derivative of the loss is larger, at any θ."""
    del theta, before
    return _curvature(np.full(len(data["X"]), 0.25), data)


def huber_curvature(theta: Any, before: Any, data: Any) -> Vector:
    """A row within delta weighs 1. An outlier weighs delta/|r| until the steps become short.

    With the weight delta/|r| the quadratic model lies above the loss, so steps cannot diverge. The
    weight falls to 0, the second derivative, with the square of the last step over twice the
    distance from the kink. A row that steps throw to and fro, as far on either side, keeps the
    whole weight.
    """
    size = np.abs(data["X"] @ theta - data["y"])
    delta = data["delta"]
    beyond = size - delta
    safe = delta / np.maximum(size, delta)
    if before is None:
        return _curvature(safe, data)
    moved = np.abs(data["X"] @ (theta - before))
    half = np.minimum(1.0, 0.5 * moved / np.maximum(beyond, 1e-300))
    return _curvature(np.where(beyond <= 0, 1.0, safe * half * half), data)


def _curvature(weight: Vector, data: Any) -> Vector:
    """Xᵀ diag(weight) X + diag(penalty), (d, d); `weight` (n,) is ∂²ℓ/∂(xᵀθ)² or above it."""
    X = data["X"]
    return X.T @ ((weight * data["weight"])[:, None] * X) + np.diag(data["penalty"])


def squares_solution(data: Any) -> Vector:
    held = data["weight"] > 0
    return least_squares(data["X"][held], data["y"][held], data["penalty"].sum(axis=0))


def logistic_solution(data: Any) -> Vector:
    def curvature(theta: Vector) -> Vector:
        margin = data["X"] @ theta
        return data["weight"] * np.exp(-np.logaddexp(0.0, margin) - np.logaddexp(0.0, -margin))

    return _newton(logistic, logistic_gradient, curvature, data, np.zeros(data["X"].shape[-1]))


def huber_solution(data: Any) -> Vector:
    """Newton by way of larger deltas: where most rows are outliers the Hessian jumps from step to
    step, and Newton from afar would wander.
    """
    final = float(data["delta"][0])
    theta = squares_solution(data)
    delta = float(np.abs(data["weight"] * (data["X"] @ theta - data["y"])).max()) / COARSER

    def curvature_at(delta: float) -> Callable[[Vector], Vector]:
        return lambda theta: data["weight"] * (np.abs(data["X"] @ theta - data["y"]) < delta)

    while True:
        delta = max(delta, final)
        stage = data | {"delta": np.full_like(data["delta"], delta)}
        theta = _newton(huber, huber_gradient, curvature_at(delta), stage, theta)
        if delta == final:
            return theta
        delta /= COARSER


def _newton(
    loss: Callable[[Any, Any], Any],
    gradient: Callable[[Any, Any], Any],
    curvature: Callable[[Vector], Vector],
    data: Any,
    start: Vector,
) -> Vector:
    """Newton in NumPy; curvature(θ) is ∂²ℓ/∂(xᵀθ)², (m, n)."""
    agents = [{key: leaf[i] for key, leaf in data.items()} for i in range(len(data["X"]))]
    every = data["X"].reshape(-1, data["X"].shape[-1])
    penalty = np.diag(data["penalty"].sum(axis=0))

    def point(theta: Vector) -> Point:
        values = np.array([loss(theta, agent) for agent in agents])
        slopes = np.stack([gradient(theta, agent) for agent in agents])
        sizes = np.linalg.norm(slopes, axis=1)
        return Point(theta, values.sum(), np.abs(values).sum(), slopes.sum(axis=0), sizes.sum())

    def hessian(theta: Vector) -> Vector:
        return every.T @ (curvature(theta).reshape(-1, 1) * every) + penalty

    return minimise(point, hessian, start)


def squares_smoothness(data: Any) -> float:
    return float((largest_gram_eigenvalue(data["X"]) + data["penalty"].max(axis=1)).max())


def logistic_smoothness(data: Any) -> float:
    return float((largest_gram_eigenvalue(data["X"]) / 4 + data["penalty"].max(axis=1)).max())


def squares_strong_convexity(data: Any) -> float:
    held = data["X"][data["weight"] > 0]
    hessian = held.T @ held + np.diag(data["penalty"].sum(axis=0))
    return float(max(np.linalg.eigvalsh(hessian)[0], 0.0) / len(data["X"]))


def smallest_penalty(data: Any) -> float:
    return float(data["penalty"].mean(axis=0).min())


@dataclass(frozen=True)
class RowLoss:
    """A loss of rows with everything that `Problem` can be told about it."""

    value: Callable[[Any, Any], Any]  # of θ and one agent's data
    gradient: Callable[[Any, Any], Any]
    solution: Callable[[Any], Vector]  # of all agents' data
    smoothness: Callable[[Any], float]
    strong_convexity: Callable[[Any], float]
    curvature: Callable[[Any, Any, Any], Vector]  # of θ, θ a stage before or None, one agent's data
    majorised: Callable[[Any, Any, Any], Vector]  # the same at every θ, and never too small
    rows: RowSum  # the statistic of a stage, as a sum of rounded rows


SQUARES = RowLoss(
    squares,
    squares_gradient,
    squares_solution,
    squares_smoothness,
    squares_strong_convexity,
    squares_curvature,
    squares_curvature,
    rows.squares,
)
LOGISTIC = RowLoss(
    logistic,
    logistic_gradient,
    logistic_solution,
    logistic_smoothness,
    smallest_penalty,
    logistic_curvature,
    logistic_majorised,
    rows.logistic,
)
HUBER = RowLoss(
    huber,
    huber_gradient,
    huber_solution,
    squares_smoothness,
    smallest_penalty,
    huber_curvature,
    squares_curvature,
    rows.huber,
)


def _namespace(*arrays: Any) -> Any:
    """NumPy for NumPy arrays, else jax.numpy: an agent with NumPy arrays never imports JAX."""
    if all(isinstance(array, np.ndarray) for array in arrays):
        return np
    return optional("jax.numpy", "sim")
