"""All agents at once, in JAX: the view that a step sees inside the compiled loop, and its answers.

`Fleet` answers a round by sparse products over neighbour slots. `Recorder` forms every wire
message on its link, keeps it, and adds up what each agent receives. Both count what goes on the
wire from the exchanges that they answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hushgrad.agent.view import AgentView, Slots
from hushgrad.draws import Stream, uniforms
from hushgrad.exchange import (
    Array,
    Columns,
    IdentityMatrix,
    Links,
    Matrix,
    Parcel,
    Public,
    Pull,
    Push,
    Shares,
    Square,
)
from hushgrad.simulate.stacked import native
from hushgrad.simulate.stacked.constants import (
    Draw,
    LoopConstants,
    Plan,
    SeenTraffic,
    Use,
    Wire,
    take,
)
from hushgrad.simulate.stacked.layout import GROUP, UNROLLED
from hushgrad.simulate.stacked.products import interpret, written_out


class StackedAgents(AgentView):
    """The agents of a simulation, bound to one iteration."""

    xp = jnp

    def __init__(self, constants: LoopConstants, k: Any):
        self.env = constants
        self.k = k.astype(jnp.float64)
        self.counter = k.astype(jnp.uint32)
        self.ones = constants.ones
        self.traffic = SeenTraffic()
        self._fresh: dict[Draw, tuple[Array, ...]] = {}  # once one of them is asked for
        self.awake: Any = 0.0  # messages on links that only sometimes wake, (trials,)

    # ---- what the view asks of a driver

    def gradient(self, x: Array) -> Array:
        own = self._own_gradient(x)
        if "mask" not in self.env.args:
            return own
        c, Q = self.env.args["mask"]
        return own + (c if Q is None else c + jnp.einsum("iabt,ibt->iat", Q, x))

    def _own_gradient(self, x: Array) -> Array:
        plan, data = self.env.plan, self.env.args["data"]
        if plan.groups == 1:
            return _gradient(plan, x, data[0])
        parts = [
            _gradient(plan, take(x, where), group)
            for where, group in zip(self.env.args["group_index"], data, strict=True)
        ]
        return take(jnp.concatenate(parts), self.env.args["ungroup"])

    def _key(self, stream: Stream) -> tuple[Array, Array]:
        return self.env.key(stream)

    def _link_key(self, stream: Stream, links: Links) -> tuple[Array, Array]:
        return self.env.key(stream, links)

    def _public_key(self) -> tuple[Array, Array]:
        return self.env.key(Stream.COIN)

    def uniform(self, stream: Stream, *, slot: int = 0, once: bool = False) -> Array:
        return self._drawn(Draw(stream, slot, once, None))[0]

    def link_uniforms(
        self, stream: Stream, links: Links = Links.GRAPH, *, once: bool = False
    ) -> tuple[Array, Array]:
        own, out = self._drawn(Draw(stream, 0, once, links))
        return own, self._real(out, links)

    def _drawn(self, draw: Draw) -> tuple[Array, ...]:
        """One array for the agents, or two for their own links and the others."""
        env = self.env
        if draw in env.once:
            return env.once[draw]
        if draw not in env.places:  # a dry run: only its shape counts
            env.noted.draws[draw] = None
            return env.values(draw)
        if not self._fresh:
            self._fresh = self._draw_all()
        return self._fresh[draw]

    def _draw_all(self) -> dict[Draw, tuple[Array, ...]]:
        """All fresh draws of this iteration."""
        env, n = self.env, self.env.plan.n_agents
        if env.native_draws:
            drawn = (native.uniforms(*part, self.counter) for part in env.fresh)
            return {
                draw: tuple(next(drawn) for _ in range(1 if draw.links is None else 2))
                for draw in env.places
            }
        ((k0, k1, slots),) = env.fresh
        every = self._hold(uniforms((k0, k1), (jnp.zeros_like(k0) + self.counter, slots)))
        return {
            draw: (every[place],) if draw.links is None else (every[place][:n], every[place][n:])
            for draw, place in env.places.items()
        }

    def _slots(self, links: Links) -> Slots:
        own, out, width = (
            self.env.table(links, name)[:, None, None] for name in ("own_slot", "slot", "width")
        )
        return Slots(own, out, width)

    def to_links(self, values: Array, links: Links = Links.GRAPH) -> Array:
        return take(values, self.env.table(links, "source"))

    def sum_out(self, values: Array, links: Links = Links.GRAPH) -> Array:
        buckets = self.env.buckets(links, out=True)
        total = _sum_slots(buckets, lambda cut: cut(values), values.shape[1:])
        turn = self.env.table(links, "from_out")
        return total if turn is None else take(total, turn)

    def _real(self, values: Array, links: Links) -> Array:
        mask = self.env.table(links, "real")
        return values if mask is None else values * mask[:, None, None]

    def _link_numbers(self) -> tuple[Array, int]:
        return self.env.args["link_number"][:, None, None], self.env.plan.n_links

    def _hold(self, values: Any) -> Any:
        # without it XLA recomputes threefry and gradients in every consumer
        if not self.env.plan.listed:
            return lax.optimization_barrier(values)
        flat = jax.tree.map(native.flatten, values)
        return jax.tree.map(native.unflatten, lax.optimization_barrier(flat))

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
        scalar = isinstance(exchange, Push) and exchange.scalar
        self.traffic.uses.append(Use(links, numbers, scalar, over is None))
        if over is not None:
            self.awake = self.awake + over.sum((0, 1))

    def _sum(self, exchange: Push | Pull, parts: list[tuple[Matrix, Array]]) -> Array:
        del exchange
        total: Any = None
        public: dict[Matrix, Array] = {}  # A u + A v + A² w is A (u + v + A w): links read once
        by_links: dict[Links, list[tuple[Matrix, Array]]] = {}
        for matrix, vector in parts:
            if isinstance(matrix, Public):
                public[matrix] = self._hold(public[matrix] + vector) if matrix in public else vector
            elif matrix.links is Links.NONE:
                total = vector if total is None else total + vector
            elif not isinstance(matrix, Square):
                by_links.setdefault(matrix.links, []).append((matrix, vector))
        for matrix, vector in parts:
            if isinstance(matrix, Square):
                within = self._apply([(matrix.of, vector)], Links.GRAPH, public.get(matrix.of))
                public[matrix.of] = self._hold(within)
        if public:
            by_links[Links.GRAPH] = [*public.items(), *by_links.get(Links.GRAPH, [])]
        for links, own in by_links.items():
            total = self._apply(own, links, total)
        return total

    def _apply(
        self, parts: list[tuple[Matrix, Array]], links: Links, plain: Array | None = None
    ) -> Array:
        """Σ_parts A u over one kind of links, own link included, in one pass over the slots; plus
        `plain`.
        """
        dense = self.env.table(links, "dense")
        private = any(isinstance(matrix, Shares) for matrix, _ in parts)
        if dense is not None and self.env.plan.n_trials == 1 and not private:
            return self._apply_dense(parts, links, dense, plain)
        if self.env.plan.listed:
            return self._apply_native(parts, links, plain)
        neighbour, entry = self.env.table(links, "neighbour"), self.env.table(links, "entry")
        vector = parts[0][1]
        shape = (vector[0] if isinstance(vector, tuple) else vector).shape[1:]
        weights = [self._receiving(matrix, links, entry) for matrix, _ in parts]

        def slot(cut: Cut) -> Array:
            total: Any = None
            for (matrix, vector), weight in zip(parts, weights, strict=True):
                if isinstance(matrix, Shares):
                    term = take(vector[1], cut(entry))
                else:
                    term = cut(weight) * take(vector, cut(neighbour))
                total = term if total is None else total + term
            return total

        total = _sum_slots(self.env.buckets(links, out=False), slot, shape)
        turn = self.env.table(links, "from_into")
        total = total if turn is None else take(total, turn)
        for matrix, vector in parts:
            total = total + self._own(matrix, vector)
        return total if plain is None else total + plain

    def _apply_native(
        self, parts: list[tuple[Matrix, Array]], links: Links, plain: Array | None
    ) -> Array:
        """The same by native code: a public and a private matrix in each pass."""
        args, total = self.env.args, plain
        public = [
            (args["own"][A.name], args["receiving"][links, A.name], u)
            for A, u in parts
            if isinstance(A, Public)
        ]
        private = [(A.own, A.out, u) for A, u in parts if isinstance(A, Columns)]
        for at_links, at_senders in itertools.zip_longest(public, private):
            total = native.mix(self._list(links), public=at_links, private=at_senders, plain=total)
        for own, out in (u for A, u in parts if isinstance(A, Shares)):
            total = self._collect(out, own if total is None else total + own, links)
        return total

    def _list(self, links: Links) -> dict[str, Array]:
        return {name: self.env.table(links, name) for name in ("first", "neighbour", "entry")}

    def _collect(self, messages: Array, own: Array, links: Links) -> Array:
        """(agents, d, trials): what came over each agent's links, out of (out-slots, d, trials)."""
        entry = self.env.table(links, "entry")
        if self.env.plan.listed:
            by_entry = {**self._list(links), "neighbour": entry}
            return native.mix(by_entry, public=(None, None, messages), plain=own)
        received = _sum_slots(
            self.env.buckets(links, out=False),
            lambda cut: take(messages, cut(entry)),
            own.shape[1:],
        )
        turn = self.env.table(links, "from_into")
        return own + (received if turn is None else take(received, turn))

    def _apply_dense(
        self,
        parts: list[tuple[Matrix, Array]],
        links: Links,
        dense: Array,
        plain: Array | None,
    ) -> Array:
        """The same where most pairs are linked: a matrix gathered from the slots, and a product."""
        total: Any = 0.0 if plain is None else plain
        for matrix, vector in parts:
            if isinstance(matrix, Columns):
                rows = matrix.out[:, 0, 0]
            else:
                assert isinstance(matrix, Public)
                rows = self.env.args["sending"][links, matrix.name]
            total = total + (take(rows, dense) @ vector[:, :, 0])[:, :, None]
            total = total + self._own(matrix, vector)
        return total

    def _receiving(self, matrix: Matrix, links: Links, entry: Array) -> Array:
        """(in-slots, 1, trials or 1) weights as the receivers apply them."""
        if isinstance(matrix, Public):
            return self.env.args["receiving"][links, matrix.name][:, None, None]
        return take(matrix.out, entry) if isinstance(matrix, Columns) else None

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


class Recorder(StackedAgents):
    """Forms every message on its link: what is added up is what was sent."""

    def __init__(self, constants: LoopConstants, k: Any):
        super().__init__(constants, k)
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
            if not isinstance(matrix, IdentityMatrix):
                messages = messages + self._message(matrix, vector, links)
            own = own + self._own(matrix, vector)
        messages = self._hold(messages)
        self.wire.append(messages)
        if exchange.over is not None:
            self.masks.append(exchange.over)
        return self._collect(messages, own, links)

    def _message(self, matrix: Matrix, vector: Array, links: Links) -> Array:
        """(out-slots, d, trials): this part of what goes over each link."""
        if isinstance(matrix, Shares):
            return vector[1]
        at_sender = self.to_links(vector, links)
        if isinstance(matrix, Columns):
            return matrix.out * at_sender
        name = matrix.of.name + "2" if isinstance(matrix, Square) else matrix.name  # type: ignore[attr-defined]
        return self.env.args["sending"][links, name][:, None, None] * at_sender


type Cut = Callable[[Array], Array]  # the rows of a flat slot array that belong to one slot


def _sum_slots(buckets: Any, term: Callable[[Cut], Array], shape: tuple[int, ...]) -> Array:
    """Σ over each agent's slots of `term`, bucket by bucket."""
    sums: list[Array] = []
    offset = 0
    for low, high, width in buckets:
        n = high - low

        def slot(t: Any, offset: int = offset, n: int = n) -> Array:
            return term(lambda rows: lax.dynamic_slice_in_dim(rows, offset + t * n, n))

        def group(g: Any, total: Array, slot: Any = slot) -> Array:
            return sum((slot(g * GROUP + t) for t in range(GROUP)), start=total)

        if width == 0:
            sums.append(jnp.zeros((n, *shape)))
        elif width <= UNROLLED:
            sums.append(sum((slot(t) for t in range(1, width)), start=slot(0)))
        else:
            sums.append(lax.fori_loop(0, width // GROUP, group, jnp.zeros((n, *shape))))
        offset += width * n
    return sums[0] if len(sums) == 1 else jnp.concatenate(sums)


def _gradient(plan: Plan, x: Array, data: Any) -> Array:
    """(agents, d, trials) gradients; trials stay the last axis."""
    if plan.n_trials == 1:
        one = jax.tree.map(lambda leaf: leaf[..., 0], data) if plan.per_trial else data
        if plan.listed:
            return native.unflatten(native.gradients(plan.gradient, native.flatten(x), one))
        gradients = jax.vmap(plan.gradient)
        if plan.is_small:
            return interpret(written_out, gradients, x[:, :, 0], one)[:, :, None]
        return gradients(x[:, :, 0], one)[:, :, None]
    over_trials = jax.vmap(plan.gradient, in_axes=(1, -1 if plan.per_trial else None), out_axes=1)
    return jax.vmap(over_trials)(x, data)
