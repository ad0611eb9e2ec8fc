"""Traced functions in which each agent's product, matrix times vector, is written out term by term.

XLA multiplies large matrices well; a batch of small ones it leaves to loops of their own, which
cost more than the numbers in them.

agents.py asks for gradients in this form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from hushgrad.exchange import Array

SHORT = 8  # products that are added up one by one


def write_products_out(function: Callable[..., Array], *arguments: Any) -> Array:
    """`function` of the arguments, traced; its products of few terms are written out."""
    traced = jax.make_jaxpr(function)(*arguments)
    if _has_custom_rules(traced.jaxpr):
        return function(*arguments)
    leaves = jax.tree.leaves(arguments)
    (out,) = _evaluate(traced.jaxpr, traced.consts, leaves)
    return out


def _has_custom_rules(jaxpr: Any) -> bool:
    """Whether a trace calls functions with rules of their own, which cannot be evaluated again."""
    return any(
        equation.primitive.name.startswith("custom_")
        or (equation.primitive.name == "jit" and _has_custom_rules(equation.params["jaxpr"].jaxpr))
        for equation in jaxpr.eqns
    )


def _evaluate(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        given = [read(atom) for atom in equation.invars]
        primitive, parameters = equation.primitive, equation.params
        if primitive.name == "jit":
            inner = parameters["jaxpr"]
            found = _evaluate(inner.jaxpr, inner.consts, given)
        elif (
            primitive.name == "dot_general" and (own := _written_out(given, parameters)) is not None
        ):
            found = [own]
        else:
            out = primitive.bind(*given, **parameters)
            found = out if primitive.multiple_results else [out]
        values.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _written_out(given: Sequence[Any], parameters: Any) -> Array | None:
    """Σ_n A_n x_n, the product of every agent's matrix with its vector, term by term and so fused
    with its surroundings; None for many terms and for any other product.
    """
    (contracted, batch) = parameters["dimension_numbers"]
    order = (0, 1) if given[0].ndim == 3 else (1, 0)
    A, x = (given[n] for n in order)
    if batch != ((0,), (0,)) or (A.ndim, x.ndim) != (3, 2) or A.dtype != jnp.float64:
        return None
    (axis,) = contracted[order[0]]
    terms = range(x.shape[1])
    if axis not in (1, 2) or not 0 < len(terms) <= SHORT:
        return None
    return sum((A[:, n] if axis == 1 else A[:, :, n]) * x[:, n, None] for n in terms)
