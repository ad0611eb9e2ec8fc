"""One agent, alone, in NumPy: it knows its own links, weights, objective and keys, no one else's.

`AgentDriver` is sans I/O: it hands out what the agent sends in a round and takes what came in.
In-memory links (team.py) or a network carry the mail. Sums are formed in the order of the senders'
numbers, never of arrival. The own share of a Push is what remains of what was really sent, so
rounding does not drift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
_BLOCK = 8_192  # numbers of a long vector that are worked on together: they stay in the cache

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
        self._numbers: dict[tuple[Stream, int, bool], tuple[int, Sequence[float]]] = {}
        self._columns: dict[tuple[type, str, Links], Array] = {}
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

    def uniform(self, stream: Stream, *, slot: int = 0, once: bool = False) -> Any:
        """A plain number: to compute with it costs a tenth of what an array of one does."""
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
        if type(asked) is Push:
            out, own = self._push(asked)
            return {i: (message,) for i, message in out.items()}, [own]
        pushed = [
            self._pull(exchange) if isinstance(exchange, Pull) else self._push(exchange)
            for exchange in exchanges(asked)
        ]
        receivers = sorted({i for out, _ in pushed for i in out})
        mail = {i: tuple([out.get(i) for out, _ in pushed]) for i in receivers}
        return mail, [own for _, own in pushed]

    def incoming(
        self, asked: Round, own: list[Vector], box: Mapping[int, Payload]
    ) -> tuple[Array, ...]:
        """The sums that a step gets back, in the order of the senders' numbers."""
        me = self.local.number
        senders = sorted((*box, me))
        if type(asked) is Push:
            return (_sum([own[0] if j == me else box[j][0] for j in senders])[None, :, None],)
        sums: list[Array] = []
        for e, exchange in enumerate(exchanges(asked)):
            parts = [own[e] if j == me else box[j][e] for j in senders]
            if isinstance(exchange, Pull):
                into = self._row(exchange.matrix)
                parts = [
                    vector if j == me or vector is None else into[j] * vector
                    for j, vector in zip(senders, parts, strict=True)
                ]
            sums.append(_sum([vector for vector in parts if vector is not None])[None, :, None])
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
        links = exchange.terms.links
        receivers = self.local.receivers[links] if links is not Links.NONE else ()
        wholes: list[Vector] = []
        blocks: list[tuple[Any, Vector | None]] = []  # weights and vector, or shares as they are
        for matrix, vector in exchange.terms.parts:
            if isinstance(matrix, Shares):
                shares = vector[1][:, :, 0]
                wholes.append(vector[0][0, :, 0] + shares.sum(0))
                blocks.append((shares, None))
            else:
                whole = vector[0, :, 0]
                wholes.append(whole)
                if receivers and matrix.links is not Links.NONE:
                    blocks.append((self._weights(matrix, links), whole))
        if not blocks:
            return {}, _sum(wholes)
        messages, own = _divide(blocks, wholes)
        if exchange.over is None:
            return dict(zip(receivers, messages, strict=True)), own
        awake = np.asarray(exchange.over).ravel() > 0
        found = zip(receivers, messages, awake.tolist(), strict=True)
        return {i: message for i, message, is_awake in found if is_awake}, own

    def _weights(self, matrix: Matrix, links: Links) -> Array:
        """(receivers, 1) weights for those whom these links reach; 0 where the matrix does not."""
        if isinstance(matrix, Columns):
            assert matrix.links is links
            return matrix.out[:, :, 0]
        key = (type(matrix), _letter(matrix), links)
        if key not in self._columns:
            out, factor = self._public(matrix).out, 0.5 if isinstance(matrix, Lazy) else 1.0
            weights = [factor * out.get(i, 0.0) for i in self.local.receivers[links]]
            self._columns[key] = np.array(weights).reshape(-1, 1)
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


def _divide(blocks: list[tuple[Any, Vector | None]], wholes: list[Vector]) -> tuple[Array, Vector]:
    """Messages (receivers, d), the sum of the blocks, and what remains of the wholes (d,)."""
    dim = len(wholes[0])
    messages, own = np.empty((len(blocks[0][0]), dim)), np.empty(dim)
    if dim <= _BLOCK:
        _divide_piece(blocks, wholes, messages, own)
        return messages, own
    for start in range(0, dim, _BLOCK):
        piece = slice(start, start + _BLOCK)
        _divide_piece(
            [(w[:, piece], None) if u is None else (w, u[piece]) for w, u in blocks],
            [whole[piece] for whole in wholes],
            messages[:, piece],
            own[piece],
        )
    return messages, own


def _divide_piece(
    blocks: list[tuple[Any, Vector | None]], wholes: list[Vector], messages: Array, own: Vector
) -> None:
    (weights, vector), *others = blocks
    np.multiply(weights, 1.0 if vector is None else vector, messages)
    for weights, vector in others:
        messages += weights if vector is None else weights * vector
    np.subtract(_sum(wholes), np.add.reduce(messages), own)


def _sum(vectors: list[Any]) -> Vector:
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
