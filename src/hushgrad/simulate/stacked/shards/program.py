"""The compiled loop over several devices: the functions of `Program` on every shard.

Arguments by agent are divided among the devices, others are the same on all. Only the
exchange of rows and the metrics cross from device to device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from hushgrad.exchange import Array
from hushgrad.simulate.stacked.constants import Prepared
from hushgrad.simulate.stacked.program import Compiled, Program
from hushgrad.simulate.stacked.shards.agents import ShardAgents, ShardPlan
from hushgrad.simulate.stacked.shards.mesh import AXIS

BY_AGENT = PartitionSpec(AXIS)
SAME = PartitionSpec()
SHARED = ("trial_key", "numbers", "solution")  # arguments that are the same on all devices


class ShardedProgram(Program):
    """The compiled functions of an algorithm, each on all shards at once."""

    agents = ShardAgents
    plan: ShardPlan

    def _compile(self) -> tuple[Compiled, Compiled, Compiled]:
        return (
            self._on_shards(self._start, (BY_AGENT,), (BY_AGENT, BY_AGENT)),
            self._on_shards(self._first, (BY_AGENT,), (BY_AGENT, SAME)),
            self._on_shards(
                self._block, (BY_AGENT, BY_AGENT, SAME, SAME, SAME), (BY_AGENT, SAME, SAME, SAME)
            ),
        )

    def _on_shards(self, function: Callable[..., Any], given: Any, found: Any) -> Compiled:
        mesh = self.plan.shards.mesh

        def call(args: dict[str, Any], *rest: Any) -> Any:
            named = {name: SAME if name in SHARED else BY_AGENT for name in args}
            mapped = jax.shard_map(
                function, mesh=mesh, in_specs=(named, *given), out_specs=found, check_vma=False
            )
            return mapped(args, *rest)

        return Compiled(call)

    def _first(self, args: Any, state: Any) -> tuple[Any, Any]:
        state, awake = super()._first(args, state)
        return state, lax.psum(awake, AXIS)

    def _block(
        self, args: Any, prepared: Prepared, state: Any, k: Any, stride: Any, n: Any
    ) -> tuple[Any, Any, Any, Any]:
        state, awake, off, apart = super()._block(args, prepared, state, k, stride, n)
        return state, lax.psum(awake, AXIS), off, apart

    def _metrics(self, args: Any, state: Any) -> tuple[Array, Array]:
        x = self._algorithm(args).estimate(state)
        is_agent = args["is_agent"][:, None, None]
        mean = lax.psum(jnp.where(is_agent, x, 0.0).sum(0), AXIS) / self.plan.n_real

        def largest(apart: Array) -> Array:
            size = jnp.sqrt((apart**2).sum(1, keepdims=True))
            return jnp.where(is_agent, size, 0.0).max((0, 1))

        found = jnp.stack([largest(x - args["solution"]), largest(x - mean)])
        # a maximum over devices may lose what is not a number, so that is told apart
        lost = jnp.isnan(found)
        every = lax.pmax(jnp.stack([jnp.where(lost, jnp.inf, found), 1.0 * lost]), AXIS)
        off, apart = jnp.where(every[1] > 0, jnp.nan, every[0])
        return off, apart
