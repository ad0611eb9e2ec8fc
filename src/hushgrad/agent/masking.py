"""The masks of all agents of a simulation, from seeded keys of pairs of agents.

Simulators and agents in memory (local.py) use them; deployed agents use network/keys/masking.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrad.algorithms.base import Algorithm, Private
from hushgrad.draws import ONCE, pair_keys, trial_keys, uniforms
from hushgrad.masks import MOST_QUADRATIC, Mask, Sizes
from hushgrad.mixing import Network
from hushgrad.problems import Problem

type Floats = NDArray[np.float64]

# benchmarks/simulator/designs.py measured both limits.
_TOO_SMALL = 2.0  # of λL / `quadratic`: above, attacks tell Hessians better than guesses do
_TOO_LARGE = 0.25  # of `quadratic` / (1 − η): above, the iterates diverge on some networks


def mask_sizes(algorithm: Private, network: Network, dim: int) -> Sizes:
    """The sizes of an algorithm's masks on a network; computes η only if they depend on it."""
    by_gap = algorithm.masking is not None and algorithm.masking.quadratic is None
    return algorithm.mask_sizes(dim, network.eta if by_gap and dim <= MOST_QUADRATIC else None)


def seeded_masks(
    algorithm: Algorithm, network: Network, dim: int, *, seed: int, trials: ArrayLike
) -> tuple[Floats, Floats | None] | None:
    """c (agents, d, trials) and Q (agents, d, d, trials), or None without masks.

    A mask adds its shares in the order of the partners' numbers, as a deployed agent does.
    """
    if not isinstance(algorithm, Private) or algorithm.masking is None:
        return None
    sizes = mask_sizes(algorithm, network, dim)
    if not sizes.linear and not sizes.quadratic:
        return None
    m, key = network.n_agents, trial_keys(seed, trials)
    me = np.arange(m)
    slots = np.arange(sizes.count, dtype=np.uint32)[:, None, None]
    total = np.zeros((sizes.count, m, len(key[0])))
    for other in algorithm.masking.partner_table(m):
        pair = pair_keys(key, np.minimum(me, other), np.maximum(me, other))
        share = sizes.share(uniforms(pair, (np.full_like(slots, ONCE), slots)))
        total += np.where(me < other, 1.0, -1.0)[:, None] * share
    c, Q = sizes.parts(total)
    return c.swapaxes(0, 1), None if Q is None else np.moveaxis(Q, 2, 0)


def agent_masks(
    algorithm: Algorithm, network: Network, dim: int, *, seed: int, trial: int
) -> list[Mask] | None:
    """The masks of one trial, agent by agent."""
    masks = seeded_masks(algorithm, network, dim, seed=seed, trials=[trial])
    if masks is None:
        return None
    c, Q = masks
    return [Mask(c[i, :, 0], None if Q is None else Q[i, ..., 0]) for i in range(len(c))]


def mask_risks(algorithm: Algorithm, network: Network, problem: Problem) -> Iterator[str]:
    """Warnings about an algorithm's masks on this network and problem, each with its number."""
    if not isinstance(algorithm, Private) or algorithm.masking is None:
        return
    given, d = algorithm.masking.quadratic, problem.dim
    if given is None and d > MOST_QUADRATIC:
        yield (
            f"in d = {d} > {MOST_QUADRATIC} dimensions the masks are linear only: gradients are "
            "masked, but messages tell H_i. Say masks=hg.masks.zero_sum(quadratic=0) if you accept "
            "this."
        )
        return
    lam = float(algorithm.schedule.base(1.0))
    part = mask_sizes(algorithm, network, d).quadratic * lam * d**0.5
    if part and lam * problem.smoothness() > _TOO_SMALL * part:
        yield (
            f"quadratic masks of size {part:.2g} hide Hessians up to about {part / lam:.3g}, but "
            f"L = {problem.smoothness():.3g}. Use a stepsize of about "
            f"{part / problem.smoothness():.2g}, or a network with more links."
        )
    if given and given > _TOO_LARGE * (1.0 - network.eta):
        yield (
            f"quadratic masks of size {given:.3g} may make the iterates diverge on a network with "
            f"1 − η = {1.0 - network.eta:.3g}. Leave quadratic out: it follows from η."
        )
    alone = _only_neighbours(algorithm, network)
    if len(alone):
        yield (
            f"agent {alone[0]} masks with neighbours only ({len(alone)} agents do): all of them "
            "together can take its mask off. Use masks=hg.masks.zero_sum(n_partners=…) with "
            f"more than {int(network.graph.in_degree[alone].max())}."
        )


def _only_neighbours(algorithm: Private, network: Network) -> NDArray[np.int64]:
    """Agents that mask with neighbours only, although some agents are not their neighbours."""
    graph, m = network.graph, network.n_agents
    assert algorithm.masking is not None
    linked = graph.senders * m + graph.receivers
    me = np.arange(m)
    beyond = (graph.in_degree == m - 1) | (m == 1)
    for other in algorithm.masking.partner_table(m):
        beyond |= ~np.isin(me * m + other, linked)
    return np.flatnonzero(~beyond)
