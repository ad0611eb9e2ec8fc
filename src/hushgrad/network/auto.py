"""`stepsize = "auto"`: the agents of a run agree on one stepsize before round 0.

Agent i knows L_i, the largest curvature of its f_i, and its links. It announces the e of 2^e ≥ L_i
and its links (agreement.py floods the announcements), so others learn L_i up to a factor of two,
who is linked with whom, and nothing else; a run that declares `smoothness` tells not even L_i. Then
every agent computes the same λ from all announcements, and announces the e of 2^(−e/64) ≤ λ. All
take the smallest, so processors that round differently agree. staging.py keeps e with the links in
the state directory.

λ is the choice of least regret among those that are stable whatever the data, as far as that is
known (theory/least_regret.py): with EXTRA all of them by condition E of docs/certificates.md, and
by the rates in the middle of what L_i may be. With quadratic masks λ L_i is also at most their
size: then λ H_i is hidden.

Nobody compares stepsizes of a large network (`RunConfig.tells_links`), nor of splits whose rate
hangs on one draw. There λ L_i ≤ 0.95 (1 + 3 w_ii)/2, or 0.95 (5 − 3η)/4 if η is declared and
1 − η > 2/m, where that is better for the agent with the most neighbours that there can be. Both
are enough for condition E: the eigenvalues of W are at least −η, and by Gershgorin's theorem it is
enough that in each row 1 + 3m_ii − 2λ L_i > 3 Σ_{j ≠ i} m_ij = 3(1 − m_ii). Agents of large
networks announce the λ that they need, rounded down to a power of two, without links. That PDG-NDS
(lazy) is stable, too, is measured and not proved: condition S proves smaller stepsizes only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.weights import Ends, public_weights
from hushgrad.algorithms import EXTRA, PDGNDS
from hushgrad.algorithms.base import Algorithm, Masked, Stepping
from hushgrad.errors import ConfigError, MaskError
from hushgrad.masks import MOST_QUADRATIC
from hushgrad.network.config.model import AgentConfig, RunConfig
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.protocol.announcements import LEAST, MOST, PARTS, Announcement, decode_links
from hushgrad.splits import FreshSplit, IdentitySplit
from hushgrad.stepsizes import Schedule, constant
from hushgrad.theory.least_regret import least_regret

_SAFE = 0.95  # of the stability limit
_MOST_DIM = 2048  # eigenvalues of a larger matrix take minutes
_UP = 1 + 1e-12  # the masks that follow from λ must not be too small by rounding
_ROOT = math.sqrt(math.sqrt(math.sqrt(math.sqrt(math.sqrt(math.sqrt(2.0))))))  # 2^(1/64)


def has_auto(algorithm: Algorithm) -> bool:
    """Whether a safe stepsize of this algorithm follows from the L_i and W."""
    is_lazy = isinstance(algorithm, PDGNDS) and algorithm.form == "lazy"
    return is_lazy or isinstance(algorithm, EXTRA)


def power(exponent: int) -> float:
    """2^(−exponent/64), with the same bits on every processor."""
    octaves, parts = divmod(-exponent, PARTS)
    value = 1.0
    for _ in range(parts):
        value *= _ROOT
    return math.ldexp(value, octaves)


def with_stepsize(config: AgentConfig, exponent: int) -> AgentConfig:
    """The configuration with λ = 2^(−exponent/64) in place of "auto"."""
    algorithm = config.run.algorithm
    assert isinstance(algorithm, Stepping)
    assert isinstance(algorithm.stepsize, Schedule)  # config/file.py took "auto" away
    stepsize = constant(power(exponent), algorithm.stepsize.deviation)
    return replace(config, run=replace(config.run, algorithm=replace(algorithm, stepsize=stepsize)))


def told(config: AgentConfig, objective: Objective, own_weight: float) -> int:
    """The number that the agent announces: the e of L_i ≤ 2^e, or in a large network that of its λ.

    A λ is rounded down to a power of two as well: it tells L_i as exactly as it is told itself.
    """
    if not config.run.tells_links:
        return PARTS * math.ceil(needed(config, objective, own_weight) / PARTS)
    L = smoothness_of(config, objective)
    return min(max(math.ceil(math.log2(L)), LEAST), MOST) if L > 0 else LEAST * PARTS


def needed(config: AgentConfig, objective: Objective, own_weight: float | None = None) -> int:
    """The e of λ ≤ 2^(−e/64) that this agent needs; without its weight, as far as masks need it."""
    run = config.run
    limits = [] if own_weight is None else [_SAFE * _stable(run, own_weight)]
    limits += _hidden(run)
    L = smoothness_of(config, objective)
    if not limits or not L > 0:
        return 0
    return _exponent(min(limits) / L)


def chosen(run: RunConfig, announced: Mapping[int, Announcement]) -> int:
    """The e of λ = 2^(−e/64) that follows from what all agents have announced."""
    if not run.tells_links:
        return max(one.stepsize for one in announced.values())
    W = matrix(run, {j: decode_links(one.links) for j, one in announced.items()})
    L = np.array([2.0 ** announced[j].stepsize for j in range(run.n_agents)])
    L[[announced[j].stepsize <= LEAST * PARTS for j in range(run.n_agents)]] = 0.0
    if not L.any():
        return 0
    return _exponent(stepsize(run, W, L))


def stepsize(run: RunConfig, W: NDArray[np.float64], L: NDArray[np.float64]) -> float:
    """λ for these weights and curvatures."""
    splitting = run.algorithm.splitting if isinstance(run.algorithm, PDGNDS) else IdentitySplit()
    is_split = isinstance(splitting, FreshSplit)  # their noise leaves no room for the middle
    lam = least_regret(W, L, is_split=is_split, within=1.0 if is_split else 2.0).lam
    own = np.diag(W)
    if not isinstance(splitting, FreshSplit | IdentitySplit):
        lam = min(
            [lam, *(_SAFE * _stable(run, w) / big for w, big in zip(own, L, strict=True) if big)]
        )
    return min([lam, *(hidden / float(L.max()) for hidden in _hidden(run))])


def matrix(run: RunConfig, links: Mapping[int, list[int]]) -> NDArray[np.float64]:
    """W of the whole network, from the links of all agents; MaskError if they contradict."""
    ends = {j: Ends(len(others), len(others)) for j, others in links.items()}
    W = np.zeros((run.n_agents, run.n_agents))
    for i, others in sorted(links.items()):
        for j in others:
            if i == j or i not in links[j]:
                raise MaskError(
                    f"both ends of a link announce it, but agent {i} announces a link with agent "
                    f"{j}, and agent {j} none with agent {i}. Either a file lacks a [[neighbour]], "
                    "or an agent tells a false one: ask both."
                )
        near = {j: ends[j] for j in others}
        row = public_weights(run.algorithm, run.mixing, run.max_degree, ends[i], near, near)["W"]
        W[i, i] = row.own
        W[i, list(row.into)] = list(row.into.values())
    return W


def _exponent(lam: float) -> int:
    """The e of the largest 2^(−e/64) ≤ λ."""
    return min(max(math.ceil(-PARTS * math.log2(lam) + 1e-9), LEAST * PARTS), MOST * PARTS)


def _hidden(run: RunConfig) -> list[float]:
    """The largest λ L_i that quadratic masks hide, if there are any."""
    if not isinstance(run.algorithm, Masked):
        return []
    curved = run.algorithm.mask_sizes(run.dim, run.eta).curvature
    lam = float(run.algorithm.least_unit)  # 1/λ of the present stepsize, which sizes are for
    return [curved / lam / _UP] if curved else []


def _stable(run: RunConfig, own_weight: float) -> float:
    """A stable λ L_i that hangs on no other agent."""
    is_dense = run.eta is not None and 1.0 - run.eta > 2.0 / run.n_agents
    if is_dense and run.eta is not None:
        return (5.0 - 3.0 * run.eta) / 4.0
    return (1.0 + 3.0 * own_weight) / 2.0


def provisional(config: AgentConfig, objective: Objective | None) -> AgentConfig:
    """The configuration with a stepsize that is no smaller than the one that agents will agree on.

    Smaller stepsizes have larger masks, so a judgement with this one is on the safe side.
    """
    if not config.run.is_auto or objective is None:
        return config
    return with_stepsize(config, needed(config, objective))


def smoothness_of(config: AgentConfig, objective: Objective) -> float:
    """L_i, or the declared bound of all of them."""
    own, declared = (
        objective.smoothness or _by_curvature(config.run, objective),
        config.run.smoothness,
    )
    if declared is None:
        if own is None:
            raise ConfigError(
                f'stepsize = "auto" follows from the largest curvature L_i of f_i, but that of '
                f"{objective.describe} is unknown. Give smoothness = … in [objective], a bound of "
                "‖∇²f_i(θ)‖ at every θ, or write a number as the stepsize."
            )
        return own
    if own is not None and own > declared:
        raise ConfigError(
            "smoothness in [run] bounds the curvature of every agent's objective, but smoothness = "
            f"{declared:g} and this agent has L_i = {own:.4g}. Declare a larger one in every file, "
            "or leave it out: then the agents agree."
        )
    return declared


def _by_curvature(run: RunConfig, objective: Objective) -> float | None:
    """The largest eigenvalue of a bound of all Hessians, if the objective knows one."""
    curve = objective.majorised or (objective.newton if objective.is_quadratic else None)
    if curve is None or run.dim > max(_MOST_DIM, MOST_QUADRATIC):
        return None
    H = curve(np.zeros(run.dim), None)
    return float(np.linalg.eigvalsh((H + H.T) / 2)[-1])
