"""Traced functions in which each agent's product, matrix times vector, is computed in another way.

XLA multiplies large matrices well; a batch of small ones it leaves to loops of their own, which
cost more than the numbers in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from hushgrad.exchange import Array

SHORT = 8  # products that are added up one by one

# (A (agents, n, d), x (agents, n or d), whether x goes with A's rows) → Σ, None: leave it to XLA
type Product = Callable[[Array, Array, bool], Array | None]


def interpret(product: Product, function: Callable[..., Array], *arguments: Any) -> Array:
    """`function` of the arguments, traced; `product` computes what it can."""
    traced = jax.make_jaxpr(function)(*arguments)
    if _has_custom_rules(traced.jaxpr):
        return function(*arguments)
    leaves = jax.tree.leaves(arguments)
    (out,) = _evaluate(product, traced.jaxpr, traced.consts, leaves)
    return out


def written_out(A: Array, x: Array, by_rows: bool) -> Array | None:
    """Σ_n A_n x_n term by term, if they are few: fused with what is around it."""
    terms = range(x.shape[1])
    if not 0 < len(terms) <= SHORT:
        return None
    return sum((A[:, n] if by_rows else A[:, :, n]) * x[:, n, None] for n in terms)


def _has_custom_rules(jaxpr: Any) -> bool:
    """Whether a trace calls functions with rules of their own, which cannot be evaluated again."""
    return any(
        equation.primitive.name.startswith("custom_")
        or (equation.primitive.name == "jit" and _has_custom_rules(equation.params["jaxpr"].jaxpr))
        for equation in jaxpr.eqns
    )


def _evaluate(
    product: Product, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]
) -> list[Any]:
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        given = [read(atom) for atom in equation.invars]
        primitive, parameters = equation.primitive, equation.params
        if primitive.name == "jit":
            inner = parameters["jaxpr"]
            found = _evaluate(product, inner.jaxpr, inner.consts, given)
        elif (
            primitive.name == "dot_general"
            and (own := _own(product, given, parameters)) is not None
        ):
            found = [own]
        else:
            out = primitive.bind(*given, **parameters)
            found = out if primitive.multiple_results else [out]
        values.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _own(product: Product, given: Sequence[Any], parameters: Any) -> Array | None:
    """The product of every agent's matrix with its vector; None for any other product."""
    (contracted, batch) = parameters["dimension_numbers"]
    order = (0, 1) if given[0].ndim == 3 else (1, 0)
    A, x = (given[n] for n in order)
    if batch != ((0,), (0,)) or (A.ndim, x.ndim) != (3, 2) or A.dtype != jnp.float64:
        return None
    (axis,) = contracted[order[0]]
    return product(A, x, axis == 1) if axis in (1, 2) else None
