"""The view of a step on the agents of a driver, at one iteration.

`AgentView` holds everything that is the same for all agents at once and for a single agent:
addresses of draws, splits, pairings. The subclass of each driver knows the links: how to sum over
an agent's out-slots, and how to repeat a value for each of them.

Out-slots are an agent's links to others, in the order of the receivers' numbers; the link to
itself is kept apart as `own`. The slot number of a draw counts both, in the order of the numbers.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrad.draws import Stream
from hushgrad.exchange import IDENTITY, Array, Columns, Lazy, Links, Public, Shares, Terms


@dataclass(frozen=True)
class Slots:
    """The addresses of draws for the links of one kind."""

    own: Any  # (agents, 1, 1) uint32 slot of an agent's link to itself
    out: Any  # (out-slots, 1, 1) uint32 slot of every link to another
    per_agent: Any  # (agents, 1, 1) uint32 number of slots, own included


class AgentView(abc.ABC):
    """The agents of a driver at iteration k.

    Arrays are (agents, d, trials), and scalars of agents are (agents, 1, trials).
    """

    I = IDENTITY  # noqa: E741  # the paper's letter
    W = Public("W")
    R = Public("R")
    C = Public("C")
    M = Lazy(W)  # (I + W) / 2

    xp: Any  # numpy or jax.numpy
    k: Any  # float, from 0
    counter: Any  # k as uint32
    ones: Array  # (agents, 1, trials)

    @abc.abstractmethod
    def gradient(self, x: Array) -> Array:
        """g_i(x_i) of every agent, with its mask."""

    @abc.abstractmethod
    def each(self, values: Any) -> Any:
        """The values of the agents here, of values (all agents,)."""

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
        """(out-slots, 1, 1) number of each undirected link, and the number of links."""

    def _hold(self, values: Any) -> Any:
        """Keep `values`, which a compiler might otherwise compute again at each use."""
        return values

    def kept[T](self, key: object, make: Callable[[], T]) -> T:
        """The value of `make`, which no iteration changes; a single agent calls `make` once."""
        del key
        return make()

    # ---- draws

    @abc.abstractmethod
    def _draw(
        self, stream: Stream, slots: Any, links: Links | None = None, *, once: bool = False
    ) -> Array:
        """u at these slots of each agent's stream or, with links, of each out-slot's sender."""

    def uniform(self, stream: Stream, *, slot: int = 0, once: bool = False) -> Array:
        """u ∈ (0, 1] for each agent, fresh in each iteration or once for the run."""
        slots = self.xp.full((1, 1, 1), slot, np.uint32)
        return self._hold(self._draw(stream, slots, once=once))

    def link_uniforms(
        self, stream: Stream, links: Links = Links.GRAPH, *, once: bool = False
    ) -> tuple[Array, Array]:
        """u for each agent's own link (agents, 1, trials), and for each out-slot.

        The second array is (out-slots, 1, trials).
        """
        slots = self._slots(links)
        own = self._draw(stream, slots.own, once=once)
        out = self._draw(stream, slots.out, links, once=once)
        return self._hold((own, self._real(out, links)))

    def link_directions(self, stream: Stream, links: Links, dim: int) -> Array:
        """A random unit vector (out-slots, dim, trials) on each out-slot, by Box and Muller."""
        slots = self._slots(links)
        half = (dim + 1) // 2
        pairs = self.xp.arange(half, dtype=np.uint32)[None, :, None]
        width = self.to_links(slots.per_agent, links)
        # weights have the slots 0 … per_agent−1; vectors have the next slots, pair by pair
        first = width + (slots.out * np.uint32(half) + pairs) * np.uint32(2)
        radius, angle = (self._draw(stream, first + np.uint32(s), links) for s in (0, 1))
        radius = self.xp.sqrt(-2.0 * self.xp.log(radius))
        angle = 2.0 * math.pi * angle
        normal = self.xp.concatenate(
            [radius * self.xp.cos(angle), radius * self.xp.sin(angle)], axis=1
        )[:, :dim]
        return self._hold(normal / self.xp.sqrt((normal * normal).sum(1, keepdims=True)))

    def coin(self) -> Array:
        """A uniform (1, 1, trials) that all agents share."""
        return self._draw(Stream.COIN, self.xp.zeros((1, 1, 1), np.uint32))

    # ---- splits and pairings

    def columns(self, own: Array, out: Array, links: Links = Links.GRAPH) -> Columns:
        """The matrix whose columns are these weights, divided by their sums."""
        return Columns(own, out, 1.0 / (own + self.sum_out(out, links)), links)

    def shares(self, vector: Array, out: Array, links: Links = Links.GRAPH) -> Terms:
        """The terms that send `out` to the others; the own share is the rest of `vector`."""
        out = self._real(out, links)
        return Shares(links).of(vector - self.sum_out(out, links), out)

    def pairing(self) -> tuple[Columns, Array, Array]:
        """W^k of one random link; agents (agents, 1, trials) and out-slots that are awake."""
        numbers, n_links = self._link_numbers()
        woken = self.xp.ceil(self.coin() * n_links) - 1.0  # u ∈ (0, 1] → 0 … n_links − 1
        over = self._real(1.0 * (numbers == woken), Links.GRAPH)
        awake = self.sum_out(over)
        return Columns(1.0 - 0.5 * awake, 0.5 * over, self.ones), awake, over

    def dot(self, a: Array, b: Array) -> Array:
        """Inner products (agents, 1, trials)."""
        return (a * b).sum(1, keepdims=True)
