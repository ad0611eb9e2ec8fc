"""What a run has before its loop is compiled: the plan, the traffic seen, arrays that stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp

from hushgrad.draws import ONCE, PUBLIC, Stream, threefry, uniforms
from hushgrad.exchange import Array, Links

_LANES = 8  # float64 numbers in a vector register


def take(values: Array, index: Array) -> Array:
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


class Use(NamedTuple):
    """One exchange of an iteration."""

    links: Links
    numbers: int  # per link
    scalar: bool  # one number per agent, not a vector like x
    always: bool  # on every link, not only on those awake


@dataclass
class Traffic:
    """What one iteration puts on the wire, noted while its step is traced."""

    rounds: int = 0
    uses: list[Use] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)  # noted by a recorder


class Draw(NamedTuple):
    """What a step asks of the draws: per agent, or (`links`) for its own link and out-slots."""

    stream: Stream
    slot: int
    once: bool
    links: Links | None


@dataclass
class Wishes:
    """What a step was seen to ask for, in a dry run before the loop is compiled."""

    draws: dict[Draw, None] = field(default_factory=dict[Draw, None])  # a set that keeps its order
    keys: dict[tuple[Stream, Links | None], None] = field(
        default_factory=dict[tuple[Stream, Links | None], None]
    )


class Environment:
    """Arrays of a run that no iteration changes: keys, weights, tables, draws made once.

    Made before the loop for the wishes of a step; in a dry run it notes them instead.
    """

    def __init__(self, plan: Plan, args: dict[str, Any], wishes: Wishes | None = None):
        self.plan, self.args = plan, args
        self.agents = args["agents"][:, None, None]  # (agents, 1, 1) uint32, canonical order
        t0, t1 = args["trial_key"]  # (trials,)
        self.trial_key = (t0[None, None, :], t1[None, None, :])
        self.ones = jnp.ones((plan.n_agents, 1, plan.n_trials))
        self.noted = Wishes()
        wishes = wishes or Wishes()
        self._keys = {name: self._make_key(*name) for name in wishes.keys}
        self.once = {d: self.values(d) for d in wishes.draws if d.once}
        self._plan_fresh([d for d in wishes.draws if not d.once])

    def _plan_fresh(self, draws: list[Draw]) -> None:
        """All fresh draws of an iteration in one array: where each stands, its keys and slots."""
        self.places: dict[Draw, slice] = {}
        rows = 0
        parts: list[tuple[Array, Array, Array]] = []
        for draw in draws:
            parts.append(self._addresses(draw))
            n = parts[-1][0].shape[0]
            self.places[draw] = slice(rows, rows + n)
            rows += n
        # whole vectors only: a remainder of a few rows costs as much as a vector each
        short = -rows % _LANES if self.plan.n_trials < _LANES else 0
        self.fresh = tuple(
            jnp.pad(jnp.concatenate(words), ((0, short), (0, 0), (0, 0)))
            for words in zip(*parts, strict=True)
        )

    def _addresses(self, draw: Draw) -> tuple[Array, Array, Array]:
        """Key words (rows, 1, trials) and slot numbers (rows, 1, 1); own links come first."""
        k0, k1 = self._make_key(draw.stream, None)
        if draw.links is None:
            return k0, k1, jnp.full((k0.shape[0], 1, 1), draw.slot, jnp.uint32)
        o0, o1 = self._make_key(draw.stream, draw.links)
        slots = [self.table(draw.links, name)[:, None, None] for name in ("own_slot", "slot")]
        return jnp.concatenate([k0, o0]), jnp.concatenate([k1, o1]), jnp.concatenate(slots)

    def values(self, draw: Draw) -> Array:
        k0, k1, slots = self._addresses(draw)
        return uniforms((k0, k1), (jnp.full_like(k0, ONCE), slots))

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

    def table(self, links: Links, name: str) -> Any:
        return self.args["tables"][links][name]

    def buckets(self, links: Links, *, out: bool) -> tuple[tuple[int, int, int], ...]:
        into, sent = next((i, o) for kind, i, o in self.plan.sides if kind == links)
        return sent if out else into
