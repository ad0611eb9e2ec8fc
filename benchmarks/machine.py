"""The machine of a benchmark and the root of the source tree; both benchmarks use it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_CAP = "--xla_cpu_max_isa=AVX2"


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cap_to_avx2() -> None:
    """Let XLA and the C limit, in the processes that we start, compute as on AVX2."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_CAP}".strip()


def is_capped() -> bool:
    return _CAP in os.environ.get("XLA_FLAGS", "")


def describe() -> dict[str, Any]:
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "instructions": instruction_set(),
        "cores": len(cores()),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in ("hushgrad", "jax", "jaxlib", "numpy")},
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def instruction_set() -> str:
    """The widest vector instructions of the processor, by name, and whether they are capped."""
    flags = (_field("/proc/cpuinfo", "flags") or _field("/proc/cpuinfo", "Features") or "").split()
    known = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sve": "SVE", "asimd": "NEON"}
    widest = next((name for flag, name in known.items() if flag in flags), platform.machine())
    return f"{widest}, capped to AVX2" if is_capped() and widest != "AVX2" else widest


def _field(file: str, name: str) -> str | None:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, None)


def _memory_gb() -> float | None:
    total = _field("/proc/meminfo", "MemTotal")  # in kB
    return None if total is None else round(int(total.split()[0]) * 1024 / 1e9, 1)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
