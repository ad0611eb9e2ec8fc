"""`hushgrad certify --design`: designs of PDG-NDS for a wished accuracy and number of rounds.

Each proposal is a whole algorithm with its mixing rule, the rounds that it needs, and the judgement
of what its messages expose (hushgrad.theory.exposure).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushgrad import splits, stepsizes
from hushgrad.algorithms import PDGNDS
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.theory.auto import resolve
from hushgrad.theory.curvature import local_curvature
from hushgrad.theory.exposure import OwnNumbers, Setting, weaknesses
from hushgrad.theory.linear import linear_step
from hushgrad.theory.rates import iterations_to, spectral_radius
from hushgrad.theory.tight import stalled

RULES = ("metropolis", "lazy_metropolis")


@dataclass(frozen=True)
class Proposal:
    """A design with its cost and its exposure."""

    name: str
    algorithm: PDGNDS
    mixing: str
    iterations: float  # rounds to the tolerance
    is_bound: bool  # it may well take more rounds
    fits: bool  # within the rounds that were asked for
    exposed: tuple[str, ...]  # names and texts of weaknesses

    def to_json(self) -> dict[str, Any]:
        schedule = self.algorithm.schedule
        return {
            "name": self.name,
            "mixing": self.mixing,
            "stepsize": float(np.mean(schedule.base(1.0))),
            "deviation": repr(schedule.deviation),
            "split": repr(self.algorithm.splitting),
            "masks": repr(self.algorithm.masking),
            "iterations": self.iterations,
            "iterations_at_least": self.is_bound,
            "fits": self.fits,
            "exposed": list(self.exposed),
            "not_judged": [] if self.algorithm.masking is None else ["sums"],
        }

    def text(self) -> str:
        """The proposal for people, with the table for a study."""
        lam = float(np.mean(self.algorithm.schedule.base(1.0)))
        design = f'design = "{self.algorithm.design}", ' if self.algorithm.masking else ""
        fits = "within the rounds" if self.fits else "more than the rounds"
        least = "at least " if self.is_bound else ""
        lines = [
            f"{self.name}: {least}{self.iterations:.4g} rounds ({fits})",
            f'  name = "PDGNDS", {design}stepsize = {{ kind = "constant", value = {lam:.3g} }}, '
            f'mixing = "{self.mixing}"',
            f"  deviation {_words(self.algorithm.schedule.deviation)}, "
            f"split {_words(self.algorithm.splitting)}",
        ]
        lines += [f"  exposed: {text}" for text in self.exposed]
        if self.algorithm.masking is not None:
            lines.append(
                "  not judged here: what the sums of stages tell about single rows. hg.run counts "
                "it and refuses a run whose sums tell too much."
            )
        return "\n".join(lines)


def _words(part: object) -> str:
    return type(part).__name__


def propose(problem: Problem, network: Network, *, tolerance: float, rounds: int) -> list[Proposal]:
    """Designs from the most private to the fastest; those that fit the rounds come first."""
    designs = {
        "recommended (masks, stages)": PDGNDS(stepsize=stepsizes.AUTO, design="recommended"),
        "private constant split": PDGNDS(stepsize=stepsizes.AUTO, split=splits.private_constant()),
        "the paper's (fresh splits, ϱ/k²)": PDGNDS(stepsize=stepsizes.AUTO),
    }
    rules = [r for r in RULES if r == network.mixing or not network.is_directed]
    found: list[Proposal] = []
    for name, open_design in designs.items():
        best = min(
            (_one(name, open_design, problem, Network(network.graph, rule), tolerance, rounds)
             for rule in rules),
            key=lambda one: one.iterations,
        )  # fmt: skip
        found.append(best)
    return sorted(found, key=lambda one: not one.fits)


def _one(
    name: str,
    algorithm: PDGNDS,
    problem: Problem,
    network: Network,
    tolerance: float,
    rounds: int,
) -> Proposal:
    chosen, choice = resolve(algorithm, problem, network)
    assert choice is not None  # the designs leave the stepsize open
    if not isinstance(chosen.splitting, splits.FreshSplit):  # ϱ/k² would stall what masks do not
        still = replace(choice.schedule, deviation=stepsizes.geometric(0.5, drawn="once"))
        chosen = replace(chosen, stepsize=still)
    trial = None if problem.n_trials is None else 0
    at = local_curvature(problem, trial)
    step = linear_step(chosen, at.hessians, network)
    assert step is not None  # PDG-NDS has a linear step
    lam = chosen.schedule.limit
    needed = iterations_to(tolerance, spectral_radius(step, lam).value)
    held = stalled(chosen, step, problem, network, lam, tolerance, trial)
    is_bound = held.is_bound and held.iterations > needed
    needed = max(needed, held.iterations)
    stages = 0 if chosen.design == "paper" else 1 if problem.is_quadratic else 8
    setting = Setting(
        algorithm=chosen,
        n_agents=network.n_agents,
        dim=problem.dim,
        is_quadratic=problem.is_quadratic,
        stages=stages,
        sizes=None if chosen.masking is None else chosen.mask_sizes(problem.dim, network.eta),
    )
    agent = int(np.argmin(network.graph.in_degree))
    own = OwnNumbers(
        number=agent,
        neighbours=network.graph.senders[network.graph.receivers == agent].tolist(),
        curvature=max(problem.smoothness(), at.largest),
    )
    # "sums" depends on every honest row at the start of every stage: a run counts them
    exposed = tuple(f"{w.name}: {w.text}" for w in weaknesses(setting, own) if w.name != "sums")
    return Proposal(name, chosen, network.mixing, needed, is_bound, needed <= rounds, exposed)
