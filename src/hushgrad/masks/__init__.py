"""Zero-sum masks: secrets that partners agree on, so that every agent hides its own objective.

The PDG algorithms choose the masks; the simulator and the networked agents draw and add them.
"""

from hushgrad.masks.zero_sum import (
    MOST_QUADRATIC,
    Floats,
    Mask,
    PairWords,
    Sizes,
    ZeroSum,
    check_masks,
    zero_sum,
)

__all__ = [
    "MOST_QUADRATIC",
    "Floats",
    "Mask",
    "PairWords",
    "Sizes",
    "ZeroSum",
    "check_masks",
    "zero_sum",
]
