"""Effective resistances: they tell how well pairs of honest agents hide the origin of a row.

Every pair of honest mask partners is a resistor of one ohm. R(i, j), the resistance between i and
j, is small where many short paths join i and j. `promise.py` turns R into privacy.

No decision hangs on rounding: a search over the pairs finds the components first. Within a
component, the Laplacian without the row and the column of one agent (that agent is grounded) is
positive definite; its inverse G gives R(i, j) = G_ii + G_jj − 2 G_ij.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]
type Pairs = NDArray[np.bool_]  # (m, m), symmetric: whether i and j are partners


def pairs_of(n_agents: int, links: Iterable[tuple[int, int]]) -> Pairs:
    """The matrix of these pairs of partners."""
    pairs = np.zeros((n_agents, n_agents), np.bool_)
    for i, j in links:
        pairs[i, j] = pairs[j, i] = i != j
    return pairs


def component(agent: int, pairs: Pairs, absent: Collection[int] = ()) -> NDArray[np.int64]:
    """The agents that paths of pairs without `absent` agents join with this agent, ascending.

    >>> component(0, pairs_of(4, [(0, 1), (1, 2), (2, 3)]), absent={2}).tolist()
    [0, 1]
    """
    free = np.ones(len(pairs), np.bool_)
    free[list(absent)] = False
    found = np.zeros(len(pairs), np.bool_)
    edge = np.array([agent])
    while edge.size:
        found[edge] = True
        edge = np.flatnonzero(pairs[edge].any(axis=0) & free & ~found)
    return np.flatnonzero(found)


def resistances_from(agent: int, pairs: Pairs, absent: Collection[int] = ()) -> dict[int, float]:
    """R(agent, j) for every other agent j of the agent's component.

    >>> found = resistances_from(0, pairs_of(3, [(0, 1), (0, 2), (1, 2)]))
    >>> {j: round(r, 9) for j, r in found.items()}
    {1: 0.666666667, 2: 0.666666667}
    """
    members = component(agent, pairs, absent)
    others = members != agent
    if not others.any():
        return {}
    grounded = _laplacian(members, pairs)[np.ix_(others, others)]
    found = np.diagonal(np.linalg.inv(grounded))  # the agent itself is grounded: R = G_jj
    return dict(zip(members[others].tolist(), found.tolist(), strict=True))


def resistances(n_agents: int, links: Iterable[tuple[int, int]]) -> Floats:
    """R(i, j) of every two agents, (m, m), for these pairs of partners; ∞ between components.

    >>> resistances(3, [(0, 1)]).tolist()
    [[0.0, 1.0, inf], [1.0, 0.0, inf], [inf, inf, 0.0]]
    """
    pairs = pairs_of(n_agents, links)
    found = np.full((n_agents, n_agents), math.inf)
    left = np.ones(n_agents, np.bool_)
    while left.any():
        members = component(int(left.argmax()), pairs)
        left[members] = False
        G = np.zeros((len(members),) * 2)
        G[1:, 1:] = np.linalg.inv(_laplacian(members, pairs)[1:, 1:])  # the first is grounded
        own = np.diagonal(G)
        found[np.ix_(members, members)] = own[:, None] + own - G - G.T
    np.fill_diagonal(found, 0.0)
    return found


def _laplacian(members: NDArray[np.int64], pairs: Pairs) -> Floats:
    inner = pairs[np.ix_(members, members)].astype(np.float64)
    return np.diag(inner.sum(axis=1)) - inner
