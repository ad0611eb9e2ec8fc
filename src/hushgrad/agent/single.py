"""The view of a step on a single agent: its iteration, its gradient, its draws, its weights.

The step machine (machine.py) hands this view to an algorithm; the audit replays an agent's
stepsizes and splits with it (privacy/replay.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.combination import Combination, late
from hushgrad.agent.local import Local, LocalWeights
from hushgrad.agent.view import AgentView, Slots
from hushgrad.draws import ONCE, Stream
from hushgrad.exchange import Array, Columns, Lazy, Links, Matrix, Public, Square

# Draws for hundreds of iterations need no more NumPy calls than draws for one, so draw ahead.
_AHEAD = 256  # iterations
_MOST_AHEAD = 65_536  # numbers, half a megabyte, if one iteration draws many


class SingleAgent(AgentView):
    """The view of one agent; its vectors are (1, d, 1)."""

    xp = np
    ones = np.ones((1, 1, 1))

    def __init__(self, local: Local, k: int = 0):
        self.local = local
        self._receivers = {Links.NONE: (), **local.receivers}
        self._known_slots: dict[Links, Slots] = {}
        self._kept: dict[object, Any] = {}
        self._drawn: dict[object, tuple[int, NDArray[np.float64]]] = {}
        self._numbers: dict[tuple[Stream, int, bool], tuple[int, Sequence[float]]] = {}
        self.bind(k)

    def bind(self, k: int) -> None:
        """Go to iteration k."""
        self.k, self.counter = float(k), k

    def gradient(self, x: Array) -> Array:
        return Combination.of(np.asarray(self.local.gradient(late(x).vector), np.float64))

    def kept[T](self, key: object, make: Callable[[], T]) -> T:
        try:
            return self._kept[key]
        except KeyError:
            self._kept[key] = found = make()
            return found

    # ---- draws

    def _draw(
        self, stream: Stream, slots: Any, links: Links | None = None, *, once: bool = False
    ) -> Array:
        del links  # this agent is the sender on all links
        return self._drawn_ahead((stream, slots.tobytes()), stream, slots, once=once)

    def _drawn_ahead(self, address: object, stream: Stream, slots: Any, *, once: bool) -> Array:
        """u at these slots; `address` is a short key for stream and slots."""
        if once:
            return self.kept((address, ONCE), lambda: self._uniforms(stream, ONCE, 1, slots)[0])
        k = self.counter
        start, block = self._drawn.get(address, (k, ()))
        if not start <= k < start + len(block):
            ahead = max(1, min(_AHEAD, _MOST_AHEAD // max(1, slots.size)))
            start = k - k % ahead
            block = self._uniforms(stream, start, ahead, slots)
            self._drawn[address] = start, block
        return block[k - start]

    def _uniforms(self, stream: Stream, start: int, ahead: int, slots: Any) -> Array:
        """(ahead, *slots) from iteration `start` on."""
        when = (np.arange(ahead) + start).astype(np.uint32)
        return self.local.draws.uniforms(stream, when, slots.ravel()).reshape(ahead, *slots.shape)

    def uniform(self, stream: Stream, *, slot: int = 0, once: bool = False) -> Any:
        """u as a plain number: arithmetic with an array of one number costs ten times as much."""
        when = ONCE if once else self.counter
        start, numbers = self._numbers.get((stream, slot, once), (0, ()))
        if not start <= when < start + len(numbers):
            ahead = 1 if once else _AHEAD
            start = when - when % ahead
            drawn = self._uniforms(stream, start, ahead, np.array([slot], np.uint32))
            numbers = drawn.ravel().tolist()
            self._numbers[stream, slot, once] = start, numbers
        return numbers[when - start]

    def link_uniforms(
        self, stream: Stream, links: Links = Links.GRAPH, *, once: bool = False
    ) -> tuple[Array, Array]:
        known = self._slots(links)
        slots = self.kept((stream, links), lambda: np.concatenate([known.own, known.out]))
        every = self._drawn_ahead((stream, links), stream, slots, once=once)
        return every[:1], every[1:]

    def _slots(self, links: Links) -> Slots:
        if links not in self._known_slots:
            self._known_slots[links] = self._count_slots(links)
        return self._known_slots[links]

    def _count_slots(self, links: Links) -> Slots:
        me, receivers = self.local.number, np.array(self.local.receivers[links], np.int64)
        own = np.count_nonzero(receivers < me)
        out = np.arange(len(receivers)) + (receivers > me)
        shape = (-1, 1, 1)
        return Slots(
            np.array([own], np.uint32).reshape(shape),
            out.astype(np.uint32).reshape(shape),
            np.array([len(receivers) + 1], np.uint32).reshape(shape),
        )

    # ---- links

    def columns(self, own: Array, out: Array, links: Links = Links.GRAPH) -> Columns:
        # it costs less to normalise a few weights than a vector
        total = own + out.sum(0, keepdims=True)
        return Columns(own / total, out / total, None, links)

    def to_links(self, values: Array, links: Links = Links.GRAPH) -> Array:
        return np.repeat(values, len(self.local.receivers[links]), axis=0)

    def sum_out(self, values: Array, links: Links = Links.GRAPH) -> Array:
        del links
        return values.sum(0, keepdims=True)

    def _real(self, values: Array, links: Links) -> Array:
        del links
        return values

    def _link_numbers(self) -> tuple[Any, int]:
        receivers = self.local.receivers[Links.GRAPH]
        numbers = np.array([self.local.link_numbers[i] for i in receivers]).reshape(-1, 1, 1)
        return numbers, self.local.n_links

    def receivers(self, links: Links) -> tuple[int, ...]:
        """The agents that these links reach, ascending."""
        return self._receivers[links]

    # ---- weights

    def column(self, matrix: Matrix, links: Links) -> list[float]:
        """The weight for every agent that these links reach; 0 if the matrix has no such entry."""
        if isinstance(matrix, Columns):
            assert matrix.links is links
            return matrix.out.ravel().tolist()
        return self.kept((matrix, links), lambda: self._public_column(matrix, links))

    def _public_column(self, matrix: Matrix, links: Links) -> list[float]:
        out, factor = self._public(matrix).out, 0.5 if isinstance(matrix, Lazy) else 1.0
        return [factor * out.get(i, 0.0) for i in self._receivers[links]]

    def own_weight(self, matrix: Matrix) -> float:
        """This agent's weight of its own vector in a public matrix."""
        own = self._public(matrix).own
        return 0.5 * own + 0.5 if isinstance(matrix, Lazy) else own

    def row(self, matrix: Matrix) -> Mapping[int, float]:
        """{sender: weight} of a public matrix."""
        into = self._public(matrix).into
        if not isinstance(matrix, Lazy):
            return into
        return self.kept(matrix, lambda: {j: 0.5 * w for j, w in into.items()})

    def _public(self, matrix: Matrix) -> LocalWeights:
        return self.local.weights[_letter(matrix)]


def _letter(matrix: Matrix) -> str:
    """The name under which an agent knows a public matrix."""
    if isinstance(matrix, Lazy):
        return matrix.of.name
    if isinstance(matrix, Square):
        return matrix.of.name + "2"
    assert isinstance(matrix, Public)
    return matrix.name
