"""Weights as numbers per agent and per arc, and checks of the kind of matrix that they make.

`Network` holds such weights; rules.py makes them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.graphs import Graph

type Floats = NDArray[np.float64]

# A row or column of n weights must sum to 1 within SUM_TOLERANCE, room for the caller's arithmetic,
# plus n * 2**-52, which bounds the rounding of the sum itself.
SUM_TOLERANCE = 1e-12

# w_ij and w_ji may differ by this much in a matrix that counts as symmetric.
SYMMETRY_TOLERANCE = 1e-12

# An own weight that differs by this part from the equal weights of all links differs by rounding.
SAME = 1e-9


class Kind(enum.StrEnum):
    """The sums of a matrix that are 1: all rows (W1 = 1), all columns (1ᵀW = 1ᵀ), or both."""

    DOUBLY = "doubly"
    SYMMETRIC = "symmetric"  # doubly stochastic and W = Wᵀ
    ROW = "row"
    COLUMN = "column"


@dataclass(frozen=True, eq=False)
class Weights:
    """A mixing matrix by its entries, in the order of the graph's arcs; read-only."""

    own: Floats  # (m,) w_ii
    links: Floats  # (n_arcs,) w_ij of every arc j -> i

    def __post_init__(self) -> None:
        self.own.flags.writeable = self.links.flags.writeable = False


def objection(graph: Graph, weights: Weights, kind: Kind) -> str | None:
    """Why the weights are not of this kind, or None if they are."""
    match kind:
        case Kind.ROW:
            return _sum_objection("row", graph, weights, graph.receivers)
        case Kind.COLUMN:
            return _sum_objection("column", graph, weights, graph.senders)
        case Kind.DOUBLY:
            by_column = objection(graph, weights, Kind.COLUMN)
            return by_column or objection(graph, weights, Kind.ROW)
        case Kind.SYMMETRIC:
            by_sum = objection(graph, weights, Kind.DOUBLY)
            return by_sum or _asymmetry(graph, weights)


def _sum_objection(
    line: str, graph: Graph, weights: Weights, ends: NDArray[np.int64]
) -> str | None:
    sums = weights.own + np.bincount(ends, weights.links, minlength=graph.n_agents)
    n_weights = 1 + np.bincount(ends, minlength=graph.n_agents)
    excess = np.abs(sums - 1) - (SUM_TOLERANCE + n_weights * 2.0**-52)
    worst = int(np.argmax(excess))
    if excess[worst] <= 0:
        return None
    is_close = abs(sums[worst] - 1) < 1e-4
    return f"{line} {worst} sums to {sums[worst]:{'.16g' if is_close else '.4g'}}"


def _asymmetry(graph: Graph, weights: Weights) -> str | None:
    # A stable sort by sender lists the arcs of the transposed graph, by (sender, receiver).
    order = np.argsort(graph.senders, kind="stable")
    i, j = graph.receivers, graph.senders
    is_one_way = (j[order] != i) | (i[order] != j)
    if is_one_way.any():
        # The first arc without its way back, whichever of the two lists it is missing from.
        k = int(np.argmax(is_one_way))
        a, b = min((i[k], j[k]), (j[order[k]], i[order[k]]))
        return f"W[{a}, {b}] and W[{b}, {a}] are not both positive"
    gap = np.abs(weights.links - weights.links[order])
    k = int(np.argmax(gap)) if gap.size else 0
    if not gap.size or gap[k] <= SYMMETRY_TOLERANCE:
        return None
    there, back = weights.links[k], weights.links[order[k]]
    return f"W[{i[k]}, {j[k]}] = {there:.6g} and W[{j[k]}, {i[k]}] = {back:.6g}"
