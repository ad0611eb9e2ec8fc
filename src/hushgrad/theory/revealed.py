"""How many numbers about how many rows the stages of a run reveal.

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
later stage, which a participant can steer, an agent counts again (`stage_objection`).
"""

from __future__ import annotations

import math
import numbers as number_types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from hushgrad.errors import PrivacyError

type Curvature = Literal["newton", "fixed"]

CURVATURES = ("newton", "fixed")
MOST_SHARE = 0.1  # at n = 20, d = 4, seven stages (1.2) a crude fit still found 2 of 20 rows
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

    @property
    def numbers(self) -> int:
        stages = 1 if self.is_quadratic else self.stages
        return numbers_revealed(self.dim, stages, curvature=self.curvature)

    @property
    def share(self) -> float | None:
        """The numbers as a share of the entries of the rows; None if the rows are not known."""
        return self.numbers / (self.rows * self.dim) if self.rows else None

    @property
    def summary(self) -> str:
        stages = f"{self.stages} stage{'s' * (self.stages > 1)}"
        reveal = f"{stages} reveal{'s' * (self.stages == 1)} {self.numbers} numbers about"
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
        if self.share is not None and self.share <= limit * (1 + _ROUNDING):
            return None
        rule = (
            f"the sums of a run may reveal at most {100 * limit:.3g} % of the entries of the "
            f"effective honest rows, but {self.summary}."
        )
        return f"{rule} {_way_out(self, limit)}"

    def stage_objection(self, stage: int, rows: float, limit: float = MOST_SHARE) -> str | None:
        """The same for the effective rows at the start of a later stage, counted from 0."""
        here = replace(self, rows=rows)
        if here.objection(limit) is None:
            return None
        needed = _FEWEST if self.is_quadratic else _needed(here, limit)
        return (
            f"a few rows dominate the sums of stage {stage + 1} of {self.stages}: at its start "
            f"{rows:.3g} honest rows are effective, but the run reveals {self.numbers} numbers and "
            f"needs {needed}. A participant may have steered the start to a long θ, the data "
            "separate well, or many residuals of a Huber loss are beyond delta. Use a larger "
            'regularisation or delta, fewer stages or curvature = "fixed", or accept the exposure: '
            'accept_exposure = ["sums"].'
        )

    def to_json(self) -> dict[str, Any]:
        """As `run.config` keeps it."""
        return asdict(self) | {"numbers": self.numbers, "share": self.share}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Revealed:
        return cls(**{f.name: told[f.name] for f in fields(cls)})


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
    """What would bring the share below the limit."""
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
    return math.ceil(told.numbers / (limit * told.dim)) if limit > 0 else math.inf


def _single(told: Revealed) -> str:
    return (
        "the sum of honest statistics hides rows only if no row dominates it: it needs at least "
        f"{_FEWEST} effective rows, but the smallest honest component has {told.rows:.3g}. The sum "
        "tells a single row up to its sign. Have more rows in every pair of agents, and clip long "
        "rows."
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
