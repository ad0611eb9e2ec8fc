"""`hushgrad certify --design`: designs of PDG-NDS for a wished accuracy and number of rounds.

Each proposal is a whole algorithm with its mixing rule, the rounds that it needs, and the judgement
of what its messages expose (hushgrad.theory.exposure).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrad import splits, stepsizes
from hushgrad.algorithms import PDGNDS
from hushgrad.errors import AlgorithmError
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.stepsizes import Auto, Schedule
from hushgrad.theory.auto import resolve
from hushgrad.theory.curvature import local_curvature
from hushgrad.theory.exposure import OwnNumbers, Setting, weaknesses
from hushgrad.theory.linear import linear_step
from hushgrad.theory.rates import iterations_to
from hushgrad.theory.stall import Expected
from hushgrad.theory.tight import lasting_rate, stalled

RULES = ("metropolis", "lazy_metropolis")


# of the deviation; with splits that are drawn once, ϱ/k² would stall the run
STILL: dict[str, Any] = {"ratio": 0.5, "drawn": "once"}
DIGITS = 3  # of a stepsize, rounded down: masks have a condition from above


@dataclass(frozen=True)
class Proposal:
    """A design with its cost and its exposure."""

    name: str
    algorithm: PDGNDS
    mixing: str
    table: Mapping[str, Any]  # the algorithm as a study has it
    iterations: float  # rounds to the tolerance
    is_bound: bool  # it may well take more rounds
    fits: bool  # within the rounds that were asked for
    exposed: tuple[str, ...]  # names and texts of weaknesses

    @property
    def tables(self) -> dict[str, Any]:
        """The tables of a study with this design."""
        return {"network": {"mixing": self.mixing}, "algorithm": [self.table]}

    def to_json(self) -> dict[str, Any]:
        schedule = self.algorithm.schedule
        return {
            "name": self.name,
            "mixing": self.mixing,
            "stepsize": schedule.limit,
            "deviation": repr(schedule.deviation),
            "split": repr(self.algorithm.splitting),
            "masks": repr(self.algorithm.masking),
            "study": self.tables,
            "iterations": self.iterations,
            "iterations_at_least": self.is_bound,
            "fits": self.fits,
            "exposed": list(self.exposed),
            "not_judged": [] if self.algorithm.masking is None else ["sums"],
        }


def propose(problem: Problem, network: Network, *, tolerance: float, rounds: int) -> list[Proposal]:
    """Designs from the most private to the fastest; those that fit the rounds come first."""
    if network.is_directed:
        raise AlgorithmError(
            "designs of PDG-NDS need links in both directions, but this network has links in one "
            "direction only. Give the graph both, or certify PushPull, AB or ADDOPT as they are."
        )
    designs: dict[str, dict[str, Any]] = {
        "recommended (masks, stages)": {"design": "recommended"},
        "private constant split": {"split": {"kind": "private_constant"}},
        "the paper's (fresh splits, ϱ/k²)": {},
    }
    found = [
        min(
            (_one(name, given, problem, Network(network.graph, rule), tolerance, rounds)
             for rule in RULES),
            key=lambda one: one.iterations,
        )
        for name, given in designs.items()
    ]  # fmt: skip
    return sorted(found, key=lambda one: not one.fits)


def _algorithm(given: Mapping[str, Any], stepsize: Schedule | Auto) -> PDGNDS:
    split = splits.private_constant() if "split" in given else None
    return PDGNDS(stepsize=stepsize, split=split, design=given.get("design", "paper"))


def _rounded(lam: float) -> float:
    """Down to some digits."""
    unit = 10.0 ** (math.floor(math.log10(lam)) + 1 - DIGITS)
    return float(f"{math.floor(lam / unit) * unit:.{DIGITS}g}")


def _one(
    name: str,
    given: Mapping[str, Any],
    problem: Problem,
    network: Network,
    tolerance: float,
    rounds: int,
) -> Proposal:
    _, choice = resolve(_algorithm(given, stepsizes.AUTO), problem, network)
    assert choice is not None  # the designs leave the stepsize open
    lam = _rounded(choice.schedule.limit)
    table: dict[str, Any] = {"kind": "constant", "value": lam}
    if given:
        table["deviation"] = {"kind": "geometric", **STILL}
    deviation = stepsizes.geometric(**STILL) if given else None
    chosen = _algorithm(given, stepsizes.constant(lam, deviation))
    trial = None if problem.n_trials is None else 0
    at = local_curvature(problem, trial)
    step = linear_step(chosen, at.hessians, network)
    assert step is not None  # PDG-NDS has a linear step
    linear = Expected(iterations_to(tolerance, lasting_rate(chosen, step, network, lam)))
    needed, is_bound = max(linear, stalled(chosen, step, problem, network, lam, tolerance, trial))
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
    return Proposal(
        name, chosen, network.mixing, {"name": "PDGNDS", **given, "stepsize": table},
        needed, is_bound, needed <= rounds, exposed,
    )  # fmt: skip
