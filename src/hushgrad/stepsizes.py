"""Stepsize schedules λ_i^k and private deviations from them, for users and algorithms.

Schedules see n = k + 1, so step k = 0 uses the paper's 1/1. A schedule is public. Its deviation is
the agent's secret: λ_i^k = base(n) · factor(ϱ_i^k, n) with ϱ uniform in (0, 1].

Theorem 1 (PDG-DS) asks, for every agent, Σ λ = ∞ and Σ λ² < ∞, and Σ |λ_i − λ_j| < ∞. The method
`theorem_1` names the conditions that a schedule fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, Self

from hushgrad.draws import Stream
from hushgrad.errors import StepsizeError

type Drawn = Literal["each", "once"]
type Auto = Literal["auto"]  # a stepsize that `hg.run` chooses

AUTO: Auto = "auto"


def _power(base: Any, exponent: float) -> Any:
    """Base ** exponent. A whole exponent that is known now is computed by products."""
    known = isinstance(exponent, float) and exponent.is_integer()
    return base ** (int(exponent) if known else exponent)


def _check(holds: bool, rule: str, name: str, value: object, way_out: str) -> None:
    if not holds:
        raise StepsizeError(f"{rule}, but {name} = {value!r}. {way_out}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


# ---- deviations


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """The departure of an agent's stepsize from the public schedule. Subclasses give the factor."""

    drawn: Drawn = "each"  # a fresh ϱ in each iteration, or one for the run

    def __post_init__(self) -> None:
        _check(
            self.drawn in ("each", "once"),
            "a deviation is drawn in each iteration or once",
            "drawn",
            self.drawn,
            'Use drawn="each" or drawn="once".',
        )

    def factor(self, agent: Any) -> Any:
        """λ / base, (agents, 1, trials) or a plain 1."""
        raise NotImplementedError

    def spread(self, n: Any) -> Any:
        """a_n of a factor 1 − ϱ a_n: the largest deviation in iteration n; 0 for none."""
        return 0.0 * n

    def is_summable_with(self, power: float) -> bool:
        """Whether Σ_n n^−power · (spread of the factor) is finite."""
        raise NotImplementedError

    def _rho(self, agent: Any) -> Any:
        return agent.uniform(Stream.STEPSIZE, once=self.drawn == "once")


@dataclass(frozen=True, kw_only=True)
class NoDeviation(Deviation):
    def factor(self, agent: Any) -> Any:
        del agent
        return 1.0

    def is_summable_with(self, power: float) -> bool:
        del power
        return True


@dataclass(frozen=True, kw_only=True)
class Harmonic(Deviation):
    """1 − ϱ / n^power. The paper uses power 2."""

    power: float = 2.0

    def factor(self, agent: Any) -> Any:
        return 1.0 - self._rho(agent) / _power(agent.k + 1.0, self.power)

    def spread(self, n: Any) -> Any:
        return 1.0 / _power(n, self.power)

    def is_summable_with(self, power: float) -> bool:
        return power + self.power > 1.0


@dataclass(frozen=True, kw_only=True)
class Geometric(Deviation):
    """1 − ϱ · ratio^n. The factor meets both theorems and does not stall the last digits."""

    ratio: float

    def factor(self, agent: Any) -> Any:
        return 1.0 - self._rho(agent) * self.ratio ** (agent.k + 1.0)

    def spread(self, n: Any) -> Any:
        return self.ratio**n

    def is_summable_with(self, power: float) -> bool:
        del power
        return True


@dataclass(frozen=True, kw_only=True)
class Bursts(Deviation):
    """1 + size · ϱ in `count` of the first `within` iterations, which an agent picks in secret."""

    count: int
    size: float
    within: float = 1000.0  # a whole number

    def factor(self, agent: Any) -> Any:
        hit = 0.0
        for slot in range(1, self.count + 1):
            when = agent.xp.ceil(agent.uniform(Stream.STEPSIZE, slot=slot, once=True) * self.within)
            hit = agent.xp.maximum(hit, 1.0 * (when == agent.k + 1.0))
        return 1.0 + self.size * hit * self._rho(agent)

    def is_summable_with(self, power: float) -> bool:
        del power
        return True


def none() -> Deviation:
    """Every agent follows the public schedule."""
    return NoDeviation()


def harmonic(power: float = 2.0, *, drawn: Drawn = "each") -> Deviation:
    """The paper's 1 − ϱ/k^power."""
    _check(
        _is_number(power) and power > 0,
        "a harmonic deviation decays as 1/n^power with power > 0",
        "power",
        power,
        "The paper uses power=2.",
    )
    return Harmonic(power=float(power), drawn=drawn)


def geometric(ratio: float, *, drawn: Drawn = "each") -> Deviation:
    """1 − ϱ·ratio^k."""
    _check(
        _is_number(ratio) and 0 < ratio < 1,
        "a geometric deviation decays by a ratio in (0, 1)",
        "ratio",
        ratio,
        "Try 0.95.",
    )
    return Geometric(ratio=float(ratio), drawn=drawn)


def bursts(count: int, size: float, *, within: int = 1000, drawn: Drawn = "each") -> Deviation:
    """Finitely many large deviations at secret times."""
    _check(
        isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= within,
        "at least one and at most `within` iterations have a burst",
        "count",
        count,
        f"Choose a count from 1 to within={within}.",
    )
    _check(
        _is_number(size) and size >= -1,
        "stepsizes stay nonnegative, so a burst multiplies by 1 + size·ϱ with size ≥ −1",
        "size",
        size,
        "Choose size ≥ −1.",
    )
    return Bursts(count=count, size=float(size), within=float(within), drawn=drawn)


# ---- schedules


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A public base and a private deviation. A call with the agent gives λ^k."""

    deviation: Deviation | None = None  # None: the algorithm's default

    def __post_init__(self) -> None:
        _check(
            self.deviation is None or isinstance(self.deviation, Deviation),
            "deviation is one of hg.stepsizes.none, harmonic, geometric, bursts",
            "deviation",
            self.deviation,
            "For example deviation=hg.stepsizes.geometric(0.95).",
        )

    def base(self, n: Any) -> Any:
        raise NotImplementedError

    @property
    def decay(self) -> float:
        """The power p of base(n) ~ n^−p."""
        raise NotImplementedError

    @property
    def limit(self) -> float:
        """The limit of base(n)."""
        raise NotImplementedError

    def deviating(self, default: Deviation) -> Self:
        """This schedule, with `default` as its deviation if the user chose none."""
        return replace(self, deviation=default) if self.deviation is None else self

    def __call__(self, agent: Any) -> Any:
        base = self._base_of(agent)
        return base if self.deviation is None else base * self.deviation.factor(agent)

    def _base_of(self, agent: Any) -> Any:
        return self.base(agent.k + 1.0)

    def of(self, number: int) -> Schedule:
        """The schedule of one agent, where they differ."""
        del number
        return self

    def check_agents(self, n_agents: int, owner: str) -> None:
        """Refuse a network for which the schedule has too few or too many stepsizes."""
        del n_agents, owner

    def theorem_1(self) -> tuple[str, ...]:
        """The conditions of Theorem 1 that this schedule fails; empty if all hold.

        >>> diminishing().theorem_1()
        ()
        >>> constant(0.02).theorem_1()
        ('Σ λ² = ∞',)
        """
        spread = (self.deviation or NoDeviation()).is_summable_with(self.decay)
        fails = (
            (self.decay > 1, "Σ λ < ∞"),
            (self.decay <= 0.5, "Σ λ² = ∞"),
            (not spread, "Σ |λ_i − λ_j| = ∞"),
        )
        return tuple(text for failed, text in fails if failed)


@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """λ = value."""

    value: float

    def base(self, n: Any) -> Any:
        del n
        return self.value

    @property
    def decay(self) -> float:
        return 0.0

    @property
    def limit(self) -> float:
        return self.value


@dataclass(frozen=True, kw_only=True)
class ConstantEach(Schedule):
    """λ_i = values[i]: every agent has a constant of its own, and all are public.

    `base` and `limit` are the largest one, from which the sizes of masks follow.
    """

    values: tuple[float, ...]  # in the order of the agents' numbers

    def base(self, n: Any) -> Any:
        del n
        return max(self.values)

    def _base_of(self, agent: Any) -> Any:
        return agent.each(self.values)

    def of(self, number: int) -> Schedule:
        return Constant(value=self.values[number], deviation=self.deviation)

    def check_agents(self, n_agents: int, owner: str) -> None:
        _check(
            len(self.values) == n_agents,
            f"{owner} has one stepsize for all agents, or one for each of the {n_agents}",
            "the number of values",
            len(self.values),
            "Give hg.stepsizes.constant one number, or as many as there are agents.",
        )

    @property
    def is_equal(self) -> bool:
        return len(set(self.values)) == 1

    @property
    def decay(self) -> float:
        return 0.0

    @property
    def limit(self) -> float:
        return max(self.values)


@dataclass(frozen=True, kw_only=True)
class Diminishing(Schedule):
    """λ = scale / (n + offset)^power."""

    scale: float = 1.0
    power: float = 1.0
    offset: float = 0.0

    def base(self, n: Any) -> Any:
        return self.scale / _power(n + self.offset, self.power)

    @property
    def decay(self) -> float:
        return self.power

    @property
    def limit(self) -> float:
        return 0.0


def constant(value: float | Sequence[float], deviation: Deviation | None = None) -> Schedule:
    """λ = value in every iteration; a list has one value for each agent, by their numbers."""
    way_out = "About 1/L suits most methods, with L the largest curvature (problem.smoothness())."
    rule = "a stepsize is positive and finite"
    if isinstance(value, str) or not isinstance(value, Iterable):
        number: Any = value
        _check(_is_number(number) and number > 0, rule, "value", value, way_out)
        return Constant(value=float(number), deviation=deviation)
    values = list(value)
    _check(bool(values), "every agent has a stepsize", "value", values, way_out)
    for i, each in enumerate(values):
        _check(_is_number(each) and each > 0, rule, f"value[{i}]", each, way_out)
    return ConstantEach(values=tuple(float(each) for each in values), deviation=deviation)


def diminishing(
    scale: float = 1.0,
    power: float = 1.0,
    offset: float = 0.0,
    deviation: Deviation | None = None,
) -> Schedule:
    """λ = scale / (k + offset)^power, k from 1: the paper's 1/k by default."""
    rule = "a diminishing stepsize is scale / (k + offset)^power, all finite"
    _check(_is_number(scale) and scale > 0, rule, "scale", scale, "Choose scale > 0.")
    _check(_is_number(power) and power > 0, rule, "power", power, "Choose power in (0.5, 1].")
    _check(_is_number(offset) and offset >= 0, rule, "offset", offset, "Choose offset ≥ 0.")
    return Diminishing(
        scale=float(scale),
        # as a whole number it is no argument of compiled programs, which then need not compute
        # powers: that would cost a small run an eighth of its speed
        power=1 if power == 1 else float(power),
        offset=float(offset),
        deviation=deviation,
    )


def check_schedule(stepsize: object, owner: str) -> None:
    """Refuse a value that is not a schedule. The message shows how to write a schedule."""
    if stepsize != AUTO and not isinstance(stepsize, Schedule):
        raise StepsizeError(
            f"{owner} takes a schedule as stepsize, but got {stepsize!r}. Write "
            'stepsize="auto", hg.stepsizes.constant(0.02) or hg.stepsizes.diminishing(scale=1.0).'
        )
