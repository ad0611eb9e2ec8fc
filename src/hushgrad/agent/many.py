"""A traced step on vectors of many numbers: one pass over them before the round, one after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent import passes
from hushgrad.agent.passes import Pass
from hushgrad.agent.rooms import Rooms
from hushgrad.agent.single import Letters, OneAgent
from hushgrad.agent.trace import Number, Symbol, Trace, Vector, in_order
from hushgrad.agent.writer import Writer, tools

type Floats = NDArray[np.float64]  # (d,)
type Sent = tuple[None, Letters | None, dict[int, tuple[Floats]], Floats, bool]
type Known = dict[Symbol, Floats]
type Gradients = list[tuple[Vector, Vector]]  # (gradient, where)
type OfNumbers = Callable[[float, tuple[float, ...]], tuple[float, ...]]  # of k and scales


@dataclass(slots=True)
class Scaled:
    """A number times a vector, not yet multiplied: that is done again where it is used, at less
    cost than writing and reading the product.
    """

    number: float
    vector: Floats

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.number * self.vector, dtype, copy=copy)


type Field = Floats | Scaled


class ManySteps:
    """The steps of one agent: `send`, then `receive` what came, or `answer` with its sum."""

    def __init__(
        self,
        trace: Trace,
        agent: OneAgent,
        dim: int,
        gradient: Callable[[Floats], Floats],
        *,
        room: int = 0,
    ):
        """`room`: words that stay free before each message of a Push, for who carries it."""
        self._trace, self._agent, self._room = trace, agent, room
        self._gradient = gradient
        first, self._late = trace.gradients[: trace.n_before], trace.gradients[trace.n_before :]
        self._scaled = _scaled(trace)
        self._scales = {n: Number(source=("scale", n)) for n in self._scaled}
        self._vectors = {n: Vector(source=("scaled", n)) for n in self._scaled}
        products = {n: self._scales[n] * self._vectors[n] for n in self._scaled}
        self._same: dict[Symbol, Any] = {trace.fields[n]: u for n, u in products.items()}
        self._results = tuple([u for n, u in enumerate(trace.results) if n not in self._scaled])
        self._next_scales = self.numbers([number for number, _ in self._scaled.values()])
        made = in_order((*trace.messages, trace.own, *(x for _, x in first)))
        later = (*self._results, *(x for _, x in self._late))
        used = {*later, *(v for u in in_order(later, set(made)) for v in u.given)}
        # what is needed again after the round
        kept = [u for u in made if u.operation and isinstance(u, Vector) and u in used]
        wanted = (*trace.messages, *kept, trace.own)
        state = (*(u for u in trace.fields if u not in self._same), *self._vectors.values())
        self._before = _Phase(self, first, wanted, state, self._same)
        self._held = (*state, *(g for g, _ in first), *(x for _, x in first), *wanted)
        held = (*self._held, trace.total)
        self._after = _Phase(self, self._late, self._results, held, self._same)
        self._receive: dict[tuple[int, ...], tuple[tuple[Vector, ...], Vector, _Phase]] = {}
        self._rooms, self._letters = Rooms(dim), Rooms(len(trace.receivers), room + dim)
        self._known: Known = {}
        self._now: tuple[float, tuple[float, ...]] = 0.0, ()  # k and scales

    def of(self, vector: Any) -> Floats:
        return np.ascontiguousarray(vector, np.float64)

    def send(self, k: int, state: Sequence[Field]) -> Sent:
        """What goes out in iteration k, as few numbers, letters or mail; what stays here, and
        whether that is finite.
        """
        trace, letters = self._trace, None
        self._known = known = {}
        self._now = float(k), tuple(self._take(known, state))
        if trace.row is None:
            rows = self._letters.take()
            known |= zip(trace.messages, rows[:, self._room :], strict=True)
            letters = trace.receivers, rows
        is_finite = self._before.run(known, *self._now)
        if not self._before.ends_with(trace.own):  # it is not computed last, or not at all
            is_finite = passes.is_finite(known[trace.own])
        pairs = zip(trace.receivers, trace.messages, strict=True)
        mail = {} if letters else {i: (known[message],) for i, message in pairs}
        return None, letters, mail, known[trace.own], is_finite

    def _take(self, known: Known, state: Sequence[Field]) -> Iterator[float]:
        """Make a state known; gives the scales of what is scaled."""
        for n, u in enumerate(state):
            if n not in self._scaled:
                assert not isinstance(u, Scaled)
                known[self._trace.fields[n]] = u
            elif isinstance(u, Scaled):
                known[self._vectors[n]] = u.vector
                yield u.number
            else:
                known[self._vectors[n]] = u
                yield 1.0

    def receive(
        self, senders: tuple[int, ...], came: Iterable[Any]
    ) -> tuple[Floats, tuple[Field, ...]]:
        """(their sum, the next state) of what senders sent."""
        vectors, total, phase = self._receiver(senders)
        # few numbers come as plain ones, whoever has many neighbours
        known = self._known | dict(zip(vectors, map(self.of, came), strict=True))
        phase.run(known, *self._now)
        known[self._trace.total] = known[total]
        return known[total], self._ended(known)

    def prepare(self, senders: tuple[int, ...]) -> None:
        """Compile what rounds need in which those of these send who can. Whoever else sends, or
        does not, nothing is compiled for it: that is for others to decide, and takes a while.
        """
        row = self._trace.row
        self._before.prepare()
        self._receiver(tuple([j for j in senders if row is None or j in row]))[2].prepare()
        passes.prepare()

    def _receiver(self, senders: tuple[int, ...]) -> tuple[tuple[Vector, ...], Vector, _Phase]:
        if senders not in self._receive:
            self._receive[senders] = self._receiving(senders)
        return self._receive[senders]

    def _receiving(self, senders: tuple[int, ...]) -> tuple[tuple[Vector, ...], Vector, _Phase]:
        """What comes from these, its sum, and all that is computed of it."""
        vectors, total = self._trace.sum_of(self._agent.local.number, senders)
        wanted, known = (total, *self._results), (*self._held, *vectors)
        same = self._same | {self._trace.total: total}
        return vectors, total, _Phase(self, self._late, wanted, known, same)

    def answer(self, total: Floats) -> tuple[Field, ...]:
        """The next state, from a sum that is known."""
        known = self._known | {self._trace.total: total}
        self._after.run(known, *self._now)
        return self._ended(known)

    def _ended(self, known: Known) -> tuple[Field, ...]:
        self._known = {}
        state: list[Any] = [known.get(u) for u in self._trace.results]
        scales = self._next_scales(*self._now)
        for scale, (n, (_, vector)) in zip(scales, self._scaled.items(), strict=True):
            state[n] = Scaled(scale, known[vector])
        return tuple(state)

    # ---- for the phases

    def gradient(self, x: Floats) -> Floats:
        return self.of(self._gradient(x))

    def numbers(self, given: Iterable[Symbol | float]) -> OfNumbers:
        """A function that gives these."""
        writer = Writer(0)
        writer.names[self._trace.k] = "k"
        writer.names |= {u: f"scales[{n}]" for n, u in enumerate(self._scales.values())}
        texts = [writer.each(u)[0] if isinstance(u, Symbol) else repr(u) for u in given]
        return writer.function(
            "k, scales", f"({''.join([f'{text}, ' for text in texts])})", tools(self._agent)
        )

    def empty(self) -> Floats:
        return self._rooms.take()


def _scaled(trace: Trace) -> dict[int, tuple[Any, Vector]]:
    """Which parts of the next state are a number times a gradient, and nothing but computed with:
    (the number, the gradient).
    """
    gradients = {g for g, _ in trace.gradients}
    whole = {*trace.messages, trace.own, *trace.results, *(x for _, x in trace.gradients)}
    found: dict[int, tuple[Any, Vector]] = {}
    for n, u in enumerate(trace.results):
        if u.operation == "*" and trace.fields[n] not in whole:
            number, vector = u.given
            is_number = not isinstance(number, Vector)
            if is_number and isinstance(vector, Vector) and vector in gradients:
                found[n] = number, vector
    return found


class _Phase:
    """Gradients, each with a pass before it if where it is taken must be computed; then a pass."""

    def __init__(
        self,
        steps: ManySteps,
        gradients: Gradients,
        wanted: Iterable[Vector],
        known: Iterable[Symbol],
        same: dict[Symbol, Any],
    ):
        self._steps, self._same = steps, same
        here = dict.fromkeys(known)
        self._gradients: list[tuple[Pass, OfNumbers, Vector, Vector]] = []
        for g, x in gradients:
            found = Pass((x,), here, same)
            self._gradients.append((found, steps.numbers(found.numbers), g, x))
            here |= dict.fromkeys((*found.wanted, g))
        self._last = Pass(wanted, here, same)
        self._numbers = steps.numbers(self._last.numbers)

    def prepare(self) -> None:
        for found in (*(found for found, *_ in self._gradients), self._last):
            found.prepare()

    def ends_with(self, vector: Vector) -> bool:
        """Whether `run` tells if this one is finite."""
        return bool(self._last.wanted) and self._last.wanted[-1] is vector

    def run(self, known: Known, k: float, scales: tuple[float, ...]) -> bool:
        """Add to what is known; what has its place there already is computed into it. Gives
        whether the last that is wanted is finite.
        """
        for found, numbers, g, x in self._gradients:
            self._compute(found, known, numbers(k, scales))
            known[g] = self._steps.gradient(known[self._same.get(x, x)])
        return self._compute(self._last, known, self._numbers(k, scales))

    def _compute(self, found: Pass, known: Known, numbers: tuple[float, ...]) -> bool:
        for u in found.wanted:
            if u not in known:
                known[u] = self._steps.empty()
        given, wanted = ([known[u] for u in us] for us in (found.given, found.wanted))
        return found.run(given, wanted, numbers)
