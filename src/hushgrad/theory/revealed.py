"""How many numbers about how many rows the stages of a run reveal.

Masks hide which honest agent holds a row. They do not hide the sum over the honest component: every
stage reveals the sum of H_i, with d(d + 1)/2 numbers, and the sum of q_i, with d numbers. If these
numbers are not far fewer than the n·d entries of the component's rows, an attacker can fit rows to
the sums. A fixed curvature that majorises the Hessians reveals its matrix once, and then d numbers
per stage. A staged run counts the numbers with these functions and refuses past a limit.
"""

from __future__ import annotations

import math
from typing import Literal

from hushgrad.errors import PrivacyError

type Curvature = Literal["newton", "majorised"]

CURVATURES = ("newton", "majorised")
MOST_SHARE = 0.1  # at n = 20, d = 4, seven stages (1.2) a crude fit still found 2 of 20 rows


def numbers_revealed(dim: int, stages: int, *, curvature: Curvature = "newton") -> int:
    """The numbers that the stages reveal about an honest component.

    >>> numbers_revealed(4, 7), numbers_revealed(4, 7, curvature="majorised")
    (98, 38)
    """
    check_count("dim", dim)
    check_count("stages", stages)
    check_curvature(curvature)
    matrix = dim * (dim + 1) // 2
    return stages * (matrix + dim) if curvature == "newton" else matrix + stages * dim


def share_revealed(*, rows: int, dim: int, stages: int, curvature: Curvature = "newton") -> float:
    """The numbers revealed, as a share of the rows·dim entries of the component's rows.

    rows    the rows of the smallest honest component that is assumed, all its agents together
    """
    check_count("rows", rows)
    return numbers_revealed(dim, stages, curvature=curvature) / (rows * dim)


def check_revealed(
    *,
    rows: int,
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
    if share <= limit:
        return share
    numbers = numbers_revealed(dim, stages, curvature=curvature)
    raise PrivacyError(
        f"The sums of a run may reveal at most {limit:.3g} numbers per entry of the honest rows, "
        f"but {stages} stages reveal {numbers} numbers about {rows} rows of {dim} entries: "
        f"{share:.3g}. {_way_out(dim, stages, curvature, numbers, limit)}"
    )


def _way_out(dim: int, stages: int, curvature: Curvature, numbers: int, limit: float) -> str:
    """What would bring the share below the limit."""
    needed = math.ceil(numbers / (limit * dim)) if limit > 0 else math.inf
    rows = f"Have {needed} rows or more in the smallest honest component"
    if curvature == "majorised" or stages == 1:
        return f"{rows}, or use fewer stages." if stages > 1 else f"{rows}."
    fewer = numbers_revealed(dim, stages, curvature="majorised")
    return (
        f"{rows}, use fewer stages, or use a fixed majorising curvature, which reveals {fewer} "
        "numbers."
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
