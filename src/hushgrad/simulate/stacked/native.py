"""Loops of the simulator in C (native.c): draws, sums over neighbours, gradients of rows.

XLA vectorises none of them as well as the machine can. The system's compiler translates native.c
once into the user's cache (library.py), and XLA calls it through its foreign function interface.
Without a compiler, or with HUSHGRAD_NATIVE=0, XLA's own code does the same work, about half as
fast; both agree to rounding, draws bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from hushgrad.exchange import Array
from hushgrad.problems import losses, quadratic
from hushgrad.simulate.stacked.library import load_library
from hushgrad.simulate.stacked.products import interpret

DRAWS = 1024  # below, a call costs more than it saves
NUMBERS = 2048  # agents · d, the same
COLUMNS = 32  # wider matrices XLA multiplies as fast

# The code is made anew for another version of JAX, whose interface may differ.
_FLAGS = ("-O2", "-ffp-contract=fast", f"-DHUSHGRAD_JAX={jax.__version__}")
_OPERATIONS = ("uniforms", "mix", "rows", "columns", "misfit", "squares", "logistic", "huber")


def uniforms(k0: Array, k1: Array, slots: Array, counter: Array) -> Array:
    """As draws.uniforms of the keys (rows, 1, trials) and the counter (k, slot (rows, 1, 1))."""
    call = jax.ffi.ffi_call("hushgrad_uniforms", jax.ShapeDtypeStruct(k0.shape, jnp.float64))
    return call(k0, k1, slots, counter)


def draws(n: int) -> bool:
    """Whether n draws are worth native calls."""
    return n >= DRAWS and is_available()


def mix(
    links: dict[str, Array],  # first (agents + 1,), neighbour (links,), entry (links,)
    *,
    public: tuple[Array | None, Array | None, Array] | None = None,  # own, links, (agents, d, 1)
    private: tuple[Array, Array, Array] | None = None,  # own, out-slots, (agents, d, 1)
    plain: Array | None = None,  # (agents, d, 1)
) -> Array:
    """Σ_j w_ij x_j + u_ij h_j over an agent's links and itself, plus its own plain vector."""
    none = jnp.zeros(0)
    given = [*(public or (None,) * 3), *(private or (None,) * 3), plain]
    flat = [none if a is None else flatten(a) if a.ndim == 3 else a for a in given]
    d = flat[2 if public else 5].shape[1]
    shape = jax.ShapeDtypeStruct((links["first"].shape[0] - 1, d), jnp.float64)
    call = jax.ffi.ffi_call("hushgrad_mix", shape)
    return unflatten(call(links["first"], links["neighbour"], links["entry"], *flat))


def flatten(values: Array) -> Array:
    """(agents, d) of (agents, d, 1). By a transposition: a compiler that keeps d inside, and not
    the one trial, has nothing to copy, and its loops run along d.
    """
    return values.transpose(2, 0, 1).reshape(values.shape[:2])


def unflatten(values: Array) -> Array:
    """(agents, d, 1) of (agents, d)."""
    return values.reshape(1, *values.shape).transpose(1, 2, 0)


def rows(A: Array, x: Array) -> Array:
    """A_i x_i (agents, s) of A (agents, s, d) and x (agents, d)."""
    shape = jax.ShapeDtypeStruct(A.shape[:2], jnp.float64)
    return jax.ffi.ffi_call("hushgrad_rows", shape)(A, x)


def columns(A: Array, r: Array) -> Array:
    """A_iᵀ r_i (agents, d) of A (agents, s, d) and r (agents, s)."""
    shape = jax.ShapeDtypeStruct((A.shape[0], A.shape[2]), jnp.float64)
    return jax.ffi.ffi_call("hushgrad_columns", shape)(A, r)


# The gradients in native.c, which reads every row only once, and the names of their arguments.
_LOSSES = {
    quadratic.misfit_gradient: ("misfit", "M", "z", "sigma"),
    losses.squares_gradient: ("squares", "X", "y", "penalty"),
    losses.logistic_gradient: ("logistic", "X", "y", "penalty"),
    losses.huber_gradient: ("huber", "X", "y", "penalty"),
}


def gradients(gradient: Callable[..., Array], x: Array, data: Any) -> Array:
    """`gradient` of every agent's x (agents, d) and data, (agents, d)."""
    if gradient not in _LOSSES:
        return interpret(_product, jax.vmap(gradient), x, data)
    name, *keys = _LOSSES[gradient]
    A, y, penalty = (data[key] for key in keys)
    none = jnp.zeros(0)
    call = jax.ffi.ffi_call(f"hushgrad_{name}", jax.ShapeDtypeStruct(x.shape, jnp.float64))
    return call(A, y, data.get("weight", none), penalty, data.get("delta", none), x)


def _product(A: Array, x: Array, by_rows: bool) -> Array | None:
    if A.shape[2] > COLUMNS:
        return None
    return columns(A, x) if by_rows else rows(A, x)


@functools.cache
def is_available() -> bool:
    """Whether there is native code; the first call compiles and registers it."""
    source = Path(__file__).with_name("native.c")
    library = load_library(source, *_FLAGS, "-I", jax.ffi.include_dir())
    if library is None:
        return False
    for name in _OPERATIONS:
        symbol = f"hushgrad_{name}"
        handler = jax.ffi.pycapsule(getattr(library, symbol))
        jax.ffi.register_ffi_target(symbol, handler, platform="cpu")
    return True
