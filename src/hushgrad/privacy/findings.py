"""The findings of an audit as plain values, which JSON can hold.

tables.py, drawing.py and page.py show them; `Audit` (result.py) offers all of it to users.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hushgrad.files.strict_json import strict_json
from hushgrad.privacy.coalitions import Coalition
from hushgrad.privacy.promised import Promises
from hushgrad.privacy.verdict import Evidence, Verdict, best, severity, verdict

_ORDER: tuple[Verdict, ...] = ("exposed", "direction exposed", "not recovered")  # worst first


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The evidence of one adversary about one agent."""

    agent: int
    kind: str  # eavesdropper, neighbour, neighbours; any other adversary is a kind of its own
    adversary: str  # in words
    evidence: tuple[Evidence, ...]
    tried: tuple[str, ...]  # attacks that gave an estimate, by name
    refused: Mapping[str, str]  # attack: why it cannot be tried, or that it gave no estimate
    place: tuple[float, ...] | None = None  # of a rendezvous: p_i as recovered
    failed: Mapping[str, str] = field(default_factory=dict[str, str])  # attack: what ended it
    unjudged: Mapping[str, str] = field(default_factory=dict[str, str])  # attack: has no truth

    @property
    def exposure(self) -> Verdict:
        return verdict(self.evidence)

    @property
    def best(self) -> Evidence | None:
        """The evidence on which the verdict rests, or the nearest miss."""
        return best(self.evidence)

    @property
    def verdict(self) -> str:
        """In plain words; that nothing was recovered says how much was tried."""
        if self.exposure != "not recovered":
            return self.exposure
        said = effort(len(self.tried), len(self.failed))
        return said if said == NONE else f"{self.exposure} ({said})"


NONE = "no attack applies"


def effort(tried: int, failed: int) -> str:
    """The number of attacks that were tried, and of those that an error ended.

    >>> effort(1, 0), effort(3, 2), effort(0, 0)
    ('1 attack tried', '3 attacks tried, 2 failed', 'no attack applies')
    """
    if not tried and not failed:
        return NONE
    return f"{tried} attack{'s' * (tried != 1)} tried" + f", {failed} failed" * (failed > 0)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Findings for each agent and adversary, and the smallest coalition that exposes each agent."""

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
    promised: Promises | None = None  # the guarantee of the masks, if the run has one

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
        """The number of agents with this verdict against their worst adversary of a kind."""
        worst = [self.worst(agent, kind) for agent in self.agents]
        return sum(f is not None and f.exposure == exposure for f in worst)

    def coalition(self, agent: int) -> Coalition | None:
        return next((c for c in self.coalitions if c.agent == agent), None)

    def record(self) -> dict[str, Any]:
        """Everything, verdicts spelt out, as JSON can say it."""
        record = asdict(self)
        for said, finding in zip(record["findings"], self.findings, strict=True):
            by = finding.best
            said |= {"verdict": finding.verdict, "best": None if by is None else asdict(by)}
        return record

    def to_json(self) -> str:
        return strict_json(self.record())


def _severity(finding: Finding) -> tuple[int, float]:
    by = finding.best
    return _ORDER.index(finding.exposure), math.inf if by is None else severity(by)
