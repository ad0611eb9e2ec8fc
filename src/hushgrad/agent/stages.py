"""Stages: within a stage, the messages of an agent depend on its data through one statistic only.

In a stage an agent minimises the quadratic model of its f_i at θ_s, where the stage began:

    ½ θᵀ H_i θ + q_iᵀ θ,      H_i the curvature of f_i at θ_s,      q_i = ∇f_i(θ_s) − H_i θ_s

The masked statistic (H_i + Q_i, q_i + c_i) is everything that the agent computes with until the
stage ends. New masks come with every stage. The sum of the models has its minimum at the Newton
step of Σ f_i, so a few stages lead to θ*.

All agents make their models at the same θ_s, to the last bit: the start x⁰, then the estimate with
which agent 0 ended the stage before. Otherwise the sum of the statistics, which masks do not hide,
would depend on which agent holds a row.

A Newton step doubles the number of correct digits, and the iterations of a stage gain digits at a
constant rate. So each stage is twice as long as the stage before, and half of all iterations belong
to the last one. Simulators (simulate/staged.py) and deployed agents share this module.

`Consensus` with masks is a run of one stage, whose statistic is q_i = ∇f_i(0) alone: H_i is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Algorithm, Masked, Private
from hushgrad.algorithms.consensus import Consensus
from hushgrad.errors import ProblemError
from hushgrad.masks import zero_sum

type Floats = NDArray[np.float64]
type Curve = Callable[[Floats, Floats | None], Floats]  # x, x one stage before or None → (d, d)

STAGES = 8  # Newton steps from θ = 0 that logistic regression of separated data needs
LEADER = 0  # the agent whose estimate all agents take as the start of the next stage
MOST_DIM = 8192  # a statistic has d × d numbers: half a gigabyte
SHORTEST = 8  # iterations: a shorter stage would give its statistic away for nothing


class Statistic(NamedTuple):
    """The numbers through which a stage depends on the data of an agent."""

    H: Floats  # (d, d), or (0, 0) if the statistic is q alone
    q: Floats  # (d,)

    def gradient(self, x: Floats) -> Floats:
        """H x + q, (d,)."""
        return self.H.dot(x) + self.q if self.H.size else self.q


def statistic(
    gradient: Callable[[Floats], Any],
    curve: Curve,
    x: Floats,
    before: Floats | None,
    *,
    about_start: bool = False,
) -> Statistic:
    """The statistic of an agent at x; `before` is x one stage before.

    about_start    q is the gradient at x itself, which `from_start` expects
    """
    curved = curve(x, before)
    H = (curved + curved.T) / 2  # products round differently above and below the diagonal
    g = np.asarray(gradient(x), np.float64)
    return Statistic(H, g if about_start else g - H @ x)


def check_dim(dim: int) -> None:
    """Refuse a θ whose Hessians are too large to mask."""
    if dim > MOST_DIM:
        raise ProblemError(
            "a run in stages computes with the masked Hessian of f_i, d × d numbers, up to "
            f'd = {MOST_DIM}, but d = {dim}. Use fewer parameters, or design = "paper", which '
            "computes with ∇f_i itself and hides less."
        )


def vector_statistic(gradient: Callable[[Floats], Any], dim: int) -> Statistic:
    """The statistic of an agent that gives ∇f_i(0) and nothing else of its objective."""
    return Statistic(np.empty((0, 0)), np.array(gradient(np.zeros(dim)), np.float64))


def is_about_start(algorithm: Masked, *, is_quadratic: bool) -> bool:
    """Whether the linear part that a stage masks is the gradient at its start.

    With a fixed curvature a row's part of q_i = ∇f_i(θ_s) − H_i θ_s grows with θ_s, and no public
    bound would hold for it. Its part of ∇f_i(θ_s) is bounded. A Newton curvature and a quadratic
    f_i have a bounded q_i themselves (hushgrad.theory.bounds).
    """
    return getattr(algorithm, "curvature", None) == "fixed" and not is_quadratic


def from_start(masked: Statistic, x: Floats) -> Statistic:
    """H̃ and q̃ = g̃ − H̃ x of H̃ (…, d, d) and the masked gradient g̃ (…, d) at x (…, d)."""
    return Statistic(masked.H, masked.q - (masked.H @ x[..., None])[..., 0])


def covering(every: Statistic, x: Floats, least: float | Floats) -> Floats:
    """Per trial, the unit of linear masks: the power of two above the entries of all q_i, of all
    gradients at x, and of `least` (…): the algorithm's least unit, and what q_i may become in later
    stages (hushgrad.problems.determined.reach).

    H (…, agents, d, d), q and x (…, agents, d) → (…). Nothing of the data shows in a unit that the
    algorithm's least one decides.
    """
    g = (every.H @ x[..., None])[..., 0] + every.q if every.H.size else every.q
    largest = np.maximum(np.abs(every.q), np.abs(g)).max(axis=(-2, -1))
    return 2.0 ** np.ceil(np.log2(np.maximum(largest, least)))


def n_stages(algorithm: Algorithm, *, is_quadratic: bool) -> int:
    """The number of stages that an algorithm asks for; 0: it computes with f_i itself."""
    if not isinstance(algorithm, Private):
        return int(isinstance(algorithm, Masked) and algorithm.masking is not None)
    if algorithm.stages is None:
        if algorithm.design == "paper":
            return 0
        return 1 if is_quadratic else STAGES
    return algorithm.stages


def stage_lengths(iterations: int, stages: int, curvature: str = "newton") -> tuple[int, ...]:
    """The iterations of each stage; fewer stages if the iterations do not suffice for all.

    >>> stage_lengths(2000, 5)
    (64, 129, 258, 516, 1033)
    >>> stage_lengths(40, 5)
    (13, 27)
    >>> stage_lengths(60, 3, "fixed")
    (10, 20, 30)
    """
    while True:
        weights = [2**s if curvature == "newton" else s + 1 for s in range(stages)]
        ends = [iterations * n // sum(weights) for n in accumulate(weights)]
        lengths = tuple(end - start for start, end in pairwise([0, *ends]))
        if stages == 1 or min(lengths) >= SHORTEST:
            return lengths
        stages -= 1


def within_stage[T: Masked](algorithm: T) -> T:
    """The algorithm of one stage: its statistic is masked already, so it adds no masks."""
    if isinstance(algorithm, Consensus):
        return replace(algorithm, masks=zero_sum(linear=0, quadratic=0))
    assert isinstance(algorithm, Private)
    return replace(
        algorithm,
        design="paper",
        stepsize=algorithm.schedule,
        split=algorithm.splitting,
        masks=None,
        stages=None,
    )
