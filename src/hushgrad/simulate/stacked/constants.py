"""Everything that a run has before its loop: the plan, the traffic seen, the constant arrays.

`Program` makes it, the stacked agents of every iteration read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hushgrad import draws as contract
from hushgrad.draws import ONCE, PUBLIC, Stream
from hushgrad.exchange import Array, Links
from hushgrad.simulate.stacked.layout import Buckets

_LANES = 8  # float64 numbers in the widest vector register; narrower ones hold a part of 8
_SMALL = 2048  # agents · d · trials
_LARGE = 2**16

# A hundred operations each, which JAX traces once per shape and not in every place of a program.
threefry, uniforms = jax.jit(contract.threefry), jax.jit(contract.uniforms)


def take(values: Array, index: Array) -> Array:
    """The rows of an index that is known to be within bounds."""
    return values.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


@dataclass(frozen=True)
class Plan:
    """The sizes and functions for which a run is compiled; everything else comes in as arrays."""

    sides: tuple[tuple[Links, Buckets, Buckets], ...]  # receiving and sending
    n_agents: int
    n_links: int
    n_trials: int
    dim: int
    gradient: Any  # callable (theta (d,), data_i) → (d,)
    groups: int
    per_trial: bool
    varied: tuple[int, ...] = ()  # the numbers of the algorithm that differ from trial to trial

    @property
    def is_small(self) -> bool:
        """Whether an iteration has so few numbers that loops cost more than they do."""
        return self._size < _SMALL

    @property
    def is_large(self) -> bool:
        """Whether copies of a state cost more than compiling the step twice more."""
        return self._size >= _LARGE

    @property
    def _size(self) -> int:
        return self.n_agents * self.dim * self.n_trials


@dataclass(frozen=True)
class Wire:
    """An exchange that a recorder keeps."""

    round: int
    exchange: int
    pushed: bool
    links: Links
    masked: bool


class Use(NamedTuple):
    """One exchange of an iteration."""

    links: Links
    numbers: int  # per link
    scalar: bool  # one number per agent, not a vector like x
    always: bool  # on every link, not only on those awake


@dataclass
class SeenTraffic:
    """The messages of one iteration, noted while its step is traced."""

    rounds: int = 0
    gradients: int = 0  # of each agent
    uses: list[Use] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)  # noted by a recorder


class Draw(NamedTuple):
    """One draw of a step: a number per agent, or (`links`) per own link and out-slot."""

    stream: Stream
    slot: int
    once: bool
    links: Links | None


@dataclass
class StepNeeds:
    """The draws and keys that a step asked for in a dry run, before the loop is compiled."""

    draws: dict[Draw, None] = field(default_factory=dict[Draw, None])  # a set that keeps its order
    keys: dict[tuple[Stream, Links | None], None] = field(
        default_factory=dict[tuple[Stream, Links | None], None]
    )


type Address = tuple[Array, Array, Array]  # key words (rows, 1, trials), slot numbers (rows, 1, 1)


class Prepared(NamedTuple):
    """The arrays that were made before the loop for the needs of a step, in their order."""

    keys: tuple[tuple[Array, Array], ...]
    once: tuple[tuple[Array, ...], ...]
    fresh: Address


class LoopConstants:
    """Arrays of a run that no iteration changes: keys, weights, tables, draws made once.

    They are made before the loop, for the needs of a step; without needs, in a dry run, they note
    what the step asks for. Arrays that are prepared already are taken over.
    """

    def __init__(
        self,
        plan: Plan,
        args: dict[str, Any],
        needs: StepNeeds | None = None,
        prepared: Prepared | None = None,
    ):
        self.plan, self.args = plan, args
        self.agents = args["agents"][:, None, None]  # (agents, 1, 1) uint32, canonical order
        t0, t1 = args["trial_key"]  # (trials,)
        self.trial_key = (t0[None, None, :], t1[None, None, :])
        self.ones = jnp.ones((plan.n_agents, 1, plan.n_trials))
        self.noted = StepNeeds()
        needs = needs or StepNeeds()
        fresh = [d for d in needs.draws if not d.once]
        once = [d for d in needs.draws if d.once]
        self.places = self._places(fresh)
        self.prepared = prepared or Prepared(
            keys=tuple(self._make_key(*name) for name in needs.keys),
            once=tuple(self.values(draw) for draw in once),
            fresh=self._fresh(fresh),
        )
        self._keys = dict(zip(needs.keys, self.prepared.keys, strict=True))
        self.once = dict(zip(once, self.prepared.once, strict=True))
        self.fresh = self.prepared.fresh

    def _places(self, draws: list[Draw]) -> dict[Draw, slice]:
        """The place of each fresh draw of an iteration in the one array of them all."""
        places: dict[Draw, slice] = {}
        rows = 0
        for draw in draws:
            n = self.plan.n_agents
            if draw.links is not None:
                n += self.table(draw.links, "slot").shape[0]
            places[draw] = slice(rows, rows + n)
            rows += n
        return places

    def _fresh(self, draws: list[Draw]) -> Address:
        """Keys and slots of the fresh draws of an iteration, together, in whole vectors: a
        remainder costs as much as a vector.
        """
        parts = [part for draw in draws for part in self._addresses(draw)]
        if not parts:
            none = jnp.zeros(0, jnp.uint32)
            return none, none, none
        rows = sum(part[0].shape[0] for part in parts)
        short = -rows % (_LANES // math.gcd(_LANES, self.plan.n_trials))
        k0, k1, slots = (
            jnp.pad(jnp.concatenate(words), ((0, short), (0, 0), (0, 0)))
            for words in zip(*parts, strict=True)
        )
        return k0, k1, slots

    def _addresses(self, draw: Draw) -> list[Address]:
        """Key words (rows, 1, trials) and slot numbers (rows, 1, 1): of the agents, or of their own
        links and then of the others.
        """
        k0, k1 = self._make_key(draw.stream, None)
        if draw.links is None:
            return [(k0, k1, jnp.full((k0.shape[0], 1, 1), draw.slot, jnp.uint32))]
        own, out = (self.table(draw.links, name)[:, None, None] for name in ("own_slot", "slot"))
        return [(k0, k1, own), (*self._make_key(draw.stream, draw.links), out)]

    def values(self, draw: Draw) -> tuple[Array, ...]:
        """The draws made once, in the parts of their addresses."""
        return tuple(
            uniforms((k0, k1), (jnp.full_like(k0, ONCE), slots))
            for k0, k1, slots in self._addresses(draw)
        )

    def _make_key(self, stream: Stream, links: Links | None) -> tuple[Array, Array]:
        public = stream is Stream.COIN
        agents = jnp.full((1, 1, 1), PUBLIC, jnp.uint32) if public else self.agents
        shape = (agents.shape[0], 1, self.plan.n_trials)
        number = jnp.broadcast_to(agents, shape)
        words = threefry(self.trial_key, (number, jnp.full(shape, int(stream), jnp.uint32)))
        if links is None:
            return words
        source = self.table(links, "source")
        return take(words[0], source), take(words[1], source)

    def key(self, stream: Stream, links: Links | None = None) -> tuple[Array, Array]:
        if (stream, links) in self._keys:
            return self._keys[stream, links]
        self.noted.keys[stream, links] = None
        return self._make_key(stream, links)

    def hold(self, values: Any) -> Any:
        """The same values, computed once: XLA would recompute threefry and gradients in every
        consumer.
        """
        return lax.optimization_barrier(values)

    def table(self, links: Links, name: str) -> Any:
        return self.args["tables"][links][name]

    def buckets(self, links: Links, *, out: bool) -> Buckets:
        into, sent = next((i, o) for kind, i, o in self.plan.sides if kind == links)
        return sent if out else into
