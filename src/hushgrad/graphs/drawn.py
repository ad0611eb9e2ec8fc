"""Graphs that are drawn at random from a seed; all of them are connected.

Users call the builders as `hg.graphs.erdos_renyi` and so on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import GraphError
from hushgrad.graphs.addressed import near, pairs, regular
from hushgrad.graphs.checks import check_count, check_probability, generator
from hushgrad.graphs.fixed import complete
from hushgrad.graphs.graph import Graph, Ints, cycle, graph_of_arcs, link_keys, pairs_at, undirected

# A random graph that is disconnected is drawn again from the same stream, this often at most.
ATTEMPTS = 100

# Rounds in which clashing links look for another place. Each settles a good part of them, so only
# tiny dense graphs, where a link may have nowhere to go, ever come near it.
ROUNDS = 1000


def erdos_renyi(n_agents: int, p: float, seed: int = 0, addressed: bool = False) -> Graph:
    """Every pair linked with probability p, independently; drawn again until connected.

    With ``addressed`` the links of some agents can be drawn without the others, so that a shard of
    a simulation draws its own. The graph is another one than without it.
    """
    n = check_count("erdos_renyi", "n_agents", n_agents, 1)
    p = check_probability("erdos_renyi", "p", p)
    rng = generator("erdos_renyi", seed)
    failure = (
        f"erdos_renyi drew {ATTEMPTS} disconnected graphs of {n} agents with p = {p:.4g}. "
        f"Graphs connect above p = ln(n)/n = {math.log(n) / n:.4g}: pass a larger p."
    )
    if addressed:
        attempts = itertools.count()
        return _first_connected(lambda: pairs(n, p, seed, next(attempts), _successes), failure)

    def draw() -> Graph | None:
        low, high = pairs_at(_successes(n * (n - 1) // 2, p, rng))
        degree = np.bincount(low, minlength=n) + np.bincount(high, minlength=n)
        # Isolated agents disconnect these graphs, and they show before the costly sort.
        return undirected(n, low, high) if n == 1 or degree.all() else None

    return _first_connected(draw, failure)


def geometric(n_agents: int, radius: float, seed: int = 0) -> Graph:
    """Agents at random in the unit square, linked up to this distance; drawn until connected.

    Numbers ascend strip by strip of the square, so that blocks of numbers have few links between
    them. A shard of a simulation draws its own strips.
    """
    n = check_count("geometric", "n_agents", n_agents, 1)
    if not isinstance(radius, (int, float)) or not 0 < radius <= 2:
        raise GraphError(
            f"geometric needs a radius above 0 and at most 2, but radius = {radius!r}. "
            "The agents lie in the unit square: pass for example radius=0.1."
        )
    generator("geometric", seed)  # checks the seed
    attempts = itertools.count()
    return _first_connected(
        lambda: near(n, float(radius), seed, next(attempts)),
        f"geometric drew {ATTEMPTS} disconnected graphs of {n} agents with radius {radius:.4g}. "
        f"Graphs connect above about {math.sqrt(math.log(n) / (math.pi * n)):.4g}: pass a larger "
        "radius.",
    )


def random_regular(n_agents: int, degree: int, seed: int = 0, addressed: bool = False) -> Graph:
    """A random connected graph in which every agent has ``degree`` links.

    The links' ends are paired at random; a self loop or a repeated link then trades ends with a
    random link until none is left (McKay and Wormald's switchings; nearly uniform). With
    ``addressed`` the graph is made of random circles through all agents, whose repeated links trade
    ends; the links of some agents are then drawn without the others.
    """
    n = check_count("random_regular", "n_agents", n_agents, 1)
    degree = check_count("random_regular", "degree", degree, 0, most=n - 1)
    rng = generator("random_regular", seed)
    if n * degree % 2:
        raise GraphError(
            f"random_regular needs n_agents * degree to be even, since a link has two ends, but it "
            f"is {n} * {degree}. Pass an even n_agents or an even degree."
        )
    if degree < 2 and n > degree + 1:
        raise GraphError(
            f"random_regular needs degree >= 2 to connect {n} agents, but degree = {degree}. "
            "Pass degree=2 or more."
        )
    if degree == 2:  # connected means one cycle, which pairing would hardly ever give
        return regular(n, 2, seed) if addressed else cycle(rng.permutation(n))
    if addressed and degree > 1:
        return regular(n, degree, seed)

    def draw() -> Graph | None:
        # Beyond half of all pairs it is easier to draw the links that are not there.
        if 2 * degree < n:
            ends = _pairing(n, degree, rng)
            return None if ends is None else undirected(n, ends[0], ends[1])
        gaps = _pairing(n, n - 1 - degree, rng)
        if gaps is None:
            return None
        everything = link_keys(n, *pairs_at(np.arange(n * (n - 1) // 2)))
        low, high = np.divmod(np.setdiff1d(everything, link_keys(n, gaps[0], gaps[1])), n)
        return undirected(n, low, high)

    return _first_connected(
        draw,
        f"random_regular found no connected graph of {n} agents with degree {degree} in {ATTEMPTS} "
        "draws. Pass another seed or a larger degree.",
    )


def small_world(n_agents: int, degree: int, p: float, seed: int = 0) -> Graph:
    """A ring of agents linked with their ``degree`` nearest, rewired (Watts and Strogatz).

    Each link (i, i + t) is moved with probability p: it then leads from i to a random agent that i
    is not linked with, if there is one. Drawn again until connected.
    """
    n = check_count("small_world", "n_agents", n_agents, 3)
    degree = check_count("small_world", "degree", degree, 2, most=n - 1)
    p = check_probability("small_world", "p", p)
    rng = generator("small_world", seed)
    if degree % 2:
        raise GraphError(
            f"small_world needs an even degree, half of it to either side, but degree = {degree}. "
            f"Pass degree={degree - 1}."
        )
    if degree == n - 1:
        return complete(n)  # nowhere to rewire to
    starts = np.tile(np.arange(n), degree // 2)
    ends = (starts + np.repeat(np.arange(1, degree // 2 + 1), n)) % n

    def draw() -> Graph:
        laid = link_keys(n, starts, ends)
        waiting = np.flatnonzero(rng.random(len(starts)) < p)
        for _ in range(ROUNDS):
            if not waiting.size:
                break
            others = (starts[waiting] + rng.integers(1, n, size=waiting.size)) % n
            tried = link_keys(n, starts[waiting], others)
            is_free = np.zeros(waiting.size, dtype=bool)
            is_free[np.unique(tried, return_index=True)[1]] = True
            is_free &= ~_are_in(tried, np.sort(laid))
            laid[waiting[is_free]] = tried[is_free]
            waiting = waiting[~is_free]
        low, high = np.divmod(laid, n)
        return undirected(n, low, high)

    return _first_connected(
        draw,
        f"small_world found no connected graph of {n} agents with degree {degree} and p = {p:.4g} "
        f"in {ATTEMPTS} draws. Pass a larger degree or a smaller p.",
    )


def random_directed(n_agents: int, degree: int, seed: int = 0) -> Graph:
    """Each agent i sends to i + 1 (modulo n_agents) and to ``degree`` others drawn at random.

    The ring makes the graph strongly connected; out-degrees are ``degree + 1``, in-degrees vary.
    """
    n = check_count("random_directed", "n_agents", n_agents, 2)
    degree = check_count("random_directed", "degree", degree, 0, most=n - 2)
    rng = generator("random_directed", seed)
    if 2 * degree > n:
        hops = rng.permuted(np.tile(np.arange(2, n), (n, 1)), axis=1)[:, :degree]
    else:
        hops = rng.integers(2, n, size=(n, degree)) if degree else np.empty((n, 0), dtype=np.int64)
        while True:
            hops.sort(axis=1)
            repeated = np.zeros(hops.shape, dtype=bool)
            repeated[:, 1:] = hops[:, 1:] == hops[:, :-1]
            if not repeated.any():
                break
            hops[repeated] = rng.integers(2, n, size=np.count_nonzero(repeated))
    senders = np.repeat(np.arange(n), degree + 1)
    hops = np.concatenate([np.ones((n, 1), dtype=np.int64), hops], axis=1)
    return graph_of_arcs(n, senders, (senders + hops.ravel()) % n, is_directed=True)


def _successes(n_trials: int, p: float, rng: np.random.Generator) -> Ints:
    """The coins, of n_trials with probability p, that fall on heads; only heads cost anything."""
    if p == 0 or n_trials == 0:
        return np.empty(0, dtype=np.int64)
    last = -1
    found: list[Ints] = []
    while last < n_trials:
        size = int((n_trials - last) * p * 1.01) + 100
        gaps = np.minimum(rng.geometric(p, size=size), n_trials + 1)
        found.append(last + np.cumsum(gaps))
        last = int(found[-1][-1])
    heads = np.concatenate(found)
    return heads[heads < n_trials]


def _pairing(n_agents: int, degree: int, rng: np.random.Generator) -> Ints | None:
    """(2, n_links) ends of the links of a simple regular graph, or None if the repair got stuck.

    A bad link (a, b) and a random link (c, d) become (a, d) and (c, b) if these two are new. With
    2 * degree < n_agents there is always such a link, and the number of bad ones never grows.
    """
    ends = rng.permutation(np.repeat(np.arange(n_agents), degree)).reshape(2, -1)
    n_links = ends.shape[1]
    for _ in range(ROUNDS):
        keys = link_keys(n_agents, ends[0], ends[1])
        order = np.argsort(keys)
        keys = keys[order]
        is_bad = ends[0] == ends[1]
        is_bad[order[1:][keys[1:] == keys[:-1]]] = True
        bad = np.flatnonzero(is_bad)
        if not bad.size:
            return ends
        mate = rng.integers(n_links, size=bad.size)
        side = rng.integers(2, size=bad.size)
        (a, b), c, d = ends[:, bad], ends[side, mate], ends[1 - side, mate]
        new = np.stack([link_keys(n_agents, a, d), link_keys(n_agents, c, b)])
        is_possible = (a != d) & (c != b) & ~is_bad[mate] & _are_single(mate)
        is_possible &= (_are_single(new) & ~_are_in(new, keys)).all(axis=0)
        bad, mate = bad[is_possible], mate[is_possible]
        ends[0, bad], ends[1, bad] = a[is_possible], d[is_possible]
        ends[0, mate], ends[1, mate] = c[is_possible], b[is_possible]
    return None


def _are_single(values: Ints) -> NDArray[np.bool_]:
    """True where a value occurs only once."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts == 1)[inverse].reshape(values.shape)


def _are_in(values: Ints, ordered: Ints) -> NDArray[np.bool_]:
    """True where a value occurs in a sorted array; for few values far faster than np.isin."""
    return np.searchsorted(ordered, values) < np.searchsorted(ordered, values, side="right")


def _first_connected(draw: Callable[[], Graph | None], failure: str) -> Graph:
    for _ in range(ATTEMPTS):
        graph = draw()
        if graph is not None and graph.is_connected:
            return graph
    raise GraphError(failure)
