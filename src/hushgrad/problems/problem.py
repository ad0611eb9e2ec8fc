"""`Problem`: min Σ_i f_i(θ), one loss, one piece of data for each agent.

The builders of `hushgrad.problems` return it, the simulator and the privacy lab run on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrad.errors import ProblemError
from hushgrad.problems import autodiff, newton
from hushgrad.problems.checks import check_count
from hushgrad.problems.data import AgentsData, Group, leaves
from hushgrad.problems.determined import SecretsOfRows, row_loss
from hushgrad.problems.late import AgentRows, LateData
from hushgrad.problems.models import Curvature, Hessian, safeguarded
from hushgrad.problems.rows import Grids
from hushgrad.problems.shapes import check_output, infer_dim

type Loss = Callable[[Any, Any], Any]  # θ (d,), one agent's data → scalar
type Gradient = Callable[[Any, Any], Any]  # θ (d,), one agent's data → (d,)
type Vector = NDArray[np.float64]


@final
class Problem:
    """min Σ_i f_i(θ) with f_i(θ) = loss(θ, data_i), every data_i the secret of one agent.

    loss              any JAX-traceable function of θ (d,) and one agent's data, to a scalar
    data              a pytree of arrays with a leading agent axis; or a *list* of one pytree for
                      each agent, whose arrays may differ in shape (lists are agents, not pytrees);
                      or `AgentRows`, which make the data of those agents that are asked for
    dim               d; without it, the one axis length in the data that makes the loss a scalar
    gradient          ∇loss by hand, for NumPy and JAX arrays alike; without it, autodiff
    solution          θ*: an array (d,), or (trials, d); or a function of the data (of one trial)
    smoothness, strong_convexity
                      what the methods of these names return: a number, or a function of the data
    hessian           ∇²loss by hand, of θ and one agent's data, in NumPy; without it, autodiff
    quadratic         whether every f_i is quadratic, so that one stage is enough for a private run
    per_trial         leaves lead with (trials, agents): every Monte Carlo trial has its own problem

    Data is copied, floats as float64, and read-only. A gradient that computes with NumPy is used
    without importing JAX.

    >>> problem = Problem(lambda theta, p: ((theta - p) ** 2).sum(), np.eye(3)[:, :2])
    >>> problem
    Problem('custom', n_agents=3, dim=2)
    >>> problem.solution().round(3).tolist()
    [0.333, 0.333]
    """

    def __init__(
        self,
        loss: Loss,
        data: Any,
        *,
        dim: int | None = None,
        gradient: Gradient | None = None,
        solution: ArrayLike | Callable[[Any], ArrayLike] | None = None,
        smoothness: float | Callable[[Any], float] | None = None,
        strong_convexity: float | Callable[[Any], float] | None = None,
        hessian: Hessian | None = None,
        quadratic: bool = False,
        per_trial: bool = False,
        name: str = "custom",
        curvature: Curvature | None = None,
        trial_numbers: ArrayLike | None = None,
    ) -> None:
        """`curvature` is for builders that know a better one than the Hessian, `trial_numbers` for
        problems of a few trials out of many.
        """
        self.name = name
        self.is_quadratic = quadratic
        self.loss = loss
        if isinstance(data, AgentRows) and per_trial:
            raise ProblemError(
                "AgentRows are the same in every trial, but per_trial=True. Give arrays instead."
            )
        self._agents = (
            LateData(data)
            if isinstance(data, AgentRows)
            else AgentsData(data, per_trial=per_trial, numbers=trial_numbers)
        )
        self.n_agents, self.n_trials = self._agents.n_agents, self._agents.n_trials
        self.n_groups = self._agents.n_groups
        self._gradient = gradient
        by_hand = gradient is not None  # then NumPy may do; without it only JAX can differentiate
        samples = self._agents.first_of_each_group()
        self.dim = (
            infer_dim(loss, *samples[0], try_numpy=by_hand)
            if dim is None
            else check_count("dim", dim)
        )
        self._numpy_loss = check_output(loss, "loss", (), self.dim, samples, try_numpy=by_hand)
        self._numpy_gradient = gradient is not None and check_output(
            gradient, "gradient", (self.dim,), self.dim, samples, try_numpy=True
        )
        self._given_solution = solution
        self._given_smoothness = smoothness
        self._given_strong_convexity = strong_convexity
        self._given_curvature, self._given_hessian = curvature, hessian
        if hessian is not None and curvature is None:
            check_output(
                hessian, "hessian", (self.dim, self.dim), self.dim, samples, try_numpy=True
            )
            self._given_curvature = Curvature(safeguarded(hessian), None)

    def __repr__(self) -> str:
        trials = "" if self.n_trials is None else f", n_trials={self.n_trials}"
        return f"Problem({self.name!r}, n_agents={self.n_agents}, dim={self.dim}{trials})"

    @property
    def groups(self) -> tuple[Group, ...]:
        """The data of all agents, by shape."""
        return self._agents.groups

    def rows(self, agents: NDArray[np.int64]) -> Any:
        """The data of these agents, where all have equal shapes; leaves (agents, …), or (trials,
        agents, …) if every trial has its own.
        """
        return self._agents.rows(agents)

    @property
    def identity(self) -> list[Any]:
        """The contents of the data, as texts and arrays that tell two problems apart."""
        if isinstance(self._agents, LateData):
            return [self._agents.name, str(self.n_agents)]
        return [leaf for group in self.groups for leaf in leaves(group.data).values()]

    @property
    def data(self) -> Any:
        """The data in the form it was given: a stacked pytree, or a list of one for each agent."""
        return self._agents.as_given()

    @property
    def differentiated(self) -> tuple[Callable[[Any, Any], Any], bool]:
        """The function behind the gradients, ∇loss by hand or else the loss; if it needs JAX."""
        function = self.loss if self._gradient is None else self._gradient
        return function, not self._numpy_gradient

    @property
    def curved(self) -> dict[str, Callable[..., Any]]:
        """The functions behind the curvatures, as [objective] of an agent's file names them.

        `hessian` of θ and data; or `curvature` and `majorised` of θ, θ one stage before and data,
        and `rows`, a `RowSum`.
        """
        if self._given_curvature is None or self._given_hessian is not None:
            return {} if self._given_hessian is None else {"hessian": self._given_hessian}
        newton, majorised, rows = self._given_curvature
        given = {"curvature": newton, "majorised": majorised, "rows": rows}
        return {name: function for name, function in given.items() if function is not None}

    @cached_property
    def gradient_function(self) -> Gradient:
        """∇loss as a function of θ (d,) and one agent's data: the hand-written one, or jax.grad."""
        return autodiff.gradient_of(self.loss) if self._gradient is None else self._gradient

    def places(self, trials: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of these trials' solutions and data, if every trial has its own."""
        return self._agents.places(trials)

    def agent_data(self, i: int, trial: int | None = None) -> Any:
        """The data of agent i. `trial` matters (and is needed) only if every trial has its own."""
        return self._agents.of_agent(i, trial)

    def local_gradient(self, i: int, trial: int | None = None) -> Callable[[ArrayLike], Vector]:
        """∇f_i as a function from NumPy θ (d,) to NumPy (d,), knowing the data of agent i only."""
        data = self._agents.copy_of_agent(i, trial)
        if self._numpy_gradient:
            function, held = self.gradient_function, data
        else:
            function, held = self._compiled_gradient, autodiff.on_device(data)
        return lambda theta: np.asarray(function(np.asarray(theta, np.float64), held), np.float64)

    def local_gradients(self, i: int, trial: int | None = None) -> Callable[[ArrayLike], Vector]:
        """∇f_i of many θ at once, from (n, d) to (n, d)."""
        if self._numpy_gradient:
            one = self.local_gradient(i, trial)
            return lambda thetas: np.array([one(theta) for theta in np.asarray(thetas)])
        held = autodiff.on_device(self._agents.copy_of_agent(i, trial))
        every = self._compiled_gradients
        return lambda thetas: every(np.asarray(thetas, np.float64), held)

    def local_curvature(
        self, i: int, trial: int | None = None, *, majorised: bool = False
    ) -> Callable[[Vector, Vector | None], Vector]:
        """The curvature of f_i for a stage, of θ (d,) and of θ one stage before, to (d, d).

        It is the Hessian at θ, made larger where a step along the Hessian could overshoot. With
        `majorised` it is a bound of the Hessian at every θ.
        """
        data = self._agents.copy_of_agent(i, trial)
        given = self._curvature
        curve = given.majorised if majorised else given.newton
        if curve is None:
            raise ProblemError(
                f"A fixed curvature bounds the Hessian at every θ, but {self!r} has none. Use "
                'curvature="newton", or hg.problems.logistic or huber.'
            )
        return lambda theta, before: np.asarray(curve(theta, before, data), np.float64)

    @property
    def has_bound(self) -> bool:
        """Whether `local_curvature` knows a bound of the Hessian at every θ."""
        return self._curvature.majorised is not None

    def local_rows(
        self, i: int, trial: int | None = None
    ) -> Callable[[Vector, Vector | None, Grids, bool], tuple[Vector, Vector]] | None:
        """The statistic of agent i as a sum of rounded rows; None: f_i is no sum over rows.

        A function of θ, of θ one stage before, of the grids and of `is_fixed`, to H and q.
        """
        rows = self._curvature.rows
        if rows is None:
            return None
        data = self._agents.copy_of_agent(i, trial)
        return lambda theta, before, grids, is_fixed: rows(theta, before, data, grids, is_fixed)

    @property
    def row_loss(self) -> SecretsOfRows | None:
        """The loss of single rows in the sums of stages; None: no stage could be judged by it."""
        return row_loss(self._curvature.rows)

    def local_value(self, i: int, trial: int | None = None) -> Callable[[ArrayLike], float]:
        """f_i as a function from NumPy θ (d,) to a float, knowing the data of agent i only."""
        data = self.agent_data(i, trial)
        if self._numpy_loss:
            function, held = self.loss, data
        else:
            function, held = self._compiled_loss, autodiff.on_device(data)
        return lambda theta: float(function(np.asarray(theta, np.float64), held))

    def value(self, theta: ArrayLike, trial: int | None = None) -> float:
        """Σ_i f_i(θ)."""
        theta = self._check_theta(theta)
        if self._numpy_loss:
            return sum(float(self.loss(theta, data)) for data in self._agents.of_each(trial))
        return self._point(theta, trial).value

    def gradient_sum(self, theta: ArrayLike, trial: int | None = None) -> Vector:
        """Σ_i ∇f_i(θ), (d,)."""
        theta = self._check_theta(theta)
        if self._numpy_gradient:
            total = np.zeros(self.dim)
            for data in self._agents.of_each(trial):
                total += self.gradient_function(theta, data)
            return total
        return self._point(theta, trial).gradient

    def solution(self) -> Vector:
        """θ* = argmin Σ_i f_i, (d,), or (trials, d) when every trial has its own; read-only.

        By the given closed form, else by damped Newton from θ = 0 down to the rounding level of the
        gradient, of least norm where it is not unique. Newton needs a smooth convex sum.
        """
        return self._solution

    def smoothness(self) -> float:
        """L = max_i (and over trials) of the largest eigenvalue of ∇²f_i.

        The built-ins give a bound that holds at every θ and is attained at some (Huber's: a bound).
        A custom loss is measured at θ = 0 only, by the largest eigenvalue in size: the constant L
        for quadratics, a guide for others. Pass smoothness= when you know better.
        """
        return self._smoothness

    def strong_convexity(self) -> float:
        """The smallest eigenvalue, over θ (and trials), of (1/m) Σ_i ∇²f_i, or a lower bound to it.

        Exact for estimation, rendezvous and ridge; for logistic and Huber what the regulariser
        gives.
        """
        if self._given_strong_convexity is None:
            raise ProblemError(
                f"The strong convexity of {self!r} is not known. Pass strong_convexity= to Problem."
            )
        return min(self._from_data(self._given_strong_convexity))

    @cached_property
    def _solution(self) -> Vector:
        given = self._given_solution
        if given is None:
            found = np.stack([self._newton(trial) for trial in self._agents.trials])
        elif callable(given):
            every = self._agents.of_trials()
            found = np.stack([np.asarray(given(data), np.float64) for data in every])
        else:
            found = np.array(given, np.float64)
        if self.n_trials is None and (given is None or callable(given)):
            found = found[0]
        lead = () if self.n_trials is None else (len(self._agents.trials),)
        shape = (*lead, self.dim)
        if found.shape != shape or not np.isfinite(found).all():
            raise ProblemError(
                f"A solution is finite and of shape {shape}, but the given one has shape "
                f"{found.shape} and {np.count_nonzero(~np.isfinite(found))} entries not finite. "
                "Correct solution=, or leave it out: Newton finds it for a smooth convex sum."
            )
        found.setflags(write=False)
        return found

    @cached_property
    def _smoothness(self) -> float:
        if self._given_smoothness is not None:
            return max(self._from_data(self._given_smoothness))
        every = (part for trial in self._agents.trials for part in self._agents.parts(trial))
        gradient = self.gradient_function
        return max(autodiff.largest_curvature(gradient, self.dim, groups) for groups in every)

    @cached_property
    def _sums(self) -> autodiff.Sums:
        return autodiff.Sums(self.loss, self.gradient_function)

    @cached_property
    def _compiled_gradient(self) -> Gradient:
        return autodiff.in_float64(self.gradient_function)

    @cached_property
    def _compiled_gradients(self) -> Gradient:
        return autodiff.in_float64(autodiff.over_thetas(self.gradient_function))

    @cached_property
    def _curvature(self) -> Curvature:
        if self._given_curvature is None:
            return Curvature(safeguarded(autodiff.hessian_of(self.gradient_function)), None)
        return self._given_curvature

    @cached_property
    def _compiled_loss(self) -> Loss:
        return autodiff.in_float64(self.loss)

    def _newton(self, trial: int | None) -> Vector:
        agents = self._agents
        if isinstance(agents, LateData):  # made again for every sum: they may not fit
            parts = partial(agents.parts, trial)
        else:
            held = [tuple(autodiff.on_device(data) for data in agents.of_groups(trial))]
            parts = held.copy
        return newton.minimise(
            lambda theta: newton.add_points([self._sums.point(theta, part) for part in parts()]),
            lambda theta: sum(self._sums.hessian(theta, part) for part in parts()),
            np.zeros(self.dim),
        )

    def _point(self, theta: Vector, trial: int | None) -> newton.Point:
        return newton.add_points(
            [self._sums.point(theta, part) for part in self._agents.parts(trial)]
        )

    def _from_data(self, given: float | Callable[[Any], float]) -> list[float]:
        if callable(given):
            return [float(given(data)) for data in self._agents.summands()]
        return [float(given)]

    def _check_theta(self, theta: ArrayLike) -> Vector:
        array = np.asarray(theta, np.float64)
        if array.shape != (self.dim,):
            raise ProblemError(f"θ has shape ({self.dim},), but was given with {array.shape}.")
        return array
