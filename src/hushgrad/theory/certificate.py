"""`hg.certify`: what is proven about a run, what is tight, and what the stepsize should be.

A certificate is a list of lines. Each has the theorem or formula that it rests on, and a status:
`holds`, `fails`, `open` for what nobody decided, or `fact` for a number. Only conditions that hold
make a certificate say "proven".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hushgrad.algorithms import Algorithm
from hushgrad.errors import AlgorithmError, ProblemError
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.theory.assumptions import LossFacts, MixingFacts, loss_facts, mixing_facts
from hushgrad.theory.auto import Choice, resolve
from hushgrad.theory.curvature import local_curvature
from hushgrad.theory.proven import Proof, proofs
from hushgrad.theory.tight import Tight, tight

type Status = Literal["holds", "fails", "open", "fact"]

TOLERANCE = 1e-6


@dataclass(frozen=True)
class CertificateLine:
    """One statement of a certificate."""

    about: str  # such as "Assumption 1"
    status: Status
    text: str
    cites: str  # the theorem or formula that it rests on


@dataclass(frozen=True)
class RunCertificate:
    """The facts about an algorithm on a problem and a network before it runs."""

    label: str  # of the algorithm
    lines: tuple[CertificateLine, ...]
    is_proven: bool  # a theorem's conditions all hold
    converges: bool | None  # by the tight check; None: it has no answer
    radius: float | None  # ρ of the mean step: errors shrink by it per iteration
    mean_square: float | None  # the rate of the root mean square with fresh splits
    largest: float | None  # stable stepsize
    fastest: float | None  # stepsize
    fastest_radius: float | None
    iterations: float | None  # until an error has fallen by the tolerance
    is_bound: bool  # it may well take more iterations
    tolerance: float
    verdict: str

    def to_json(self) -> dict[str, Any]:
        """The certificate as JSON has it."""
        return {
            "algorithm": self.label,
            "verdict": self.verdict,
            "proven": self.is_proven,
            "converges": self.converges,
            "spectral_radius": self.radius,
            "mean_square_radius": self.mean_square,
            "largest_stable_stepsize": self.largest,
            "fastest_stepsize": self.fastest,
            "fastest_radius": self.fastest_radius,
            "tolerance": self.tolerance,
            "iterations": self.iterations,
            "iterations_at_least": self.is_bound,
            "lines": [
                {"about": line.about, "status": line.status, "text": line.text, "cites": line.cites}
                for line in self.lines
            ],
        }

    def __str__(self) -> str:
        rows = [f"{self.label}: {self.verdict}"]
        rows += [
            f"  {line.status:5} {line.about}: {line.text} [{line.cites}]" for line in self.lines
        ]
        return "\n".join(rows)


def certify(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    tolerance: float = TOLERANCE,
    trial: int | None = None,
) -> RunCertificate:
    """Check the theorems' conditions and compute the tight rate of a run.

    tolerance    iterations are counted until an error has fallen by this factor
    trial        the trial whose problem counts, if every trial has its own; by default the first

    With stepsize="auto" the certificate is about the stepsize that "auto" stands for.
    """
    _check(algorithm, problem, network, tolerance)
    algorithm = algorithm.on(network)
    algorithm.check(network)
    algorithm, choice = resolve(algorithm, problem, network)
    if problem.n_trials is not None and trial is None:
        trial = 0
    at = local_curvature(problem, trial)
    mixing, losses = mixing_facts(network), loss_facts(problem, at, trial)
    found = list(proofs(algorithm, network, mixing, losses))
    told = tight(algorithm, problem, network, at, tolerance, trial)
    lines = tuple(_lines(mixing, losses, choice, found, told))
    is_proven = any(proof.is_proven for proof in found)
    return RunCertificate(
        label=algorithm.label,
        lines=lines,
        is_proven=is_proven,
        converges=told.converges,
        radius=told.radius,
        mean_square=told.mean_square,
        largest=told.largest,
        fastest=told.fastest,
        fastest_radius=told.fastest_radius,
        iterations=told.iterations,
        is_bound=told.is_bound,
        tolerance=tolerance,
        verdict=_verdict(found, told, tolerance),
    )


def _check(algorithm: object, problem: Problem, network: Network, tolerance: float) -> None:
    if not isinstance(algorithm, Algorithm):
        raise AlgorithmError(
            f"a certificate is about an algorithm, but got {algorithm!r}. Write hg.PDGNDS()."
        )
    if problem.n_agents != network.n_agents:
        raise ProblemError(
            f"problem and network have the same agents, but the problem has {problem.n_agents} and "
            f"the network {network.n_agents}. Give both the same n_agents."
        )
    if not 0 < tolerance < 1:
        raise AlgorithmError(
            f"a tolerance lies between 0 and 1, but tolerance = {tolerance!r}. Give a factor such "
            "as 1e-6."
        )


def _lines(
    mixing: MixingFacts,
    losses: LossFacts,
    choice: Choice | None,
    found: list[Proof],
    told: Tight,
) -> Iterator[CertificateLine]:
    if choice is not None:
        yield CertificateLine('stepsize = "auto"', "fact", choice.summary, "docs/certificates.md")
    yield CertificateLine(
        "Assumption 1", _status(mixing.holds), mixing.reason, "Wang & Nedić, Assumption 1"
    )
    yield CertificateLine(
        "Assumption 2", _status(losses.holds), losses.reason, "Wang & Nedić, Assumption 2"
    )
    for proof in found:
        for about, holds, text in proof.conditions:
            yield CertificateLine(about, _status(holds), text, proof.cites)
    for about, text, cites in told.facts:
        yield CertificateLine(about, "fact", text, cites)


def _status(holds: bool | None) -> Status:
    return "open" if holds is None else "holds" if holds else "fails"


def _verdict(found: list[Proof], told: Tight, tolerance: float) -> str:
    proven = [proof for proof in found if proof.is_proven]
    if proven:
        first = f"proven by {proven[0].name}: {proven[0].conclusion}"
    else:
        missed = [proof.missed for proof in found if proof.missed]
        first = missed[0] if missed else "no theorem applies"
    return f"{first}; {told.sentence(tolerance)}"
