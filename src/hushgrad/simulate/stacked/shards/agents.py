"""The agents of one shard inside the compiled loop: as all agents at once, with ghosts.

An out-slot array has the right numbers also on the rows of links from ghosts: draws are made here
again, and what a sender computed comes from its shard.

The program of a shard (program.py) runs the steps on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from hushgrad.draws import Stream
from hushgrad.exchange import Array, Links, Pull, Push, Shares
from hushgrad.simulate.stacked.agents import StackedAgents
from hushgrad.simulate.stacked.constants import LoopConstants, Plan, take, threefry
from hushgrad.simulate.stacked.shards.halo import Halo
from hushgrad.simulate.stacked.shards.mesh import Shards
from hushgrad.simulate.stacked.sums import NeighbourSums, Parts


@dataclass(frozen=True)
class ShardPlan(Plan):
    """The plan of every shard: `n_agents` are the places of one."""

    shards: Shards = None  # type: ignore[assignment]  # the fields before it have defaults
    halos: tuple[tuple[Links, Halo, int], ...] = ()  # with the rows of links from own agents
    n_real: int = 0  # agents of all shards together

    def halo(self, links: Links) -> Halo:
        return next(halo for kind, halo, _ in self.halos if kind == links)

    def own_rows(self, links: Links) -> int:
        return next(rows for kind, _, rows in self.halos if kind == links)


class ShardConstants(LoopConstants):
    """The constants of one shard: keys of links also from ghosts."""

    plan: ShardPlan

    def _make_key(self, stream: Stream, links: Links | None) -> tuple[Array, Array]:
        if links is None or stream is Stream.COIN:
            return super()._make_key(stream, links)
        everyone = jnp.concatenate([self.agents[:, 0, 0], self.table(links, "ghosts")])
        shape = (everyone.shape[0], 1, self.plan.n_trials)
        number = jnp.broadcast_to(everyone[:, None, None], shape)
        words = threefry(self.trial_key, (number, jnp.full(shape, int(stream), jnp.uint32)))
        source = self.table(links, "source")
        return take(words[0], source), take(words[1], source)

    def with_ghosts(self, vectors: list[Array], links: Links) -> list[Array]:
        """Each of the arrays (agents, ·, trials) with the rows of the ghosts behind it; all travel
        together.
        """
        halo = self.plan.halo(links)
        if not halo.n_rows:
            return vectors
        came = halo.exchange(vectors, self.table(links, "give"))
        # side by side, so that a neighbour's rows of all vectors are one place in memory
        rows = jnp.concatenate([jnp.concatenate(vectors, 1), came])
        ends = np.cumsum([vector.shape[1] for vector in vectors])
        return jnp.split(rows, ends[:-1], 1)


class ShardSums(NeighbourSums):
    """Sums over neighbours, some of whom are ghosts."""

    _constants: ShardConstants

    def _seen(self, parts: Parts, links: Links) -> Parts:
        vectors = [vector for matrix, vector in parts if not isinstance(matrix, Shares)]
        known = iter(self._constants.with_ghosts(vectors, links) if vectors else ())
        return [
            (matrix, vector if isinstance(matrix, Shares) else next(known))
            for matrix, vector in parts
        ]


class ShardAgents(StackedAgents):
    """The agents of one shard, bound to one iteration."""

    constants: ShardConstants

    def __init__(self, constants: ShardConstants, k: Any):
        super().__init__(constants, k)
        self._sums = ShardSums(constants)

    def gradient(self, x: Array) -> Array:
        """Places without an agent stand still, so that their numbers stay finite."""
        return jnp.where(self.constants.args["is_agent"][:, None, None], super().gradient(x), 0.0)

    def to_links(self, values: Array, links: Links = Links.GRAPH) -> Array:
        if values.shape[0] == self.constants.plan.n_agents:  # else those of ghosts are there
            (values,) = self.constants.with_ghosts([values], links)
        return take(values, self.constants.table(links, "source"))

    def _count(self, exchange: Push | Pull) -> None:
        before = self.awake
        super()._count(exchange)
        over = exchange.over if isinstance(exchange, Push) else None
        if over is not None:  # links from ghosts count in their own shards
            rows = self.constants.plan.own_rows(exchange.terms.links)
            self.awake = before + over[:rows].sum((0, 1))
