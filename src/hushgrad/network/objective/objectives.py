"""The objective f_i of one agent, from its data file or from the user's code.

The deployed agent and `hushgrad doctor` load it. Σ_i f_i is the objective on the pooled data, as in
`hushgrad.problems`, so the agents find the θ that a fit on the pooled data would give. With m
agents:

    least_squares   f_i(θ) = ½ ‖X_i θ − y_i‖²
    ridge           f_i(θ) = ½ ‖X_i θ − y_i‖² + (regularisation / 2m) ‖θ‖²
    logistic        f_i(θ) = Σ_r log(1 + exp(−y_r x_rᵀθ)) + (regularisation / 2m) ‖θ‖²,   y_r = ±1
    huber           f_i(θ) = Σ_r h(x_rᵀθ − y_r) + (regularisation / 2m) ‖θ‖²
    rendezvous      f_i(θ) = ‖θ − p_i‖²
    average         f_i(θ) = ½ ‖θ − a_i‖²

Huber's h(r) is r²/2 up to |r| = delta, then linear. An intercept is a last column of ones, without
a penalty. A run in stages (hushgrad.agent.stages)
also asks for the curvature of f_i: the kinds above know a formula, a function comes with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hushgrad.agent.stages import Curve
from hushgrad.agent.vectors import Vector, is_finite
from hushgrad.errors import ConfigError, ProblemError
from hushgrad.network.objective.columns import read_columns, signs
from hushgrad.network.objective.pytree_file import read_data
from hushgrad.network.objective.units import Standardise, clip_block, standardise
from hushgrad.problems import losses
from hushgrad.problems.determined import Chain, reach, row_loss, rows_of, share_of
from hushgrad.problems.effective import effective_alone
from hushgrad.problems.models import safeguarded
from hushgrad.problems.row_places import count_rows
from hushgrad.problems.rows import Grids
from hushgrad.schema.places import Source
from hushgrad.schema.references import load

if TYPE_CHECKING:
    from hushgrad.fitting.plan import Data
    from hushgrad.network.objective.fit_rows import FitSpec

type ObjectiveKind = Literal[
    "least_squares", "ridge", "logistic", "huber", "rendezvous", "average", "function"
]
type Gradient = Callable[[Vector], Vector]
# θ, θ one stage before or None, grids, whether the curvature is fixed → H (d, d), q (d,)
type Rows = Callable[[Vector, Vector | None, Grids, bool], tuple[Vector, Vector]]
# starts of stages, whether the curvature is fixed, honest rows over own rows → the largest share
type Determined = Callable[[Sequence[Vector], bool, float, Sequence[Chain]], float]

_LOSSES = {
    "least_squares": losses.SQUARES,
    "ridge": losses.SQUARES,
    "logistic": losses.LOGISTIC,
    "huber": losses.HUBER,
}


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
    delta: float = 1.35  # huber
    standardise: Standardise | None = None
    clip: float | None = None  # no row is longer after `standardise`, the intercept apart
    position: tuple[float, ...] | None = None  # rendezvous, and the vector of an average
    function: str | None = None  # "file.py:name" or "module:name": θ → … or θ, data → …
    jax: bool = False  # the function is a loss or a gradient in JAX; JAX differentiates a loss
    quadratic: bool = False  # the function is the gradient (or loss) of a quadratic f_i
    hessian: str | None = None  # a reference as above: the Hessian of the function
    curvature: str | None = None  # or better, for stages: θ, θ one stage before, data → (d, d)
    majorised: str | None = None  # the same, of a bound of all Hessians
    rows: str | None = None  # a function of the form of hushgrad.problems.rows
    smoothness: float | None = None  # of the function: a bound of its Hessians at every θ
    source: Source = field(
        default=Source("agent", Path(), what="agent's file", raises=ConfigError), repr=False
    )  # the agent's file, for relative paths and messages

    @property
    def between(self) -> str | None:
        """The delimiter of the file; None: it is no CSV file."""
        is_csv = self.file is not None and self.file.suffix.lower() == ".csv"
        return self.delimiter if is_csv else None

    @property
    def units(self) -> tuple[Sequence[float], Sequence[float]] | None:
        """Means and scales of the columns."""
        return self.standardise and (self.standardise.mean, self.standardise.scale)

    @property
    def row_rules(self) -> dict[str, Any]:
        """The rules that treat single rows differently."""
        rules: dict[str, Any] = {}
        if self.clip is not None:
            rules["clip"] = [self.clip, self.columns, self.units]  # they decide which rows are long
        if self.kind == "huber":
            rules["delta"] = [self.delta]
        return rules

    @property
    def is_quadratic(self) -> bool:
        """Whether f_i is quadratic, whatever the data."""
        return self.quadratic or self.kind in ("least_squares", "ridge", "rendezvous", "average")


@dataclass(frozen=True)
class Objective:
    """∇f_i of this agent, its curvatures as far as they are known, and a description."""

    dim: int
    gradient: Gradient  # returns a new array
    describe: str
    newton: Curve | None = None  # the Hessian, made safe for Newton steps
    majorised: Curve | None = None  # a bound of all Hessians
    n_rows: int | None = None  # n_i; None: the data are no rows, or nobody told
    rows: Rows | None = None  # the statistic of a stage as a sum of rounded rows
    effective_lengths: float | None = None  # the effective rows by length; None as n_rows
    determined: Determined | None = None  # of the rows, by the sums of stages, if they are known
    reach: Callable[..., float] | None = None  # what no q_i exceeds in any stage, if rows are known
    is_quadratic: bool = False
    largest_row: tuple[float, float] | None = None  # max ‖x‖ and max |y| over the rows
    n_events: int | None = None  # rows of the rarer label; None: no labels, or not known
    smoothness: float | None = None  # L_i, if the user declared it
    fit_rows: Data | None = None  # of a fit, which asks for no gradient
    small_cell: str | None = None  # of a pooled table: too few rows of this agent

    def curvature(self, kind: str) -> Curve:
        """The curvature "newton" or "fixed", of θ and of θ one stage before, to (d, d)."""
        curve = self.newton if kind == "newton" else self.majorised
        if curve is not None:
            return curve
        if kind == "fixed":
            raise ProblemError(
                f"a fixed curvature bounds the Hessian at every θ, but {self.describe} comes "
                'without one. Use curvature = "newton" in [algorithm], or a kind of objective '
                'such as "logistic" or "huber".'
            )
        raise ProblemError(
            "a run in stages computes with the curvature of f_i, but the Hessian of "
            f'{self.describe} is unknown. Give hessian = "file.py:name" in [objective], a function '
            "of the same arguments that returns ∇²f_i (d, d), or write the function in JAX "
            '(jax = true), which differentiates it. Without either, design = "paper" in '
            "[algorithm] computes with ∇f_i itself, and hides less."
        )


def load_objective(
    spec: ObjectiveSpec | FitSpec | Gradient,
    dim: int,
    *,
    hessian: Gradient | None = None,
    quadratic: bool = False,
) -> Objective:
    """Read the data of a spec and make its objective; a callable is a gradient already.

    `hessian` and `quadratic` belong to a callable: θ (d,) → ∇²f (d, d).
    """
    if not callable(spec):
        if not isinstance(spec, ObjectiveSpec):
            return _of_fit(spec, dim)
        own = _of_spec(spec, dim)
        return replace(own, is_quadratic=spec.is_quadratic, smoothness=spec.smoothness)
    name = getattr(spec, "__name__", type(spec).__name__)
    newton = None if hessian is None else safeguarded(lambda theta, _: hessian(theta))
    return replace(_checked(dim, spec, name, newton), is_quadratic=quadratic)


def _of_spec(spec: ObjectiveSpec, dim: int) -> Objective:
    if spec.kind == "function":
        return _from_function(spec, dim)
    if spec.kind in ("rendezvous", "average"):
        return _distance(spec, dim, 2.0 if spec.kind == "rendezvous" else 1.0)
    return _regression(spec, dim)


def _of_fit(spec: FitSpec, dim: int) -> Objective:
    """The rows of a fit; its programme (network/programme.py) makes vectors of them."""
    from hushgrad.fitting.plan import small_cell_of
    from hushgrad.network.objective.fit_rows import effective_rows, least_rows

    data = spec.read()
    rows = least_rows(data)
    n = rows.n_rows
    dropped = f" ({rows.n_dropped} dropped)" if rows.n_dropped else ""
    return Objective(
        dim,
        _no_gradient,
        f"{spec.describe} on {spec.place}: {n} rows{dropped}, {spec.size}",
        n_rows=n,
        effective_lengths=effective_rows(rows, is_quadratic=spec.is_quadratic),
        is_quadratic=spec.is_quadratic,
        fit_rows=data,
        small_cell=small_cell_of(spec.model, data),
    )


def _no_gradient(_: Vector) -> Vector:
    raise ProblemError("a fit is a programme of sums and has no gradient.")


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
        standardise(block, spec.standardise, spec.file)
    if spec.clip is not None:
        clip_block(block, spec.clip)
    penalty = np.full(dim, spec.regularisation / spec.n_agents)
    if spec.intercept:
        penalty[-1] = 0.0
    rows = f"{len(y)} rows, {len(block.labels) - 1} columns{' and intercept' * spec.intercept}"
    clipped = "" if spec.clip is None else f", no row longer than {spec.clip:g}"
    describe = f"{spec.kind} on {spec.file.name}: {rows}{clipped}"
    loss = _LOSSES[spec.kind]
    labels = signs(block) if loss is losses.LOGISTIC else y
    held = {"X": X, "y": labels, "weight": 1.0, "penalty": penalty, "delta": spec.delta}
    data = held
    if loss is losses.SQUARES and len(y) > dim:
        # ‖Xθ − y‖² = ‖Rθ − Qᵀy‖² + a constant, so R and Qᵀy stand for the rows
        triangle = np.linalg.qr(np.column_stack([X, y]), mode="r")
        data = held | {"X": triangle[:dim, :dim], "y": triangle[:dim, dim]}
    curves = loss.curvature, loss.majorised
    objective = _checked(dim, lambda theta: loss.gradient(theta, data), describe, *curves, data)
    largest = float(np.linalg.norm(X, axis=1).max()), float(np.abs(labels).max())
    n_events = int(min((labels > 0).sum(), (labels < 0).sum())) if loss is losses.LOGISTIC else None
    # the data of `objective` may have R in place of the rows
    objective = replace(objective, n_rows=len(y), n_events=n_events, largest_row=largest)
    return _with_rows(objective, loss.rows, held)


def _with_rows(objective: Objective, rows: Any, data: Any) -> Objective:
    """The objective with the rows of this agent's data; `rows` is a RowSum or None."""
    loss = row_loss(rows)
    found = replace(objective, effective_lengths=effective_alone(data, is_judged=loss is not None))
    if loss is not None:
        own = loss, rows_of(data)
        found = replace(found, determined=partial(share_of, *own), reach=partial(reach, *own))
    if rows is None:
        return found
    return replace(found, rows=lambda x, before, grids, fixed: rows(x, before, data, grids, fixed))


def _check_dim(spec: ObjectiveSpec, found: int, dim: int) -> None:
    if found != dim:
        intercept = ", the intercept included" if spec.intercept else ""
        raise ProblemError(
            f"θ has dim = {dim} entries in [run], but the objective's columns are {found}"
            f"{intercept}. All agents have the same columns in the same order. Correct dim or the "
            "columns."
        )


def _distance(spec: ObjectiveSpec, dim: int, factor: float) -> Objective:
    """Half the factor times the squared distance from the agent's one vector."""
    if spec.file is None:
        key = "position" if spec.kind == "rendezvous" else "values"
        position, place = np.array(spec.position, np.float64), key
    else:
        block = read_columns(spec.file, spec.columns, delimiter=spec.delimiter)
        if len(block.values) != 1:
            raise ProblemError(
                f"an agent has one vector, but '{spec.file}' has {len(block.values)} rows. "
                "Keep the agent's own row."
            )
        position, place = block.values[0], spec.file.name
    _check_dim(spec, len(position), dim)
    curve = safeguarded(lambda theta, _: factor * np.eye(len(theta)))
    describe = f"{spec.kind} from {place}"
    objective = _checked(dim, lambda theta: factor * (theta - position), describe, curve, curve)
    return replace(objective, largest_row=(float(np.linalg.norm(position)), 0.0))


def _from_function(spec: ObjectiveSpec, dim: int) -> Objective:
    assert spec.function is not None
    function = _with_data(spec, "function", spec.function)
    data = None if spec.file is None else read_data(spec.file)
    newton = majorised = None
    if spec.curvature is not None:
        newton = load(spec.source, ("objective", "curvature"), spec.curvature)
    elif spec.hessian is not None:
        newton = safeguarded(_with_data(spec, "hessian", spec.hessian))
    if spec.majorised is not None:
        majorised = load(spec.source, ("objective", "majorised"), spec.majorised)
    rows = None if spec.rows is None else load(spec.source, ("objective", "rows"), spec.rows)
    if not spec.jax:
        objective = _checked(
            dim, lambda theta: function(theta, data), spec.function, newton, majorised, data
        )
        return _with_rows(objective, rows, data)
    from hushgrad.problems import autodiff

    try:
        is_loss = autodiff.output_shape(function, dim, data)[0] == ()
    except Exception as error:  # the user's code may raise anything
        raise _raised(spec.function, error) from error
    slope = autodiff.gradient_of(function) if is_loss else function
    derived, held = autodiff.in_float64(slope), autodiff.on_device(data)
    if newton is None:
        newton = safeguarded(autodiff.hessian_of(slope))
    describe = f"∇ of {spec.function}" if is_loss else spec.function
    objective = _checked(dim, lambda theta: derived(theta, held), describe, newton, majorised, data)
    return _with_rows(objective, rows, data)


def _with_data(spec: ObjectiveSpec, key: str, reference: str) -> Callable[[Any, Any], Any]:
    """A function of the user, called with θ and data; without data, with θ alone."""
    function = load(spec.source, ("objective", key), reference)
    return function if spec.file is not None else lambda theta, _: function(theta)


def _raised(describe: str, error: Exception) -> ProblemError:
    return ProblemError(f"{describe} raised {type(error).__name__}: {error}.")


def _checked(
    dim: int,
    function: Callable[[Vector], Any],
    describe: str,
    newton: Any = None,
    majorised: Any = None,
    data: Any = None,
) -> Objective:
    """An objective that checks every gradient and curvature: shapes (d,) and (d, d), and finite.

    newton, majorised     θ, θ one stage before or None, data → (d, d)
    """

    def gradient(theta: Vector) -> Vector:
        return _sound(function, (_seen(theta),), "gradient", (dim,), describe)

    def of(curve: Any) -> Curve | None:
        def curvature(theta: Vector, before: Vector | None) -> Vector:
            earlier = None if before is None else _seen(before)
            given = (_seen(theta), earlier, data)
            return _sound(curve, given, "curvature", (dim, dim), describe)

        return None if curve is None else curvature

    return Objective(dim, gradient, describe, of(newton), of(majorised), n_rows=count_rows(data))


def _seen(theta: Vector) -> Vector:
    """θ as the user's code may see it: θ is part of the agent's state."""
    seen = theta.view()
    seen.setflags(write=False)
    return seen


def _sound(
    function: Callable[..., Any],
    given: tuple[Any, ...],
    what: str,
    shape: tuple[int, ...],
    describe: str,
) -> Vector:
    """The array that the user's code gives for θ and more, if it has the shape and is finite."""
    theta = given[0]
    try:
        g = np.array(function(*given), np.float64)  # a copy: the function may reuse its array
    except Exception as error:  # the user's code may raise anything
        raise _raised(describe, error) from error
    if g.shape != shape:
        same = "the same shape" if what == "gradient" else f"the shape {shape}"
        raise ProblemError(
            f"a {what} at θ of shape {theta.shape} has {same}, but {describe} gives "
            f"{g.shape}. Correct the function, or dim in [run]."
        )
    if not is_finite(g if g.ndim == 1 else g.ravel()):
        n = int(np.argmax(~np.isfinite(g)))
        with np.errstate(over="ignore"):
            norm = np.linalg.norm(theta)
        raise ProblemError(
            f"a {what} is finite, but {describe} gives {g.flat[n]} in entry {n} at "
            f"‖θ‖ = {norm:.3g}. Correct the function, or use a smaller stepsize if θ is far off."
        )
    return g
