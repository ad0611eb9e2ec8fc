"""Quadratic models of the agents' objectives, whose sum one stage of a run minimises.

The model of f_i at x_i, with the gradient g_i and a curvature H_i there, is

    ½ θᵀ H_i θ + q_iᵀ θ,      q_i = g_i − H_i x_i

up to a constant. A stage needs nothing else of f_i. `hushgrad.agent.stages` makes models in an
agent, `hushgrad.simulate.staged` makes problems of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.problems.rows import RowSum

type Floats = NDArray[np.float64]
type Hessian = Callable[[Any, Any], Any]  # θ (d,), one agent's data → (d, d)
type Curve = Callable[[Any, Any, Any], Any]  # θ, θ one stage before or None, data → (d, d)

_JUMP = 0.5  # of ‖H‖: a larger change from one stage to the next says that the step was too long
_UNROLLED = 4  # entries of θ up to which products are written out for JAX


class Curvature(NamedTuple):
    """The curvatures from which a stage may choose; None where nobody knows one."""

    newton: Curve
    majorised: Curve | None
    rows: RowSum | None = None  # the whole statistic, as a sum of rounded rows


def safeguarded(hessian: Hessian) -> Curve:
    """The Hessian, raised while it changes so much between stages that a step may overshoot."""

    def curve(theta: Any, before: Any, data: Any) -> Floats:
        H = np.asarray(hessian(theta, data), np.float64)
        if before is None:
            return H
        change = np.linalg.norm(H - np.asarray(hessian(before, data), np.float64))
        return H + change * np.eye(len(H)) if change > _JUMP * np.linalg.norm(H) else H

    return curve


def model_value(theta: Any, data: Any) -> Any:
    return (data["H"] @ theta / 2 + data["q"]) @ theta


def model_hessian(theta: Any, data: Any) -> Any:
    del theta
    return data["H"]


def linear_value(theta: Any, data: Any) -> Any:
    """The model without H_i: an agent with this model tells ∇f_i(0) alone."""
    return data["q"] @ theta


def linear_gradient(theta: Any, data: Any) -> Any:
    del theta
    return data["q"]


def model_gradient(theta: Any, data: Any) -> Any:
    """H θ + q; short products are written out for JAX, which fuses them with the next lines."""
    H, q = data["H"], data["q"]
    d = len(theta)
    if isinstance(theta, np.ndarray) or d > _UNROLLED:
        return H @ theta + q
    from jax import numpy as jnp

    return jnp.stack([sum(H[a, b] * theta[b] for b in range(d)) + q[a] for a in range(d)])
