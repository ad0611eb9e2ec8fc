"""The limit: the C kernel beside this file, compiled for one shape and run through ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hushgrad as hg
from hushgrad.draws import Stream, agent_keys, trial_keys
from hushgrad.graphs import Graph

SOURCE = Path(__file__).with_name("kernel.c")
FORMS = ("ds", "lazy", "square")
LANES = 16
BLOCK = 64  # agents whose draws are made together and used while they are in L1
MOST_LANES = 8  # agents of a run that fits into registers
MOST_COLOURS = 3  # COLOURS of the kernel
SMALL = 16  # d · s up to which the kernel has code for tiny runs and for trials in lanes

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]


class MissingCompilerError(Exception):
    """No C compiler on this machine, or none that compiles the kernel."""


def compiler() -> str:
    """The first of $CC, cc, gcc, clang that there is."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    raise MissingCompilerError("no C compiler (cc, gcc or clang)")


@functools.cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hushgrad-bench-")  # removed when Python ends


@functools.cache
def library(dim: int, rows: int | None) -> ctypes.CDLL:
    """The kernel for θ of `dim` numbers and `rows` measurements each; without them, logistic."""
    name = compiler()
    shape = [f"-DDIM={dim}", "-DLOGISTIC" if rows is None else f"-DROWS={rows}"]
    target = Path(_directory().name) / f"kernel-{dim}-{rows}.so"
    wide = ["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []
    common = [str(SOURCE), "-o", str(target), "-std=gnu11", "-O3", "-shared", "-fPIC", "-pthread"]
    message = ""
    for machine in (["-march=native", *wide], ["-mcpu=native"], []):
        done = subprocess.run([name, *common, *machine, *shape], capture_output=True, text=True)
        if done.returncode == 0:
            return ctypes.CDLL(str(target))
        message = message or done.stderr
    raise MissingCompilerError(f"{name} does not compile {SOURCE.name}: {message.strip()[:400]}")


class _Fields(ctypes.Structure):
    """A C struct whose fields all have eight bytes: numbers, or pointers to arrays it keeps."""

    names: tuple[str, ...] = ()

    def __init__(self, values: dict[str, Any]):
        super().__init__()
        self.kept = values  # arrays live as long as the struct points to them
        for name in self.names:
            value = values.get(name)
            setattr(self, name, value.ctypes.data if isinstance(value, np.ndarray) else value)


def _struct(**kinds: str) -> type[_Fields]:
    types = {"i": ctypes.c_int64, "d": ctypes.c_double, "p": ctypes.c_void_p}
    fields = [(name, types[kind]) for kind, names in kinds.items() for name in names.split()]
    return type("Struct", (_Fields,), {"_fields_": fields, "names": tuple(n for n, _ in fields)})


class _Run(_Fields):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("form", "agents", "blocks", "threads")),
        *((name, ctypes.c_double) for name in ("scale", "power")),
        *((name, ctypes.c_void_p) for name in (
            "block_agent", "block_draw", "key0", "key1", "slot", "share", "shares", "own", "rho",
            "first", "sender", "entry", "w_own", "w", "first_b", "sender_b", "entry_b", "colour",
            "data", "target", "weight")),
        ("samples", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("x", "next", "h", "h_prev", "y", "wx", "u")),
    ]  # fmt: skip
    names = tuple(name for name, _ in _fields_)
