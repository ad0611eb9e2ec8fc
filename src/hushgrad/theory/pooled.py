"""What the averages of a fit reveal, as the judgement of exposure counts it.

The programme of a fit says how many numbers it is expected to pool (fitting/told.py). A deployed
agent counts again before every average, with the numbers pooled so far (network/programme.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushgrad.theory.revealed import MOST_SHARE, Revealed


@dataclass(frozen=True, kw_only=True)
class Pooled(Revealed):
    """The numbers that a fit reveals about the smallest honest component; stages are averages."""

    told: int  # numbers, of all averages

    most_numbers: ClassVar[float] = math.inf  # averages are judged by effective rows alone

    @property
    def numbers(self) -> int:
        return self.told

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
