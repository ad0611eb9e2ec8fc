"""A ledger of runs: how much privacy a sequence of runs has spent.

Runs compose as μ² = Σ μ_r², also if later runs are chosen after the results of earlier ones
(docs/guarantee.md says why). A ledger holds the μ of each run by its id.

Users keep one with `hg.theory.Ledger`, and policies add up runs with it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from hushgrad.errors import PrivacyError
from hushgrad.files.strict_json import parse_json
from hushgrad.theory import gaussian_dp


@dataclass(frozen=True)
class Ledger:
    """The runs that an agent took part in, and their μ.

    >>> ledger = Ledger().add("monday", 0.3).add("tuesday", 0.4)
    >>> round(ledger.mu, 12)
    0.5
    """

    runs: tuple[tuple[str, float], ...] = ()  # (id, μ) in the order of the runs

    def add(self, run: str, mu: float) -> Ledger:
        """The ledger with one run more. A run's id is used once: equal ids mean equal masks."""
        if not mu >= 0.0:
            raise PrivacyError(f"A ledger adds runs with μ ≥ 0, but run {run!r} has μ = {mu!r}.")
        if any(run == known for known, _ in self.runs):
            raise PrivacyError(
                f"Every run has an id of its own, but the ledger has {run!r} already: two runs "
                "with one id share their masks, and their difference has none. Use another id."
            )
        return Ledger((*self.runs, (run, float(mu))))

    @property
    def mu(self) -> float:
        """√Σ μ_r² of all runs."""
        return math.hypot(*(mu for _, mu in self.runs))

    def epsilon(self, delta: float) -> float:
        """The ε of all runs together at this δ."""
        return gaussian_dp.epsilon(delta, self.mu)

    @property
    def advantage(self) -> float:
        """The advantage of the best test that sees all runs."""
        return gaussian_dp.advantage(self.mu)

    def to_json(self) -> str:
        """The runs as JSON; `Ledger.from_json` reads it. A run that hid nothing has null as μ."""
        runs = [[run, None if math.isinf(mu) else mu] for run, mu in self.runs]
        return json.dumps({"runs": runs}, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Ledger:
        """A ledger that `to_json` wrote."""
        ledger = Ledger()
        stored: Any = parse_json(text)
        for run, mu in stored["runs"]:
            ledger = ledger.add(run, math.inf if mu is None else mu)
        return ledger
