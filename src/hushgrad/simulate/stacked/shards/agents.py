"""The agents of one shard inside the compiled loop.

Each shard adds up the messages of its own agents, and only these sums travel between shards.

The program of a shard (program.py) runs the steps on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from hushgrad.exchange import Array, Links
from hushgrad.simulate.stacked.agents import StackedAgents
from hushgrad.simulate.stacked.constants import LoopConstants, Plan, take
from hushgrad.simulate.stacked.layout import Buckets
from hushgrad.simulate.stacked.shards.halo import Halo
from hushgrad.simulate.stacked.shards.mesh import Shards
from hushgrad.simulate.stacked.sums import Cut, NeighbourSums, Slot, sums_by_bucket


@dataclass(frozen=True)
class Crossing:
    """What crosses between shards over links of one kind."""

    halo: Halo
    guests: Buckets  # whose slots stand behind those of own agents
    heard: Buckets  # own agents by the rows that they get


@dataclass(frozen=True)
class ShardPlan(Plan):
    """The plan of every shard: `n_agents` are the places of one."""

    shards: Shards = None  # type: ignore[assignment]  # the fields before it have defaults
    crossings: tuple[tuple[Links, Crossing], ...] = ()
    n_real: int = 0  # agents of all shards together

    def crossing(self, links: Links) -> Crossing:
        return next(crossing for kind, crossing in self.crossings if kind == links)


class ShardSums(NeighbourSums):
    """Sums over neighbours, some of whom are in other shards."""

    def _by_bucket(self, links: Links, slot: Slot, shape: tuple[int, ...]) -> list[Array]:
        constants = self._constants
        assert isinstance(constants.plan, ShardPlan)
        crossing = constants.plan.crossing(links)
        into = constants.buckets(links, out=False)
        sums = sums_by_bucket((*into, *crossing.guests), slot, shape)
        if not crossing.guests:
            return sums
        to_guests = constants.hold(jnp.concatenate(sums[len(into) :]))
        came = crossing.halo.exchange(to_guests, constants.table(links, "give"))

        def row(cut: Cut) -> Array:
            is_came = cut(constants.table(links, "is_came"))[:, None, None]
            return jnp.where(is_came, take(came, cut(constants.table(links, "came"))), 0.0)

        rows = sums_by_bucket(crossing.heard, row, shape)
        widths = (width for _, _, width in crossing.heard)
        own = zip(sums[: len(into)], rows, widths, strict=True)
        return [a + b if width else a for a, b, width in own]


class ShardAgents(StackedAgents):
    """The agents of one shard, bound to one iteration."""

    def __init__(self, constants: LoopConstants, k: Any):
        super().__init__(constants, k)
        self._sums = ShardSums(constants)

    def gradient(self, x: Array) -> Array:
        """Places without an agent stand still, so that their numbers stay finite."""
        return jnp.where(self.constants.args["is_agent"][:, None, None], super().gradient(x), 0.0)

    def _real(self, values: Array, links: Links) -> Array:
        """Where all agents have full slots, slots of places without an agent keep their numbers:
        nothing of such a place reaches an agent, and its own gradient is zero.
        """
        if self.constants.table(links, "real") is not None:
            return super()._real(values, links)
        last = values.shape[0] - 1  # the row of zeros is the only one without a link
        return jnp.where(jnp.arange(last + 1)[:, None, None] < last, values, 0.0)
