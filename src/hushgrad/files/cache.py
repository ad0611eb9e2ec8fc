"""The user's cache: `$XDG_CACHE_HOME/hushgrad`, or `~/.cache/hushgrad`.

`hushgrad run` keeps the finished part of an interrupted study here. A program that can write here
decides the numbers that a resumed study reports. So a directory of the cache is made for its user
alone (0700), and one that belongs to somebody else, or that others can write, is refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hushgrad.errors import InputError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_path(*names: str) -> Path:
    """A place in the cache; nothing is made or checked."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").joinpath("hushgrad", *names)


def cache_directory(*names: str) -> Path:
    """A directory of the cache, made where it is missing; InputError if others could write it."""
    path = cache_path()
    _make_private(path)
    for name in names:
        path = path / name
        _make_private(path)
    return path


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        objection = _foreign_hands(directory)
    except OSError as error:
        raise InputError(
            f"the cache '{directory}' cannot be made: {error.strerror}. Set XDG_CACHE_HOME to a "
            "directory that you can write."
        ) from error
    if objection is not None:
        raise InputError(
            f"the cache is written by its user alone, but '{directory}' {objection}. Remove it, or "
            "set XDG_CACHE_HOME to a directory of your own."
        )


def _foreign_hands(directory: Path) -> str | None:
    """Why others may have written into a directory, or None."""
    if os.name != "posix":
        return None  # modes and owners say nothing there
    found = directory.stat()
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, not to user {os.geteuid()}"
    if found.st_mode & _OTHERS_WRITE:
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return None
