"""Locks between programs: a file that one program holds at a time.

`hushgrad run` holds one for each study, and a network of processes on one machine hands its lock on
to the processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, patience: float = 0.0) -> Generator[int | None]:
    """The descriptor of a lock that this program holds, and that its children may inherit.

    None: another program held the lock for all of `patience` seconds. The file is removed at the
    end.
    """
    import fcntl  # POSIX systems alone have it

    deadline = time.monotonic() + patience
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:  # the file may have been removed before it was locked
                break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(lock)
                yield None
                return
            time.sleep(0.05)
        os.close(lock)
    try:
        yield lock
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)
