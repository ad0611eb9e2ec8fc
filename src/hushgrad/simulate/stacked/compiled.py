"""Functions that JAX compiles once, with options that suit small arrays, for program.py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

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


def repeated(
    step: Callable[[Any, Any], Any], first: Any, n: Any, state: Any, *, in_pairs: bool
) -> Any:
    """The state after `step(k, state)` for n values of k from `first` on, inside a program.

    After every turn of a loop XLA copies the new state to the place of the old one. Where a turn is
    two steps, the second writes its state there directly. The step is compiled twice more.
    """

    def pair(p: Any, state: Any) -> Any:
        k = first + 2 * p
        return step(k + 1, step(k, state))

    begin = first
    if in_pairs:
        state = lax.fori_loop(0, n // 2, pair, state)
        begin = first + n - n % 2
    return lax.fori_loop(begin, first + n, step, state)
