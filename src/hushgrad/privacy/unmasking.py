"""What a coalition put into its target's mask itself, it takes out again.

Attacks learn of the masked objective, f_i + c_iᵀθ + ½ θᵀQ_iθ. Its mask is a sum of shares, one for
each partner, and a partner knows the share that it has drawn together with i. With c and Q the sum
of the shares that members know,

    g_i^k      less  c + Q x_i^k         x_i^k as the attack has it, else as the members stand
    g_i(θ*)    less  c + Qθ*             θ* as the members' last estimates have it
    [H_i | q_i]  less  [Q | c]

What is left of the mask are the shares with honest partners. A direction alone or a gradient
times a secret stepsize has no size to subtract from, and a sign that is open is one too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.base import Estimate
from hushgrad.privacy.view import View

type Floats = NDArray[np.float64]


def unmasked(view: View, target: int, estimates: Sequence[Estimate]) -> tuple[Estimate, ...]:
    """Estimates of the target as its members correct them."""
    known = _known(view, target)
    if known is None:
        return tuple(estimates)
    positions = [e for e in estimates if e.quantity == "position" and e.target == target]
    return tuple(_corrected(view, e, positions, *known) for e in estimates)


def _known(view: View, target: int) -> tuple[Floats, Floats] | None:
    """C (d,) and Q (d, d), the sum of the members' shares of the target's mask."""
    shares = [view.own(j).shared[target] for j in view.members if target in view.own(j).shared]
    if not shares:
        return None
    zero = np.zeros((view.dim, view.dim))
    c = np.sum([share.c for share in shares], axis=0)
    return c, np.sum([zero if share.Q is None else share.Q for share in shares], axis=0)


def _corrected(
    view: View, e: Estimate, positions: Sequence[Estimate], c: Floats, Q: Floats
) -> Estimate:
    if e.quantity == "objective":
        return replace(e, value=e.value - np.column_stack([Q, c]))
    if e.quantity == "gradient at optimum":
        end = np.mean([view.own(j).x[-1] for j in view.members], axis=0)
        return replace(e, value=e.value - (c + Q @ end))
    if e.quantity == "gradient" and e.k is not None:
        x = np.mean([view.own(j).x for j in view.members], axis=0)  # (n + 1, d)
        for p in positions:
            x[p.k] = p.value
        return replace(e, value=e.value - (c + x[e.k] @ Q))
    return e
