"""What an audit finds, as plain values: printed, drawn, written as JSON and read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from hushgrad.files.strict_json import strict_json
from hushgrad.privacy.coalitions import Coalition
from hushgrad.privacy.verdict import Evidence, Verdict, best, verdict

_ORDER: tuple[Verdict, ...] = ("exposed", "direction exposed", "not recovered")  # worst first


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one adversary gets of one agent."""

    agent: int
    kind: str  # eavesdropper, neighbour, neighbours; any other adversary is a kind of its own
    adversary: str  # in words
    evidence: tuple[Evidence, ...]
    tried: tuple[str, ...]  # attacks, by name
    refused: Mapping[str, str]  # attack: why it cannot be tried
    place: tuple[float, ...] | None = None  # of a rendezvous: p_i as recovered

    @property
    def exposure(self) -> Verdict:
        return verdict(self.evidence)

    @property
    def best(self) -> Evidence | None:
        """What the verdict rests on, or the nearest miss."""
        return best(self.evidence)

    @property
    def verdict(self) -> str:
        """In plain words; that nothing was recovered says how much was tried."""
        n = len(self.tried)
        said = f" ({n} attack{'s' * (n != 1)} tried)" if self.exposure == "not recovered" else ""
        return self.exposure + said


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Findings for each agent and adversary, and the smallest coalition that exposes each agent.

    `findings` has them all; `print(audit)` shows the worst of each kind, `audit.html(path)` draws
    them, `audit.to_json()` is everything.
    """

    label: str
    algorithm: Mapping[str, Any]  # its parameters
    problem: str
    n_agents: int
    dim: int
    iterations: int
    seed: int
    trial: int
    accuracy: float  # max_i ‖x_i − θ*‖ at the end, relative to the start
    iterations_to_1e_6: int | None
    links: tuple[tuple[int, int], ...]  # of the graph, undirected ones once
    is_directed: bool
    findings: tuple[Finding, ...]
    coalitions: tuple[Coalition, ...]
    places: tuple[tuple[float, ...], ...] | None  # of a rendezvous in the plane: the true p_i
    date: str
    version: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of adversaries, in the order of the findings."""
        return tuple(dict.fromkeys(f.kind for f in self.findings))

    @property
    def agents(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(f.agent for f in self.findings))

    def worst(self, agent: int, kind: str) -> Finding | None:
        """Of an agent's adversaries of one kind, the one that learns most."""
        of_kind = [f for f in self.findings if f.agent == agent and f.kind == kind]
        return min(of_kind, key=_severity, default=None)

    def count(self, kind: str, exposure: Verdict) -> int:
        """How many agents come off like this against their worst adversary of a kind."""
        worst = [self.worst(agent, kind) for agent in self.agents]
        return sum(f is not None and f.exposure == exposure for f in worst)

    def coalition(self, agent: int) -> Coalition | None:
        return next((c for c in self.coalitions if c.agent == agent), None)

    def table(self) -> str:
        """The worst of each agent and kind of adversary, as text."""
        from hushgrad.privacy.tables import text_table

        return text_table(self)

    def __str__(self) -> str:
        return self.table()

    def html(self, path: str | Path) -> Path:
        """Write the findings as a page of its own."""
        from hushgrad.privacy.page import write_page

        return write_page([self], path)

    def record(self) -> dict[str, Any]:
        """Everything, verdicts spelt out, as JSON can say it."""
        record = asdict(self)
        for said, finding in zip(record["findings"], self.findings, strict=True):
            by = finding.best
            said |= {"verdict": finding.verdict, "best": None if by is None else asdict(by)}
        return record

    def to_json(self) -> str:
        return strict_json(self.record())

    @staticmethod
    def from_json(text: str) -> Audit:
        """An audit that `to_json` wrote."""
        stored = _tupled(json.loads(text))
        stored["findings"] = tuple(_finding(f) for f in stored["findings"])
        stored["coalitions"] = tuple(Coalition(**c) for c in stored["coalitions"])
        return Audit(**stored)


def _severity(finding: Finding) -> tuple[int, float]:
    by = finding.best
    return _ORDER.index(finding.exposure), math.inf if by is None else by.error


def _finding(stored: dict[str, Any]) -> Finding:
    fields = {name: stored[name] for name in stored if name not in ("verdict", "best")}
    fields["evidence"] = tuple(_evidence(e) for e in fields["evidence"])
    return Finding(**fields)


def _evidence(stored: dict[str, Any]) -> Evidence:
    """JSON has no infinity: what is null was infinitely far off."""
    far: dict[str, Any] = {n: math.inf for n in ("error", "guess") if stored[n] is None}
    return Evidence(**{**stored, **far})


def _tupled(value: Any) -> Any:
    """JSON's lists as tuples."""
    if isinstance(value, dict):
        return {name: _tupled(inner) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return tuple(_tupled(inner) for inner in cast("list[Any]", value))
    return value
