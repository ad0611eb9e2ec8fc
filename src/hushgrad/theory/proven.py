"""The theorems that may cover a run, with each of their conditions decided.

Theorem 1 covers PDG-DS and DGD, Theorem 3 the paper's form of PDG-NDS. The conditions E and S of
`hushgrad.theory.lazy` cover the lazy form and EXTRA. A theorem is about the f_i themselves, so runs
in stages and runs with quadratic masks, whose agents compute with other functions, stay open.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hushgrad.algorithms import DGD, EXTRA, PDGDS, PDGNDS, Algorithm, Stepping
from hushgrad.algorithms.base import Private
from hushgrad.mixing import Kind, Network
from hushgrad.splits import FreshSplit, IdentitySplit, PrivateConstantSplit
from hushgrad.theory.assumptions import MOST_EIGENVALUES, LossFacts, MixingFacts
from hushgrad.theory.lazy import extra_bound, largest_by_gain, loop_gain
from hushgrad.theory.series import shape_of, theorem_1_series, theorem_3_series
from hushgrad.theory.theorem3 import inequalities, largest_stepsize

type Condition = tuple[str, bool | None, str]  # what it is about, whether it holds, why

PAGE = "docs/certificates.md"


@dataclass(frozen=True)
class Proof:
    """A theorem with its conditions at a run."""

    name: str
    cites: str
    conclusion: str
    conditions: tuple[Condition, ...]
    assumed: tuple[bool | None, ...]  # Assumptions 1 and 2, which have lines of their own
    missed: str = ""  # in words, if an inequality fails

    @property
    def is_proven(self) -> bool:
        return all(holds is True for _, holds, _ in self.conditions) and all(
            holds is True for holds in self.assumed
        )


def proofs(
    algorithm: Algorithm,
    network: Network,
    mixing: MixingFacts,
    losses: LossFacts,
) -> Iterator[Proof]:
    """Every theorem that is about this algorithm."""
    if not isinstance(algorithm, Stepping):
        return
    if isinstance(algorithm, PDGDS | DGD):
        yield _theorem_1(algorithm, network, mixing, losses)
    elif isinstance(algorithm, PDGNDS) and algorithm.form == "square":
        yield _theorem_3(algorithm, network, mixing, losses)
    elif isinstance(algorithm, PDGNDS | EXTRA):
        yield from _lazy(algorithm, network, mixing, losses)


def _objective(algorithm: Stepping) -> Iterator[Condition]:
    """The obstacle between a theorem and the functions with which agents really compute."""
    if not isinstance(algorithm, Private):
        return
    if algorithm.masking is not None and algorithm.masking.quadratic != 0:
        yield (
            "masks",
            None,
            "agents compute with f_i + ½θᵀQ_iθ, which need not be convex: the theorem is about f_i",
        )
    elif algorithm.stages or (algorithm.stages is None and algorithm.design == "recommended"):
        yield "stages", None, "stages compute with models of f_i: the theorem is about f_i"
    if not isinstance(algorithm.splitting, FreshSplit | IdentitySplit | PrivateConstantSplit):
        yield (
            "split",
            None,
            "B has random vectors as shares, not nonnegative weights: the theorem is about weights",
        )


def _theorem_1(
    algorithm: PDGDS | DGD, network: Network, mixing: MixingFacts, losses: LossFacts
) -> Proof:
    answers = theorem_1_series(algorithm.schedule, network.n_agents)
    conditions = [(a.condition, a.holds, a.reason) for a in answers]
    failed = [a.condition for a in answers if a.holds is False]
    return Proof(
        "Theorem 1",
        "Wang & Nedić, Theorem 1" + ("" if isinstance(algorithm, PDGDS) else " with B = I"),
        "all x_i converge to one θ*",
        (*conditions, *_objective(algorithm)),
        (mixing.holds, losses.holds),
        f"Theorem 1's condition not met ({', '.join(failed)})" if failed else "",
    )


def _theorem_3(
    algorithm: PDGNDS, network: Network, mixing: MixingFacts, losses: LossFacts
) -> Proof:
    answers = theorem_3_series(algorithm.schedule, network.n_agents)
    conditions = [(a.condition, a.holds, a.reason) for a in answers]
    conditions += _objective(algorithm)
    missed = ""
    shape, m = shape_of(algorithm.schedule), network.n_agents
    if shape is None:
        conditions.append(("inequalities", None, "the limit of this stepsize is not known"))
    elif mixing.eta is not None and mixing.r is not None:
        lam = shape.scale if shape.power == 0 else 0.0
        facts = {"L": losses.L, "m": m, "eta": mixing.eta, "r": mixing.r}
        found = inequalities(lam, **facts)  # type: ignore[arg-type]  # the names and types fit
        largest = largest_stepsize(**facts)  # type: ignore[arg-type]  # the same
        values = ", ".join(
            f"({n}) {value:.3g}".replace("inf", "∞")
            for n, value in zip(["i", "ii", "iii", "iv"], found.margins, strict=True)
        )
        text = (
            f"λ = {lam:.4g} with δ = {found.delta:.3g}, c = {found.c:.3g}: left over right "
            f"{values}; they hold up to λ = {largest:.4g}"
        )
        conditions.append(("inequalities", found.hold, text))
        if not found.hold:
            missed = f"sufficient condition not met (by the factor {lam / largest:.3g})"
    return Proof(
        "Theorem 3",
        "Wang & Nedić, Theorem 3, corrected",
        "∇F(x̄) and all disagreements vanish, and F(x_i) → F(θ*) if x̄ stays bounded",
        tuple(conditions),
        (mixing.holds, losses.holds),
        missed,
    )


def _lazy(
    algorithm: PDGNDS | EXTRA,
    network: Network,
    mixing: MixingFacts,
    losses: LossFacts,
) -> Iterator[Proof]:
    shape = shape_of(algorithm.schedule)
    if shape is None or mixing.smallest is None:
        yield _open("condition S", "the limit of this stepsize is not known")
        return
    lam, smallest = shape.scale, (1 + mixing.smallest) / 2
    common = list(_objective(algorithm))
    if shape.power > 0:
        common.append(("lim λ > 0", False, "λ tends to 0, and the conditions are about a limit λ"))
    if shape.differs and network.n_agents > 1:
        common.append(
            (
                "equal λ",
                False,
                "stepsizes that differ for good solve Σ λ_i ∇f_i = 0, not Σ ∇f_i = 0",
            )
        )
    is_whole = isinstance(algorithm, EXTRA) or isinstance(algorithm.splitting, IdentitySplit)
    if not is_whole:
        yield _small_gain(lam, common, network, mixing, losses)
        return
    deviation = theorem_1_series(algorithm.schedule, network.n_agents)[2]
    spread: Condition = (deviation.condition, deviation.holds, deviation.reason)
    bound = extra_bound(losses.L, smallest)
    formula = "(1 + 3μ_m)/(2L)"
    holds = lam < bound
    yield Proof(
        "condition E",
        f"{PAGE}, condition E",
        "all x_i converge to one θ*",
        (
            (f"λ < {formula}", holds, f"λ = {lam:.4g}, and {formula} = {bound:.4g}"),
            spread,
            *common,
        ),
        (mixing.holds, losses.holds),
        "" if holds else f"sufficient condition not met (by the factor {lam / bound:.3g})",
    )


def _small_gain(
    lam: float,
    common: list[Condition],
    network: Network,
    mixing: MixingFacts,
    losses: LossFacts,
) -> Proof:
    m, strong = network.n_agents, losses.strong
    if m > MOST_EIGENVALUES:
        return _open("condition S", f"W has {m} eigenvalues, more than {MOST_EIGENVALUES}")
    if not strong:
        lack = "F is not known to be strongly convex" if strong is None else "σ = 0"
        return _open("condition S", lack)
    mu = (1 + np.linalg.eigvalsh(network.matrix(Kind.SYMMETRIC))[:-1]) / 2
    gain = loop_gain(lam, L=losses.L, strong=strong, mu=mu, m=m)
    largest = largest_by_gain(L=losses.L, strong=strong, mu=mu, m=m)
    holds = gain < 1
    size = (
        f"loop gain {gain:.3g}"
        if math.isfinite(gain)
        else "no loop gain: 1 − λσ/2 ≤ √μ₂ or λ > 2/(L + σ)"
    )
    text = f"{size} at λ = {lam:.4g}, σ = {strong:.4g}; below 1 up to λ = {largest:.4g}"
    factor = f"by the factor {lam / largest:.3g}" if largest else "at any stepsize"
    return Proof(
        "condition S",
        f"{PAGE}, condition S",
        f"errors fall at least as fast as {1 - lam * strong / 2:.6g}^k beside the deviations",
        (("loop gain < 1", holds, text), *common),
        (mixing.holds, losses.holds),
        "" if holds else f"sufficient condition not met ({factor})",
    )


def _open(name: str, reason: str) -> Proof:
    return Proof(name, f"{PAGE}, {name}", "", ((name, None, reason),), (None,), "")
