"""The numbers that the averages of a fit reveal, for the judgement of exposure.

The programme of a fit says how many numbers it is expected to pool (fitting/told.py). A deployed
agent counts again before every average, with the numbers pooled so far (network/programme.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushgrad.theory.revealed import MOST_OF_ROW, MOST_SHARE, Revealed


@dataclass(frozen=True, kw_only=True)
class Pooled(Revealed):
    """The numbers that a fit reveals about the smallest honest component; stages are averages."""

    told: int  # numbers, of all averages

    most_numbers: ClassVar[float] = math.inf  # with more, effective rows alone are judged

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

    def average_objection(self, determined: float | None, when: str = "") -> str | None:
        """The same for the largest share of a row that all averages so far determine.

        determined    None: there are too many numbers to judge, and effective rows count alone
        when          in words, by default with the last of the averages
        """
        when = when or f"with average {self.stages}"
        if determined is None or determined <= MOST_OF_ROW:
            return None
        share = f"{100 * determined:.3g} %" if determined < 0.999 else "all of it"
        return (
            f"{when} the sums would tell too much about a single row of this "
            f"site: they may determine at most {100 * MOST_OF_ROW:g} % of it, but would determine "
            f"{share}. A participant may have steered the fit, a row is much longer than the "
            "others, a value of a column is rare, or single residuals of a Huber loss cross delta "
            "between two steps. Have more rows, join rare values, use fewer columns, a penalty or "
            'a larger delta, or accept the exposure: accept_exposure = ["sums"].'
        )
