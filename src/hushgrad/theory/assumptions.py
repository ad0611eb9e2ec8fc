"""Assumptions 1 and 2 of Wang & Nedić for a network and a problem, each with its source.

Built-in problems state exact facts about themselves. Of a user's loss one can only see samples:
they may refute convexity or a stated L, and never prove them. proven.py and certificate.py take the
facts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrad.errors import HushgradError, optional
from hushgrad.mixing import Kind, Network
from hushgrad.problems import Problem
from hushgrad.theory.curvature import LocalCurvature

SAMPLES = 12  # points at which the Hessians of a user's loss are looked at
MOST_SAMPLED = 200  # agents whose Hessians are sampled
MOST_EIGENVALUES = 2000  # agents up to which all eigenvalues of W are computed


@dataclass(frozen=True, eq=False)
class MixingFacts:
    """Assumption 1: W doubly stochastic, η < 1, r = ‖W − I‖."""

    holds: bool
    reason: str
    eta: float | None = None
    r: float | None = None
    smallest: float | None = None  # the smallest eigenvalue of W, if W is symmetric


def mixing_facts(network: Network) -> MixingFacts:
    shortfall = network.shortfall(Kind.DOUBLY)
    if shortfall is not None:
        return MixingFacts(False, f"W is not doubly stochastic: {shortfall}")
    eta = network.eta if network.n_agents > 1 else 0.0
    smallest = network.smallest_eigenvalue if network.is_symmetric else None
    r = 1.0 - smallest if smallest is not None else _distance_from_identity(network)
    said = f"W is doubly stochastic, η = {eta:.6g}, r = ‖W − I‖ = {r:.6g}"
    return MixingFacts(eta < 1, said, eta, r, smallest)


def _distance_from_identity(network: Network) -> float:
    if network.n_agents <= MOST_EIGENVALUES:
        return float(np.linalg.norm(network.matrix(Kind.DOUBLY) - np.eye(network.n_agents), 2))
    weights = network.weights(Kind.DOUBLY)
    sparse = optional("scipy.sparse", "sim")
    apart = network.graph.to_scipy(weights.links) + sparse.diags_array(weights.own - 1.0)
    found = optional("scipy.sparse.linalg", "sim").svds(apart, k=1, return_singular_vectors=False)
    return float(found[0])


@dataclass(frozen=True)
class LossFacts:
    """Assumption 2: every f_i convex and L-smooth; σ of F where it is known at every θ."""

    holds: bool | None  # None: samples do not refute it
    reason: str
    L: float
    strong: float | None  # a lower bound of σ at every θ; None: not known


def loss_facts(problem: Problem, at: LocalCurvature, trial: int | None = None) -> LossFacts:
    L = max(problem.smoothness(), at.largest)
    strong = _strong(problem, at)
    if is_built_in(problem):
        kind = "quadratic" if problem.is_quadratic else "convex"
        said = f"every f_i is {kind}, and L = {L:.6g} bounds its curvature at every θ"
        return LossFacts(True, f"{said} ({problem.name})", L, strong)
    lowest, highest, n = _sampled(problem, at, trial)
    seen = max(L, highest)
    if lowest < -1e-9 * max(seen, 1e-300):
        said = f"an f_i is not convex: its Hessian has the eigenvalue {lowest:.3g} at a sample"
        return LossFacts(False, said, seen, None)
    said = (
        f"not refuted: in {n} sampled Hessians no eigenvalue is negative and the largest is "
        f"{highest:.6g}, a lower bound of L; L = {seen:.6g} is used"
    )
    return LossFacts(None, said, seen, strong)


def is_built_in(problem: Problem) -> bool:
    """Whether the loss is one of `hushgrad.problems`, whose constants are known."""
    return str(getattr(problem.loss, "__module__", "")).startswith("hushgrad.problems.")


def _strong(problem: Problem, at: LocalCurvature) -> float | None:
    try:
        return problem.strong_convexity()
    except HushgradError:
        return at.strong if problem.is_quadratic else None


def _sampled(problem: Problem, at: LocalCurvature, trial: int | None) -> tuple[float, float, int]:
    """The smallest and the largest eigenvalue of Hessians around θ*, and how many were seen."""
    solution = np.atleast_2d(problem.solution())[0]
    rng = np.random.default_rng(0)
    scale = max(1.0, float(np.linalg.norm(solution)))
    low, high, n = float(at.extremes.min()), float(at.extremes.max()), len(at.hessians)
    for i in range(min(problem.n_agents, MOST_SAMPLED)):
        curve = problem.local_curvature(i, trial)
        for k in range(SAMPLES):
            theta = solution + rng.normal(size=problem.dim) * scale * 4.0 ** (k / 4 - 1)
            values = np.linalg.eigvalsh(curve(theta, theta))
            low, high, n = min(low, float(values[0])), max(high, float(values[-1])), n + 1
    return low, high, n
