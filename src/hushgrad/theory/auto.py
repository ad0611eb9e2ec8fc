"""`stepsize="auto"`: a stable, nearly fastest stepsize for a method, a problem and a network.

`hg.run` resolves "auto" before a run starts. The choice rests on the linear step at θ*
(hushgrad.theory.linear): the λ with the smallest spectral radius. It is made smaller where

- splits fluctuate, until the root mean square of the errors shrinks as fast as it can;
- splits or masks are drawn once, until every one of some draws is stable;
- f_i are not quadratic, until the step is stable with the largest curvature anywhere;
- quadratic masks hide the curvature, until λ‖H_i‖ is within the size of λQ: the condition of the
  recommended design. Then `Choice` has both figures, with masks and without.

DGD and PDG-DS take diminishing stepsizes scale/(k + offset) that start at 1/L, with the scale 1/σ
up to a factor: with a smaller one the mean would crawl as k^{−scale σ}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushgrad.algorithms import DGD, PDGDS, PDGNDS, Algorithm, AsynDGM, Stepping
from hushgrad.algorithms.base import Masked, Private
from hushgrad.errors import AlgorithmError
from hushgrad.masks import MOST_QUADRATIC
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.splits import PrivateConstantSplit
from hushgrad.stepsizes import AUTO, Schedule, constant, diminishing
from hushgrad.theory.asynchronous import fastest_pairing
from hushgrad.theory.curvature import Floats, LocalCurvature, local_curvature
from hushgrad.theory.linear import LinearStep, TwoStep, linear_step
from hushgrad.theory.mean_square import (
    drawn_steps,
    fluctuates,
    mean_square_radius,
    sampled_rates,
)
from hushgrad.theory.rates import (
    LARGE,
    ONE,
    growths,
    iterations_to,
    largest_stable,
    spectral_radius,
    stable_range,
)

DRAWS = 8  # of splits and masks that are drawn once
SMALLER = 0.8  # the ratio of stepsizes in the search below the fastest of the mean
SCALE = 1.5  # of a diminishing stepsize, times 1/σ
MOST_TRIALS = 200  # problems of trials that are looked at
MOST_STEEP = 3  # of them for which a stepsize is searched: the steepest and the flattest
CALMER = 0.88  # the ratio of stepsizes in the search for the fastest mean square
BETTER = 1.01  # a smaller stepsize is better if 1 − its rate is so many times larger
SAME = 1e-9  # of 1 − rate: without strong convexity all rates are 1, up to rounding
MOST_DRAWN = 2000  # numbers in a state; larger networks average over their draws by themselves
MOST_SMALLER = 20
WITHIN = 0.999  # of the masks' condition, so that rounding does not break it
BELOW = 0.9  # of the largest stable stepsize with the largest curvature


@dataclass(frozen=True)
class Choice:
    """A stepsize that "auto" stands for, and what was known when it was chosen."""

    schedule: Schedule
    rate: float | None = None  # per iteration in the long run; None: sublinear
    free: float | None = None  # λ without the masks' condition, where that condition decides
    free_rate: float | None = None  # and its rate

    @property
    def summary(self) -> str:
        """One sentence, for people."""
        if self.rate is None:
            scale, offset = (getattr(self.schedule, name) for name in ("scale", "offset"))
            return f"stepsize {scale:.3g}/(k + {offset:.3g})"
        lam = float(np.mean(self.schedule.base(1.0)))
        said = f"stepsize {lam:.3g}, {_per_digit(self.rate)} iterations per digit"
        if self.free is None or self.free_rate is None:
            return said
        return (
            f"{said}, within the condition of the masks; without masks {self.free:.3g} would take "
            f"{_per_digit(self.free_rate)} per digit"
        )

    def to_json(self) -> dict[str, Any]:
        """The choice as JSON has it."""
        return {
            "schedule": repr(self.schedule),
            "rate": self.rate,
            "rate_without_masks": self.free_rate,
            "stepsize_without_masks": self.free,
            "summary": self.summary,
        }


def _per_digit(rate: float) -> str:
    return f"{iterations_to(0.1, rate):.3g}"


def is_auto(algorithm: Algorithm) -> bool:
    """Whether the stepsize of an algorithm is still open."""
    return isinstance(algorithm, Stepping) and algorithm.stepsize == AUTO


def resolve[T: Algorithm](
    algorithm: T, problem: Problem, network: Network
) -> tuple[T, Choice | None]:
    """The algorithm with a stepsize in place of "auto", and the choice; None: nothing was open."""
    if not is_auto(algorithm):
        return algorithm, None
    choice = choose(algorithm, problem, network)
    return replace(algorithm, stepsize=choice.schedule), choice  # type: ignore[type-var]  # Stepping


def choose(algorithm: Algorithm, problem: Problem, network: Network) -> Choice:
    """The stepsize for `algorithm` on this problem and network, whatever its own is."""
    every = _curvatures(problem)
    L = max(problem.smoothness(), *(c.largest for c in every))
    if isinstance(algorithm, DGD | PDGDS):
        return Choice(_diminishing(min(c.strong for c in every), L))
    found = [_constant(algorithm, c, L, problem, network) for c in every]
    best = min(found, key=lambda choice: choice.schedule.limit)
    return best if len(found) == 1 else replace(best, rate=max(c.rate or 0.0 for c in found))


def _curvatures(problem: Problem) -> list[LocalCurvature]:
    """The curvature, or where trials have problems of their own, those that ask most of λ."""
    if problem.n_trials is None:
        return [local_curvature(problem)]
    every = [local_curvature(problem, t) for t in range(min(problem.n_trials, MOST_TRIALS))]
    steep = sorted(every, key=lambda c: -c.largest)[:MOST_STEEP]
    flat = sorted(every, key=lambda c: c.strong / c.largest)[:MOST_STEEP]
    return list({id(c): c for c in [*steep, *flat]}.values())


def _diminishing(strong: float, L: float) -> Schedule:
    """scale/(k + offset) from about 1/L; without strong convexity as if σ were L/100."""
    scale = SCALE / (strong or L / 100)
    return diminishing(scale=scale, offset=max(scale * L - 1.0, 0.0))


def _constant(
    algorithm: Algorithm, at: LocalCurvature, L: float, problem: Problem, network: Network
) -> Choice:
    if isinstance(algorithm, AsynDGM):
        lam, rate = fastest_pairing(at.hessians, network, L)
        return Choice(constant(lam), rate)
    step = linear_step(algorithm, at.hessians, network)
    if step is None:
        raise AlgorithmError(
            'stepsize="auto" knows the steps of the methods of hushgrad, but not those of '
            f"{type(algorithm).__name__}. Give a stepsize, such as "
            f"hg.stepsizes.constant({0.5 / L:.2g})."
        )
    free = _free(algorithm, step, at, L, problem, network)
    cap = masks_cap(algorithm, network, problem.dim, L)
    lam = _drawn_stable(algorithm, step, network, min(free, cap))
    rate = spectral_radius(step, lam).value
    if lam == free:
        return Choice(constant(lam), rate)
    return Choice(constant(lam), rate, free, spectral_radius(step, free).value)


def _free(
    algorithm: Algorithm,
    step: LinearStep,
    at: LocalCurvature,
    L: float,
    problem: Problem,
    network: Network,
) -> float:
    """The fastest λ, if masks ask for nothing."""
    found = stable_range(step, is_precise=False)
    if found is None:
        raise AlgorithmError(
            f'stepsize="auto" found no stable stepsize for {type(algorithm).__name__}: no λ above '
            f"{2.0**-60 / L:.1e} has a spectral radius below 1 on this network. Use another "
            "method, or a network that mixes faster."
        )
    lam = found.fastest
    if not problem.is_quadratic:
        steep = replace(step, hessians=_majorised(problem, at, L))
        is_stable = largest_stable(
            lambda value: spectral_radius(steep, value).value <= ONE, 1.0 / L, BELOW / 9
        )
        lam = min(lam, BELOW * is_stable)
    if fluctuates(algorithm):
        assert isinstance(algorithm, PDGNDS)
        assert isinstance(step, TwoStep)
        lam = _calm(algorithm, step, network, lam)
    return lam


def _majorised(problem: Problem, at: LocalCurvature, L: float) -> Floats:
    """Hessians as large as they get at any θ: the problem's bound, or those at θ* scaled to L."""
    if problem.n_trials is None and problem.has_bound:
        zero = np.zeros(problem.dim)
        every = (problem.local_curvature(i, majorised=True) for i in range(problem.n_agents))
        return np.stack([bound(zero, None) for bound in every])
    return at.hessians * (L / (at.largest or L))


def _calm(algorithm: PDGNDS, step: TwoStep, network: Network, lam: float) -> float:
    """λ or less, with the fastest mean square: runs with fresh splits follow it, not the mean."""
    rate = mean_square_radius(algorithm, step, network, lam)
    if rate is None:
        return _sampled_calm(algorithm, step, network, lam)
    while True:
        calmer = mean_square_radius(algorithm, step, network, CALMER * lam)
        assert calmer is not None  # the size is the same
        if rate <= ONE and 1.0 - calmer < max(BETTER * (1.0 - rate), SAME):
            return lam
        lam, rate = CALMER * lam, calmer


def _sampled_calm(algorithm: PDGNDS, step: TwoStep, network: Network, lam: float) -> float:
    """The same for a state that is too large for its moments, from sampled runs."""
    lams = np.asarray(lam * SMALLER ** np.arange(8), np.float64)
    sampled = sampled_rates(algorithm, step, network, lams)
    if step.size > LARGE:
        means = growths(step, lams)
    else:
        means = np.array([spectral_radius(step, value).value for value in lams])
    return float(lams[np.argmin(np.maximum(sampled, means))])


def masks_cap(algorithm: Algorithm, network: Network, dim: int, L: float) -> float:
    """The largest λ with λ‖H_i‖ within the size of λQ; ∞ without quadratic masks."""
    masks = algorithm.masking if isinstance(algorithm, Masked) else None
    if masks is None or not isinstance(algorithm, Private) or dim > MOST_QUADRATIC:
        return math.inf
    size = masks.quadratic_part(network.eta) if masks.quadratic is None else masks.quadratic
    return WITHIN * size / L if size else math.inf


def _drawn_stable(algorithm: Algorithm, step: LinearStep, network: Network, lam: float) -> float:
    """λ or less, stable for every one of some draws of splits and masks that are kept."""
    is_drawn = isinstance(algorithm, PDGNDS) and (
        isinstance(algorithm.splitting, PrivateConstantSplit) or algorithm.masking is not None
    )
    if not is_drawn or step.size > MOST_DRAWN:
        return lam
    assert isinstance(algorithm, PDGNDS)
    assert isinstance(step, TwoStep)
    for _ in range(MOST_SMALLER):
        drawn = drawn_steps(algorithm, step, network, lam, DRAWS)
        if all(spectral_radius(one, lam).value <= ONE for one in drawn):
            break
        lam *= SMALLER
    return lam
