"""A file of C as a library: compiled once by the system's compiler, kept in the user's cache.

Only the simulator's native.c is compiled, and nothing depends on it (see native.py).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hushgrad.errors import InputError
from hushgrad.files.atomic import replace_file
from hushgrad.files.cache import cache_directory, foreign_hands

_SECONDS = 60.0  # for the compiler, which needs about one


def load_library(source: Path, *flags: str) -> Any:
    """The library of a C source; None where there is none and none can be made.

    A library that others could have written is not loaded: it would run as this user's code. It is
    not overwritten either, so that its owner can be found.
    """
    if os.environ.get("HUSHGRAD_NATIVE", "1") == "0" or os.name != "posix":
        return None
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    command = (compiler, "-march=native", "-fPIC", "-shared", *flags)
    try:
        built = cache_directory() / f"{source.stem}-{_digest(source.read_text(), command)}.so"
        if not built.exists():
            _compile(command, source, built)
        return ctypes.CDLL(str(built)) if foreign_hands(built) is None else None
    # InputError: the cache is not this user's alone; RuntimeError: this user has no home
    except (OSError, InputError, RuntimeError, subprocess.SubprocessError):
        return None


def _compile(command: tuple[str, ...], source: Path, built: Path) -> None:
    with tempfile.TemporaryDirectory(dir=built.parent) as work:
        part = Path(work) / built.name
        whole = [*command, str(source), "-o", str(part)]
        subprocess.run(whole, check=True, capture_output=True, timeout=_SECONDS)
        replace_file(built, lambda file: file.write(part.read_bytes()), mode=0o700)


def _digest(text: str, command: tuple[str, ...]) -> str:
    """Code for another processor, or made in another way, has another name."""
    try:
        flags = next(
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if "flags" in line
        )
    except (OSError, StopIteration):
        flags = platform.processor()
    known = (text, *command, platform.machine(), flags)
    return hashlib.sha256("\0".join(known).encode()).hexdigest()[:16]
