"""The promise of masks to each agent, in numbers: `hg.guarantee`; docs/guarantee.md derives it.

The question of the promise: a row lies in the data of agent i. Could it as well lie in the data of
the honest agent j? An adversary that sees all masked statistics and knows everything else
distinguishes the two worlds no better than N(0, 1) from N(μ, 1), with

    μ² = R(i, j) · runs · (S ‖Δq‖²/σ_q² + S_H ‖ΔH‖²/σ_H²)

R the effective resistance in the graph of honest mask pairs, S stages, S_H matrices that were
masked (S with Newton's curvature, 1 with a fixed one).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from hushgrad.errors import PrivacyError
from hushgrad.masks import Sizes, ZeroSum
from hushgrad.theory import gaussian_dp
from hushgrad.theory.bounds import RowBound
from hushgrad.theory.coalitions import NEAR, worst_coalition
from hushgrad.theory.resistance import Pairs, pairs_of, resistances_from
from hushgrad.theory.result import Exposure, Guarantee
from hushgrad.theory.revealed import Curvature, check_count, check_curvature

MOST_AGENTS = 1000  # a dense inverse of this size takes a tenth of a second


def guarantee(
    masks: ZeroSum,
    n_agents: int,
    *,
    sizes: Sizes,
    bound: RowBound,
    stages: int = 1,
    runs: int = 1,
    curvature: Curvature = "newton",
    coalition: Collection[int] | None = None,
    agent: int = 0,
    delta: float = 1e-6,
) -> Guarantee:
    """The guarantee of zero-sum masks about the agent that holds a row; `print` shows a table.

    masks       who masks with whom, `hg.masks.zero_sum(…)`
    sizes       the standard deviations of a share's entries, `masks.sizes(…)`
    bound       the largest part of one row in the statistic, such as `hg.theory.logistic_row(1.0)`
    stages      stages of a run; a quadratic objective has one
    runs        runs on the same data
    curvature   "newton": every stage masks new Hessians; "fixed": the run masks one matrix
    coalition   agents that put their knowledge together. The result tells about every other agent.
                None: the result tells about `agent`, against an outsider and against the worst
                coalition of every size. Partners are i ± o, so every agent has the same numbers.
    delta       the δ at which ε is told
    """
    _check_masks(masks, sizes, bound)
    check_count("n_agents", n_agents)
    check_count("stages", stages)
    check_count("runs", runs)
    check_curvature(curvature)
    if not 0.0 < delta < 1.0:
        raise PrivacyError(f"δ lies between 0 and 1, but delta = {delta!r}. Try 1e-6.")
    if not 2 <= n_agents <= MOST_AGENTS:
        raise PrivacyError(
            f"A guarantee inverts a matrix of 2 to {MOST_AGENTS} agents, but n_agents = "
            f"{n_agents}. Effective resistances grow slowly: ask for {MOST_AGENTS} agents."
        )
    told = _Promise(
        unit=unit_mu(sizes, bound, stages=stages, runs=runs, curvature=curvature), delta=delta
    )
    links = ((i, j) for i in range(n_agents) for j in masks.partners(i, n_agents))
    pairs = pairs_of(n_agents, links)
    if coalition is None:
        _check_agents({agent}, n_agents)
        exposures = _worst_by_size(agent, pairs, told)
    else:
        absent = _check_agents(coalition, n_agents)
        exposures = tuple(
            told.exposure(i, tuple(sorted(absent)), resistances_from(i, pairs, absent))
            for i in range(n_agents)
            if i not in absent
        )
    return Guarantee(
        n_agents=n_agents,
        n_partners=int(pairs[0].sum()),
        stages=stages,
        runs=runs,
        curvature=curvature,
        bound=bound,
        linear=sizes.linear,
        quadratic=sizes.quadratic,
        delta=delta,
        unit_mu=told.unit,
        exposures=exposures,
    )


def unit_mu(
    sizes: Sizes,
    bound: RowBound,
    *,
    stages: int = 1,
    runs: int = 1,
    curvature: Curvature = "newton",
) -> float:
    """μ of a pair at resistance 1: two honest agents that mask with each other alone."""
    matrices = stages if curvature == "newton" else 1
    return math.sqrt(runs) * math.hypot(
        math.sqrt(stages) * _ratio(bound.linear, sizes.linear),
        math.sqrt(matrices) * _ratio(bound.quadratic, sizes.quadratic),
    )


def _ratio(part: float, sigma: float) -> float:
    if part == 0.0:
        return 0.0
    return part / sigma if sigma > 0.0 else math.inf  # a part without a mask is seen as it is


@dataclass(frozen=True)
class _Promise:
    """The numbers that turn resistances into exposures."""

    unit: float
    delta: float

    def exposure(
        self,
        agent: int,
        coalition: tuple[int, ...],
        resistances: Mapping[int, float],
        *,
        is_exact: bool = True,
        most: float | None = None,
    ) -> Exposure:
        far, worst = _first(resistances, sign=1.0)
        near, best = _first(resistances, sign=-1.0)
        mu = self.mu(worst)
        return Exposure(
            agent=agent,
            coalition=coalition,
            hidden_among=1 + len(resistances),
            other=far,
            resistance=worst,
            mu=mu,
            epsilon=gaussian_dp.epsilon(self.delta, mu),
            advantage=gaussian_dp.advantage(mu),
            nearest=near,
            nearest_mu=self.mu(best),
            is_exact=is_exact,
            most_mu=mu if is_exact else None if most is None else self.mu(most),
        )

    def mu(self, resistance: float) -> float:
        if math.isinf(resistance):
            return math.inf
        return self.unit * math.sqrt(resistance)


def _first(resistances: Mapping[int, float], sign: float) -> tuple[int | None, float]:
    """The first agent with the largest resistance (sign 1) or the smallest (sign −1)."""
    if not resistances:
        return None, math.inf
    extreme = max(resistances.values(), key=lambda r: sign * r)
    equal = (j for j, r in resistances.items() if abs(r - extreme) <= NEAR * extreme)
    return min(equal), extreme


def _worst_by_size(agent: int, pairs: Pairs, told: _Promise) -> tuple[Exposure, ...]:
    """Against an outsider, and against the worst coalition of each size up to m − 2.

    The list ends with the first size that exposes the agent: larger coalitions do as well.
    """
    found: list[Exposure] = []
    gap = _spectral_gap(pairs)
    for size in range(len(pairs) - 1):
        worst = worst_coalition(agent, size, pairs)
        most = 2 / (gap - size) if gap > size else None
        found.append(
            told.exposure(
                agent, worst.coalition, worst.resistances, is_exact=worst.is_exact, most=most
            )
        )
        if found[-1].is_alone:
            break
    return tuple(found)


def _spectral_gap(pairs: Pairs) -> float:
    """The second eigenvalue of the Laplacian, rounded down.

    R(i, j) ≤ 2/λ₂, and an agent that leaves lowers λ₂ by at most 1 (Fiedler).
    """
    m = len(pairs)
    offsets = np.flatnonzero(pairs[0])
    waves = 1 - np.cos(2 * np.pi / m * (np.arange(1, m)[:, None] * offsets % m))
    return float(waves.sum(axis=1).min()) * (1 - NEAR)


def _check_masks(masks: object, sizes: object, bound: object) -> None:
    for value, kind, way in (
        (masks, ZeroSum, "Write hg.masks.zero_sum()."),
        (sizes, Sizes, "Write masks.sizes(dim, lam=…, eta=…)."),
        (bound, RowBound, "Write hg.theory.logistic_row(norm), or hg.theory.RowBound(linear=…)."),
    ):
        if not isinstance(value, kind):
            raise PrivacyError(f"A guarantee takes a {kind.__name__}, but got {value!r}. {way}")


def _check_agents(agents: Collection[int], n_agents: int) -> frozenset[int]:
    wrong = [i for i in agents if not isinstance(i, int) or not 0 <= i < n_agents]
    if wrong:
        raise PrivacyError(
            f"Agents have the numbers 0 to {n_agents - 1}, but {wrong[0]!r} was named."
        )
    if len(set(agents)) == n_agents:
        raise PrivacyError(
            f"A coalition leaves an agent to protect, but it names all {n_agents} agents. Leave "
            "one out."
        )
    return frozenset(agents)
