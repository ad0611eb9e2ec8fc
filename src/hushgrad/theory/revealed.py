"""The count of the numbers that the stages of a run reveal, and of the rows that they are about.

Masks hide which honest agent holds a row. They do not hide the sum over the honest component: every
stage reveals the sum of H_i, with d(d + 1)/2 numbers, and the sum of q_i, with d numbers. If these
numbers are not far fewer than the n·d entries of the component's rows, an attacker can fit rows to
the sums. A fixed curvature that majorises the Hessians reveals its matrix once, and then d numbers
per stage. A staged run counts the numbers with these functions and refuses past a limit
(exposure.py).

For a quadratic objective one stage reveals everything. Σ H_i and Σ q_i fix rows only up to a
rotation, so there is no limit, except for a component with a single row: the row is then known up
to its sign.

Rows are effective rows (problems/effective.py): a few rows that dominate the sums can be told apart
from the others. The count is made before the run, with the lengths of rows. At the start of every
stage, which a participant can steer, agents ask how much of each single row the sums of all stages
so far determine (problems/determined.py), and refuse the stage if that is too much for one row
(`stage_objection`). This takes time that grows with the third power of the numbers, so a run has a
limit on its numbers too.
"""

from __future__ import annotations

import math
import numbers as number_types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from hushgrad.errors import PrivacyError

type Curvature = Literal["newton", "fixed"]

CURVATURES = ("newton", "fixed")
MOST_SHARE = 0.1  # at n = 20, d = 4, seven stages (1.2) a crude fit still found 2 of 20 rows
MOST_OF_ROW = 0.75  # half of the length of every row stays uncertain; all rows met had 0.9
MOST_NUMBERS = 1000  # a stage with more would take minutes to judge
_FEWEST = 1.2  # of a quadratic run: below, the first direction of Σ H_i is one row within 10 %
_ROUNDING = 1e-9  # rows at the limit itself are within it


@dataclass(frozen=True, kw_only=True)
class Revealed:
    """The numbers that the stages of a run reveal about the smallest honest component."""

    dim: int
    stages: int  # that really run
    rows: float | None  # effective ones, of all agents of the component; None: not known
    curvature: Curvature = "newton"
    is_quadratic: bool = False  # all f_i are: every stage reveals the same numbers
    before: int = 0  # numbers that other runs have revealed about the same rows

    most_numbers: ClassVar[float] = MOST_NUMBERS

    @property
    def numbers(self) -> int:
        stages = 1 if self.is_quadratic else self.stages
        return numbers_revealed(self.dim, stages, curvature=self.curvature)

    @property
    def share(self) -> float | None:
        """The numbers of this run and those before, as a share of the entries of the rows; None if
        the rows are not known.
        """
        return (self.numbers + self.before) / (self.rows * self.dim) if self.rows else None

    @property
    def summary(self) -> str:
        stages = f"{self.stages} stage{'s' * (self.stages > 1)}"
        earlier = f" and earlier runs {self.before}" if self.before else ""
        reveal = f"{stages} reveal{'s' * (self.stages == 1)} {self.numbers} numbers{earlier} about"
        if self.rows is None:
            return f"{reveal} honest rows whose number is not known"
        share = "" if self.share is None else f", {100 * self.share:.3g} %"
        entries = f"{self.dim} entr{'y' if self.dim == 1 else 'ies'}"
        return f"{reveal} {self.rows:.4g} effective honest rows of {entries}{share}"

    def objection(self, limit: float = MOST_SHARE) -> str | None:
        """The rule that the sums break, with the way out; None if they break none."""
        if self.is_quadratic:
            is_single = self.rows is not None and self.rows < _FEWEST
            return _single(self) if is_single else None
        if self.numbers + self.before > self.most_numbers:
            return _too_many(self)
        if self.share is not None and self.share <= limit * (1 + _ROUNDING):
            return None
        rule = (
            f"the sums of a run may reveal at most {100 * limit:.3g} % of the entries of the "
            f"effective honest rows, but {self.summary}."
        )
        return f"{rule} {_way_out(self, limit)}"

    def stage_objection(self, stage: int, determined: float) -> str | None:
        """The same for a stage, counted from 0, and the largest share of a row that the sums of
        all stages up to it determine (problems/determined.py).
        """
        if determined <= MOST_OF_ROW:
            return None
        return (
            f"with stage {stage + 1} of {self.stages} the sums would tell too much about a single "
            f"honest row: they may determine at most {100 * MOST_OF_ROW:g} % of it, but would "
            f"determine {_percent(determined)}. There are several reasons: a participant steered "
            "the start to a long θ; the data separate well; a row is much longer than the others; "
            "single residuals of a Huber loss cross delta between stages; all columns are "
            "categories, and few rows have some combination; earlier runs have told much about the "
            "same rows. Have more rows, join rare categories, use a larger regularisation or "
            'delta, fewer stages or curvature = "fixed", clip long rows before the first run on '
            'them, or accept the exposure: accept_exposure = ["sums"].'
        )

    def change_objection(self, changed: float, limit: float = MOST_SHARE) -> str | None:
        """The same for a run after another one on other rows, of which `changed` are in one alone.

        The sums of both differ by these rows, whatever the masks. Another clip, or another delta of
        a Huber loss, counts as one changed row: it may change that row's part alone.
        """
        few = 2 * (self.dim + 1) if self.is_quadratic else self.numbers / (limit * self.dim)
        if changed >= math.ceil(few):
            return None
        return (
            f"the sums of two runs differ by the rows that changed between them, so {few:.0f} rows "
            f"or more must change, or none. Since an earlier run, about {_rows(changed)} of this "
            "agent changed, or its clip or delta did. Use the rows, clip and delta of the "
            "earlier run, or wait until more rows have changed."
        )

    def to_json(self) -> dict[str, Any]:
        """As `run.config` keeps it."""
        return asdict(self) | {"numbers": self.numbers, "share": self.share}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Revealed:
        return cls(**{f.name: told[f.name] for f in fields(cls) if f.name in told})


def numbers_revealed(dim: int, stages: int, *, curvature: Curvature = "newton") -> int:
    """The numbers that the stages reveal about an honest component.

    >>> numbers_revealed(4, 7), numbers_revealed(4, 7, curvature="fixed")
    (98, 38)
    """
    check_count("dim", dim)
    check_count("stages", stages)
    check_curvature(curvature)
    matrix = dim * (dim + 1) // 2
    return stages * (matrix + dim) if curvature == "newton" else matrix + stages * dim


def share_revealed(*, rows: float, dim: int, stages: int, curvature: Curvature = "newton") -> float:
    """The numbers revealed, as a share of the rows·dim entries of the component's rows.

    rows    the effective rows of the smallest honest component that is assumed, all its agents
            together
    """
    if not isinstance(rows, number_types.Real) or not rows > 0:
        raise PrivacyError(f"rows is a number > 0, but rows = {rows!r}.")
    return numbers_revealed(dim, stages, curvature=curvature) / (rows * dim)


def check_revealed(
    *,
    rows: float,
    dim: int,
    stages: int,
    curvature: Curvature = "newton",
    limit: float = MOST_SHARE,
) -> float:
    """The share revealed; a PrivacyError if the share exceeds the limit.

    >>> check_revealed(rows=1000, dim=4, stages=7)
    0.0245
    """
    share = share_revealed(rows=rows, dim=dim, stages=stages, curvature=curvature)
    told = Revealed(dim=dim, stages=stages, rows=rows, curvature=curvature)
    if (objection := told.objection(limit)) is not None:
        raise PrivacyError(objection[0].upper() + objection[1:])
    return share


def _way_out(told: Revealed, limit: float) -> str:
    """The change that would bring the share below the limit."""
    needed = _needed(told, limit)
    if told.rows is None:
        return f"Declare honest_rows in [run] of the agents' files; {needed} or more are enough."
    rows = f"Have {needed} effective rows or more in the smallest honest component (clip long rows)"
    if told.curvature == "fixed" or told.stages == 1:
        return f"{rows}, or use fewer stages." if told.stages > 1 else f"{rows}."
    fewer = numbers_revealed(told.dim, told.stages, curvature="fixed")
    return f'{rows}, use fewer stages, or use curvature="fixed", which reveals {fewer} numbers.'


def _needed(told: Revealed, limit: float) -> float:
    """The effective rows with which the share is at the limit."""
    return math.ceil((told.numbers + told.before) / (limit * told.dim)) if limit > 0 else math.inf


def _percent(share: float) -> str:
    """Never 100 % of a row that is not known exactly, nor the limit of one beyond it."""
    return f"{100 * share:.3g} %" if share < 0.999 else "all of it"


def _rows(count: float) -> str:
    return "1 row" if round(count) == 1 else f"{count:.0f} rows"


def _too_many(told: Revealed) -> str:
    fixed = numbers_revealed(told.dim, told.stages, curvature="fixed")
    way = ' or curvature="fixed"' if told.curvature == "newton" and fixed <= MOST_NUMBERS else ""
    return (
        "agents judge at every stage how much of a single row the sums determine, which takes at "
        f"most {MOST_NUMBERS} numbers in all, but {told.summary}. Use fewer columns, fewer stages"
        f"{way}."
    )


def _single(told: Revealed) -> str:
    return (
        "the sum of honest statistics hides rows only if no row dominates it: it needs at least "
        f"{_FEWEST} effective rows, by length and in every direction, but the "
        f"smallest honest component has {told.rows:.3g}. One row dominates the sum, a few copies "
        "of one row do, rows are fewer than twice the columns with a constant one, or all columns "
        "are categories and few rows have some combination: the sum tells single rows. Have more "
        "rows in every pair of agents, clip long rows, and join rare categories."
    )


def check_count(name: str, value: object) -> None:
    """Refuse what is no whole number ≥ 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise PrivacyError(f"{name} is a whole number ≥ 1, but {name} = {value!r}.")


def check_curvature(curvature: object) -> None:
    """Refuse an unknown kind of curvature."""
    if curvature not in CURVATURES:
        raise PrivacyError(
            f"The curvature of stages is one of {', '.join(CURVATURES)}, but got {curvature!r}."
        )
