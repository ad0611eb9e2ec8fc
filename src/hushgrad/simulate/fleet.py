"""All agents at once, in JAX: the view that a step sees inside the compiled loop, and its answers.

`Fleet` answers a round by sparse products over neighbour slots. `Recorder` forms every wire
message on its link, keeps it, and adds up what each agent receives. Both count what goes on the
wire from the exchanges that they answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hushgrad.draws import PUBLIC, Stream, threefry
from hushgrad.exchange import (
    Array,
    Columns,
    Identity,
    Links,
    Matrix,
    Parcel,
    Public,
    Pull,
    Push,
    Shares,
    Square,
)
from hushgrad.simulate.view import Slots, View

_UNROLL = 32  # slots written out one by one; wider buckets are reduced in a loop


def _get(values: Array, index: Array) -> Array:
    return values.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


@dataclass(frozen=True)
class Plan:
    """What is fixed when a run is compiled; the rest comes in as arrays."""

    sides: tuple[
        tuple[Links, tuple[tuple[int, int, int], ...], tuple[tuple[int, int, int], ...]], ...
    ]
    n_agents: int
    n_links: int
    n_trials: int
    dim: int
    gradient: Any  # callable (theta (d,), data_i) → (d,)
    groups: int
    per_trial: bool


@dataclass(frozen=True)
class Wire:
    """An exchange that a recorder keeps."""

    round: int
    exchange: int
    pushed: bool
    links: Links
    masked: bool


@dataclass
class Traffic:
    """What one iteration puts on the wire, noted while its step is traced."""

    rounds: int = 0
    uses: list[tuple[Links, int, bool]] = field(default_factory=list)  # (links, numbers, all awake)
    wires: list[Wire] = field(default_factory=list)  # noted by a recorder


class Environment:
    """Arrays of a run that no iteration changes: keys, weights, tables. Made before the loop."""

    def __init__(self, plan: Plan, args: dict[str, Any]):
        self.plan, self.args = plan, args
        self.agents = args["agents"][:, None, None]  # (agents, 1, 1) uint32, canonical order
        t0, t1 = args["trial_key"]  # (trials,)
        self.trial_key = (t0[None, None, :], t1[None, None, :])
        self._keys: dict[Any, tuple[Array, Array]] = {}
        for stream in Stream:
            self._keys[stream] = self._derive(self.agents, stream)
            for links, _, _ in plan.sides:
                source = args["tables"][links]["source"]
                words = self._keys[stream]
                self._keys[stream, links] = (_get(words[0], source), _get(words[1], source))
        self.public = self._derive(jnp.full((1, 1, 1), PUBLIC, jnp.uint32), Stream.COIN)
        self.ones = jnp.ones((plan.n_agents, 1, plan.n_trials))

    def _derive(self, agents: Array, stream: Stream) -> tuple[Array, Array]:
        shape = (agents.shape[0], 1, self.plan.n_trials)
        number = jnp.broadcast_to(agents, shape)
        return threefry(self.trial_key, (number, jnp.full(shape, int(stream), jnp.uint32)))

    def key(self, stream: Stream, links: Links | None = None) -> tuple[Array, Array]:
        return self._keys[stream if links is None else (stream, links)]

    def table(self, links: Links, name: str) -> Any:
        return self.args["tables"][links][name]

    def buckets(self, links: Links, *, out: bool) -> tuple[tuple[int, int, int], ...]:
        into, sent = next((i, o) for kind, i, o in self.plan.sides if kind == links)
        return sent if out else into


class Fleet(View):
    """The agents of a simulation, bound to one iteration."""

    xp = jnp

    def __init__(self, environment: Environment, k: Any):
        self.env = environment
        self.k = k.astype(jnp.float64)
        self.counter = k.astype(jnp.uint32)
        self.ones = environment.ones
        self.traffic = Traffic()
        self.awake: Any = 0.0  # messages on links that only sometimes wake, (trials,)

    # ---- what the view asks of a driver

    def gradient(self, x: Array) -> Array:
        plan, data = self.env.plan, self.env.args["data"]
        if plan.groups == 1:
            return _gradient(plan, x, data[0])
        parts = [
            _gradient(plan, _get(x, where), group)
            for where, group in zip(self.env.args["group_index"], data, strict=True)
        ]
        return _get(jnp.concatenate(parts), self.env.args["ungroup"])

    def _key(self, stream: Stream) -> tuple[Array, Array]:
        return self.env.key(stream)

    def _link_key(self, stream: Stream, links: Links) -> tuple[Array, Array]:
        return self.env.key(stream, links)

    def _public_key(self) -> tuple[Array, Array]:
        return self.env.public

    def _slots(self, links: Links) -> Slots:
        own, out, width = (
            self.env.table(links, name)[:, None, None] for name in ("own_slot", "slot", "width")
        )
        return Slots(own, out, width)

    def to_links(self, values: Array, links: Links = Links.GRAPH) -> Array:
        return _get(values, self.env.table(links, "source"))

    def sum_out(self, values: Array, links: Links = Links.GRAPH) -> Array:
        total = _sum_slots(
            self.env.buckets(links, out=True),
            lambda at, t, _: _rows(values, at, t),
            values.shape[1:],
        )
        turn = self.env.table(links, "from_out")
        return total if turn is None else _get(total, turn)

    def _real(self, values: Array, links: Links) -> Array:
        mask = self.env.table(links, "real")
        return values if mask is None else values * mask[:, None, None]

    def _link_numbers(self) -> tuple[Array, int]:
        return self.env.args["link_number"][:, None, None], self.env.plan.n_links

    def _hold(self, values: Any) -> Any:
        # without it XLA recomputes threefry and gradients in every consumer
        return lax.optimization_barrier(values)

    # ---- answering

    def answer(self, asked: tuple[Push | Pull, ...]) -> tuple[Array, ...]:
        self.traffic.rounds += 1
        sums: list[Array] = []
        for exchange, parts in zip(asked, self._materialise(asked), strict=True):
            self._count(exchange)
            sums.append(self._sum(exchange, parts))
        return tuple(sums)

    def _materialise(self, asked: tuple[Push | Pull, ...]) -> list[list[tuple[Matrix, Array]]]:
        """Every exchanged vector computed once, however many links read it."""
        parts = [list(exchange.terms) for exchange in asked]
        distinct = {
            id(vector): tuple(vector) if isinstance(vector, Parcel) else vector
            for own in parts
            for _, vector in own
        }
        held = dict(zip(distinct, self._hold(tuple(distinct.values())), strict=True))
        return [[(matrix, held[id(vector)]) for matrix, vector in own] for own in parts]

    def _count(self, exchange: Push | Pull) -> None:
        links = exchange.terms.links
        if links is Links.NONE:
            return
        over = exchange.over if isinstance(exchange, Push) else None
        _, vector = exchange.terms.parts[0]
        numbers = int((vector[0] if isinstance(vector, tuple) else vector).shape[1])
        self.traffic.uses.append((links, numbers, over is None))
        if over is not None:
            self.awake = self.awake + over.sum((0, 1))

    def _sum(self, exchange: Push | Pull, parts: list[tuple[Matrix, Array]]) -> Array:
        del exchange
        total: Any = None
        by_links: dict[Links, list[tuple[Matrix, Array]]] = {}
        for matrix, vector in parts:
            if isinstance(matrix, Square):  # A² u as A (A u)
                inner = self._hold(self._apply([(matrix.of, vector)], Links.GRAPH))
                by_links.setdefault(Links.GRAPH, []).append((matrix.of, inner))
            elif matrix.links is Links.NONE:
                total = vector if total is None else total + vector
            else:
                by_links.setdefault(matrix.links, []).append((matrix, vector))
        for links, own in by_links.items():
            applied = self._apply(own, links)
            total = applied if total is None else total + applied
        return total

    def _apply(self, parts: list[tuple[Matrix, Array]], links: Links) -> Array:
        """Σ_parts A u over one kind of links, own link included, in one pass over the slots."""
        neighbour, entry = self.env.table(links, "neighbour"), self.env.table(links, "entry")
        vector = parts[0][1]
        shape = (vector[0] if isinstance(vector, tuple) else vector).shape[1:]
        weights = [self._receiving(matrix, links) for matrix, _ in parts]

        def slot(at: slice, t: int, bucket: tuple[int, int, int]) -> Array:
            del t, bucket
            total: Any = None
            for (matrix, vector), weight in zip(parts, weights, strict=True):
                if isinstance(matrix, Shares):
                    term = _get(vector[1], entry[at])
                elif isinstance(matrix, Columns):
                    term = _get(matrix.out, entry[at]) * _get(vector, neighbour[at])
                else:
                    assert weight is not None
                    term = weight[at, None, None] * _get(vector, neighbour[at])
                total = term if total is None else total + term
            return total

        total = _sum_slots(self.env.buckets(links, out=False), slot, shape)
        turn = self.env.table(links, "from_into")
        total = total if turn is None else _get(total, turn)
        for matrix, vector in parts:
            total = total + self._own(matrix, vector)
        return total

    def _receiving(self, matrix: Matrix, links: Links) -> Array | None:
        """(in-slots,) weights of a public matrix."""
        return (
            self.env.args["receiving"][links, matrix.name] if isinstance(matrix, Public) else None
        )

    def _own(self, matrix: Matrix, vector: Array) -> Array:
        """What an agent sends to itself."""
        if isinstance(matrix, Shares):
            return vector[0]
        if isinstance(matrix, Columns):
            return matrix.own * vector
        if isinstance(matrix, Public):
            return self.env.args["own"][matrix.name][:, None, None] * vector
        if isinstance(matrix, Square):
            return self.env.args["own"][matrix.of.name + "2"][:, None, None] * vector
        return vector


class Recorder(Fleet):
    """Forms every message on its link: what is added up is what was sent."""

    def __init__(self, environment: Environment, k: Any):
        super().__init__(environment, k)
        self.wire: list[
            Array
        ] = []  # per exchange: (out-slots, d, trials) pushed, (agents, d, trials) pulled
        self.masks: list[
            Array
        ] = []  # per pushed exchange over some links only: (out-slots, 1, trials)

    def answer(self, asked: tuple[Push | Pull, ...]) -> tuple[Array, ...]:
        for e, exchange in enumerate(asked):
            if exchange.terms.links is not Links.NONE:
                over = isinstance(exchange, Push) and exchange.over is not None
                self.traffic.wires.append(
                    Wire(
                        self.traffic.rounds,
                        e,
                        isinstance(exchange, Push),
                        exchange.terms.links,
                        over,
                    )
                )
        return super().answer(asked)

    def _sum(self, exchange: Push | Pull, parts: list[tuple[Matrix, Array]]) -> Array:
        links = exchange.terms.links
        if isinstance(exchange, Pull):
            self.wire.append(exchange.vector)
            return super()._sum(exchange, parts)
        if links is Links.NONE:
            return super()._sum(exchange, parts)
        messages: Any = 0.0
        own: Any = 0.0
        for matrix, vector in parts:
            if not isinstance(matrix, Identity):
                messages = messages + self._message(matrix, vector, links)
            own = own + self._own(matrix, vector)
        messages = self._hold(messages)
        self.wire.append(messages)
        if exchange.over is not None:
            self.masks.append(exchange.over)
        entry = self.env.table(links, "entry")
        received = _sum_slots(
            self.env.buckets(links, out=False),
            lambda at, *_: _get(messages, entry[at]),
            own.shape[1:],
        )
        turn = self.env.table(links, "from_into")
        return own + (received if turn is None else _get(received, turn))

    def _message(self, matrix: Matrix, vector: Array, links: Links) -> Array:
        """(out-slots, d, trials): this part of what goes over each link."""
        if isinstance(matrix, Shares):
            return vector[1]
        at_sender = self.to_links(vector, links)
        if isinstance(matrix, Columns):
            return matrix.out * at_sender
        name = matrix.of.name + "2" if isinstance(matrix, Square) else matrix.name  # type: ignore[attr-defined]
        return self.env.args["sending"][links, name][:, None, None] * at_sender


def _rows(values: Array, at: slice, t: int) -> Array:
    del t
    return values[at]


def _sum_slots(buckets: Any, term: Any, shape: tuple[int, ...]) -> Array:
    """Σ over each agent's slots of `term(flat entries, slot, bucket)`, bucket by bucket."""
    sums: list[Array] = []
    offset = 0
    for bucket in buckets:
        low, high, width = bucket
        n = high - low
        if width == 0:
            sums.append(jnp.zeros((n, *shape)))
        elif width <= _UNROLL:
            total = term(slice(offset, offset + n), 0, bucket)
            for t in range(1, width):
                total = total + term(slice(offset + t * n, offset + (t + 1) * n), t, bucket)
            sums.append(total)
        else:
            every = term(slice(offset, offset + width * n), 0, bucket)
            sums.append(every.reshape(width, n, *every.shape[1:]).sum(0))
        offset += width * n
    return sums[0] if len(sums) == 1 else jnp.concatenate(sums)


def _gradient(plan: Plan, x: Array, data: Any) -> Array:
    """(agents, d, trials) gradients; trials stay the last axis."""
    if plan.n_trials == 1:
        one = jax.tree.map(lambda leaf: leaf[..., 0], data) if plan.per_trial else data
        return jax.vmap(plan.gradient)(x[:, :, 0], one)[:, :, None]
    over_trials = jax.vmap(plan.gradient, in_axes=(1, -1 if plan.per_trial else None), out_axes=1)
    return jax.vmap(over_trials)(x, data)
