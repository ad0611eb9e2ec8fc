"""A step of one agent as a generator of rounds: traced if the step is linear, else as it is.

A step is linear in its vectors: [messages, whole, next state] = C(k) · [state, gradients, sums],
where the small matrix C(k) depends on k, weights and draws alone. So the step's own lines run once
for many iterations: k and the draws of all of them take the place of the trials, as in the
simulator, and vectors are `Combination`s, which only note coefficients. The plan that comes out
holds C(k) of every iteration. A step that is not linear (a quotient of vectors, a norm, a branch
that depends on k) cannot be traced, and runs with arrays in every iteration.

The step machine (machine.py) uses `traced`, `as_traced` and `as_it_is`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.local import Local
from hushgrad.agent.rounds import OpenRound, Sending, open_round, sending_of
from hushgrad.agent.single import SingleAgent
from hushgrad.agent.vectors import Vector, combine
from hushgrad.algorithms.base import Algorithm
from hushgrad.exchange import Array, Pull, Push, Step, exchanges, reply

type Numbers = float | NDArray[np.float64]  # one, or one for each iteration of a plan
type Parts = Mapping[int, Numbers]  # number of a known vector → its coefficient
type Rounds = Generator[OpenRound, tuple[Vector, ...], list[Vector]]  # returns the next state

AHEAD = 256  # iterations of a plan
_MOST = 65_536  # weights of one vector in a plan: half a megabyte, if an agent has many links


class Combination:
    """Σ_n c_n v_n: a vector of a step that is traced, as far as the step sees it."""

    __slots__ = ("parts",)
    __array_ufunc__ = None  # numpy then leaves `array * combination` to `__rmul__`

    def __init__(self, parts: Parts):
        self.parts = parts

    def __add__(self, other: object) -> Combination:
        if not isinstance(other, Combination):
            return NotImplemented
        mine, theirs = self.parts, other.parts
        return Combination({n: mine.get(n, 0.0) + theirs.get(n, 0.0) for n in {**mine, **theirs}})

    def __sub__(self, other: object) -> Combination:
        return self + -other if isinstance(other, Combination) else NotImplemented

    def __neg__(self) -> Combination:
        return -1.0 * self

    def __mul__(self, other: object) -> Combination:
        number = _number(other)
        return Combination({n: number * c for n, c in self.parts.items()})

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Combination:
        number = _number(other)
        return Combination({n: c / number for n, c in self.parts.items()})

    def __bool__(self) -> bool:
        raise TypeError("a step that looks at its vectors cannot be traced")

    __eq__ = None  # type: ignore[assignment]  # its identity would be no answer


def _number(value: Any) -> Numbers:
    """A number, or (iterations,) numbers; TypeError for a vector."""
    if isinstance(value, (float, int)):
        return value
    if isinstance(value, np.ndarray) and (value.ndim == 0 or value.shape[:2] == (1, 1)):
        return value.reshape(-1)
    raise TypeError(f"a step that multiplies a vector by {type(value).__name__} cannot be traced")


class _Tracer(SingleAgent):
    """The view of a step that is traced. The known vectors have numbers, in the order in which the
    step comes to know them.
    """

    def __init__(self, local: Local, k: int, *, ahead: int):
        super().__init__(local, k, ahead=ahead)
        self.n_known = 0
        self.points: list[Combination] = []  # of gradients, since the last round

    def know(self) -> Combination:
        """One more known vector."""
        self.n_known += 1
        return Combination({self.n_known - 1: 1.0})

    def gradient(self, x: Array) -> Array:
        self.points.append(x)
        return self.know()


class Recipe(NamedTuple):
    """A vector that is a combination of known ones, in some iterations."""

    of: tuple[int, ...]  # numbers of the known vectors
    weights: list[list[float]] | None  # by iteration; None: the vector is the first known one

    @classmethod
    def to(cls, vector: Combination, ahead: int) -> Recipe:
        of = tuple(sorted(vector.parts))
        rows = np.array([np.broadcast_to(vector.parts[n], ahead) for n in of]).T
        if len(of) == 1 and (rows == 1.0).all():
            return cls(of, None)
        if (rows == rows[0]).all():  # as most: one list serves all iterations
            return cls(of, [rows[0].tolist()] * ahead)
        return cls(of, rows.tolist())


def computed(recipes: Sequence[Recipe], known: Sequence[Vector], at: int) -> list[Vector]:
    """The vectors of some recipes in the iteration at this place."""
    return [
        known[of[0]] if weights is None else combine(weights[at], [known[n] for n in of])
        for of, weights in recipes
    ]


class _StepPart(NamedTuple):
    """A part of a step: the gradients that it evaluates, then a round or the end."""

    points: list[Recipe]
    sendings: list[Sending]
    vectors: list[list[Recipe]]  # of each sending


class StepPlan(NamedTuple):
    """The rounds of some iterations, and their next states."""

    iterations: range
    parts: list[_StepPart]
    end: list[Recipe]


def traced(algorithm: Algorithm, local: Local, state: type[Any], k: int) -> StepPlan | None:
    """The plan of iteration k and its neighbours; None if the step cannot be traced.

    An error in the step's own lines shows when the step runs as it is.
    """
    most_links = max(map(len, local.receivers.values()))
    ahead = max(2, min(AHEAD, _MOST // (1 + most_links)))
    start = k - k % ahead
    try:
        with np.errstate(all="ignore"):  # of iterations that may never come
            return _trace(algorithm, local, state, range(start, start + ahead))
    except Exception:
        return None


def _trace(algorithm: Algorithm, local: Local, state: type[Any], iterations: range) -> StepPlan:
    agent = _Tracer(local, iterations.start, ahead=len(iterations))
    step = algorithm.step(agent, state(*[agent.know() for _ in state._fields]))
    parts: list[_StepPart] = []

    def recipes(every: Sequence[Combination]) -> list[Recipe]:
        return [Recipe.to(vector, agent.ahead) for vector in every]

    def part(every: Sequence[Push | Pull]) -> None:
        points, agent.points = agent.points, []
        sent = [sending_of(agent, exchange) for exchange in every]
        vectors = [recipes(given) for _, given in sent]
        parts.append(_StepPart(recipes(points), [sending for sending, _ in sent], vectors))

    try:
        asked = next(step)
        while True:
            every = exchanges(asked)
            part(every)
            asked = step.send(reply(asked, tuple([agent.know() for _ in every])))
    except StopIteration as stop:
        part([])
        return StepPlan(iterations, parts, recipes(stop.value))


def as_traced(plan: StepPlan, local: Local, k: int, state: Sequence[Vector]) -> Rounds:
    """Run iteration k by its plan."""
    known, at = list(state), k - plan.iterations.start
    for points, sendings, vectors in plan.parts:
        for point in points:
            (x,) = computed([point], known, at)
            known.append(np.asarray(local.gradient(x), np.float64))
        if sendings:
            given = [computed(each, known, at) for each in vectors]
            known += yield open_round(sendings, given, at)
    return computed(plan.end, known, at)


def as_it_is(agent: SingleAgent, step: Step[Any]) -> Rounds:
    """Run a step on arrays (1, d, 1)."""
    try:
        asked = next(step)
        while True:
            sent = [sending_of(agent, exchange) for exchange in exchanges(asked)]
            vectors = [[_flat(array) for array in given] for _, given in sent]
            sums = yield open_round([sending for sending, _ in sent], vectors, 0)
            asked = step.send(reply(asked, tuple([u[None, :, None] for u in sums])))
    except StopIteration as stop:
        return [_flat(array) for array in stop.value]


def _flat(array: Array) -> Vector:
    """The vector (d,) of an array (1, d, 1)."""
    return np.asarray(array, np.float64)[0, :, 0]
