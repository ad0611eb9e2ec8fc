"""Functions that JAX compiles once, with options that suit small arrays, for program.py."""

from __future__ import annotations

import threading
from typing import Any

import jax

# The width is an upper bound: a machine without AVX-512 computes with its own, narrower vectors.
# Multithreaded tiny dots cost five times their work.
_OPTIONS = {"xla_cpu_prefer_vector_width": 512, "xla_cpu_multi_thread_eigen": False}


class Compiled:
    """A function for JAX. The first thread that calls it compiles it, and the others wait: blocks
    of trials run in threads, and each would compile the same program.
    """

    def __init__(self, function: Any, **options: Any):
        self._call = jax.jit(function, compiler_options=_OPTIONS, **options)
        self._lock, self._is_compiled = threading.Lock(), False

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._is_compiled:
            return self._call(*args, **options)
        with self._lock:
            result = self._call(*args, **options)
            self._is_compiled = True
            return result
