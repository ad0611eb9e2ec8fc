"""One agent, alone, in NumPy: it knows its own links, weights, objective and keys, no one else's.

`AgentDriver` is sans I/O: it hands out what the agent sends in a round and takes what came in.
In-memory links (team.py) or a network carry the mail. Sums are formed in the order of the senders'
numbers, never of arrival. The own share of a Push is what remains of what was really sent, so
rounding does not drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.division import add, divide, total
from hushgrad.agent.long import Long, flat, is_long, lift, numbers, plain
from hushgrad.agent.view import AgentView, Slots
from hushgrad.algorithms.base import Algorithm
from hushgrad.draws import ONCE, Draws, Stream
from hushgrad.exchange import (
    Array,
    Columns,
    Lazy,
    Links,
    Matrix,
    Parcel,
    Public,
    Pull,
    Push,
    Round,
    Shares,
    Square,
    Step,
    Terms,
    exchanges,
    reply,
)

# One iteration's draws cost as many NumPy calls as hundreds of iterations': draw ahead.
_AHEAD = 256  # iterations
_MOST_AHEAD = 65_536  # numbers, where an iteration draws many: half a megabyte

type Vector = NDArray[np.float64]  # (d,)
type Mail = Iterable[tuple[int, Vector]]  # (receiver, message)
type Letters = tuple[tuple[int, ...], Array]  # receivers, (receivers, room + d)
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


class OneAgent(AgentView):
    """The view of a single agent: a block of one, (1, d, 1)."""

    xp = np
    ones = np.ones((1, 1, 1))

    def __init__(self, local: Local, k: int = 0, *, room: int = 0):
        """`room`: words that stay free before each message of a Push, for who carries it."""
        self.local, self._room = local, room
        self.letters: Letters | None = None  # of the present round, if it is one Push with room
        self._receivers = {Links.NONE: (), **local.receivers}
        self._orders: dict[tuple[int, ...], list[int]] = {}
        self._matrices: list[Matrix] = []  # of the Push before, and what is known of them
        self._plan: tuple[tuple[int, ...], list[Any]] = (), []
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
        if isinstance(x, Long):
            return Long.of(np.asarray(self.local.gradient(x.numbers), np.float64))
        return np.asarray(self.local.gradient(x[0, :, 0]), np.float64)[None, :, None]

    def kept[T](self, key: object, make: Callable[[], T]) -> T:
        try:
            return self._kept[key]
        except KeyError:
            self._kept[key] = found = make()
            return found

    def lengthened(self, state: Any) -> Any:
        """A state for a step: long vectors as such."""
        if not is_long(max([u.size for u in state])):
            return state
        return type(state)(*[Long.of(flat(u)) if is_long(u.size) else u for u in state])

    def computed(self, state: Any) -> Any:
        """A state as arrays."""
        for u in state:
            if type(u) is Long:
                return type(state)(*[plain(u) for u in state])
        return state

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
        """What goes to each receiver, or into `letters`, and for each exchange what stays here."""
        self.letters = None
        if type(asked) is Push:
            out, own = self._push(asked, self._room)
            return ({} if self.letters else {i: (message,) for i, message in out}), [own]
        pushed = [
            self._pull(exchange) if isinstance(exchange, Pull) else self._push(exchange, 0)
            for exchange in exchanges(asked)
        ]
        if len(pushed) == 1:
            ((out, own),) = pushed
            return {i: (message,) for i, message in out}, [own]
        by_receiver = [dict(out) for out, _ in pushed]
        receivers = sorted({i for out in by_receiver for i in out})
        mail = {i: tuple([out.get(i) for out in by_receiver]) for i in receivers}
        return mail, [own for _, own in pushed]

    def incoming(
        self, asked: Round, own: list[Vector], box: Mapping[int, Payload]
    ) -> tuple[Array, ...]:
        """The sums that a step gets back, in the order of the senders' numbers."""
        me = self.local.number
        came = tuple(box)
        senders = self._orders.get(came)
        if senders is None:
            self._orders[came] = senders = sorted((*box, me))
        if type(asked) is Push:
            return (total([own[0] if j == me else box[j][0] for j in senders]),)
        sums: list[Array] = []
        for e, exchange in enumerate(exchanges(asked)):
            parts = [own[e] if j == me else box[j][e] for j in senders]
            if isinstance(exchange, Pull):
                into = self.row(exchange.matrix)
                parts = [
                    vector if j == me or vector is None else into[j] * lift(vector)
                    for j, vector in zip(senders, parts, strict=True)
                ]
            sums.append(total([vector for vector in parts if vector is not None]))
        return tuple(sums)

    def _pull(self, exchange: Pull) -> tuple[Mail, Vector]:
        """(receivers with the message, own share) of what receivers weigh."""
        matrix = exchange.matrix
        message = flat(exchange.vector)
        own = self.stays(matrix, lift(message))
        return [(i, message) for i in self._receivers[matrix.links]], numbers(own)

    def stays(self, matrix: Matrix, vector: Any) -> Any:
        """This agent's own part of the product with a public matrix."""
        weights = self._public(matrix)
        if isinstance(matrix, Lazy):
            half = 0.5 * vector
            return weights.own * half + half
        return weights.own * vector

    def _push(self, exchange: Push, room: int) -> tuple[Mail, Vector]:
        """(receivers with their messages, own share) of what this agent weighs: columns add up to
        one, so the own share is what remains of the whole.
        """
        parts = exchange.terms.parts
        matrices = [matrix for matrix, _ in parts]
        if matrices != self._matrices:
            self._matrices, self._plan = matrices, self._planned(exchange.terms)
        receivers, weights = self._plan
        wholes: list[Any] = []  # (d,) or long
        blocks: list[tuple[Any, int | None]] = []  # weights and which whole, or shares as they are
        for n, (_, vector) in enumerate(parts):
            if type(vector) is Parcel:
                shares = vector[1][:, :, 0]
                wholes.append(flat(vector[0]) + shares.sum(0))
                blocks.append((shares, None))
            else:
                wholes.append(vector if type(vector) is Long else vector[0, :, 0])
                if weights[n] is not None:
                    blocks.append((weights[n], n))
        if not blocks:
            return [], numbers(add(wholes))
        dim = wholes[0].dim if type(wholes[0]) is Long else len(wholes[0])
        letters = np.empty((len(receivers), room + dim))
        messages = letters[:, room:] if room else letters
        own = divide(blocks, wholes, messages)
        if exchange.over is None:
            if room:
                self.letters = receivers, letters
            return zip(receivers, messages, strict=True), own
        awake = np.asarray(exchange.over).ravel() > 0
        found = zip(receivers, messages, awake.tolist(), strict=True)
        return [(i, message) for i, message, is_awake in found if is_awake], own

    def receivers(self, links: Links) -> tuple[int, ...]:
        """Whom these links reach, ascending."""
        return self._receivers[links]

    def _planned(self, terms: Terms) -> tuple[tuple[int, ...], list[Any]]:
        """Who is reached by a Push, and the weights of each of its terms, None for none."""
        links = terms.links
        receivers = self._receivers[links]
        return receivers, [
            self.weights(matrix, links)
            if receivers and matrix.links is not Links.NONE and type(matrix) is not Shares
            else None
            for matrix, _ in terms.parts
        ]

    def weights(self, matrix: Matrix, links: Links) -> Array:
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
        self._step: Step[Any] = step(self._view, self._view.lengthened(self.state))
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
            self.state = self._view.computed(end.value)
            self.k += 1
            self._begin()
            return True
        self._mail, self._own = self._view.outgoing(self._asked)
        return False
