"""What a step sees of the agents here, bound to one iteration.

`View` holds what is the same for all agents at once and for one alone: addresses of draws, splits,
pairings. The drivers add where links lead: how to sum over an agent's out-slots and how to spread
a value to them.

Out-slots are an agent's links to others, in the order of the receivers' numbers; the link to
itself is kept apart as `own`. The slot number of a draw counts both, in the order of the numbers.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrad.draws import ONCE, Stream, uniforms
from hushgrad.exchange import IDENTITY, Array, Columns, Links, Public, Shares, Terms


@dataclass(frozen=True)
class Slots:
    """Where draws for the links of one kind are addressed."""

    own: Any  # (agents, 1, 1) uint32 slot of an agent's link to itself
    out: Any  # (out-slots, 1, 1) uint32 slot of every link to another
    per_agent: Any  # (agents, 1, 1) uint32 number of slots, own included


class View(abc.ABC):
    """The agents here at iteration k; arrays are (agents, d, trials), per-agent scalars (agents,
    1, trials).
    """

    I = IDENTITY  # noqa: E741  # the paper's letter
    W = Public("W")
    R = Public("R")
    C = Public("C")

    xp: Any  # numpy or jax.numpy
    k: Any  # float, from 0
    counter: Any  # the same as uint32
    ones: Array  # (agents, 1, trials)

    @abc.abstractmethod
    def gradient(self, x: Array) -> Array:
        """g_i(x_i) of the agents here, masks included."""

    @abc.abstractmethod
    def _key(self, stream: Stream) -> tuple[Any, Any]:
        """(agents, 1, trials) words of the agents' keys."""

    def _link_key(self, stream: Stream, links: Links) -> tuple[Any, Any]:
        """(out-slots, 1, trials) words of the senders' keys."""
        k0, k1 = self._key(stream)
        return self.to_links(k0, links), self.to_links(k1, links)

    @abc.abstractmethod
    def _public_key(self) -> tuple[Any, Any]:
        """(1, 1, trials) words of the key that everyone knows."""

    @abc.abstractmethod
    def _slots(self, links: Links) -> Slots: ...

    @abc.abstractmethod
    def to_links(self, values: Array, links: Links = Links.GRAPH) -> Array:
        """(agents, ·, trials) values at the sender, repeated for each out-slot."""

    @abc.abstractmethod
    def sum_out(self, values: Array, links: Links = Links.GRAPH) -> Array:
        """(out-slots, ·, trials) values, summed over each sender's out-slots."""

    @abc.abstractmethod
    def _real(self, values: Array, links: Links) -> Array:
        """The same values with zeros in slots that only pad the layout."""

    @abc.abstractmethod
    def _link_numbers(self) -> tuple[Any, int]:
        """(out-slots, 1, 1) number of each undirected link, and how many there are."""

    def _hold(self, values: Any) -> Any:
        """Where a compiler might recompute `values` in each consumer, keep them instead."""
        return values

    # ---- draws

    def uniform(self, stream: Stream, *, slot: int = 0, once: bool = False) -> Array:
        """u ∈ (0, 1] for each agent here, fresh in each iteration or once per run."""
        k0, k1 = self._key(stream)
        when = self.xp.full_like(k0, ONCE) if once else self.xp.zeros_like(k0) + self.counter
        return self._hold(uniforms((k0, k1), (when, self.xp.full_like(k0, slot))))

    def link_uniforms(
        self, stream: Stream, links: Links = Links.GRAPH, *, once: bool = False
    ) -> tuple[Array, Array]:
        """u for each agent's own link (agents, 1, trials) and for each out-slot (out-slots, 1,
        trials).
        """
        slots = self._slots(links)
        key = self._key(stream)
        out_key = self._link_key(stream, links)
        when = np.uint32(ONCE) if once else self.counter
        own = uniforms(key, (self.xp.zeros_like(key[0]) + when, slots.own))
        out = uniforms(out_key, (self.xp.zeros_like(out_key[0]) + when, slots.out))
        return self._hold((own, self._real(out, links)))

    def link_directions(self, stream: Stream, links: Links, dim: int) -> Array:
        """A random unit vector (out-slots, dim, trials) on each out-slot, by Box and Muller."""
        slots = self._slots(links)
        k0, k1 = self._link_key(stream, links)
        half = (dim + 1) // 2
        pairs = self.xp.arange(half, dtype=np.uint32)[None, :, None]
        width = self.to_links(slots.per_agent, links)
        # slots 0 … per_agent−1 are the weights'; vectors take the next ones, pair by pair
        first = width + (slots.out * np.uint32(half) + pairs) * np.uint32(2)
        when = self.xp.zeros_like(k0) + self.counter
        radius, turn = (uniforms((k0, k1), (when, first + np.uint32(s))) for s in (0, 1))
        radius = self.xp.sqrt(-2.0 * self.xp.log(radius))
        angle = 2.0 * math.pi * turn
        normal = self.xp.concatenate(
            [radius * self.xp.cos(angle), radius * self.xp.sin(angle)], axis=1
        )[:, :dim]
        return self._hold(normal / self.xp.sqrt((normal * normal).sum(1, keepdims=True)))

    def coin(self) -> Array:
        """A uniform (1, 1, trials) that all agents share."""
        k0, k1 = self._public_key()
        zero = self.xp.zeros_like(k0)
        return uniforms((k0, k1), (zero + self.counter, zero))

    # ---- splits and pairings

    def columns(self, own: Array, out: Array, links: Links = Links.GRAPH) -> Columns:
        """The matrix whose columns are these weights over their sums."""
        return Columns(own, out, 1.0 / (own + self.sum_out(out, links)), links)

    def shares(self, vector: Array, out: Array, links: Links = Links.GRAPH) -> Terms:
        """Vectors to the others; the own share is what remains."""
        out = self._real(out, links)
        return Shares(links).of(vector - self.sum_out(out, links), out)

    def pairing(self) -> tuple[Columns, Array, Array]:
        """W^k of one random link, who is awake (agents, 1, trials), which out-slots are."""
        numbers, n_links = self._link_numbers()
        woken = self.xp.ceil(self.coin() * n_links) - 1.0  # u ∈ (0, 1] → 0 … n_links − 1
        over = self._real(1.0 * (numbers == woken), Links.GRAPH)
        awake = self.sum_out(over)
        return Columns(1.0 - 0.5 * awake, 0.5 * over, self.ones), awake, over

    def dot(self, a: Array, b: Array) -> Array:
        """Inner products (agents, 1, trials)."""
        return (a * b).sum(1, keepdims=True)
