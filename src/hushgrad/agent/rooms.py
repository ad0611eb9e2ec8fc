"""Arrays that are used again: new ones of this size come from the system page by page."""

from __future__ import annotations

import math
import sys
from itertools import count
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from sys import getrefcount
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


def references(held: list[Any], place: int) -> int:
    """How many there are to an element of a list, as `ALONE` counts them."""
    return getrefcount(held[place])


ALONE = references([object()], 0)  # the list's alone; interpreters count their own differently


# A disk reads whole blocks, from memory that begins at a multiple of a sector. Rooms begin at
# different sectors: processors confuse addresses that differ by a multiple of a block.
BLOCK, _SECTOR = 4096, 512
_begins = count()

_IS_EXACT = getattr(sys, "_is_gil_enabled", lambda: True)()  # without it, counts may come late


def to_block(size: int) -> int:
    """So many bytes to the end of their last block."""
    return size + -size % BLOCK


class InMemoryTransport(mmap):
    """So many bytes, zeros, from the beginning of a block on."""

    def __new__(cls, size: int) -> Self:
        try:
            return super().__new__(cls, -1, size or BLOCK, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"no room for {size} bytes: {error.strerror}") from error


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
        begin = next(_begins) % (BLOCK // _SECTOR) * _SECTOR
        memory = InMemoryTransport(begin + to_block(8 * math.prod(self._shape)))
        room = np.ndarray(self._shape, np.float64, memory, begin)
        if _IS_EXACT:
            every.append(room)
        return room


def blocks(array: NDArray[np.float64]) -> memoryview | None:
    """A room, or all of one in another shape, to the end of its last block: zeros behind it; None
    of anything else. It does not keep the room from being given again: the array does.
    """
    room = array.base if isinstance(array.base, np.ndarray) else array
    memory = room.base
    if (
        not isinstance(memory, InMemoryTransport)
        or array.size != room.size
        or not array.flags.c_contiguous
    ):
        return None
    return memoryview(memory)[len(memory) - to_block(array.nbytes) :]
