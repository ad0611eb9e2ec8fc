"""The result of `hg.guarantee` for its users: fields, a table, JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from hushgrad.theory.bounds import RowBound

HEADINGS = ("against", "agent", "hidden among", "other", "μ", "ε", "advantage", "nearest μ")
SHOWN = 12  # rows of the printed table; to_json() has them all

NOT_COVERED = (
    "Not covered: the sum over the honest component and θ*, so also a row that is added or removed."
)


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """The success of one coalition in telling the agent that holds a row."""

    agent: int
    coalition: tuple[int, ...]  # empty: an outsider who sees every masked statistic
    hidden_among: int  # honest agents of the component, this one included; 1: nothing is hidden
    other: int | None  # the agent of the component that is easiest to tell from this one
    resistance: float  # R(agent, other)
    mu: float  # holds for every other agent of the component
    epsilon: float
    advantage: float
    nearest: int | None  # the agent of the component that is hardest to tell from this one
    nearest_mu: float
    is_exact: bool  # False: the coalition is the worst of those tried
    most_mu: float | None  # no coalition of this size exceeds it; None: no such bound is known

    @property
    def is_alone(self) -> bool:
        """Whether no honest partner is left, so that the statistic is seen as it is."""
        return self.hidden_among == 1


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """Exposures to coalitions: by size for one agent, or to one coalition for every other agent."""

    n_agents: int
    n_partners: int
    stages: int
    runs: int
    curvature: str
    bound: RowBound
    linear: float  # σ_q, the standard deviation of an entry of a linear share
    quadratic: float  # σ_H
    delta: float
    unit_mu: float  # μ at resistance 1
    exposures: tuple[Exposure, ...]

    @property
    def worst(self) -> Exposure:
        """The exposure with the largest μ."""
        return max(self.exposures, key=lambda e: e.mu)

    def table(self) -> str:
        """The exposures as text."""
        rows = [HEADINGS, *map(_row, self.exposures)]
        if len(rows) > SHOWN + 1:
            rows = [*rows[:SHOWN], ("…",) * len(HEADINGS), rows[-1]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*self._head(), "", *lines, "", *self._foot()])

    def __str__(self) -> str:
        return self.table()

    def _head(self) -> list[str]:
        return [
            "Could a row of the agent as well be another honest agent's?",
            f"{self.n_agents} agents with {self.n_partners} partners each, "
            f"{_count(self.stages, 'stage')}, {_count(self.runs, 'run')}, "
            f"{self.curvature} curvature, δ = {self.delta:g}",
            f"‖Δq‖ ≤ {self.bound.linear:.3g}, σ = {self.linear:.3g}; "
            f"‖ΔH‖ ≤ {self.bound.quadratic:.3g}, σ = {self.quadratic:.3g}",
        ]

    def _foot(self) -> list[str]:
        lines = [NOT_COVERED]
        last = self.exposures[-1]
        if last.is_alone and last.coalition and len({e.agent for e in self.exposures}) == 1:
            size = len(last.coalition)
            lines.append(f"{_count(size, 'agent')} can expose this one; so can more.")
        if not all(e.is_exact for e in self.exposures):
            lines.append(
                "~: the worst of the coalitions tried. Another one may harm more, up to ≤ if shown."
            )
        return lines

    def to_json(self) -> str:
        """Everything, as JSON. Infinity is null: nothing is hidden."""
        stored = {f.name: getattr(self, f.name) for f in fields(self)}
        stored["bound"] = asdict(self.bound)
        stored["exposures"] = [asdict(e) | {"is_alone": e.is_alone} for e in self.exposures]
        return json.dumps(_finite(stored), ensure_ascii=False)


def _row(e: Exposure) -> tuple[str, ...]:
    against = ("" if e.is_exact else "~ ") + (_names(e.coalition) if e.coalition else "outsider")
    among = _count(e.hidden_among, "agent")
    if math.isinf(e.mu):
        why = "nothing is hidden" if e.is_alone else "a part has no mask"
        return against, str(e.agent), among, "–", "∞", "∞", "1", why
    return (
        against,
        str(e.agent),
        among,
        str(e.other),
        f"{e.mu:.3g}" + ("" if e.is_exact else _at_most(e.most_mu)),
        f"{e.epsilon:.3g}",
        f"{e.advantage:.2g}",
        f"{e.nearest_mu:.3g} ({e.nearest})",
    )


def _at_most(mu: float | None) -> str:
    return "" if mu is None else f" (≤ {mu:.3g})"


def _names(agents: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, agents[:6]))
    return f"{{{shown}{', …' if len(agents) > 6 else ''}}}"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and math.isinf(value) else value
