"""A traced step on vectors of many numbers: one pass over them before the round, one after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hushgrad.simulate.agent import Letters, OneAgent
from hushgrad.simulate.passes import Pass
from hushgrad.simulate.trace import Symbol, Trace, Vector, in_order
from hushgrad.simulate.writer import Writer, tools

type Floats = NDArray[np.float64]  # (d,)
type Sent = tuple[None, Letters | None, dict[int, tuple[Floats]], Floats, bool]
type Known = dict[Symbol, Floats]
type Gradients = list[tuple[Vector, Vector]]  # (gradient, where)
type OfNumbers = Callable[[float], tuple[float, ...]]  # a function of k


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
        self._trace, self._agent, self._dim, self._room = trace, agent, dim, room
        self._gradient = gradient
        first, self._late = trace.gradients[: trace.n_before], trace.gradients[trace.n_before :]
        made = in_order((*trace.messages, trace.own, *(x for _, x in first)))
        later = (*trace.results, *(x for _, x in self._late))
        used = {*later, *(v for u in in_order(later, set(made)) for v in u.given)}
        # what is needed again after the round
        kept = [u for u in made if u.operation and isinstance(u, Vector) and u in used]
        wanted = (*trace.messages, *kept, trace.own)
        self._before = _Phase(self, first, wanted, trace.fields)
        self._held = (*trace.fields, *(g for g, _ in first), *(x for _, x in first), *wanted)
        self._after = _Phase(self, self._late, trace.results, (*self._held, trace.total))
        self._receive: dict[tuple[int, ...], _Phase] = {}
        self._known: Known = {}

    def of(self, vector: Floats) -> Floats:
        return np.ascontiguousarray(vector)

    def send(self, k: int, state: Sequence[Floats]) -> Sent:
        """What goes out in iteration k, as few numbers, letters or mail; what stays here, and
        whether that is finite.
        """
        trace, self._k = self._trace, float(k)
        known: Known = dict(zip(trace.fields, state, strict=True))
        self._known, letters = known, None
        if trace.row is None:
            rows = np.empty((len(trace.receivers), self._room + self._dim))
            known |= zip(trace.messages, rows[:, self._room :], strict=True)
            letters = trace.receivers, rows
        is_finite = self._before.run(known, self._k)
        pairs = zip(trace.receivers, trace.messages, strict=True)
        mail = {} if letters else {i: (known[message],) for i, message in pairs}
        return None, letters, mail, known[trace.own], is_finite

    def receive(
        self, senders: tuple[int, ...], came: Iterable[Floats]
    ) -> tuple[Floats, tuple[Floats, ...]]:
        """(their sum, the next state) of what senders sent."""
        vectors, total = self._trace.sum_of(self._agent.local.number, senders)
        if senders not in self._receive:
            self._receive[senders] = _Phase(
                self, self._late, (total, *self._trace.results), (*self._held, *vectors),
                {self._trace.total: total},
            )  # fmt: skip
        known = self._known | dict(zip(vectors, came, strict=True))
        self._receive[senders].run(known, self._k)
        known[self._trace.total] = known[total]
        return known[total], self._ended(known)

    def answer(self, total: Floats) -> tuple[Floats, ...]:
        """The next state, from a sum that is known."""
        known = self._known | {self._trace.total: total}
        self._after.run(known, self._k)
        return self._ended(known)

    def _ended(self, known: Known) -> tuple[Floats, ...]:
        self._known = {}
        return tuple([known[u] for u in self._trace.results])

    # ---- for the phases

    def gradient(self, x: Floats) -> Floats:
        return self._gradient(x)

    def numbers(self, given: Iterable[Symbol | float]) -> OfNumbers:
        """A function of k that gives these."""
        writer = Writer(0)
        writer.names[self._trace.k] = "k"
        texts = [writer.each(u)[0] if isinstance(u, Symbol) else repr(u) for u in given]
        return writer.function(
            "k", f"({''.join([f'{text}, ' for text in texts])})", tools(self._agent)
        )

    def empty(self) -> Floats:
        return np.empty(self._dim)


class _Phase:
    """Gradients, each with a pass before it if where it is taken must be computed; then a pass."""

    def __init__(
        self,
        steps: ManySteps,
        gradients: Gradients,
        wanted: Iterable[Vector],
        known: Iterable[Symbol],
        same: dict[Symbol, Vector] | None = None,
    ):
        self._steps, self._same = steps, same or {}
        here = dict.fromkeys(known)
        self._gradients: list[tuple[Pass, OfNumbers, Vector, Vector]] = []
        for g, x in gradients:
            found = Pass((x,), here, same)
            self._gradients.append((found, steps.numbers(found.numbers), g, x))
            here |= dict.fromkeys((*found.wanted, g))
        self._last = Pass(wanted, here, same)
        self._numbers = steps.numbers(self._last.numbers)

    def run(self, known: Known, k: float) -> bool:
        """Add to what is known; what has its place there already is computed into it. Gives
        whether the last that is wanted is finite.
        """
        for found, numbers, g, x in self._gradients:
            self._compute(found, known, numbers(k))
            known[g] = self._steps.gradient(known[self._same.get(x, x)])
        return self._compute(self._last, known, self._numbers(k))

    def _compute(self, found: Pass, known: Known, numbers: tuple[float, ...]) -> bool:
        for u in found.wanted:
            if u not in known:
                known[u] = self._steps.empty()
        given, wanted = ([known[u] for u in us] for us in (found.given, found.wanted))
        return found.run(given, wanted, numbers)
