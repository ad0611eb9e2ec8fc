"""How many numbers about how many rows the averages of a fit reveal.

A fit of d coefficients pools counts and the first two moments of its columns, 10 + 2d numbers at
most. Then every Newton step pools the loss, its gradient and its Hessian, d(d + 3)/2 + 1 numbers. A
fit ends when it has converged, so the number of steps is not known before: the judgement expects
EXPECTED_STEPS, and a deployed agent counts again before every average (network/programme.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushgrad.theory.revealed import MOST_SHARE, Revealed

EXPECTED_STEPS = 8  # of a logistic fit of separated rows; most fits need fewer


@dataclass(frozen=True, kw_only=True)
class Pooled(Revealed):
    """The numbers that a fit reveals about the smallest honest component; stages are its steps."""

    most_numbers: ClassVar[float] = math.inf  # averages are judged by effective rows alone

    @property
    def numbers(self) -> int:
        stages = 1 if self.is_quadratic else self.stages
        return 10 + 2 * self.dim + stages * (self.dim * (self.dim + 3) // 2 + 1)

    def objection(self, limit: float = MOST_SHARE) -> str | None:
        """The rule that the sums break, with the way out; None if they break none."""
        found = super().objection(limit)
        if found is None or self.is_quadratic:
            return found
        needed = math.ceil(self.numbers / (limit * self.dim))
        return (
            f"the averages of a fit may reveal at most {100 * limit:.3g} % of the entries of the "
            f"effective honest rows, but {self.summary}. Have {needed} effective rows or more in "
            "the smallest honest component (declare them: honest_rows in [run]), or fewer columns."
        )
