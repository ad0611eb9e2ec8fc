"""Files that are written past the system's cache: what must be on the disk at once need not be
copied there first.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from errno import EINVAL, ENOTSUP
from pathlib import Path
from typing import Any

from hushgrad.agent.rooms import BLOCK, InMemoryTransport

log = logging.getLogger("hushgrad.agent")


class Staging:
    """Memory where a disk can read it, for what is copied there; for one write at a time."""

    def __init__(self) -> None:
        self._memory = InMemoryTransport(BLOCK)

    def of(self, size: int) -> memoryview:
        if size > len(self._memory):
            self._memory = InMemoryTransport(size)
        return memoryview(self._memory)


class Direct:
    """One file, written by whole blocks; `write` gives None where that cannot be done."""

    def __init__(self, path: Path, staging: Staging):
        self._staging = staging
        self._file: int | None = None
        with suppress(OSError, AttributeError):  # it is Linux's, and not every file system's
            self._file = os.open(path, os.O_WRONLY | os.O_DIRECT)

    def write(self, pieces: list[Any], place: int) -> int | None:
        """Write bytes, arrays, and memoryviews of rooms, which are not copied, from a place on;
        gives how many bytes. Pieces between memoryviews fill blocks together.
        """
        if self._file is None or place % BLOCK:
            return None
        try:
            return os.pwritev(self._file, self._readable(pieces), place)
        except OSError as error:
            if error.errno not in (EINVAL, ENOTSUP):
                raise
        log.debug("the journal is written through the cache: blocks of %d are refused", BLOCK)
        self.close()  # its blocks are larger, or memory is to begin elsewhere
        return None

    def _readable(self, pieces: list[Any]) -> list[memoryview]:
        size = sum([memoryview(p).nbytes for p in pieces if not isinstance(p, memoryview)])
        memory = self._staging.of(size)
        found: list[memoryview] = []
        begin = end = 0  # of what was copied since the last room
        for piece in pieces:
            if isinstance(piece, memoryview):
                found += memory[begin:end], piece
                begin = end
            else:
                copied = memoryview(piece).cast("B")
                memory[end : end + len(copied)] = copied
                end += len(copied)
        found.append(memory[begin:end])
        return [piece for piece in found if len(piece)]

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
