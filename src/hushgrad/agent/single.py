"""The view of a step on a single agent: its iteration, its gradient, its draws, its weights.

The step machine (machine.py) hands this view to an algorithm; the audit replays an agent's
stepsizes and splits with it (privacy/replay.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.local import Local, LocalWeights
from hushgrad.agent.view import AgentView, Slots
from hushgrad.draws import ONCE, Stream
from hushgrad.exchange import Array, Columns, Lazy, Links, Matrix, Public, Square


class SingleAgent(AgentView):
    """The view of one agent, in one iteration or in several at once.

    Iterations take the place of the trials: a vector is (1, d, 1), the numbers of `ahead`
    iterations are (1, 1, ahead).
    """

    xp = np
    ones = np.ones((1, 1, 1))

    def __init__(self, local: Local, k: int = 0, *, ahead: int = 1):
        self.local, self.ahead = local, ahead
        self._receivers = {Links.NONE: (), **local.receivers}
        self._kept: dict[object, Any] = {}
        self.bind(k)

    def bind(self, k: int) -> None:
        """Go to iteration k, and to those after it if the view sees several."""
        self.counter = (np.arange(self.ahead) + k).astype(np.uint32)
        self.k = float(k) if self.ahead == 1 else self.counter.astype(np.float64)[None, None]

    def gradient(self, x: Array) -> Array:
        return np.asarray(self.local.gradient(x[0, :, 0]), np.float64)[None, :, None]

    def each(self, values: Any) -> Any:
        return values[self.local.number]

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
        if not once:
            return self._uniforms(stream, self.counter, slots)
        when = np.array([ONCE], np.uint32)
        return self.kept((stream, slots.tobytes()), lambda: self._uniforms(stream, when, slots))

    def _uniforms(self, stream: Stream, when: NDArray[np.uint32], slots: Any) -> Array:
        """u at slots (·, ·, 1), for each of these iterations in place of a trial."""
        drawn = self.local.draws.uniforms(stream, when, slots.ravel())  # (when, slots)
        return drawn.T.reshape(*slots.shape[:2], len(when))

    def _slots(self, links: Links) -> Slots:
        return self.kept(links, lambda: self._count_slots(links))

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

    def column(self, matrix: Matrix, links: Links) -> NDArray[np.float64]:
        """The weights (receivers, iterations or 1) of a matrix; 0 if it has no such entry."""
        if isinstance(matrix, Columns):
            assert matrix.links is links
            return matrix.out[:, 0]
        out, factor = self._public(matrix).out, 0.5 if isinstance(matrix, Lazy) else 1.0
        return np.array([factor * out.get(i, 0.0) for i in self._receivers[links]])[:, None]

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
