"""A step of one agent, written down once: which numbers it adds and multiplies, in which order.

An algorithm's `step` is run with symbols in place of its vectors and of all that changes from one
iteration to the next. What it does with them is the same in every iteration; so it need not be
asked again. Steps of one round with one exchange can be written down, unless they look at a number
to decide what to do, or ask for draws that are vectors. All others run as they are (agent.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np

from hushgrad.agent.single import OneAgent
from hushgrad.agent.view import AgentView, Slots
from hushgrad.algorithms.base import Algorithm
from hushgrad.draws import Stream
from hushgrad.exchange import Columns, Links, Matrix, Push

type Operation = Literal["+", "-", "*", "/", "**", "-u"]


class NotTraceableError(Exception):
    """A step that depends on more than can be written down."""


class Symbol:
    """A number or a vector that is not known yet: what it is made of, or where it comes from."""

    __slots__ = ("given", "operation", "source")
    __array_ufunc__ = None  # NumPy leaves operators to this class, and refuses its functions

    def __init__(
        self,
        operation: Operation | None = None,
        given: tuple[Symbol | float, ...] = (),
        source: tuple[Any, ...] = (),
    ):
        self.operation, self.given, self.source = operation, given, source

    def __array__(self, *given: Any, **options: Any) -> NoReturn:
        raise NotTraceableError("a symbol is no array")

    def __bool__(self) -> NoReturn:
        raise NotTraceableError("what a step does depends on a number")

    def __eq__(self, other: object) -> NoReturn:
        self.__bool__()

    __float__ = __int__ = __index__ = __len__ = __iter__ = __bool__
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Symbol:
        return _made("+", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return _made("+", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return _made("-", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return _made("-", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return _made("*", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return _made("*", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return _made("/", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return _made("/", other, self)

    def __neg__(self) -> Symbol:
        return _made("-u", self)

    def __pow__(self, other: Any) -> Symbol:
        return _made("**", self, other)

    def __rpow__(self, other: Any) -> Symbol:
        return _made("**", other, self)


class Number(Symbol):
    """One number."""

    __slots__ = ()


class Vector(Symbol):
    """A vector of the problem's dimension."""

    __slots__ = ()


def _made(operation: Operation, *given: Any) -> Symbol:
    parts = tuple([u if isinstance(u, (Number, Vector)) else _constant(u) for u in given])
    if not any(isinstance(u, Vector) for u in parts):
        if any(isinstance(u, np.ndarray) for u in given):  # rounds, and divides by 0, as arrays do
            raise NotTraceableError("an array with a number")
        return Number(operation, parts)
    if operation == "**":  # powers of arrays and of numbers are rounded differently
        raise NotTraceableError("the power of a vector")
    if operation == "/" and (isinstance(parts[1], Symbol) or not parts[1]):
        raise NotTraceableError("a division of vectors, perhaps by 0")  # where plain numbers raise
    return Vector(operation, parts)


def _constant(value: Any) -> float:
    """A number that is the same in every iteration."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if isinstance(value, (int, float)) and np.isfinite(value):
        return float(value) if isinstance(value, float) else value  # not NumPy's: it is written
    raise NotTraceableError(f"{value!r} with a symbol")


def in_order(
    symbols: Iterable[Any],
    known: Container[Symbol] = (),
    same: Mapping[Symbol, Symbol] | None = None,
) -> list[Symbol]:
    """What these are made of, each after what it is made of itself; nothing that is known.

    `same` are symbols that stand for others.
    """
    found: dict[Symbol, None] = {}
    left = [(u, False) for u in symbols][::-1]
    while left:
        u, is_ready = left.pop()
        if same is not None:
            u = same.get(u, u)
        if not isinstance(u, Symbol) or u in found or u in known:
            continue
        if is_ready:
            found[u] = None
        else:
            left.append((u, True))
            left += [(v, False) for v in reversed(u.given)]
    return list(found)


@dataclass(frozen=True)
class _Drawn:
    """Uniforms for links that are drawn in every iteration."""

    stream: Stream
    links: Links


@dataclass(frozen=True)
class _Weights(_Drawn):
    """The column of weights that comes of them."""


class _Tracing(AgentView):
    """An agent whose vectors are symbols; what stays the same is the real one's."""

    xp = np

    def __init__(self, real: OneAgent):
        self._real_one, self.ones = real, real.ones
        self.k = Number(source=("k",))
        self.counter = Symbol()  # for draws only, and those know it
        self.gradients: list[tuple[Vector, Vector]] = []  # (gradient, where), in order
        self._kept: dict[object, Any] = {}

    def gradient(self, x: Any) -> Any:
        if not isinstance(x, Vector):
            raise NotTraceableError("a gradient at what is no vector of the state")
        found = Vector(source=("gradient", len(self.gradients)))
        self.gradients.append((found, x))
        return found

    def kept[T](self, key: object, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def uniform(self, stream: Stream, *, slot: int = 0, once: bool = False) -> Any:
        if once:
            return self._real_one.uniform(stream, slot=slot, once=True)
        return Number(source=("uniform", stream, slot))

    def link_uniforms(
        self, stream: Stream, links: Links = Links.GRAPH, *, once: bool = False
    ) -> tuple[Any, Any]:
        if once:
            return self._real_one.link_uniforms(stream, links, once=True)
        drawn = _Drawn(stream, links)
        return drawn, drawn

    def columns(self, own: Any, out: Any, links: Links = Links.GRAPH) -> Columns:
        if isinstance(own, _Drawn) and own is out and own.links is links:
            return Columns(own, _Weights(own.stream, links), None, links)
        return self._real_one.columns(own, out, links)

    # what else there is, of arrays that are known

    def to_links(self, values: Any, links: Links = Links.GRAPH) -> Any:
        return self._real_one.to_links(values, links)

    def sum_out(self, values: Any, links: Links = Links.GRAPH) -> Any:
        return self._real_one.sum_out(values, links)

    def _draw(
        self, stream: Stream, slots: Any, links: Links | None = None, *, once: bool = False
    ) -> NoReturn:
        raise NotTraceableError(f"draws of {stream} by their slots")

    def _slots(self, links: Links) -> Slots:
        raise NotTraceableError("draws by their slots")

    def _real(self, values: Any, links: Links) -> Any:
        raise NotTraceableError("shares that are vectors, or links that take turns")

    def _link_numbers(self) -> tuple[Any, int]:
        raise NotTraceableError("links that take turns")


@dataclass
class Trace:
    """What a step computes before and after its round."""

    k: Number
    fields: tuple[Vector, ...]  # the state
    gradients: list[tuple[Vector, Vector]]  # (gradient, where), in the order of evaluation
    n_before: int  # of these, before the round
    receivers: tuple[int, ...]
    messages: tuple[Vector, ...]  # one for each receiver; of a Pull the same for all
    own: Vector  # what stays
    row: dict[int, float] | None  # how the sum weighs what comes, None: as it is
    total: Vector  # the sum, when it is known
    results: tuple[Vector, ...]  # the next state

    def sum_of(self, me: int, senders: tuple[int, ...]) -> tuple[tuple[Vector, ...], Vector]:
        """(what comes from each sender, the sum in the order of numbers)."""
        came = tuple([Vector(source=("came", n)) for n in range(len(senders))])
        parts: dict[int, Symbol] = {me: self.own}
        for j, vector in zip(senders, came, strict=True):
            parts[j] = vector if self.row is None else self.row[j] * vector
        found: Any = None
        for j in sorted(parts):
            found = parts[j] if found is None else found + parts[j]
        return came, found


def trace(algorithm: Algorithm, agent: OneAgent, state_type: Any) -> Trace:
    """The step of `algorithm` for this agent."""
    found, again = (_traced(algorithm, agent, state_type) for _ in range(2))
    if _written(found) != _written(again):  # it counts, or draws on its own
        raise NotTraceableError("a step that is another one every time")
    return found


def _written(trace: Trace) -> list[Any]:
    """All that it is, for comparison."""
    wheres = [x for _, x in trace.gradients]
    ends = (*trace.messages, trace.own, *trace.results, *wheres)
    places: dict[Any, int] = {}
    written: list[Any] = [trace.receivers, trace.n_before, trace.row]
    for u in in_order(ends):
        given = [places[v] if isinstance(v, Symbol) else repr(v) for v in u.given]
        written.append((type(u), u.operation, u.source, given))
        places[u] = len(places)
    return [*written, *(places[u] for u in ends)]


def _traced(algorithm: Algorithm, agent: OneAgent, state_type: Any) -> Trace:
    fields = state_type._fields
    view = _Tracing(agent)
    state = tuple([Vector(source=("state", n)) for n in range(len(fields))])
    step = algorithm.step(view, state_type(*state))
    asked = next(step)
    n_before = len(view.gradients)
    if isinstance(asked, tuple):
        raise NotTraceableError("several exchanges in a round")
    if isinstance(asked, Push):
        receivers, messages, own, row = _push(agent, asked)
    else:
        receivers, messages, own, row = _pull(agent, asked.matrix, asked.vector)
    total = Vector(source=("sum",))
    try:
        step.send(total)
    except StopIteration as end:
        results = tuple(end.value)
    else:
        raise NotTraceableError("several rounds in a step")
    if len(results) != len(fields) or not all(isinstance(u, Vector) for u in (*results, *messages)):
        raise NotTraceableError("what is no vector")
    return Trace(
        view.k, state, view.gradients, n_before, receivers, messages, own, row, total, results
    )


def _push(agent: OneAgent, asked: Push) -> tuple[tuple[int, ...], tuple[Any, ...], Any, None]:
    """As agent.py does it: messages are sums of products, the own share is what remains."""
    if asked.over is not None or asked.scalar:
        raise NotTraceableError("links that take turns, or numbers")
    parts, links = asked.terms.parts, asked.terms.links
    receivers = agent.receivers(links)
    messages: list[Any] = [None] * len(receivers)
    own: Any = None
    for matrix, vector in parts:
        if not isinstance(vector, Vector):
            raise NotTraceableError("shares that are vectors")
        own = vector if own is None else own + vector
        if matrix.links is not Links.NONE:
            for n, weight in enumerate(_weights(agent, matrix, links, len(receivers))):
                product = weight * vector
                messages[n] = product if messages[n] is None else messages[n] + product
    for message in messages:
        if message is None:
            raise NotTraceableError("no matrix with links")
        own = own - message
    return receivers, tuple(messages), own, None


def _weights(agent: OneAgent, matrix: Matrix, links: Links, count: int) -> list[Any]:
    if isinstance(matrix, Columns) and isinstance(matrix.out, _Weights):
        drawn = matrix.out
        if drawn.links is not links:
            raise NotTraceableError("weights on other links than the message's")
        return [Number(source=("weight", drawn.stream, drawn.links, n)) for n in range(count)]
    return agent.weights(matrix, links).ravel().tolist()


def _pull(
    agent: OneAgent, matrix: Matrix, vector: Any
) -> tuple[tuple[int, ...], tuple[Any, ...], Any, dict[int, float]]:
    if not isinstance(vector, Vector):
        raise NotTraceableError("what is no vector")
    receivers = agent.receivers(matrix.links)
    return (
        receivers,
        (vector,) * len(receivers),
        agent.stays(matrix, vector),
        dict(agent.row(matrix)),
    )
