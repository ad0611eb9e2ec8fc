"""Findings in words and columns, for the terminal and for the page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from hushgrad.privacy.attacks import ALL
from hushgrad.privacy.findings import Finding, Findings, effort
from hushgrad.privacy.verdict import DIRECTION, MEMBERSHIP, Evidence

HEADINGS = ("agent", "adversary", "verdict", "by")

QUANTITIES = {
    "gradient": "g at k = {k}",
    "gradient at optimum": "g(θ*)",
    "gradient at optimum up to sign": "±g(θ*)",
    "curvature": "Hessian",
    "objective": "f",
    "rows": "{rows} rows",
    "count": "number of rows",
    "membership": "a row of its own",
    "change": "change between runs",
    "row": "the row that joined or left",
    "direction": "direction of g",
}
KINDS = {
    "eavesdropper": "eavesdropper",
    "neighbour": "one neighbour",
    "neighbours": "all neighbours",
}


def row(finding: Finding) -> tuple[str, ...]:
    """A finding under the HEADINGS."""
    return str(finding.agent), finding.adversary, finding.verdict, told(finding.best)


def told(e: Evidence | None) -> str:
    """The estimate of an attack, its error, and that of a guess, in words.

    >>> told(Evidence(attack="flow", quantity="gradient at optimum", k=None, error=2e-8, guess=1.0))
    'Flow: g(θ*), 2e-08 off (guess 100 %)'
    """
    if e is None:
        return "–"
    near = "" if e.counts else "nearest "
    if e.quantity == MEMBERSHIP:
        return f"{near}{title(e.attack)}: {what(e)}, advantage {100 * (1 - e.error):.0f} %"
    return f"{near}{title(e.attack)}: {what(e)}, {size(e.error)} off (guess {size(e.guess)})"


def title(attack: str) -> str:
    """An attack as a report prints it."""
    return next((a.title for a in ALL if a.name == attack), attack)


def what(e: Evidence) -> str:
    """The quantity of an estimate, in short.

    >>> what(Evidence(attack="flow", quantity="gradient", k=(1, 8), error=0.0, guess=1.0))
    'g at k = 1…8'
    """
    k = "" if e.k is None else str(e.k[0]) if e.k[0] == e.k[1] else f"{e.k[0]}…{e.k[1]}"
    at = f" at k = {k}" if e.quantity == DIRECTION and k else ""
    rows = "" if e.rows is None else f"{e.rows[0]} of {e.rows[1]}"
    return QUANTITIES.get(e.quantity, e.quantity).format(k=k, rows=rows) + at


def size(error: float) -> str:
    """A relative error, as exact as it matters.

    >>> [size(e) for e in (0.0, 3.2e-7, 0.034, 1.0, 3.56, 573.0, math.inf)]
    ['< 1e-9', '3e-07', '3.4 %', '100 %', '3.6 times', '573 times', '∞']
    """
    if error < 1e-9:
        return "< 1e-9"
    if error < 1e-3:
        return f"{error:.0e}"
    if error < 2:
        return f"{100 * error:.2g} %" if error < 0.995 else f"{100 * error:.0f} %"
    if math.isinf(error):
        return "∞"
    return f"{error:.2g} times" if error < 10 else f"{error:.0f} times"


def rows(audit: Findings) -> list[tuple[str, ...]]:
    """The worst finding of each agent and kind of adversary."""
    worst = [audit.worst(agent, kind) for agent in audit.agents for kind in audit.kinds]
    return [row(finding) for finding in worst if finding is not None]


def counts(audit: Findings, kind: str) -> str:
    """The number of agents that a kind of adversary exposes; if none, the attacks tried."""
    worst = [f for agent in audit.agents if (f := audit.worst(agent, kind)) is not None]
    said = [
        f"{n} of {len(worst)} {exposure}"
        for exposure in ("exposed", "direction exposed")
        if (n := sum(f.exposure == exposure for f in worst))
    ]
    if said:
        return ", ".join(said)
    tried = max((len(f.tried) for f in worst), default=0)
    failed = max((len(f.failed) for f in worst), default=0)
    return f"0 of {len(worst)} exposed ({effort(tried, failed)})"


def without_truth(audit: Findings) -> list[str]:
    """The estimates that could not be judged, and the number of their findings."""
    found = Counter(item for finding in audit.findings for item in finding.unjudged.items())
    return [
        f"{title(name)}: {QUANTITIES[quantity]} ({n} of {len(audit.findings)} findings)"
        for (name, quantity), n in found.items()
    ]


def failures(audit: Findings) -> list[str]:
    """Every error that ended an attack, and how many findings had to do without the attack."""
    errors = Counter(item for finding in audit.findings for item in finding.failed.items())
    return [
        f"{title(name)}: {error} ({n} of {len(audit.findings)} findings)"
        for (name, error), n in errors.items()
    ]


def text_table(audit: Findings) -> str:
    """The findings, and what it takes to expose each agent."""
    lines = [f"{audit.label}: {audit.n_agents} agents, {audit.iterations} iterations"]
    lines += [f"  {KINDS.get(kind, kind)}: {counts(audit, kind)}" for kind in audit.kinds]
    lines += ["", *_aligned([HEADINGS, *rows(audit)])]
    if audit.coalitions:
        lines += ["", "smallest coalition that exposes:"]
        lines += [f"  agent {c.agent}: {c}" for c in audit.coalitions]
    if unjudged := without_truth(audit):
        lines += ["", "not judged, as there is no truth to compare with:"]
        lines += [f"  {line}" for line in unjudged]
    if failed := failures(audit):
        lines += ["", "attacks that failed, and so count as not tried:"]
        lines += [f"  {line}" for line in failed]
    return "\n".join(lines)


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
