"""The event loop of a deployed agent: uvloop's where it is installed (extra `fast`)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib import import_module
from typing import Any


def run_loop[T](main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, or uvloop's, which takes less of the processor for every message."""
    try:
        run: Any = import_module("uvloop").run
    except ImportError:
        run = asyncio.run
    return run(main)
