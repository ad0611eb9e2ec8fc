"""The objective f_i of one agent, from its data file or from the user's code.

The deployed agent and `hushgrad doctor` load it. Σ_i f_i is the objective on the pooled data, as in
`hushgrad.problems`, so the agents find the θ that a fit on the pooled data would give. With m
agents:

    least_squares   f_i(θ) = ½ ‖X_i θ − y_i‖²
    ridge           f_i(θ) = ½ ‖X_i θ − y_i‖² + (regularisation / 2m) ‖θ‖²
    logistic        f_i(θ) = Σ_r log(1 + exp(−y_r x_rᵀθ)) + (regularisation / 2m) ‖θ‖²,   y_r = ±1
    rendezvous      f_i(θ) = ‖θ − p_i‖²

An intercept is a last column of ones, without a penalty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.combination import is_finite
from hushgrad.errors import ConfigError, ProblemError
from hushgrad.network.objective.columns import Block, read_columns
from hushgrad.network.objective.pytree_file import read_data
from hushgrad.problems import losses
from hushgrad.schema.places import Source
from hushgrad.schema.references import load

type ObjectiveKind = Literal["least_squares", "ridge", "logistic", "rendezvous", "function"]
type Vector = NDArray[np.float64]  # (d,)

type Gradient = Callable[[Vector], Vector]


@dataclass(frozen=True, kw_only=True)
class Standardise:
    """(column − mean) / scale, with constants that all agents share."""

    mean: tuple[float, ...]  # (columns,)
    scale: tuple[float, ...]  # (columns,)


@dataclass(frozen=True, kw_only=True)
class ObjectiveSpec:
    """The kind of an objective and the file of its data; a spec holds no data."""

    kind: ObjectiveKind
    n_agents: int  # each agent has 1/n_agents of the regulariser
    file: Path | None = None
    columns: tuple[str, ...] = ()
    target: str | None = None
    delimiter: str = ","
    intercept: bool = False
    regularisation: float = 0.0
    standardise: Standardise | None = None
    position: tuple[float, ...] | None = None  # rendezvous
    function: str | None = None  # "file.py:name" or "module:name": θ → … or θ, data → …
    jax: bool = False  # the function is a loss or a gradient in JAX; JAX differentiates a loss
    source: Source = field(
        default=Source("agent", Path(), what="agent's file", raises=ConfigError), repr=False
    )  # the agent's file, for relative paths and messages


@dataclass(frozen=True)
class Objective:
    """∇f_i of this agent, and a description."""

    dim: int
    gradient: Gradient  # returns a new array
    describe: str


def load_objective(spec: ObjectiveSpec | Gradient, dim: int) -> Objective:
    """Read the data of a spec and make its objective; a callable is a gradient already."""
    if callable(spec):
        return _checked(dim, spec, getattr(spec, "__name__", type(spec).__name__))
    if spec.kind == "function":
        return _from_function(spec, dim)
    if spec.kind == "rendezvous":
        return _rendezvous(spec, dim)
    return _regression(spec, dim)


def _regression(spec: ObjectiveSpec, dim: int) -> Objective:
    assert spec.file is not None
    assert spec.target is not None
    block = read_columns(
        spec.file,
        [spec.target, *spec.columns],
        ones=int(spec.intercept),
        delimiter=spec.delimiter,
    )
    X, y = block.values[:, 1:], block.values[:, 0]
    _check_dim(spec, X.shape[1], dim)
    if spec.standardise is not None:
        _standardise(block, spec.standardise, spec.file)
    penalty = np.full(dim, spec.regularisation / spec.n_agents)
    if spec.intercept:
        penalty[-1] = 0.0
    rows = f"{len(y)} rows, {len(block.labels) - 1} columns{' and intercept' * spec.intercept}"
    describe = f"{spec.kind} on {spec.file.name}: {rows}"
    data: dict[str, Any] = {"weight": 1.0, "penalty": penalty}
    if spec.kind == "logistic":
        data |= {"X": X, "y": _signs(block)}
        return _checked(dim, lambda theta: losses.logistic_gradient(theta, data), describe)
    if len(y) > dim:
        # ‖Xθ − y‖² = ‖Rθ − Qᵀy‖² + a constant, so R and Qᵀy replace the rows
        triangle = np.linalg.qr(np.column_stack([X, y]), mode="r")
        data |= {"X": triangle[:dim, :dim], "y": triangle[:dim, dim]}
    else:
        data |= {"X": X, "y": y}
    return _checked(dim, lambda theta: losses.squares_gradient(theta, data), describe)


def _check_dim(spec: ObjectiveSpec, found: int, dim: int) -> None:
    if found != dim:
        intercept = ", the intercept included" if spec.intercept else ""
        raise ProblemError(
            f"θ has dim = {dim} entries in [run], but the objective's columns are {found}"
            f"{intercept}. All agents have the same columns in the same order. Correct dim or the "
            "columns."
        )


def _standardise(block: Block, constants: Standardise, path: Path) -> None:
    """Standardise the block in place, except for its target and its ones."""
    n = len(block.labels) - 1
    if len(constants.mean) != n or len(constants.scale) != n:
        raise ProblemError(
            f"standardise has {len(constants.mean)} means and {len(constants.scale)} scales, but "
            f"'{path}' has {n} columns. Give one of each for every column."
        )
    columns = block.values[:, 1 : n + 1]
    columns -= constants.mean
    columns /= constants.scale


def _signs(block: Block) -> Vector:
    """The labels as ±1; the file may code them as {0, 1} or as {−1, 1}."""
    labels = block.values[:, 0]
    uses_zero = bool((labels == 0).any())
    wrong = np.flatnonzero(~np.isin(labels, (0.0, 1.0) if uses_zero else (-1.0, 1.0)))
    if wrong.size:
        row = int(wrong[0])
        raise ProblemError(
            f"{block.place(row)}: column {block.labels[0]} is {labels[row]:g}, but labels are all "
            f"in {{0, 1}} or all in {{-1, 1}}{', and others are 0' * uses_zero}. Recode it "
            "(several classes: one against the rest)."
        )
    return 2 * labels - 1 if uses_zero else labels.copy()


def _rendezvous(spec: ObjectiveSpec, dim: int) -> Objective:
    if spec.file is None:
        position, place = np.array(spec.position, np.float64), "position"
    else:
        block = read_columns(spec.file, spec.columns, delimiter=spec.delimiter)
        if len(block.values) != 1:
            raise ProblemError(
                f"an agent has one position, but '{spec.file}' has {len(block.values)} rows. "
                "Keep the agent's own row."
            )
        position, place = block.values[0], spec.file.name
    _check_dim(spec, len(position), dim)
    return _checked(dim, lambda theta: 2 * (theta - position), f"rendezvous from {place}")


def _from_function(spec: ObjectiveSpec, dim: int) -> Objective:
    assert spec.function is not None
    function = load(spec.source, ("objective", "function"), spec.function)

    data = None if spec.file is None else read_data(spec.file)

    def called(theta: Any, data: Any) -> Any:
        return function(theta) if spec.file is None else function(theta, data)

    if not spec.jax:
        with_data = function if spec.file is None else lambda theta: function(theta, data)
        return _checked(dim, with_data, spec.function)
    from hushgrad.problems import autodiff

    try:
        is_loss = autodiff.output_shape(called, dim, data)[0] == ()
    except Exception as error:  # the user's code may raise anything
        raise _raised(spec.function, error) from error
    derived = autodiff.in_float64(autodiff.gradient_of(called) if is_loss else called)
    held = autodiff.on_device(data)
    describe = f"∇ of {spec.function}" if is_loss else spec.function
    return _checked(dim, lambda theta: derived(theta, held), describe)


def _raised(describe: str, error: Exception) -> ProblemError:
    return ProblemError(f"{describe} raised {type(error).__name__}: {error}.")


def _checked(dim: int, function: Callable[[Vector], Any], describe: str) -> Objective:
    """An objective that checks every gradient: shape (dim,), and finite."""

    def gradient(theta: Vector) -> Vector:
        seen = theta.view()
        seen.flags.writeable = False  # θ is part of the agent's state
        try:
            g = np.array(function(seen), np.float64)  # a copy: the function may reuse its array
        except Exception as error:  # the user's code may raise anything
            raise _raised(describe, error) from error
        if g.shape != (dim,):
            raise ProblemError(
                f"a gradient at θ of shape ({dim},) has the same shape, but {describe} gives "
                f"{g.shape}. Correct the function, or dim in [run]."
            )
        if not is_finite(g):
            n = int(np.argmax(~np.isfinite(g)))
            with np.errstate(over="ignore"):
                norm = np.linalg.norm(theta)
            raise ProblemError(
                f"a gradient is finite, but {describe} gives {g[n]} in entry {n} at "
                f"‖θ‖ = {norm:.3g}. Correct the function, or use a smaller stepsize if θ is far "
                "off."
            )
        return g

    return Objective(dim, gradient, describe)
