"""The state of an interrupted run on disk: the same call continues from it, bit for bit.

A checkpoint is a directory with one file per block of trials. Every file holds the identity of its
run, a digest of everything that decides its numbers: a state never continues another run. The
stacked engine writes and reads it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

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

    def save(self, block: int, arrays: Mapping[str, Any]) -> None:
        path = self.path(block)
        if path is None or not self.is_writer:
            return
        identity = np.array(self.identity)
        replace_file(path, lambda file: np.savez(file, identity=identity, **arrays))

    def clear(self) -> None:
        """The run is over: its states are no longer needed."""
        if self.directory is None or not self.is_writer or not self.directory.exists():
            return
        for path in self.directory.glob("block-*.npz"):
            path.unlink()
        if not any(self.directory.iterdir()):
            self.directory.rmdir()


class Clock:
    """Says when the next state is due."""

    def __init__(self, every: float) -> None:
        self._last, self._every = time.monotonic(), every

    def is_due(self) -> bool:
        if time.monotonic() - self._last < self._every:
            return False
        self._last = time.monotonic()
        return True
