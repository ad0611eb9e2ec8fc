"""`stepsize = "auto"`: the agents of a run agree on one stepsize before round 0.

Agent i knows L_i, the largest curvature of its f_i, and its weight w_ii. It needs λ ≤ κ_i / L_i:

    κ_i ≤ 0.95 (1 + 3 w_ii)/2, or 0.95 (5 − 3η)/4    the iterates stay stable (below)
    κ_i ≤ the size of its quadratic masks            λ H_i is hidden, if curvature is masked

It announces the e of the power of two 2^e ≥ L_i / κ_i, and all agents take λ = 2^−max e. So others
learn L_i up to a factor of two, and nothing else; a run that declares `smoothness` tells not even
that. agreement.py floods the announcements, staging.py asks for the stepsize and keeps it with the
links in the state directory.

EXTRA converges if 2λ diag(L_i) ≺ I + 3M with M = ½(I + W), for all convex f_i (condition E of
docs/certificates.md). The eigenvalues of W are at least −η, so λ L_i < (5 − 3η)/4 is enough. By
Gershgorin's theorem it is also enough that in each row 1 + 3m_ii − 2λ L_i > 3 Σ_{j ≠ i} m_ij =
3(1 − m_ii), that is λ L_i < (1 + 3 w_ii)/2. All agents take the same one of the two bounds: the
first if η is declared and 1 − η > 2/m, where it is better for the agent with the most neighbours
that there can be. PDG-NDS (lazy) is EXTRA with another split of the step; that it is stable there,
too, is measured and not proved: condition S proves smaller stepsizes only.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hushgrad.algorithms import EXTRA, PDGNDS
from hushgrad.algorithms.base import Algorithm, Masked, Stepping
from hushgrad.errors import ConfigError
from hushgrad.masks import MOST_QUADRATIC
from hushgrad.network.config.model import AgentConfig, RunConfig
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.protocol.announcements import LEAST, MOST
from hushgrad.stepsizes import Schedule, constant

_SAFE = 0.95  # of the stability limit
_MOST_DIM = 2048  # eigenvalues of a larger matrix take minutes


def has_auto(algorithm: Algorithm) -> bool:
    """Whether a safe stepsize of this algorithm follows from L_i and w_ii."""
    is_lazy = isinstance(algorithm, PDGNDS) and algorithm.form == "lazy"
    return is_lazy or isinstance(algorithm, EXTRA)


def with_stepsize(config: AgentConfig, exponent: int) -> AgentConfig:
    """The configuration with λ = 2^−exponent in place of "auto"."""
    algorithm = config.run.algorithm
    assert isinstance(algorithm, Stepping)
    assert isinstance(algorithm.stepsize, Schedule)  # config/file.py took "auto" away
    stepsize = constant(2.0**-exponent, algorithm.stepsize.deviation)
    return replace(config, run=replace(config.run, algorithm=replace(algorithm, stepsize=stepsize)))


def needed(config: AgentConfig, objective: Objective, own_weight: float | None = None) -> int:
    """This agent's e; without its weight, as far as masks need it."""
    run = config.run
    limits = [] if own_weight is None else [_SAFE * _stable(run, own_weight)]
    if isinstance(run.algorithm, Masked):
        curved = run.algorithm.mask_sizes(run.dim, run.eta).curvature
        lam = float(run.algorithm.least_unit)  # 1/λ of the present stepsize, which sizes are for
        limits += [curved / lam] if curved else []
    L = smoothness_of(config, objective)
    if not limits or not L > 0:
        return 0
    # one part in 10¹²: the masks that follow from λ must not be too small by rounding
    exponent = math.ceil(math.log2(L / min(limits) * (1 + 1e-12)))
    return min(max(exponent, LEAST), MOST)


def _stable(run: RunConfig, own_weight: float) -> float:
    """The largest stable λ L_i."""
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
