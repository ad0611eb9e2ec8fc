"""One agent, alone, in NumPy: it knows its own links, weights, objective and keys, no one else's.

`AgentDriver` is sans I/O: it hands out what the agent sends in a round and takes what came in.
In-memory links (team.py) or a network carry the mail. Sums are formed in the order of the senders'
numbers, never of arrival. The own share of a Push is what remains of what was really sent, so
rounding does not drift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        self._drawn: dict[tuple[Stream, bool, bytes], tuple[int, NDArray[np.float64]]] = {}
        self.bind(k)

    def bind(self, k: int) -> None:
        """The view at iteration k."""
        self.k = float(k)
        self.counter = np.uint32(k)

    def gradient(self, x: Array) -> Array:
        return np.asarray(self.local.gradient(x[0, :, 0]), np.float64)[None, :, None]

    def _draw(
        self, stream: Stream, slots: Any, links: Links | None = None, *, once: bool = False
    ) -> Array:
        del links  # all are this agent's
        ahead = 1 if once else max(1, min(_AHEAD, _MOST_AHEAD // max(1, slots.size)))
        k = ONCE if once else int(self.counter)
        address = (stream, once, slots.tobytes())
        start, block = self._drawn.get(address, (None, None))
        if block is None or start != k - k % ahead:
            start = k - k % ahead
            when = (np.arange(ahead) + start).astype(np.uint32)
            block = self.local.draws.uniforms(stream, when, slots.ravel())
            self._drawn[address] = start, block
        return block[k - start].reshape(slots.shape)

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
        pushed = [self._weigh(exchange) for exchange in exchanges(asked)]
        receivers = sorted({i for out, _ in pushed for i in out})
        mail = {i: tuple(out.get(i) for out, _ in pushed) for i in receivers}
        return mail, [own for _, own in pushed]

    def incoming(
        self, asked: Round, own: list[Vector], box: Mapping[int, Payload]
    ) -> tuple[Array, ...]:
        """The sums that a step gets back, in the order of the senders' numbers."""
        me = self.local.number
        sums: list[Array] = []
        for e, exchange in enumerate(exchanges(asked)):
            total: Any = None
            for j in sorted({*box, me}):
                vector = own[e] if j == me else box[j][e]
                if vector is None:
                    continue
                if isinstance(exchange, Pull) and j != me:
                    vector = self._into(exchange.matrix, j) * vector
                total = vector if total is None else total + vector
            sums.append(total[None, :, None])
        return tuple(sums)

    def _weigh(self, exchange: Push | Pull) -> tuple[dict[int, Vector], Vector]:
        """({receiver: message}, own share) of one exchange."""
        if isinstance(exchange, Pull):
            vector: Vector = exchange.vector[0, :, 0]
            own: Any = sum(self._own(A, u) for A, u in exchange.terms)
            return dict.fromkeys(self.local.receivers[exchange.matrix.links], vector), own
        out: dict[int, Vector] = {}
        whole: Any = 0.0
        for matrix, vector in exchange.terms:
            whole = whole + self._whole(matrix, vector)
            for i, part in self._messages(matrix, vector):
                out[i] = out[i] + part if i in out else part
        own = whole - sum(out.values()) if out else whole
        if exchange.over is not None:
            awake = np.asarray(exchange.over).ravel() > 0
            asleep = {
                i
                for i, on in zip(self.local.receivers[exchange.terms.links], awake, strict=True)
                if not on
            }
            out = {i: message for i, message in out.items() if i not in asleep}
        return out, own

    def _messages(self, matrix: Matrix, vector: Array) -> list[tuple[int, Vector]]:
        if matrix.links is Links.NONE:
            return []
        receivers = self.local.receivers[matrix.links]
        if isinstance(matrix, Shares):
            return [(i, vector[1][n, :, 0]) for n, i in enumerate(receivers)]
        u = vector[0, :, 0]
        if isinstance(matrix, Columns):
            return [(i, matrix.out[n, 0, 0] * u) for n, i in enumerate(receivers)]
        weights = self._public(matrix)
        return [(i, weights.out[i] * u) for i in receivers]

    def _whole(self, matrix: Matrix, vector: Array) -> Vector:
        """The sum of all shares: columns add up to one."""
        if isinstance(matrix, Shares):
            return vector[0][0, :, 0] + vector[1].sum(0)[:, 0]
        if isinstance(matrix, Columns):
            return vector[0, :, 0] / matrix.scale[0, :, 0]
        return vector[0, :, 0]

    def _own(self, matrix: Matrix, vector: Array) -> Vector:
        weight = 1.0 if matrix.links is Links.NONE else self._public(matrix).own
        return weight * vector[0, :, 0]

    def _public(self, matrix: Matrix) -> LocalWeights:
        if isinstance(matrix, Square):
            return self.local.weights[matrix.of.name + "2"]
        assert isinstance(matrix, Public)
        return self.local.weights[matrix.name]

    def _into(self, matrix: Matrix, sender: int) -> float:
        if isinstance(matrix, Lazy):
            return 0.5 * self.local.weights[matrix.of.name].into[sender]
        return self._public(matrix).into[sender]


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
