"""Random graphs whose draws have addresses: the links of some agents are drawn without the others.

`random_regular` and `erdos_renyi` draw so with ``addressed=True``, `geometric` always. The drawn
graphs differ from those of the same seed without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import GraphError, optional
from hushgrad.graphs.by_rule import BLOCK, RuleGraph, by_candidates
from hushgrad.graphs.graph import Ints, pairs_at

ROUNDS = 8  # of a permutation; four would do against a guesser, and these are only to look random
SWAPS = 1000  # links that a repeated link may try to trade ends with
PAIRED = 2**16  # agents of a block: the links between two blocks have one address
_CYCLE, _SWAP, _PAIR, _STRIP = range(4)  # kinds of addresses

type Addressed = Callable[..., np.random.Generator]


def addresses(seed: int, attempt: int) -> Addressed:
    """The stream of random numbers at each address, in one attempt to draw a graph."""
    return lambda *place: np.random.default_rng(np.random.SeedSequence((seed, attempt, *place)))


# ---- regular graphs


class _Permutation:
    """A random permutation of 0 … n − 1 that needs memory for √n numbers.

    A number is a pair (l, r) with l < a and r < b, where a · b ≥ n. Rounds add to one of the two
    what a table says about the other. A number that leaves 0 … n − 1 goes on until it is back.
    """

    def __init__(self, n: int, rng: np.random.Generator):
        self._n, self._a = n, max(1, math.isqrt(n))
        self._b = -(-n // self._a)
        sizes = [(self._a, self._b) if t % 2 else (self._b, self._a) for t in range(ROUNDS)]
        self._tables = [rng.integers(size, size=of) for size, of in sizes]

    def _once(self, numbers: Ints, sign: int) -> Ints:
        left, right = np.divmod(numbers, self._b)
        for t in range(ROUNDS)[::sign]:
            if t % 2:
                left = (left + sign * self._tables[t][right]) % self._a
            else:
                right = (right + sign * self._tables[t][left]) % self._b
        return left * self._b + right

    def _apply(self, numbers: Ints, sign: int) -> Ints:
        found = self._once(numbers, sign)
        outside = np.flatnonzero(found >= self._n)
        while len(outside):
            found[outside] = self._once(found[outside], sign)
            outside = outside[found[outside] >= self._n]
        return found

    def place(self, agents: Ints) -> Ints:
        return self._apply(agents, 1)

    def agent(self, places: Ints) -> Ints:
        return self._apply(places, -1)


class _Swapped:
    """The candidates of a regular graph: random circles through all agents, and a matching where
    the degree is odd. Where two circles have the same link, the later one trades ends.
    """

    def __init__(self, n: int, degree: int, address: Addressed):
        self._n, self._address = n, address
        self._circles = [_Permutation(n, address(_CYCLE, c)) for c in range(-(-degree // 2))]
        self._has_matching = bool(degree % 2)
        self._new: list[tuple[int, int, int, int]] = []  # (agent, column, old, new neighbour)
        for number, (agent, column) in enumerate(self._repeated()):
            self._trade(number, agent, column)

    def __call__(self, agents: Ints) -> Ints:
        columns: list[Ints] = []
        for c, circle in enumerate(self._circles):
            place = circle.place(agents)
            if self._has_matching and c == len(self._circles) - 1:
                columns.append(circle.agent(place ^ 1))
            else:
                columns += [circle.agent((place + hop) % self._n) for hop in (1, -1)]
        found = np.stack(columns, axis=1)
        for agent, column, old, new in self._new:
            row = int(np.searchsorted(agents, agent))
            if row < len(agents) and agents[row] == agent and found[row, column] == old:
                found[row, column] = new
        return found

    def _repeated(self) -> list[tuple[int, int]]:
        """The links (agent, column) from a smaller to a larger number that a column before has."""
        found: list[tuple[int, int]] = []
        for low in range(0, self._n, BLOCK):
            agents = np.arange(low, min(low + BLOCK, self._n))
            rows = self(agents)
            for column in range(1, rows.shape[1]):
                again = (rows[:, :column] == rows[:, column, None]).any(1)
                again &= rows[:, column] > agents
                found += [(low + int(a), column) for a in np.flatnonzero(again)]
        return found

    def _row(self, agent: int) -> list[int]:
        return self(np.array([agent]))[0].tolist()

    def _back(self, agent: int, column: int, neighbour: int) -> int:
        """The column of the neighbour in which the same link stands."""
        if self._has_matching and column == 2 * len(self._circles) - 2:
            return column
        pair = (column ^ 1, column)
        row = self._row(neighbour)
        return next(c for c in pair if row[c] == agent)

    def _trade(self, number: int, a: int, column: int) -> None:
        """Links (a, b) and (c, d) of one circle become (a, d) and (c, b), if these are new."""
        b = self._row(a)[column]
        if self._row(a)[:column].count(b) == 0:
            return  # a trade before has already parted them
        others = self._address(_SWAP, number).integers(self._n, size=SWAPS)
        for c in others.tolist():
            d = self._row(c)[column]
            rows = {agent: self._row(agent) for agent in (a, c)}
            if len({a, b, c, d}) == 4 and d not in rows[a] and b not in rows[c]:
                if rows[c].count(d) > 1:
                    continue
                back_b, back_d = self._back(a, column, b), self._back(c, column, d)
                self._new += [(a, column, b, d), (d, back_d, c, a)]
                self._new += [(c, column, d, b), (b, back_b, a, c)]
                return
        raise GraphError(
            f"random_regular found no other end for the repeated link ({a}, {b}) in {SWAPS} tries. "
            "Pass another seed or a smaller degree, or leave addressed out."
        )


def regular(n: int, degree: int, seed: int) -> RuleGraph:
    candidates = _Swapped(n, degree, addresses(seed, 0))
    text = f"random_regular({n}, {degree}, seed={seed}, addressed=True)"
    # the first circle is never changed, and it connects all agents
    return RuleGraph(n, by_candidates(n, candidates), text, arcs=n * degree, connected=True)


# ---- Erdős–Rényi graphs


def pairs(n: int, p: float, seed: int, attempt: int, heads: Callable[..., Ints]) -> RuleGraph:
    """Every pair of agents linked with probability p; `heads` throws the coins of two blocks."""
    n_blocks = -(-n // PAIRED)
    address = addresses(seed, attempt)

    def size(block: int) -> int:
        return min(PAIRED, n - block * PAIRED)

    def links(one: int, other: int) -> tuple[Ints, Ints]:
        """Places of the links between two blocks, in each of them."""
        low, high = min(one, other), max(one, other)
        coins = size(low) * (size(low) - 1) // 2 if low == high else size(low) * size(high)
        found = heads(coins, p, address(_PAIR, low, high))
        if low == high:
            a, b = pairs_at(found)
            return np.concatenate([a, b]), np.concatenate([b, a])
        a, b = np.divmod(found, size(high))
        return (a, b) if one == low else (b, a)

    def rule(agents: Ints) -> tuple[Ints, Ints]:
        keys: list[Ints] = [np.empty(0, np.int64)]
        for block in np.unique(agents // PAIRED).tolist():
            is_asked = np.zeros(size(block), np.bool_)
            own = slice(*np.searchsorted(agents, [block * PAIRED, (block + 1) * PAIRED]))
            is_asked[agents[own] - block * PAIRED] = True
            for other in range(n_blocks):
                receivers, senders = links(block, other)
                kept = is_asked[receivers]
                receivers, senders = receivers[kept], senders[kept]
                keys.append((receivers + block * PAIRED) * n + senders + other * PAIRED)
        receivers, senders = np.divmod(np.sort(np.concatenate(keys)), n)
        return senders, receivers

    text = f"erdos_renyi({n}, {p!r}, seed={seed}, addressed=True) attempt {attempt}"
    return RuleGraph(n, rule, text, connected=n == 1)


# ---- geometric graphs


def near(n: int, radius: float, seed: int, attempt: int) -> RuleGraph:
    """Agents in the unit square, linked up to a distance; numbered strip by strip."""
    address = addresses(seed, attempt)
    n_strips = max(1, min(int(1 / radius), n))  # at least as high as the radius
    sizes = address(_STRIP).multinomial(n, np.full(n_strips, 1 / n_strips))
    starts = np.concatenate([[0], np.cumsum(sizes)])

    def points(low: int, high: int) -> NDArray[np.float64]:
        """(agents, 2) in the strips low … high − 1, from left to right in each."""
        parts: list[NDArray[np.float64]] = []
        for strip in range(low, high):
            rng = address(_STRIP, strip)
            x, y = np.sort(rng.random(sizes[strip])), rng.random(sizes[strip])
            parts.append(np.stack([x, (strip + y) / n_strips], axis=1))
        return np.concatenate(parts)

    def arcs(low: int, high: int) -> Ints:
        """Keys of the arcs into the agents of these strips."""
        first, behind = max(0, low - 1), min(n_strips, high + 1)
        tree = optional("scipy.spatial", "sim").cKDTree(points(first, behind))
        a, b = tree.query_pairs(radius, output_type="ndarray").astype(np.int64).T + starts[first]
        receivers, senders = np.concatenate([a, b]), np.concatenate([b, a])
        inside = (receivers >= starts[low]) & (receivers < starts[high])
        return receivers[inside] * n + senders[inside]

    def rule(agents: Ints) -> tuple[Ints, Ints]:
        strips = np.unique(np.searchsorted(starts, agents, side="right") - 1)
        # runs of neighbouring strips, none with many more agents than a block
        cuts = (np.diff(strips) > 1) | (np.diff(starts[strips] // BLOCK) > 0)
        runs = [run for run in np.split(strips, np.flatnonzero(cuts) + 1) if len(run)]
        keys = [np.sort(arcs(int(run[0]), int(run[-1]) + 1)) for run in runs]
        receivers, senders = np.divmod(np.concatenate([np.empty(0, np.int64), *keys]), n)
        place = np.minimum(np.searchsorted(agents, receivers), len(agents) - 1)
        kept = agents[place] == receivers  # a strip may have others, too
        return senders[kept], receivers[kept]

    text = f"geometric({n}, {radius!r}, seed={seed}) attempt {attempt}"
    return RuleGraph(n, rule, text, connected=n == 1)
