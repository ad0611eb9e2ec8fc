"""Ways for a method of the PDG family to hide its steps, side by side for `hushgrad audit
--compare`.
"""

from __future__ import annotations

from dataclasses import replace

from hushgrad.algorithms.base import Private
from hushgrad.masks import ZeroSum, zero_sum
from hushgrad.splits import Split, fresh, isotropic, private_constant
from hushgrad.stepsizes import Deviation, bursts, geometric

_ONCE = geometric(0.5, drawn="once")


def designs(algorithm: Private) -> dict[str, Private]:
    """The same method with the same stepsize under each design, by name.

    >>> from hushgrad.algorithms import PDGNDS
    >>> list(designs(PDGNDS()))[:3]
    ['paper', 'constant splits', 'isotropic splits']
    """
    plain = replace(
        algorithm,
        design="paper",
        stepsize=replace(algorithm.schedule, deviation=None),
        split=None,
        masks=None,
    )

    def hiding(deviation: Deviation, split: Split, masks: ZeroSum | None = None) -> Private:
        schedule = replace(plain.schedule, deviation=deviation)
        return replace(plain, stepsize=schedule, split=split, masks=masks)

    return {
        "paper": plain,
        "constant splits": hiding(_ONCE, private_constant()),
        "isotropic splits": hiding(_ONCE, isotropic()),
        "bursts": hiding(bursts(5, 2.0, within=100), fresh()),
        "linear masks": hiding(_ONCE, private_constant(), zero_sum(quadratic=0)),
        "linear and quadratic masks": hiding(_ONCE, private_constant(), zero_sum()),
        "recommended": replace(plain, design="recommended"),
    }
