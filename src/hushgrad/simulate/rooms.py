"""Arrays that are used again: new ones of this size come from the system page by page."""

from __future__ import annotations

from sys import getrefcount

import numpy as np
from numpy.typing import NDArray

_FREE = 3  # references to an array that nobody else has: the list, the loop, the call


class Rooms:
    """Arrays of one shape; one that nobody holds any more, nor a view of it, is given again."""

    def __init__(self, *shape: int):
        self._shape = shape
        self._every: list[NDArray[np.float64]] = []

    def take(self) -> NDArray[np.float64]:
        """An array with any content."""
        for room in self._every:
            if getrefcount(room) == _FREE:
                return room
        self._every.append(np.empty(self._shape))
        return self._every[-1]
