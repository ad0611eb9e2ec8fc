"""The state of an interrupted run on disk: the same call continues from it, bit for bit.

A checkpoint is a directory with one file per block of trials. Every file holds the identity of its
run, a digest of everything that decides its numbers: a state never continues another run. The
stacked engine writes and reads it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from hushgrad.errors import InputError
from hushgrad.files.atomic import replace_file

SAVE_EVERY = 30.0


class Stopped(Exception):  # noqa: N818  # not an error: a worker obeys
    """A block of trials was asked to stop and has left its state."""


@dataclass
class Checkpoint:
    """One run's files, and the wish to stop it."""

    directory: Path | None
    identity: str
    stop: threading.Event = field(default_factory=threading.Event)
    every: float = SAVE_EVERY  # seconds between states of a run that nobody interrupts
    is_writer: bool = True  # of several processes the first one alone

    def path(self, block: int) -> Path | None:
        return None if self.directory is None else self.directory / f"block-{block}.npz"

    def load(self, block: int) -> Mapping[str, Any] | None:
        """The arrays that `save` wrote for this block, or None."""
        path = self.path(block)
        if path is None or not path.exists():
            return None
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (ValueError, OSError, EOFError, BadZipFile) as error:
            raise InputError(f"'{path}' is no state of a run: {error}. Delete it.") from None
        if str(arrays.get("identity")) != self.identity:
            raise InputError(
                f"'{path}' is the state of another run: its algorithm, problem, network, seed, "
                "trials, samples, metrics or start differ. Use another directory, or delete it."
            )
        return arrays

    def save(self, block: int, arrays: Iterable[tuple[str, Any]]) -> None:
        """Write arrays one after the other: all of them at once may not fit.

        Every process makes the arrays, since each has a part of their rows; the writer keeps them.
        """
        path = self.path(block)
        if path is None or not self.is_writer:
            deque(arrays, maxlen=0)
        else:
            every = itertools.chain([("identity", np.array(self.identity))], arrays)
            replace_file(path, lambda file: _write(file, every))

    def clear(self) -> None:
        """The run is over: its states are no longer needed."""
        if self.directory is None or not self.is_writer or not self.directory.exists():
            return
        for path in self.directory.glob("block-*.npz"):
            path.unlink()
        if not any(self.directory.iterdir()):
            self.directory.rmdir()


def _write(file: IO[bytes], arrays: Iterable[tuple[str, Any]]) -> None:
    """As np.savez writes them."""
    with ZipFile(file, "w") as archive:
        for name, array in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


class Clock:
    """Says when the next state is due."""

    def __init__(self, every: float) -> None:
        self._last, self._every = time.monotonic(), every

    def is_due(self) -> bool:
        if time.monotonic() - self._last < self._every:
            return False
        self._last = time.monotonic()
        return True
