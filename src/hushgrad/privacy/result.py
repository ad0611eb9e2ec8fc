"""The result of an audit for its users: printed, drawn as a page, written as JSON and read back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hushgrad.files.strict_json import parse_json
from hushgrad.privacy.coalitions import Coalition
from hushgrad.privacy.findings import Finding, Findings
from hushgrad.privacy.page import write_page
from hushgrad.privacy.promised import Promised, Promises
from hushgrad.privacy.tables import text_table
from hushgrad.privacy.verdict import Evidence


@dataclass(frozen=True, kw_only=True)
class Audit(Findings):
    """Findings for each agent and adversary, and the smallest coalition that exposes each agent.

    `findings` has them all; `print(audit)` shows the worst of each kind, `audit.html(path)` draws
    them, `audit.to_json()` is everything.
    """

    def table(self) -> str:
        """The worst finding of each agent and kind of adversary, as text."""
        return text_table(self)

    def __str__(self) -> str:
        return self.table()

    def html(self, path: str | Path) -> Path:
        """Write the findings as a page of its own."""
        return write_page([self], path)

    @staticmethod
    def from_json(text: str) -> Audit:
        """An audit that `to_json` wrote."""
        stored = _tupled(parse_json(text))
        stored["findings"] = tuple(_finding(f) for f in stored["findings"])
        stored["coalitions"] = tuple(Coalition(**c) for c in stored["coalitions"])
        if (promised := stored.get("promised")) is not None:
            lines = tuple(Promised(**line) for line in promised["lines"])
            stored["promised"] = Promises(
                bound=promised["bound"], stages=promised["stages"], lines=lines
            )
        return Audit(**stored)


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
