"""Checks of a loss before `Problem` uses it: its shape, the dimension of θ, NumPy or JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hushgrad.errors import ProblemError
from hushgrad.problems import autodiff
from hushgrad.problems.data import leaves

type Function = Callable[[Any, Any], Any]  # of θ (d,) and one agent's data

# NumPy and JAX raise these for shapes and types that do not fit; a missing extra is none of them.
MISFITS = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError)


def output_shape(
    function: Function, dim: int, data: Any, *, try_numpy: bool
) -> tuple[tuple[int, ...], bool]:
    """The shape of function(θ, data), and whether it computes with NumPy on NumPy arrays."""
    if try_numpy:
        try:
            with np.errstate(all="ignore"):
                out = function(np.zeros(dim), data)
        except Exception:  # it may be for JAX arrays only, which is asked next
            out = None
        if isinstance(out, np.ndarray | np.generic | float | int):
            return np.shape(out), True
    shape, kind = autodiff.output_shape(function, dim, data)
    if kind != "f":
        raise TypeError(f"its value has the dtype kind {kind!r}, not a float")
    return shape, False


_SHAPES = {
    "loss": "Sum it up.",
    "gradient": "Return ∇loss, (d,).",
    "hessian": "Return ∇²loss, (d, d).",
}


def infer_dim(loss: Function, agent: int, data: Any, *, try_numpy: bool) -> int:
    """The one axis length in an agent's data for which loss(θ, data) is a scalar."""

    def fits(length: int) -> bool:
        try:
            return output_shape(loss, length, data, try_numpy=try_numpy)[0] == ()
        except MISFITS:
            return False

    lengths = sorted({n for leaf in leaves(data).values() for n in leaf.shape})
    fitting = [length for length in lengths if fits(length)]
    if len(fitting) != 1:
        raise ProblemError(
            "The dimension of θ follows from the data if exactly one axis length of an agent's "
            f"arrays makes the loss a scalar, but of {lengths} (agent {agent}) "
            f"{fitting or 'none'} do. Pass dim=, and check that the loss returns a scalar."
        )
    return fitting[0]


def check_output(
    function: Function,
    what: str,
    expected: tuple[int, ...],
    dim: int,
    samples: Sequence[tuple[int, Any]],
    *,
    try_numpy: bool,
) -> bool:
    """Refuse a function of the wrong shape on some agent; whether it computes with NumPy."""
    with_numpy: list[bool] = []
    for agent, data in samples:
        try:
            shape, is_numpy = output_shape(function, dim, data, try_numpy=try_numpy)
        except MISFITS as error:
            raise ProblemError(
                f"The {what} is evaluated on θ ({dim},) and one agent's data, but on agent {agent} "
                f"it raised {type(error).__name__}: {error}. Write it with jax.numpy, for the "
                "shapes of one agent, and check dim=."
            ) from error
        if shape != expected:
            raise ProblemError(
                f"The {what} must have the shape {expected}, but on agent {agent} it has {shape}. "
                + _SHAPES[what]
            )
        with_numpy.append(is_numpy)
    return all(with_numpy)
