"""A statistic that outgrows its masks at a later stage.

The masks of all stages have one size, which follows from the start: the unit of linear masks covers
every q_i there, and the judgement of exposure compares H_i with its mask. Of losses of rows both
are bounded at every θ (hushgrad.problems.determined.reach). Nobody knows what H_i and q_i of a
function of the user's become at a θ_s far off, and a participant can steer θ_s. So whoever holds
such a function looks again at the start of every stage.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hushgrad.theory.exposure import Setting, Weakness

_ROUNDING = 1 + 1e-9

type Floats = NDArray[np.float64]


def outgrown(setting: Setting, H: Floats, q: Floats, unit: float, stage: int) -> Iterator[Weakness]:
    """The weaknesses of a statistic H (d, d), q (d,) at a stage, counted from 0.

    unit    of linear masks
    """
    when = f"at stage {stage + 1}"
    way = "A participant may have steered the start, or f_i grows fast there."
    largest = float(np.abs(q).max())
    if largest > unit * _ROUNDING:
        yield Weakness(
            "gradient",
            f"linear masks must be as large as q_i, but {when} an entry of q_i is {largest:.3g} "
            f"and the unit of masks is {unit:.3g}. {way} Declare a scale that covers q_i.",
        )
    own = setting.lam * float(np.linalg.norm(H, 2))
    if own > setting.quadratic * _ROUNDING and setting.quadratic:
        yield Weakness(
            "curvature",
            f"quadratic masks must be as large as the curvature, but {when} λ‖H_i‖ = {own:.3g} and "
            f"λQ has the size {setting.quadratic:.3g}. {way} Use a smaller stepsize.",
        )
