"""One agent's part of a network and a problem: its step machine knows nothing else.

`local_agents` divides a whole network into such parts, for agents in one process. A deployed agent
builds its own part from its file and its neighbours' degrees (network/introduction.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.links import link_numbers, two_hop_weights
from hushgrad.agent.masking import agent_masks
from hushgrad.agent.vectors import Vector
from hushgrad.algorithms.base import Algorithm
from hushgrad.draws import Draws, SeededDraws, trial_keys
from hushgrad.exchange import Links
from hushgrad.mixing import Network
from hushgrad.problems import Problem


@dataclass(frozen=True)
class LocalWeights:
    """One agent's weights in a public matrix A; the agent is j."""

    own: float  # a_jj
    out: Mapping[int, float]  # receiver i → a_ij: the weight that i gives to this agent's message
    into: Mapping[int, float]  # sender l → a_jl: the weight that this agent gives to l's message


@dataclass(frozen=True)
class Local:
    """One agent's links, weights, objective and draws."""

    number: int
    receivers: Mapping[Links, tuple[int, ...]]  # ascending, without the agent itself
    weights: Mapping[str, LocalWeights]  # by letter; W² as "W2"
    gradient: Callable[[Vector], Vector]
    draws: Draws
    link_numbers: Mapping[int, int]  # receiver → number of the link in the network, for pairings
    n_links: int


def local_agents(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    seed: int,
    trial: int,
    stage: int = 0,
) -> list[Local]:
    """The part of every agent."""
    graph, m = network.graph, network.n_agents
    two_hop = graph.two_hop() if algorithm.links is Links.TWO_HOP else None
    reached = {Links.GRAPH: graph} | ({} if two_hop is None else {Links.TWO_HOP: two_hop})
    receivers = {
        links: [tuple(g.receivers[g.senders == j].tolist()) for j in range(m)]
        for links, g in reached.items()
    }
    weights: dict[str, list[LocalWeights]] = {}
    for letter, kind in algorithm.needs.items():
        w = network.weights(kind)
        weights[letter] = _local_weights(graph.senders, graph.receivers, w.links, w.own)
        if two_hop is not None:
            _, square, own = two_hop_weights(network, two_hop, kind)
            weights[letter + "2"] = _local_weights(two_hop.senders, two_hop.receivers, square, own)
    numbers = link_numbers(graph) if algorithm.wakes_links else np.zeros(0, np.int64)
    of_link = {
        (int(j), int(i)): int(n)
        for j, i, n in zip(graph.senders, graph.receivers, numbers, strict=False)
    }
    key = trial_keys(seed, [trial], stage)
    gradients = [
        problem.local_gradient(j, None if problem.n_trials is None else trial) for j in range(m)
    ]
    masks = agent_masks(algorithm, network, problem.dim, seed=seed, trial=trial)
    if masks is not None:
        gradients = [mask.over(g) for mask, g in zip(masks, gradients, strict=True)]
    return [
        Local(
            number=j,
            receivers={links: lists[j] for links, lists in receivers.items()},
            weights={name: every[j] for name, every in weights.items()},
            gradient=gradients[j],
            draws=SeededDraws(key, j),
            link_numbers={i: of_link[j, i] for i in receivers[Links.GRAPH][j] if of_link},
            n_links=graph.n_links,
        )
        for j in range(m)
    ]


def _local_weights(
    senders: NDArray[np.int64],
    receivers: NDArray[np.int64],
    links: NDArray[np.float64],
    own: NDArray[np.float64],
) -> list[LocalWeights]:
    out: list[dict[int, float]] = [{} for _ in own]
    into: list[dict[int, float]] = [{} for _ in own]
    for j, i, weight in zip(senders.tolist(), receivers.tolist(), links.tolist(), strict=True):
        out[j][i] = weight
        into[i][j] = weight
    return [
        LocalWeights(float(a), column, row) for a, column, row in zip(own, out, into, strict=True)
    ]
