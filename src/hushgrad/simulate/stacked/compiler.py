"""C code, compiled once by the system's compiler and kept in the user's cache.

Nothing depends on it: without a compiler, or with HUSHGRAD_NATIVE=0, other code does the same.
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


def library(name: str, *flags: str) -> Any:
    """The compiled `name`, a file of this directory; None where it cannot be made."""
    source = Path(__file__).with_name(name)
    return compiled(source.stem, source.read_text(), *flags)


def compiled(name: str, text: str, *flags: str) -> Any:
    """The library of a text in C; None where it cannot be made."""
    if os.environ.get("HUSHGRAD_NATIVE", "1") == "0" or os.name != "posix":
        return None
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    command = (compiler, "-march=native", "-fPIC", "-shared", *flags)
    try:
        built = _cache() / f"{name}-{_digest(text, command)}.so"
        if not built.exists():
            _compile(command, text, built)
        return ctypes.CDLL(str(built))
    except (OSError, RuntimeError, subprocess.SubprocessError):  # RuntimeError: nobody's home
        return None


def _compile(command: tuple[str, ...], text: str, built: Path) -> None:
    built.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent) as work:  # so that nobody sees half a file
        part = Path(work) / built.name
        source = part.with_suffix(".c")
        source.write_text(text)
        whole = [*command, str(source), "-o", str(part)]
        subprocess.run(whole, check=True, capture_output=True, timeout=60)
        part.replace(built)


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "hushgrad"


def _digest(text: str, command: tuple[str, ...]) -> str:
    """Code made for another processor, or in another way, has another name."""
    try:
        flags = next(
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if "flags" in line
        )
    except (OSError, StopIteration):
        flags = platform.processor()
    known = (text, *command, platform.machine(), flags)
    return hashlib.sha256("\0".join(known).encode()).hexdigest()[:16]
