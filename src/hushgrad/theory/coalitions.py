"""The coalition of a given size that learns most about one agent. `guarantee` asks for it.

A coalition knows the shares of its members, so its members leave the graph of honest pairs. The
resistances between the remaining agents grow; an agent without honest partners is alone, and
nothing of it is hidden. A coalition that has all partners of the agent is always the worst. Below
that size every coalition is tried where there are few enough; otherwise every coalition of the
agents nearest to the agent. The latter finds a harm that is real, but perhaps not the largest.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from hushgrad.theory.resistance import Pairs, resistances_from

BUDGET = 4.0  # seconds, roughly, for all sizes together
OVERHEAD = 1e-4  # seconds per coalition, beside the inverse
PER_CUBE = 1e-9  # seconds per m³ of an inverse
NEAR = 1e-9  # relative: resistances that are equal by symmetry round differently


@dataclass(frozen=True)
class Worst:
    """The worst coalition found for one agent."""

    coalition: tuple[int, ...]
    resistances: dict[int, float]  # to the agents that share the agent's component
    is_exact: bool  # False: another coalition of this size may be worse


def worst_coalition(agent: int, size: int, pairs: Pairs) -> Worst:
    """The coalition of this size that makes the agent's largest resistance largest."""
    own = np.flatnonzero(pairs[agent]).tolist()
    others = [j for j in range(len(pairs)) if j != agent]
    if size >= len(own):
        rest = [j for j in others if j not in own]
        return Worst(tuple(sorted(own + rest[: size - len(own)])), {}, True)
    if size == 0 or len(own) == len(others):  # all pairs are partners: all coalitions are alike
        coalition = tuple(others[:size])
        return Worst(coalition, resistances_from(agent, pairs, coalition), True)
    most = max(1, int(BUDGET / len(own) / (OVERHEAD + PER_CUBE * len(pairs) ** 3)))
    pool = _nearest(agent, pairs)
    n_pool = size
    while n_pool < len(pool) and math.comb(n_pool + 1, size) <= most:
        n_pool += 1
    best = Worst((), {}, False)
    harm = -1.0
    for coalition in itertools.combinations(pool[:n_pool], size):
        found = resistances_from(agent, pairs, coalition)
        largest = max(found.values(), default=math.inf)
        if largest > harm * (1 + NEAR):
            best, harm = Worst(tuple(sorted(coalition)), found, n_pool == len(pool)), largest
    return best


def _nearest(agent: int, pairs: Pairs) -> list[int]:
    """All other agents, those first that few pairs separate from the agent."""
    distance = np.full(len(pairs), len(pairs))
    edge, steps = np.array([agent]), 0
    while edge.size:
        distance[edge] = steps
        steps += 1
        edge = np.flatnonzero(pairs[edge].any(axis=0) & (distance > steps))
    return [int(j) for j in np.argsort(distance, kind="stable") if j != agent]
