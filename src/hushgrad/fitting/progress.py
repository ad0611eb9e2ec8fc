"""The progress of the programme of one site: its stage, the numbers it pools, what they tell.

The programme writes; the deployed agent reads, for its judgement of exposure and for its status.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hushgrad.fitting.determined import ToldRows


@dataclass
class FitProgress:
    """A record that a programme keeps up to date, before it yields a vector."""

    stage: int = 1  # of the plan, from 1 on
    stages: int = 1
    name: str = ""  # of the stage
    numbers: int = 0  # pooled so far, those of the present vector included
    every_told: list[ToldRows | None] = field(default_factory=list[ToldRows | None])
    # what each fit so far tells of single rows; None: a linear fit, which is not judged
    row_parts: list[float | None] = field(default_factory=list[float | None])
    # the largest of one row, in every vector so far (bounds.py); None: there is no bound

    def add(self, numbers: int) -> int:
        """Count the numbers of the vector that is yielded next; gives them back."""
        self.numbers += numbers
        return numbers

    def note_part(self, norm: float | None) -> None:
        """Note the bound of one row's part in the vector that is yielded next."""
        self.row_parts.append(norm)

    @property
    def told(self) -> ToldRows | None:
        """The record of the present fit about single rows, once its counts are pooled."""
        return self.every_told[-1] if self.every_told else None

    def largest_share(self, times: float) -> float | None:
        """The largest share of a row that one of the fits has determined (determined.py)."""
        shares = [told.largest_share(times) for told in self.every_told if told is not None]
        return max((share for share in shares if share is not None), default=None)
