"""Where the programme of one site stands: its stage, the numbers it pools, its effective rows.

The programme writes; the deployed agent reads, for its judgement of exposure and for its status.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FitProgress:
    """A record that a programme keeps up to date, before it yields a vector."""

    stage: int = 1  # of the plan, from 1 on
    stages: int = 1
    name: str = ""  # of the stage
    numbers: int = 0  # pooled so far, those of the present vector included
    effective: float | None = None  # rows, at the point of the present vector; None: not known

    def add(self, numbers: int) -> int:
        """Count the numbers of the vector that is yielded next; gives them back."""
        self.numbers += numbers
        return numbers

    def forget_effective(self) -> None:
        """Before several points are told, of which the least counts."""
        self.effective = None

    def note_least_effective(self, rows: float) -> None:
        self.effective = rows if self.effective is None else min(rows, self.effective)

    def note_effective(self, rows: float) -> None:
        self.effective = rows
