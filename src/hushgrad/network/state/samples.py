"""Samples: estimates that an agent keeps while it runs, for plots and for comparisons.

The samples are a file of float64 rows (k, x^k), one for each sampled iteration from 1 on. Every row
has its place in the file. So an agent that was killed overwrites its last sample, and no sample is
lost or doubled. Users read the file by `read_samples`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import StateError

type Floats = NDArray[np.float64]

SAMPLES = "samples"  # the file, in the state directory


class Samples:
    """Writes x^k of every `every`-th iteration and of the last one."""

    def __init__(self, path: Path, *, every: int, iterations: int):
        self._path, self._every, self._last = path, every, iterations
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def keep(self, k: int, x: Floats) -> None:
        """Write x^k if iteration k is sampled."""
        if k and (k % self._every == 0 or k == self._last):
            row = np.concatenate([[float(k)], x]).astype("<f8")
            try:
                os.pwrite(self._file, row.tobytes(), (-(-k // self._every) - 1) * row.nbytes)
            except OSError as error:
                raise StateError(
                    f"'{self._path}' cannot be written: {error.strerror}. The state is kept: make "
                    "room, then start the agent again."
                ) from error

    def close(self) -> None:
        os.close(self._file)


def read_samples(path: Path, dim: int) -> tuple[NDArray[np.int64], Floats]:
    """(samples,) iterations and (samples, d) estimates, mapped from the file.

    The arrays end at the last iteration that the agent has reached.
    """
    n_rows = path.stat().st_size // (8 * (dim + 1)) if path.exists() else 0
    if not n_rows:
        return np.zeros(0, np.int64), np.zeros((0, dim))
    rows = np.memmap(path, "<f8", "r", shape=(n_rows, dim + 1))
    return rows[:, 0].astype(np.int64), rows[:, 1:]
