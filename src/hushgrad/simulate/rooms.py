"""Arrays that are used again: new ones of this size come from the system page by page."""

from __future__ import annotations

import sys
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray


def references(held: list[Any], place: int) -> int:
    """How many there are to an element of a list, as `ALONE` counts them."""
    return getrefcount(held[place])


ALONE = references([object()], 0)  # the list's alone; interpreters count their own differently


_IS_EXACT = getattr(sys, "_is_gil_enabled", lambda: True)()  # without it, counts may come late


class Rooms:
    """Arrays of one shape; one that nobody holds any more, nor a view of it, is given again."""

    def __init__(self, *shape: int):
        self._shape = shape
        self._every: list[NDArray[np.float64]] = []

    def take(self) -> NDArray[np.float64]:
        """An array with any content."""
        every = self._every
        for place in range(len(every)):
            if references(every, place) == ALONE:
                return every[place]
        room = np.empty(self._shape)
        if _IS_EXACT:
            every.append(room)
        return room
