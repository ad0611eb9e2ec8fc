"""All agents at once, in JAX: what a step sees inside the compiled loop, and the answers it gets.

`StackedAgents` answers a round by sums over neighbours (sums.py) and counts the messages of the
exchanges that it answers. The recorder (recorder.py) also keeps every message.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from hushgrad.agent.view import AgentView, Slots
from hushgrad.draws import ONCE, Stream
from hushgrad.exchange import Array, Links, Matrix, Parcel, Pull, Push
from hushgrad.simulate.stacked.constants import (
    Draw,
    LoopConstants,
    Plan,
    SeenTraffic,
    Use,
    take,
    uniforms,
)
from hushgrad.simulate.stacked.products import write_products_out
from hushgrad.simulate.stacked.sums import NeighbourSums, sum_slots


class StackedAgents(AgentView):
    """The agents of a simulation, bound to one iteration."""

    xp = jnp

    def __init__(self, constants: LoopConstants, k: Any):
        self.constants = constants
        self._sums = NeighbourSums(constants)
        self.k = k.astype(jnp.float64)
        self.counter = k.astype(jnp.uint32)
        self.ones = constants.ones
        self.traffic = SeenTraffic()
        self._fresh: dict[Draw, tuple[Array, ...]] = {}  # once one of them is asked for
        self.awake: Any = 0.0  # messages on links that only sometimes wake, (trials,)

    # ---- for the view

    def gradient(self, x: Array) -> Array:
        self.traffic.gradients += 1
        own = self._own_gradient(x)
        if "mask" not in self.constants.args:
            return own
        c, Q = self.constants.args["mask"]
        return own + (c if Q is None else c + jnp.einsum("iabt,ibt->iat", Q, x))

    def _own_gradient(self, x: Array) -> Array:
        """The gradients without masks, group by group of agents with equal shapes."""
        plan, data = self.constants.plan, self.constants.args["data"]
        if plan.groups == 1:
            return _gradient(plan, x, data[0])
        parts = [
            _gradient(plan, take(x, where), group)
            for where, group in zip(self.constants.args["group_index"], data, strict=True)
        ]
        return take(jnp.concatenate(parts), self.constants.args["ungroup"])

    def each(self, values: Any) -> Any:
        own = take(jnp.asarray(values), self.constants.args["agents"])  # (agents,) or with trials
        return own[:, None, None] if own.ndim == 1 else own[:, None, :]

    def _draw(
        self, stream: Stream, slots: Any, links: Links | None = None, *, once: bool = False
    ) -> Array:
        k0, k1 = self.constants.key(stream, links)
        when = jnp.zeros_like(k0) + (jnp.uint32(ONCE) if once else self.counter)
        return uniforms((k0, k1), (when, slots))

    def uniform(self, stream: Stream, *, slot: int = 0, once: bool = False) -> Array:
        return self._drawn(Draw(stream, slot, once, None))[0]

    def link_uniforms(
        self, stream: Stream, links: Links = Links.GRAPH, *, once: bool = False
    ) -> tuple[Array, Array]:
        own, out = self._drawn(Draw(stream, 0, once, links))
        return own, self._real(out, links)

    def _drawn(self, draw: Draw) -> tuple[Array, ...]:
        """One array for the agents, or two for their own links and the others."""
        constants = self.constants
        if draw in constants.once:
            return constants.once[draw]
        if draw not in constants.places:  # a dry run: only its shape counts
            constants.noted.draws[draw] = None
            return constants.values(draw)
        if not self._fresh:
            self._fresh = self._draw_all()
        return self._fresh[draw]

    def _draw_all(self) -> dict[Draw, tuple[Array, ...]]:
        """All fresh draws of this iteration."""
        constants, n = self.constants, self.constants.plan.n_agents
        k0, k1, slots = constants.fresh
        every = self._hold(uniforms((k0, k1), (jnp.zeros_like(k0) + self.counter, slots)))
        return {
            draw: (every[place],) if draw.links is None else (every[place][:n], every[place][n:])
            for draw, place in constants.places.items()
        }

    def _slots(self, links: Links) -> Slots:
        own, out, width = (
            self.constants.table(links, name)[:, None, None]
            for name in ("own_slot", "slot", "width")
        )
        return Slots(own, out, width)

    def to_links(self, values: Array, links: Links = Links.GRAPH) -> Array:
        return take(values, self.constants.table(links, "source"))

    def sum_out(self, values: Array, links: Links = Links.GRAPH) -> Array:
        buckets = self.constants.buckets(links, out=True)
        total = sum_slots(buckets, lambda cut: cut(values), values.shape[1:])
        turn = self.constants.table(links, "from_out")
        return total if turn is None else take(total, turn)

    def _real(self, values: Array, links: Links) -> Array:
        mask = self.constants.table(links, "real")
        return values if mask is None else values * mask[:, None, None]

    def _link_numbers(self) -> tuple[Array, int]:
        return self.constants.args["link_number"][:, None, None], self.constants.plan.n_links

    def _hold(self, values: Any) -> Any:
        return self.constants.hold(values)

    # ---- for the driver

    def answer(self, asked: tuple[Push | Pull, ...]) -> tuple[Array, ...]:
        """The sums that the receivers form in one round, exchange by exchange."""
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
        return self._sums.total(parts)


def _gradient(plan: Plan, x: Array, data: Any) -> Array:
    """(agents, d, trials) gradients; trials stay the last axis."""
    if plan.n_trials == 1:
        one = jax.tree.map(lambda leaf: leaf[..., 0], data) if plan.per_trial else data
        gradients = jax.vmap(plan.gradient)
        if plan.is_small:
            return write_products_out(gradients, x[:, :, 0], one)[:, :, None]
        return gradients(x[:, :, 0], one)[:, :, None]
    over_trials = jax.vmap(plan.gradient, in_axes=(1, -1 if plan.per_trial else None), out_axes=1)
    return jax.vmap(over_trials)(x, data)
