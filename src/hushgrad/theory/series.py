"""The series of Theorems 1 and 3, decided from the formulas of schedules and deviations.

A schedule of the library is base(n) ~ scale · n^−p and a deviation has the spread a_n. All series
are then p-series, geometric series or finite sums, so each is decided, with the reason. A schedule
or deviation of a user's own class is not decided: finitely many terms prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hushgrad.stepsizes import (
    Bursts,
    Constant,
    Deviation,
    Diminishing,
    Geometric,
    Harmonic,
    NoDeviation,
    Schedule,
)

type Decided = bool | None  # None: not decided


@dataclass(frozen=True)
class SeriesAnswer:
    """Whether a series is as a theorem asks, and why."""

    condition: str  # such as Σ λ = ∞
    holds: Decided
    reason: str


class Shape(NamedTuple):
    """λ_i^n = scale (n + offset)^−power · factor, and the spread of the factor."""

    scale: float  # the mean over agents
    power: float
    offset: float
    differs: bool  # the base differs between agents
    deviation: Deviation


def shape_of(schedule: Schedule) -> Shape | None:
    """The formula of a schedule; None for a class that is not the library's."""
    deviation = NoDeviation() if schedule.deviation is None else schedule.deviation
    if type(deviation) not in (NoDeviation, Harmonic, Geometric, Bursts):
        return None
    if type(schedule) is Constant:
        value = np.atleast_1d(np.asarray(schedule.value, np.float64))
        return Shape(float(value.mean()), 0.0, 0.0, bool(np.ptp(value) > 0), deviation)
    if type(schedule) is Diminishing:
        return Shape(schedule.scale, schedule.power, schedule.offset, False, deviation)
    return None


def theorem_1_series(schedule: Schedule, n_agents: int) -> tuple[SeriesAnswer, ...]:
    """Σ λ = ∞, Σ λ² < ∞ and Σ |λ_i − λ_j| < ∞ (Theorem 1)."""
    shape = shape_of(schedule)
    wanted = ("Σ λ = ∞", "Σ λ² < ∞", "Σ |λ_i − λ_j| < ∞")
    if shape is None:
        return tuple(SeriesAnswer(text, None, _UNKNOWN) for text in wanted)
    p = shape.power
    sums = f"λ ~ {shape.scale:.3g} n^−{p:g}"
    answers = (
        (p <= 1, f"{sums}, and p = {p:g} {'≤' if p <= 1 else '>'} 1"),
        (
            2 * p > 1,
            f"{sums}, and 2p = {2 * p:g} {'>' if 2 * p > 1 else '≤'} 1"
            + (f"; the sum is at most {_squares(shape):.3g}" if 2 * p > 1 else ""),
        ),
        _heterogeneity(shape, n_agents, lambda power: p + power, "|λ_i − λ_j|"),
    )
    return tuple(
        SeriesAnswer(text, holds, reason)
        for text, (holds, reason) in zip(wanted, answers, strict=True)
    )


def theorem_3_series(schedule: Schedule, n_agents: int) -> tuple[SeriesAnswer, ...]:
    """Σ λ̄ = ∞, Σ ‖λ⁺ − λ‖² < ∞, Σ ‖λ − λ̄1‖²/λ̄ < ∞ and lim λ̄ > 0 (Theorem 3)."""
    shape = shape_of(schedule)
    wanted = ("Σ λ̄ = ∞", "Σ ‖λ^{k+1} − λ^k‖² < ∞", "Σ ‖λ − λ̄1‖²/λ̄ < ∞", "lim λ̄ > 0")
    if shape is None:
        return tuple(SeriesAnswer(text, None, _UNKNOWN) for text in wanted)
    p = shape.power
    limit = "λ is constant up to its deviation" if p == 0 else f"λ ~ n^−{p:g} tends to 0"
    answers = (
        (p <= 1, f"λ̄ ~ {shape.scale:.3g} n^−{p:g}, and p = {p:g} {'≤' if p <= 1 else '>'} 1"),
        _changes(shape),
        _heterogeneity(shape, n_agents, lambda power: p + 2 * power, "‖λ − λ̄1‖²/λ̄"),
        (p == 0, limit),
    )
    return tuple(
        SeriesAnswer(text, holds, reason)
        for text, (holds, reason) in zip(wanted, answers, strict=True)
    )


_UNKNOWN = "the class of this stepsize is not the library's, and finitely many terms prove nothing"


def _squares(shape: Shape) -> float:
    """Σ scale² (n + offset)^−2p ≤ first term + integral; deviations only make terms smaller."""
    s, first = 2 * shape.power, 1.0 + shape.offset
    burst = (1 + shape.deviation.size) ** 2 if isinstance(shape.deviation, Bursts) else 1.0
    return max(burst, 1.0) * shape.scale**2 * (first**-s + first ** (1 - s) / (s - 1))


def _heterogeneity(
    shape: Shape, n_agents: int, exponent: Callable[[float], float], term: str
) -> tuple[bool, str]:
    """Whether the sum of a term is finite that falls as n^−exponent(q) if the spread is n^−q."""
    if n_agents == 1:
        return True, "there is one agent"
    if shape.differs and shape.power <= 1:
        return False, f"{term} does not vanish: the stepsizes of the agents differ for good"
    match shape.deviation:
        case NoDeviation():
            return True, "all agents have the same stepsize"
        case Bursts(count=count, within=within):
            return True, f"at most {count} terms per agent differ from 0, in the first {within}"
        case Geometric(ratio=ratio):
            return True, f"{term} ≤ C {ratio:g}^n, a geometric series"
        case Harmonic(power=q):
            total = exponent(q)
            return total > 1, f"{term} ~ n^−{total:g}, and {total:g} {'>' if total > 1 else '≤'} 1"
        case _:
            raise AssertionError("shape_of knows the deviations")


def _changes(shape: Shape) -> tuple[bool, str]:
    """Σ ‖λ^{k+1} − λ^k‖²: the base changes as n^−(p+1), a fresh deviation by its spread."""
    p = shape.power
    match shape.deviation:
        case Harmonic(power=q, drawn="each"):
            total = 2 * (p + q)
            reason = f"fresh draws change λ by n^−{p + q:g}, whose squares sum"
            if total > 1:
                return True, f"{reason}: {total:g} > 1"
            return False, f"{reason} to infinity: {total:g} ≤ 1"
        case Harmonic():
            return True, "a deviation drawn once changes as n^−(1+q), whose squares sum"
        case Geometric(ratio=ratio):
            return True, f"changes are at most C {ratio:g}^n beside the base's, which sum"
        case Bursts(count=count):
            return True, f"{count} bursts make finitely many changes, and the base's sum"
        case _:
            return True, "the base changes as n^−(1+p), or not at all"
