"""The tight part of a certificate: rates that a run really has, near θ* or everywhere.

certificate.py makes lines of them, and the progress bar of a run takes its iterations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from hushgrad.algorithms import DGD, EXTRA, PDGDS, PDGNDS, Algorithm, AsynDGM, Consensus, Stepping
from hushgrad.mixing import Kind, Network
from hushgrad.problems import Problem
from hushgrad.splits import PrivateConstantSplit
from hushgrad.theory.asynchronous import pairing_rates
from hushgrad.theory.curvature import Floats, LocalCurvature, local_curvature, slopes_at_solution
from hushgrad.theory.linear import LinearStep, TwoStep, linear_step
from hushgrad.theory.mean_square import (
    drawn_steps,
    fluctuates,
    mean_square_radius,
    sampled_rates,
)
from hushgrad.theory.rates import DENSE_SIZE, iterations_to, spectral_radius, stable_range
from hushgrad.theory.series import shape_of
from hushgrad.theory.stall import Expected, stalled_iterations

type Fact = tuple[str, str, str]  # what it is about, the text, what it rests on

PAGE = "docs/certificates.md"
DRAWS = 8
MOST_SOLVED = 4000  # unknowns of DGD's bias
QUICK = 100  # numbers of a state whose mean square takes a tenth of a second


@dataclass
class Tight:
    """Numbers about a run, and the facts in words."""

    converges: bool | None = None
    radius: float | None = None
    mean_square: float | None = None
    largest: float | None = None
    fastest: float | None = None
    fastest_radius: float | None = None
    iterations: float | None = None
    is_bound: bool = False  # it may well take more iterations
    facts: list[Fact] = field(default_factory=list[Fact])

    def sentence(self, tolerance: float) -> str:
        """The end of a verdict."""
        if self.radius is None:
            return self.facts[0][1] if self.facts else "no tight rate is known"
        rate = f"spectral radius {self.radius:.6g}"
        if self.mean_square is not None:
            rate += f", mean square {self.mean_square:.6g}"
        if not self.converges:
            return f"{rate}: {'no linear rate' if self.converges is None else 'diverges'}"
        if self.iterations is None:
            return f"{rate}: converges"
        least = "at least " if self.is_bound else ""
        return f"{rate}: converges, {least}{math.ceil(self.iterations)} iterations to {tolerance:g}"


def tight(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    at: LocalCurvature,
    tolerance: float,
    trial: int | None = None,
) -> Tight:
    """The tight part for this algorithm, at the limit of its stepsize."""
    if isinstance(algorithm, Consensus):
        return _consensus(algorithm, network, tolerance)
    if not isinstance(algorithm, Stepping):
        return Tight()
    if isinstance(algorithm, PDGDS | DGD):
        return _diminishing(algorithm, problem, network, at, trial)
    lams = _limit(algorithm)
    if lams is None:
        return Tight(
            facts=[("tight rate", "the stepsize has no positive limit, so no linear rate", PAGE)]
        )
    lam = float(np.mean(lams))
    if isinstance(algorithm, AsynDGM):
        return _pairings(at, network, lam, tolerance)
    profile = None if lams.size == 1 else lams / lam
    step = linear_step(algorithm, at.hessians, network, profile)
    if step is None:
        return Tight(facts=[("tight rate", "the step of this method is not known", PAGE)])
    told = _linear(algorithm, step, network, lam, tolerance, at)
    if told.iterations is not None:
        held = stalled(algorithm, step, problem, network, lam, tolerance, trial)
        if told.iterations < held.iterations < math.inf:
            about = "at least about" if held.is_bound else "about"
            text = f"holds errors above {tolerance:g} for {about} {math.ceil(held.iterations)} "
            text += f"iterations, longer than the linear rate ({math.ceil(told.iterations)})"
            if held.is_bound:
                text += "; m·d is too large for the moments, a sampled run shows as much"
            told.facts.append(("deviation", text, f"{PAGE}, deviations"))
            told.iterations, told.is_bound = held.iterations, held.is_bound
    return told


def lasting_rate(algorithm: Stepping, step: LinearStep, network: Network, lam: float) -> float:
    """The rate of errors in the long run: with fresh splits that of the mean square."""
    rate = spectral_radius(step, lam).value
    if isinstance(algorithm, PDGNDS) and isinstance(step, TwoStep) and fluctuates(algorithm):
        rate = max(rate, mean_square_radius(algorithm, step, network, lam) or 0.0)
    return rate


def expected_iterations(
    algorithm: Algorithm, problem: Problem, network: Network, tolerance: float
) -> Expected | None:
    """Iterations until an error has fallen by the tolerance; None if that is not cheap to tell."""
    is_small = 2 * problem.n_agents * problem.dim <= DENSE_SIZE and problem.n_trials is None
    if not is_small or not isinstance(algorithm, Stepping):
        return None
    lams = _limit(algorithm)
    if lams is None or lams.size > 1:
        return None
    at, lam = local_curvature(problem), float(lams[0])
    step = linear_step(algorithm, at.hessians, network)
    if step is None:
        return None
    is_exact = step.size <= QUICK or not fluctuates(algorithm)
    mean = spectral_radius(step, lam).value
    rate = lasting_rate(algorithm, step, network, lam) if is_exact else mean
    needed = Expected(iterations_to(tolerance, rate), not is_exact)
    found = max(needed, stalled(algorithm, step, problem, network, lam, tolerance))
    return found if math.isfinite(found.iterations) else None


def stalled(
    algorithm: Stepping,
    step: LinearStep,
    problem: Problem,
    network: Network,
    lam: float,
    tolerance: float,
    trial: int | None = None,
) -> Expected:
    """Iterations to `tolerance`, in units of max(1, ‖θ*‖) as in runs, that the deviation costs."""
    slopes, theta = slopes_at_solution(problem, trial)
    unit = max(1.0, float(np.linalg.norm(theta)))
    return stalled_iterations(algorithm, step, network, slopes, lam, tolerance * unit)


def _limit(algorithm: Stepping) -> Floats | None:
    """λ of every agent for large k, (1,) or (m,); None: it tends to 0 or is not known."""
    shape = shape_of(algorithm.schedule)
    if shape is None or shape.power > 0:
        return None
    return np.atleast_1d(np.asarray(algorithm.schedule.base(1.0), np.float64)).ravel()


def _linear(
    algorithm: Algorithm,
    step: LinearStep,
    network: Network,
    lam: float,
    tolerance: float,
    at: LocalCurvature,
) -> Tight:
    where = "H_i are exact" if at.is_exact else "H_i at θ*: the linearisation there"
    here = spectral_radius(step, lam)
    told = Tight(radius=here.value)
    note = "" if here.is_settled else ", an estimate: Arnoldi's method did not settle"
    told.facts.append(
        (
            "spectral radius",
            f"{here.value:.6g} at λ = {lam:.4g}; {where}{note}",
            f"{PAGE}, tight rates",
        )
    )
    _add_range(told, step)
    if isinstance(algorithm, PDGNDS) and isinstance(step, TwoStep):
        _add_draws(told, algorithm, step, network, lam)
    rate = max(here.value, told.mean_square or 0.0)
    told.converges = rate < 1 - 1e-12 if rate < 1 - 1e-12 or rate > 1 + 1e-9 else None
    if told.converges:
        told.iterations = iterations_to(tolerance, rate)
        told.facts.append(
            (
                "iterations",
                f"{math.ceil(told.iterations)} to {tolerance:g} of an error",
                "log ε / log ρ",
            )
        )
    if isinstance(algorithm, PDGNDS | EXTRA) and np.ptp(step.profile) > 0:
        told.facts.append(
            (
                "fixed point",
                "stepsizes that differ for good solve Σ λ_i ∇f_i = 0, not Σ ∇f_i = 0",
                PAGE,
            )
        )
    return told


def _add_range(told: Tight, step: LinearStep) -> None:
    found = stable_range(step)
    if found is None:
        told.facts.append(("stable stepsizes", "none was found", f"{PAGE}, tight rates"))
        return
    told.largest, told.fastest, told.fastest_radius = found.largest, found.fastest, found.radius
    told.facts.append(
        (
            "largest stable stepsize",
            f"λ = {found.largest:.4g} for the mean step",
            f"{PAGE}, tight rates",
        )
    )
    told.facts.append(
        (
            "fastest stepsize",
            f"λ = {found.fastest:.4g} with the spectral radius {found.radius:.6g}",
            f"{PAGE}, tight rates",
        )
    )


def _add_draws(told: Tight, algorithm: PDGNDS, step: TwoStep, network: Network, lam: float) -> None:
    if fluctuates(algorithm):
        told.mean_square = mean_square_radius(algorithm, step, network, lam)
        cites = f"{PAGE}, fresh splits"
        if told.mean_square is not None:
            text = f"{told.mean_square:.6g}, the rate of the root mean square with fresh splits"
            told.facts.append(("mean square", text, cites))
        else:
            rate = float(sampled_rates(algorithm, step, network, np.array([lam]))[0])
            text = f"m·d is too large for the moments; a sampled run has the rate {rate:.4g}"
            told.facts.append(("mean square", text, cites))
        return
    is_kept = isinstance(algorithm.splitting, PrivateConstantSplit)
    if (is_kept or algorithm.masking is not None) and step.size <= 2000:
        drawn = drawn_steps(algorithm, step, network, lam, DRAWS)
        rates = [spectral_radius(one, lam).value for one in drawn]
        text = f"the spectral radius lies in {min(rates):.6g} … {max(rates):.6g} for {DRAWS} draws"
        told.facts.append(("splits and masks drawn once", text, f"{PAGE}, draws"))


# ---- methods without a linear step


def _consensus(algorithm: Consensus, network: Network, tolerance: float) -> Tight:
    eta = network.eta
    rounds = algorithm.rounds(eta, tolerance)
    rate = eta
    if algorithm.acceleration == "chebyshev":
        rate = eta / (1 + math.sqrt(1 - eta * eta))
    return Tight(
        converges=True,
        radius=rate,
        iterations=float(rounds),
        facts=[("rate", f"{rate:.6g} per round from η = {eta:.6g}", "Xiao & Boyd 2004; Chebyshev")],
    )


def _pairings(at: LocalCurvature, network: Network, lam: float, tolerance: float) -> Tight:
    rate = float(pairing_rates(at.hessians, network, np.array([lam]))[0])
    text = f"{rate:.6g} per iteration at λ = {lam:.4g}, from one sampled run of the linear step"
    told = Tight(converges=rate < 1, radius=rate, facts=[("sampled rate", text, f"{PAGE}, draws")])
    if rate < 1:
        told.iterations = iterations_to(tolerance, rate)
    return told


def _diminishing(
    algorithm: PDGDS | DGD,
    problem: Problem,
    network: Network,
    at: LocalCurvature,
    trial: int | None,
) -> Tight:
    shape = shape_of(algorithm.schedule)
    if shape is None:
        return Tight(facts=[("rate", "the limit of this stepsize is not known", PAGE)])
    if shape.power == 0:
        return _biased(problem, network, at, shape.scale, trial)
    if shape.power == 1:
        order = min(1.0, shape.scale * at.strong)
        text = f"sublinear: the error falls about as k^−{order:.3g}, with scale · σ = "
        text += f"{shape.scale * at.strong:.3g}"
    else:
        text = f"sublinear: the error falls at best as λ ~ k^−{shape.power:g}"
    return Tight(converges=None, facts=[("rate", text, f"{PAGE}, diminishing stepsizes")])


def _biased(
    problem: Problem, network: Network, at: LocalCurvature, lam: float, trial: int | None
) -> Tight:
    """x = Wx − λ(Hx + g*): a constant λ stops at a distance of order λ from θ*."""
    m, d = at.hessians.shape[:2]
    cites = "Nedić & Ozdaglar 2009; the fixed point of x = Wx − λg"
    if m * d > MOST_SOLVED:
        return Tight(facts=[("bias", "a constant stepsize stops at a distance of order λ", cites)])
    slope, _ = slopes_at_solution(problem, trial)
    W = np.kron(network.matrix(Kind.DOUBLY), np.eye(d))
    curve = np.zeros((m, d, m, d))
    curve[np.arange(m), :, np.arange(m), :] = at.hessians
    curve = curve.reshape(m * d, m * d)
    off = np.linalg.solve(np.eye(m * d) - W + lam * curve, -lam * slope.ravel()).reshape(m, d)
    rate = float(np.abs(np.linalg.eigvals(W - lam * curve)).max())
    largest = float(np.linalg.norm(off, axis=1).max())
    text = f"a constant stepsize ends {largest:.3g} off θ*, of order λ, at the rate {rate:.6g}"
    return Tight(converges=None, facts=[("bias", text, cites)])
