"""Sums over each agent's neighbours: the products A u of the stacked simulator.

`StackedAgents` answers exchanges with them, the recorder adds up messages with them. The same sum
is formed in one of two ways: slot by slot, or as a dense product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from hushgrad.exchange import Array, Columns, Links, Matrix, Public, Shares, Square
from hushgrad.simulate.stacked.constants import LoopConstants, take
from hushgrad.simulate.stacked.layout import GROUP, UNROLLED

type Parts = Sequence[tuple[Matrix, Array]]
type Cut = Callable[[Array], Array]  # the rows of a flat slot array that belong to one slot
type Slot = Callable[[Cut], Array]  # the terms of one slot


class NeighbourSums:
    """Products of the matrices of a run with stacked vectors."""

    def __init__(self, constants: LoopConstants):
        self._constants = constants

    def total(self, parts: Parts) -> Array:
        """Σ_parts A u, each agent's own link included."""
        hold = self._constants.hold
        total: Any = None
        public: dict[Matrix, Array] = {}  # A u + A v + A² w is A (u + v + A w): links read once
        by_links: dict[Links, list[tuple[Matrix, Array]]] = {}
        for matrix, vector in parts:
            if isinstance(matrix, Public):
                public[matrix] = hold(public[matrix] + vector) if matrix in public else vector
            elif matrix.links is Links.NONE:
                total = vector if total is None else total + vector
            elif not isinstance(matrix, Square):
                by_links.setdefault(matrix.links, []).append((matrix, vector))
        for matrix, vector in parts:
            if isinstance(matrix, Square):
                within = self._apply([(matrix.of, vector)], Links.GRAPH, public.get(matrix.of))
                public[matrix.of] = hold(within)
        if public:
            by_links[Links.GRAPH] = [*public.items(), *by_links.get(Links.GRAPH, [])]
        for links, own in by_links.items():
            total = self._apply(own, links, total)
        return total

    def _apply(self, parts: Parts, links: Links, plain: Array | None = None) -> Array:
        """Σ_parts A u over one kind of links, own link included, in one pass over the slots; plus
        `plain`.
        """
        dense = self._constants.table(links, "dense")
        private = any(isinstance(matrix, Shares) for matrix, _ in parts)
        if dense is not None and self._constants.plan.n_trials == 1 and not private:
            return self._apply_dense(parts, links, dense, plain)
        neighbour = self._constants.table(links, "neighbour")
        entry = self._constants.table(links, "entry")
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

        total = self._received(links, slot, shape)
        for matrix, vector in parts:
            total = total + self.own(matrix, vector)
        return total if plain is None else total + plain

    def _received(self, links: Links, slot: Slot, shape: tuple[int, ...]) -> Array:
        """(agents, …) what comes over the links to others, slot by slot."""
        total = jnp.concatenate(self._by_bucket(links, slot, shape))
        turn = self._constants.table(links, "from_into")
        return total if turn is None else take(total, turn)

    def _by_bucket(self, links: Links, slot: Slot, shape: tuple[int, ...]) -> list[Array]:
        """The sums over slots of each bucket of receivers."""
        return sums_by_bucket(self._constants.buckets(links, out=False), slot, shape)

    def collect(self, messages: Array, own: Array, links: Links) -> Array:
        """`own` (agents, d, trials), plus the messages (out-slots, d, trials) to each agent."""
        entry = self._constants.table(links, "entry")
        return own + self._received(links, lambda cut: take(messages, cut(entry)), own.shape[1:])

    def _apply_dense(self, parts: Parts, links: Links, dense: Array, plain: Array | None) -> Array:
        """The sum of `_apply` where most pairs are linked: dense matrices, gathered from slots."""
        total: Any = 0.0 if plain is None else plain
        for matrix, vector in parts:
            if isinstance(matrix, Columns):
                rows = matrix.out[:, 0, 0]
            else:
                assert isinstance(matrix, Public)
                rows = self._constants.args["sending"][links, matrix.name]
            total = total + (take(rows, dense) @ vector[:, :, 0])[:, :, None]
            total = total + self.own(matrix, vector)
        return total

    def _receiving(self, matrix: Matrix, links: Links, entry: Array) -> Array:
        """(in-slots, 1, trials or 1) weights as the receivers apply them."""
        if isinstance(matrix, Public):
            return self._constants.args["receiving"][links, matrix.name][:, None, None]
        return take(matrix.out, entry) if isinstance(matrix, Columns) else None

    def own(self, matrix: Matrix, vector: Array) -> Array:
        """The product on an agent's link to itself."""
        if isinstance(matrix, Shares):
            return vector[0]
        if isinstance(matrix, Columns):
            return matrix.own * vector
        if isinstance(matrix, Public):
            return self._constants.args["own"][matrix.name][:, None, None] * vector
        if isinstance(matrix, Square):
            return self._constants.args["own"][matrix.of.name + "2"][:, None, None] * vector
        return vector


def sum_slots(buckets: Any, term: Slot, shape: tuple[int, ...]) -> Array:
    """Σ over each agent's slots of `term`."""
    return jnp.concatenate(sums_by_bucket(buckets, term, shape))


def sums_by_bucket(buckets: Any, term: Slot, shape: tuple[int, ...]) -> list[Array]:
    """The sums of `sum_slots`, bucket by bucket."""
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
    return sums
