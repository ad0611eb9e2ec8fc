"""One measurement in a process of its own.

processes.py starts `python -m benchmarks.simulator.worker TASK '{"key": value}'`. Every measurement
needs its own process: XLA counts its cores once, and the system reports only the peak of a
process's memory. The result is one JSON document on stdout.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def pin(cores: int) -> bool:
    """Keep this process on the last `cores` cores; False if the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[-cores:])
    return True


def main(task: str, settings: dict[str, Any]) -> None:
    is_pinned = pin(settings.pop("cores"))  # before the import of JAX, which counts the cores
    from benchmarks.simulator import measure

    result = getattr(measure, task)(**settings)
    print(json.dumps(result | {"pinned": is_pinned}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
