"""Files that are there whole or not at all, after a crash and after a power cut too.

Every module that replaces or creates a file calls one of these functions: results, saved runs,
checkpoints, pictures, exports, keys, and the small files of an agent's state. Each of them waits
for the disk (fsync), first for the content and then for the directory.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hushgrad.errors import InputError

_ANYONE = 0o666  # the mode of a new file, less the user's umask


def replace_file(
    path: Path, write: Callable[[IO[bytes]], object], *, mode: int | None = None
) -> None:
    """Put the file that `write` fills in the place of `path`; OSError if that cannot be done.

    For files with one writer, such as an agent's state: a program that is killed meanwhile leaves
    `.NAME.part`, which the next call overwrites. `mode` holds before the first byte is written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    with _put_in_place(partial, path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(partial, flags, _ANYONE if mode is None else mode), "wb") as file:
            if mode is not None:  # a partial file of before may have another
                os.fchmod(file.fileno(), mode)
            write(file)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A new path that takes the place of `path` when the block ends without an error.

    For files that a user named: several programs may write the same one, and InputError says that
    the place cannot be written.
    """
    output_directory(path.parent)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with _put_in_place(partial, path):
            yield partial
            _sync(partial)
    except PermissionError as error:
        raise InputError(
            f"'{path}' cannot be written: {error.strerror}. Choose another place."
        ) from error


def write_file(path: Path, content: str | bytes) -> Path:
    """Replace a file that a user named; gives its path."""
    with replacing(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def create_file(path: Path, content: bytes, *, mode: int = _ANYONE) -> None:
    """Write a file that is not there yet, with its mode from the first moment.

    FileExistsError where there is one already: a key or a certificate is never overwritten.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:  # the disk is full, perhaps: half a file would stand in the way
            path.unlink(missing_ok=True)
            raise
    sync_directory(path.parent)


def output_directory(path: str | Path) -> Path:
    """A directory for files that a user asked for, made where it is missing."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"files go into a directory, but '{path}' cannot be one: {error.strerror}. "
            "Choose another."
        ) from error
    return path


def sync_directory(path: Path) -> None:
    """Wait until the disk has the names in a directory."""
    if os.name == "posix":  # elsewhere a directory cannot be opened
        _sync(path)


@contextmanager
def _put_in_place(partial: Path, path: Path) -> Generator[None]:
    """Give `partial` the name `path` after the block; after an error, remove it."""
    try:
        yield
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_directory(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
