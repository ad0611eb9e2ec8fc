"""The masks of all agents of a simulation, from seeded keys of pairs of agents.

Simulators and agents in memory (local.py) use them; deployed agents use network/keys/masking.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrad.agent.stages import Statistic
from hushgrad.algorithms.base import Algorithm, Masked
from hushgrad.draws import pair_keys, pair_words, trial_keys
from hushgrad.masks import MOST_QUADRATIC, Mask, Sizes, ZeroSum
from hushgrad.mixing import Network
from hushgrad.problems.rows import Grids

type Floats = NDArray[np.float64]
type Integers = NDArray[np.int64]

_NUMBERS_AT_ONCE = 2**13  # of which shares are made: their words fit into a cache

# of `quadratic` over its default, by benchmarks/simulator/stability.py: above, some draws diverge
# on some networks
_TOO_LARGE = 1.2


def mask_sizes(algorithm: Masked, network: Network, dim: int, scale: float | None = None) -> Sizes:
    """The sizes of an algorithm's masks on a network; computes η only if they depend on it."""
    masks = algorithm.masking if algorithm.masks_curvature else None
    by_gap = masks is not None and masks.quadratic is None
    eta = network.eta if by_gap and dim <= MOST_QUADRATIC else None
    return algorithm.mask_sizes(dim, eta, scale)


def seeded_masks(
    algorithm: Algorithm,
    network: Network,
    dim: int,
    *,
    seed: int,
    trials: ArrayLike,
    stage: int = 0,
    scale: float | None = None,
    agents: Integers | None = None,
) -> tuple[Floats, Floats | None] | None:
    """c (agents, d, trials) and Q (agents, d, d, trials), or None without masks.

    With a fixed curvature H_i is the same in all stages, and so is its mask.

    agents    whose masks are made, from the shares of their own pairs; None: all
    """
    if not isinstance(algorithm, Masked) or algorithm.masking is None:
        return None
    sizes = mask_sizes(algorithm, network, dim, scale)
    if not sizes.linear and not sizes.quadratic:
        return None
    m = network.n_agents
    c, curved = _masks(algorithm, sizes, m, trial_keys(seed, trials, stage), agents)
    if stage and getattr(algorithm, "curvature", None) == "fixed":
        curved = _masks(algorithm, sizes, m, trial_keys(seed, trials), agents)[1]
    return c, curved


def _masks(
    algorithm: Masked,
    sizes: Sizes,
    m: int,
    key: tuple[NDArray[np.uint32], NDArray[np.uint32]],
    agents: Integers | None,
) -> tuple[Floats, Floats | None]:
    assert algorithm.masking is not None
    n = m if agents is None else len(agents)
    total = np.zeros((n, sizes.count, len(key[0])), np.int64)  # whole numbers: exact in any order
    at_once = max(1, _NUMBERS_AT_ONCE // (sizes.count * len(key[0])))
    for low, high, gaining, losing in _pairs(algorithm.masking, m, agents):
        keys = pair_keys(key, low, high)
        for start in range(0, len(low), at_once):
            some = slice(start, start + at_once)
            words = pair_words((keys[0][some], keys[1][some]), sizes.n_words)
            share = sizes.share(words).swapaxes(0, 1)
            if gaining is not None:
                total[gaining[some]] += share
            if losing is not None:  # an agent may be the higher one of several
                np.subtract.at(total, losing[some], share)
    c, Q = sizes.parts(total.swapaxes(0, 1))
    return c.swapaxes(0, 1), None if Q is None else np.moveaxis(Q, 2, 0)


def mask_grids(algorithm: Masked, network: Network, dim: int, scale: Floats) -> list[Grids]:
    """Per trial, the grids of the masks with the units `scale` (trials,)."""
    sizes = mask_sizes(algorithm, network, dim, 1.0)
    return [Grids(sizes.linear_grid * unit, sizes.quadratic_grid) for unit in scale.tolist()]


def masked_statistics(
    algorithm: Masked,
    network: Network,
    every: Statistic,
    scale: Floats,
    *,
    seed: int,
    trials: ArrayLike,
    stage: int,
) -> Statistic:
    """The statistics H (trials, agents, d, d) and q (trials, agents, d) with their masks.

    scale    (trials,) powers of two that cover the entries of q and of the gradients
    """
    dim = every.q.shape[-1]
    masks = seeded_masks(algorithm, network, dim, seed=seed, trials=trials, stage=stage, scale=1.0)
    if masks is None:
        return every
    c, Q = (None if part is None else np.moveaxis(part, -1, 0) for part in masks)
    sizes = mask_sizes(algorithm, network, dim, 1.0)
    unit = scale[:, None, None]  # a power of two changes no digit
    H, q = Mask(c, Q).statistic(every.H, every.q / unit, sizes)  # type: ignore[arg-type]  # c is there
    return Statistic(H, q * unit)


type _Pairs = tuple[Integers, Integers, Integers | None, Integers | None]


def _pairs(masking: ZeroSum, m: int, agents: Integers | None) -> Iterator[_Pairs]:
    """(lower, higher) of every pair of these agents, no lower one twice at a time, with the rows
    that gain and that lose their shares: of all agents every pair once, else a pair for each of
    the two that is among `agents`.
    """
    if agents is None:
        me = np.arange(m)
        for other in masking.partner_table(m):
            low = me[me < other]
            yield low, other[low], low, other[low]
        return
    rows = np.arange(len(agents))
    for offset in masking.offsets(m):
        other = (agents + offset) % m
        is_low = agents < other
        yield agents[is_low], other[is_low], rows[is_low], None
        yield other[~is_low], agents[~is_low], None, rows[~is_low]


def agent_masks(
    algorithm: Algorithm,
    network: Network,
    dim: int,
    *,
    seed: int,
    trial: int,
    stage: int = 0,
    scale: float | None = None,
) -> list[Mask] | None:
    """The masks of one trial, agent by agent."""
    masks = seeded_masks(
        algorithm, network, dim, seed=seed, trials=[trial], stage=stage, scale=scale
    )
    if masks is None:
        return None
    c, Q = masks
    return [Mask(c[i, :, 0], None if Q is None else Q[i, ..., 0]) for i in range(len(c))]


def mask_risks(algorithm: Algorithm, network: Network) -> Iterator[str]:
    """Warnings about masks that may spoil a run; hushgrad.theory judges what they hide."""
    if not isinstance(algorithm, Masked) or algorithm.masking is None:
        return
    given = algorithm.masking.quadratic
    if given and given > _TOO_LARGE * algorithm.masking.quadratic_part(network.eta):
        yield (
            f"quadratic masks of size {given:.3g} may make the iterates diverge on a network with "
            f"1 − η = {1.0 - network.eta:.3g}. Leave quadratic out: it follows from η."
        )
