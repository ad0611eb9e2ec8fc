"""The messages and estimates of a run while it runs: in memory, or on disk where they are many.

Both engines write here; `Transcript` is made of it when the run is over.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
from collections.abc import Hashable
from typing import Any

import numpy as np

from hushgrad.errors import InputError

MEMORY = 2 * 2**30  # bytes that a recording keeps in memory; the rest goes to temporary files

TRACE = "trace"  # the name of the estimates x^k
AWAKE = "awake"  # ends the name of the array that tells which links carried a message


class Recording:
    """Arrays (trials, length, …) by name, made when the first entry shows their shape.

    Several threads may write, each to its own trials. An array on disk is used like any other; its
    file has no name and vanishes with the last reference to it, or with the process.
    """

    def __init__(self, trials: int, iterations: int):
        self.ended = np.zeros(trials, np.int64)  # (trials,) how many iterations each made
        self._trials, self._length = trials, iterations + 1
        self._left = MEMORY
        self._arrays: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def array(
        self,
        name: Hashable,
        shape: tuple[int, ...],
        dtype: Any = np.float64,
        *,
        length: int | None = None,
    ) -> Any:
        """The array of this name, (trials, length, *shape), at first all zero; by default it is as
        long as the run, its start and its end included.
        """
        with self._lock:
            if name not in self._arrays:
                lead = (self._trials, self._length if length is None else length)
                self._arrays[name] = self._room((*lead, *shape), np.dtype(dtype))
            return self._arrays[name]

    def write(
        self, name: Hashable, trials: Any, k: int, values: Any, *, length: int | None = None
    ) -> None:
        """Values (trials, n, …) of iterations k … k + n − 1."""
        array = self.array(name, values.shape[2:], values.dtype, length=length)
        array[trials, k : k + values.shape[1]] = values

    def exchanges(self) -> list[Any]:
        """The names of the recorded exchanges, in the order of their first entries."""
        return [name for name in self._arrays if name != TRACE and name[-1] != AWAKE]

    def has(self, name: Hashable) -> bool:
        return name in self._arrays

    def read(self, name: Hashable, *, beyond: int = 0) -> Any:
        """(trials, n, …) up to the last iteration that any trial made, and `beyond` more; NaN where
        a trial ended before.
        """
        array, done = self._arrays[name], int(self.ended.max()) + beyond
        if array.dtype.kind == "f":
            for trial, end in enumerate(self.ended.tolist()):
                array[trial, end + beyond : done] = np.nan
        return array[:, :done]

    def _room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        size = math.prod(shape) * dtype.itemsize
        if size > self._left:
            return _on_disk(shape, dtype, size)
        self._left -= size
        return np.zeros(shape, dtype)


def _on_disk(shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> Any:
    with tempfile.TemporaryFile() as file:
        try:
            if hasattr(os, "posix_fallocate"):  # a full disk is an error here, a crash later
                os.posix_fallocate(file.fileno(), 0, size)
            return np.asarray(np.memmap(file, dtype, "w+", shape=shape))
        except OSError as error:
            raise InputError(
                f"a transcript that does not fit in memory goes to '{tempfile.gettempdir()}', but "
                f"there is no room for {size / 2**30:.1f} GiB ({error}). Set TMPDIR to a larger "
                "disk, or record fewer iterations or trials."
            ) from error
