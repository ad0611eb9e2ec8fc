"""JAX for a problem: gradients, sums over agents, Hessians, curvatures.

Everything runs in float64 inside a context of its own; no global flag is touched, and results leave
as NumPy arrays. `Problem` and agents with `jax = true` load this module when they need a
derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hushgrad.errors import optional
from hushgrad.problems.newton import Point

DENSE = 200  # up to this dimension a Hessian per agent and its eigenvalues are cheap
BATCH = 64  # Hessian columns at a time: bounds memory at d = 1000
POWER_ITERATIONS = 2000
POWER_TOLERANCE = 1e-10

type Function = Callable[[Any, Any], Any]  # of θ (d,) and one agent's data


def gradient_of(loss: Function) -> Function:
    return optional("jax", "sim").grad(loss)


def hessian_of(gradient: Function) -> Function:
    """∇²loss (d, d) as a NumPy function of θ (d,) and one agent's data."""
    return in_float64(optional("jax", "sim").jacfwd(gradient))


def over_thetas(function: Function) -> Function:
    """`function` of θ (n, d) and one agent's data."""
    return optional("jax", "sim").vmap(function, (0, None))


def output_shape(function: Function, dim: int, data: Any) -> tuple[tuple[int, ...], str]:
    """Shape and dtype kind of function(θ, data), traced in float64 without computing it."""
    jax = optional("jax", "sim")
    with jax.enable_x64(True):
        out = jax.eval_shape(function, jax.ShapeDtypeStruct((dim,), np.float64), data)
    return tuple(out.shape), str(out.dtype.kind)


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled, run in float64 whatever the caller's settings, NumPy in and out."""
    jax = optional("jax", "sim")
    compiled = jax.jit(function)

    def call(*arguments: Any) -> Any:
        with jax.enable_x64(True):  # entered at every call: the context does not follow threads
            return jax.tree.map(np.array, compiled(*arguments))

    return call


def on_device(data: Any) -> Any:
    """The data as JAX arrays, so that repeated calls do not copy it again."""
    jax = optional("jax", "sim")
    with jax.enable_x64(True):
        return jax.device_put(data)


class Sums:
    """Σ f_i with its gradient and Hessian, over groups of agents that are passed as an argument."""

    def __init__(self, loss: Function, gradient: Function) -> None:
        jax = optional("jax", "sim")
        xp = jax.numpy

        def point(theta: Any, groups: tuple[Any, ...]) -> tuple[Any, ...]:
            values = [jax.vmap(loss, (None, 0))(theta, data) for data in groups]
            slopes = [jax.vmap(gradient, (None, 0))(theta, data) for data in groups]
            return (
                sum(f.sum() for f in values),
                sum(xp.abs(f).sum() for f in values),
                sum(g.sum(0) for g in slopes),
                sum(xp.linalg.norm(g, axis=1).sum() for g in slopes),
            )

        def hessian(theta: Any, groups: tuple[Any, ...]) -> Any:
            def slope(theta: Any) -> Any:
                return sum(jax.vmap(gradient, (None, 0))(theta, data).sum(0) for data in groups)

            def column(direction: Any) -> Any:
                return jax.jvp(slope, (theta,), (direction,))[1]

            return jax.lax.map(column, xp.eye(theta.size), batch_size=min(BATCH, theta.size))

        self._point = in_float64(point)
        self.hessian = in_float64(hessian)

    def point(self, theta: Any, groups: tuple[Any, ...]) -> Point:
        value, value_scale, gradient, gradient_scale = self._point(theta, groups)
        return Point(theta, float(value), float(value_scale), gradient, float(gradient_scale))


def largest_curvature(gradient: Function, dim: int, groups: tuple[Any, ...]) -> float:
    """The largest, over agents, spectral norm of ∇²f_i(0): dense up to d = 200, then by power
    iteration.

    The power iteration approaches from below, to some six digits when the top two eigenvalues
    differ.
    """
    jax = optional("jax", "sim")
    xp = jax.numpy
    start = np.random.default_rng(0).normal(size=dim)

    def times(data: Any, direction: Any) -> Any:
        return jax.jvp(lambda theta: gradient(theta, data), (xp.zeros(dim),), (direction,))[1]

    def dense(data: Any) -> Any:
        hessian = jax.vmap(lambda direction: times(data, direction))(xp.eye(dim))
        return xp.abs(xp.linalg.eigvalsh(hessian)).max()

    def power(data: Any) -> Any:
        def unfinished(carry: Any) -> Any:
            _, size, last, count = carry
            return (count < POWER_ITERATIONS) & (xp.abs(size - last) > POWER_TOLERANCE * size)

        def again(carry: Any) -> Any:
            direction, size, _, count = carry
            image = times(data, direction)
            norm = xp.linalg.norm(image)
            return image / xp.where(norm > 0, norm, 1.0), norm, size, count + 1

        unit = xp.asarray(start / np.linalg.norm(start))
        first = (unit, xp.asarray(1.0), xp.asarray(0.0), 0)
        return jax.lax.while_loop(unfinished, again, first)[1]

    one = dense if dim <= DENSE else power
    top = in_float64(lambda data: jax.lax.map(one, data).max())
    return max(float(top(data)) for data in groups)
