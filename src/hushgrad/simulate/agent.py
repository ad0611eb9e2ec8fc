"""One agent, alone, in NumPy: it knows its own links, weights, objective and keys, no one else's.

`AgentDriver` is sans I/O: it hands out what the agent sends in a round and takes what came in.
In-memory links (team.py) or a network carry the mail. Sums are formed in the order of the senders'
numbers, never of arrival. The own share of a Push is what remains of what was really sent, so
rounding does not drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Algorithm
from hushgrad.draws import ONCE, Draws, Stream
from hushgrad.exchange import (
    Array,
    Columns,
    Lazy,
    Links,
    Matrix,
    Public,
    Pull,
    Push,
    Round,
    Shares,
    Square,
    Step,
    exchanges,
    reply,
)
from hushgrad.simulate.view import Slots, View

# One iteration's draws cost as many NumPy calls as hundreds of iterations': draw ahead.
_AHEAD = 256  # iterations
_MOST_AHEAD = 65_536  # numbers, where an iteration draws many: half a megabyte

type Vector = NDArray[np.float64]  # (d,)
type Payload = tuple[
    Vector | None, ...
]  # one entry per exchange of the round, None where a link is silent


@dataclass(frozen=True)
class LocalWeights:
    """What one agent knows of a public matrix A."""

    own: float  # a_jj
    out: Mapping[int, float]  # receiver i → a_ij: how i weighs what comes from here
    into: Mapping[int, float]  # sender l → a_jl: how this agent weighs what comes from l


@dataclass(frozen=True)
class Local:
    """One agent's part of a network and a problem."""

    number: int
    receivers: Mapping[Links, tuple[int, ...]]  # ascending, itself not included
    weights: Mapping[str, LocalWeights]  # by letter; W² as "W2"
    gradient: Callable[[Vector], Vector]
    draws: Draws
    link_numbers: Mapping[int, int]  # receiver → number of the link in the network, for pairings
    n_links: int


class OneAgent(View):
    """The view of a single agent: a block of one, (1, d, 1)."""

    xp = np
    ones = np.ones((1, 1, 1))

    def __init__(self, local: Local, k: int = 0):
        self.local = local
        self._known: dict[Links, Slots] = {}
        self._kept: dict[object, Any] = {}
        self._drawn: dict[object, tuple[int, NDArray[np.float64]]] = {}
        self._columns: dict[tuple[type, str], list[tuple[int, float]]] = {}
        self.bind(k)

    def bind(self, k: int) -> None:
        """The view at iteration k."""
        self.k, self.counter = float(k), k

    def gradient(self, x: Array) -> Array:
        return np.asarray(self.local.gradient(x[0, :, 0]), np.float64)[None, :, None]

    def kept[T](self, key: object, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    # ---- draws

    def _draw(
        self, stream: Stream, slots: Any, links: Links | None = None, *, once: bool = False
    ) -> Array:
        del links  # all are this agent's
        return self._drawn_ahead((stream, slots.tobytes()), stream, slots, once=once)

    def _drawn_ahead(self, address: object, stream: Stream, slots: Any, *, once: bool) -> Array:
        """u at these slots, of which `address` is a short name."""
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

    def uniform(self, stream: Stream, *, slot: int = 0, once: bool = False) -> Array:
        slots = self.kept((stream, slot), lambda: np.full((1, 1, 1), slot, np.uint32))
        return self._drawn_ahead((stream, slot), stream, slots, once=once)

    def link_uniforms(
        self, stream: Stream, links: Links = Links.GRAPH, *, once: bool = False
    ) -> tuple[Array, Array]:
        known = self._slots(links)
        slots = self.kept((stream, links), lambda: np.concatenate([known.own, known.out]))
        every = self._drawn_ahead((stream, links), stream, slots, once=once)
        return every[:1], every[1:]

    def _slots(self, links: Links) -> Slots:
        if links not in self._known:
            self._known[links] = self._count_slots(links)
        return self._known[links]

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

    def columns(self, own: Array, out: Array, links: Links = Links.GRAPH) -> Columns:
        # a few weights are normalised at less cost than a vector
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

    # ---- a round

    def outgoing(self, asked: Round) -> tuple[dict[int, Payload], list[Vector]]:
        """What goes to each receiver, and for each exchange what stays here."""
        pushed = [
            self._pull(exchange) if isinstance(exchange, Pull) else self._push(exchange)
            for exchange in exchanges(asked)
        ]
        if len(pushed) == 1:
            ((out, own),) = pushed
            return {i: (message,) for i, message in out.items()}, [own]
        receivers = sorted({i for out, _ in pushed for i in out})
        mail = {i: tuple(out.get(i) for out, _ in pushed) for i in receivers}
        return mail, [own for _, own in pushed]

    def incoming(
        self, asked: Round, own: list[Vector], box: Mapping[int, Payload]
    ) -> tuple[Array, ...]:
        """The sums that a step gets back, in the order of the senders' numbers."""
        me = self.local.number
        senders = sorted({*box, me})
        sums: list[Array] = []
        for e, exchange in enumerate(exchanges(asked)):
            into = self._row(exchange.matrix) if isinstance(exchange, Pull) else None
            parts: list[Vector] = []
            for j in senders:
                vector = own[e] if j == me else box[j][e]
                if vector is not None:
                    parts.append(vector if into is None or j == me else into[j] * vector)
            sums.append(_sum(parts)[None, :, None])
        return tuple(sums)

    def _pull(self, exchange: Pull) -> tuple[dict[int, Vector], Vector]:
        """({receiver: message}, own share) of what receivers weigh."""
        matrix = exchange.matrix
        vector: Vector = exchange.vector[0, :, 0]
        weights = self._public(matrix)
        if isinstance(matrix, Lazy):
            half = 0.5 * vector
            own = weights.own * half + half
        else:
            own = weights.own * vector
        return dict.fromkeys(self.local.receivers[matrix.links], vector), own

    def _push(self, exchange: Push) -> tuple[dict[int, Vector], Vector]:
        """({receiver: message}, own share) of what this agent weighs: columns add up to one, so
        the own share is what remains of the whole.
        """
        out: dict[int, Vector] = {}
        wholes: list[Vector] = []
        for matrix, vector in exchange.terms.parts:
            if isinstance(matrix, Shares):
                whole = vector[0][0, :, 0] + vector[1].sum(0)[:, 0]
                rows = zip(self.local.receivers[matrix.links], vector[1][:, :, 0], strict=True)
                messages = [(i, part.copy()) for i, part in rows]
            else:
                u = vector[0, :, 0]
                whole = u
                messages = [(i, weight * u) for i, weight in self._column(matrix)]
            wholes.append(whole)
            for i, message in messages:
                if i in out:
                    message += out[i]
                out[i] = message
        own = _sum(wholes) - _sum(list(out.values())) if out else _sum(wholes)
        if exchange.over is not None:
            awake = np.asarray(exchange.over).ravel() > 0
            receivers = self.local.receivers[exchange.terms.links]
            asleep = {i for i, on in zip(receivers, awake, strict=True) if not on}
            out = {i: message for i, message in out.items() if i not in asleep}
        return out, own

    def _column(self, matrix: Matrix) -> Iterable[tuple[int, float]]:
        """(receiver, weight) of every link that a matrix uses."""
        if isinstance(matrix, Columns):
            weights = matrix.out[:, 0, 0].tolist()
            return zip(self.local.receivers[matrix.links], weights, strict=True)
        if matrix.links is Links.NONE:
            return ()
        key = (type(matrix), _letter(matrix))
        if key not in self._columns:
            out, factor = self._public(matrix).out, 0.5 if isinstance(matrix, Lazy) else 1.0
            receivers = self.local.receivers[matrix.links]
            self._columns[key] = [(i, factor * out[i]) for i in receivers]
        return self._columns[key]

    def _row(self, matrix: Matrix) -> Mapping[int, float]:
        """{sender: weight} of a public matrix."""
        into = self._public(matrix).into
        return {j: 0.5 * w for j, w in into.items()} if isinstance(matrix, Lazy) else into

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


def _sum(vectors: list[Vector]) -> Vector:
    """From the first to the last; none of them is changed."""
    if len(vectors) == 1:
        return vectors[0]
    total = vectors[0] + vectors[1]
    for vector in vectors[2:]:
        total += vector
    return total


class AgentDriver:
    """Runs an algorithm for one agent: `send`, then `receive`, round after round."""

    def __init__(self, algorithm: Algorithm, local: Local, x0: Vector):
        self.algorithm, self.local = algorithm, local
        self.k = 0
        self._view = OneAgent(local)
        self.state = algorithm.init(self._view, np.array(x0, np.float64)[None, :, None])
        self._begin()

    def _begin(self) -> None:
        self._view.bind(self.k)
        step = (
            self.algorithm.first
            if self.k == 0 and self.algorithm.first_differs
            else self.algorithm.step
        )
        self._step: Step[Any] = step(self._view, self.state)
        self._asked: Round = next(self._step)
        self._mail, self._own = self._view.outgoing(self._asked)

    @property
    def x(self) -> Vector:
        """θ̂ of this agent."""
        return self.algorithm.estimate(self.state)[0, :, 0]

    @property
    def asked(self) -> tuple[Push | Pull, ...]:
        """The exchanges of the present round."""
        return exchanges(self._asked)

    def send(self) -> dict[int, Payload]:
        """What this agent sends in the present round."""
        return self._mail

    def receive(self, box: Mapping[int, Payload]) -> bool:
        """Take what others sent in this round; whether an iteration ended with it."""
        sums = self._view.incoming(self._asked, self._own, box)
        try:
            self._asked = self._step.send(reply(self._asked, sums))
        except StopIteration as end:
            self.state = end.value
            self.k += 1
            self._begin()
            return True
        self._mail, self._own = self._view.outgoing(self._asked)
        return False
