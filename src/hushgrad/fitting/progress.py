"""Where the programme of one site stands: its stage, the numbers it pools, its effective rows.

The programme writes; the deployed agent reads, for its judgement of exposure and for its status.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class FitProgress:
    """A record that a programme keeps up to date, before it yields a vector."""

    stage: int = 1  # of the plan, from 1 on
    stages: int = 1
    name: str = ""  # of the stage
    numbers: int = 0  # pooled so far, those of the present vector included
    effective: float | None = None  # rows, at the point of the present vector; None: not known
    row_parts: list[float | None] = field(default_factory=list[float | None])
    # the largest of one row, in every vector so far (bounds.py); None: there is no bound

    def add(self, numbers: int) -> int:
        """Count the numbers of the vector that is yielded next; gives them back."""
        self.numbers += numbers
        return numbers

    def note_part(self, norm: float | None) -> None:
        """Note the bound of one row's part in the vector that is yielded next."""
        self.row_parts.append(norm)

    def forget_effective(self) -> None:
        """Before several points are told, of which the least counts."""
        self.effective = None

    def note_least_effective(self, rows: float) -> None:
        self.effective = rows if self.effective is None else min(rows, self.effective)

    def note_effective(self, rows: float) -> None:
        self.effective = rows
