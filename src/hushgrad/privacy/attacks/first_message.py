"""First message: from a known start, the first message is a share of the first step and no more.

Agents usually start at a point that everyone knows, x_i^0 = 0 for all. In the letters of pdg.py the
first message of i to j is

    PDG-DS    v_ji^0 = w_ji x_i^0 − b_ji h_i^0
    lazy      v_ji^0 = m_ji x_i^0 − b_ji h_i^0,      as h_i^{−1} = 0

So v_ji^0 less its public part is −b_ji λ_i^0 g̃_i(x^0), with g̃ the gradient with its mask.

**One message, one neighbour.** As b_ji > 0 and λ_i^0 > 0, the message tells the direction of
g̃_i(x^0) with its sign, to rounding, for every split by weights. Without masks this is the
direction of g_i(x^0), in any design.

**All links, two receivers, constant split.** The first messages are b_ji h_i^0, which is b up to
one factor: b_ji = β π_j. In every later message π cancels the step,

    v_ji^k / π_j − v_li^k / π_l = (w_ji / π_j − w_li / π_l) y^k

with y^k = x_i^k in PDG-DS, x_i^k − x_i^{k−1}/2 in the lazy form. So x_i^k is known from x_i^0 on,
in any dimension, and the flow (pdg.py) gives

    h_i^k = x_i^k − x_i^{k+1} + F^k                    PDG-DS
    h_i^k = Σ_{l≤k} F^l − (x_i^{k+1} − x_i^k)          lazy

The factor β, the normalisation, is not needed. Between h_i^0 and g̃_i(x^0) stands the number λ_i^0
= λ (1 − ϱ_i a), with a = 1/2 in the recommended design. The agent keeps ϱ_i secret, but a ϱ_i that
is drawn once is in all of its steps. For a quadratic f_i, h_i^k / λ^k(ϱ) is affine in x_i^k for the
true ϱ alone, so ϱ is the number with the smallest residual of an affine fit. Then g̃_i(x^0) = h_i^0
/ λ^0(ϱ); the shares of members are taken off the mask. The attack claims this where the fit leaves
rounding alone.

Limits. A start that nobody knows hides everything. The form "square" sends w_ji x_i^0 and keeps its
first step. Isotropic shares point anywhere, and B = I sends none. Fresh splits and one receiver
leave the direction. If f_i is no quadratic, ϱ stays open, and the size with it: λ_i^0 lies between
λ (1 − a) and λ. The attack reads g̃_i. If masks are known to be as long as g_i, the direction is
the mask's, and the attack claims nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.masked import ShareSizes, honest_laplacian
from hushgrad.privacy.attacks.pdg import (
    coefficients,
    is_square,
    is_two_step,
    messages,
    net_inflow,
    stepsizes,
    unfit,
    unheard,
    unmasked,
)
from hushgrad.privacy.attacks.span import heard_receivers
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.splits import FreshSplit, PrivateConstantSplit

type Floats = NDArray[np.float64]

_COVERED = 0.3  # of the length of g̃_i: a mask that long turns it by 17° or so
_APART = 1e-6  # relative difference of w_ji / π_j, far above rounding, below which all are equal
_FITS = 1e-6  # relative residual of the affine fit that counts as rounding
_GRID = 65  # values of ϱ that are looked at before the search is refined
_HALVINGS = 60


@dataclass(frozen=True, kw_only=True)
class FirstMessage(Attack):
    """The direction of g_i^0 from one message; with all links g_i^0 itself."""

    first: int = 100  # iterations in which ϱ is fitted: there it moves the steps

    name = "first-message"
    title = "First message"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if reason := unfit(view, target):
            return reason
        if is_square(view):
            return 'the first message of the form "square" is x⁰, not a share of a step'
        split = cast("Private", view.algorithm).splitting
        if not isinstance(split, FreshSplit | PrivateConstantSplit):
            return "shares do not point along the step"
        if not heard_receivers(view, target):
            return f"hears nothing that agent {target} sends"
        if view.dim < 2 and (reason := _open_size(view, target)):
            return f"needs d ≥ 2 for a direction, and for the size: {reason}"
        return None

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        said = -_less_start(view, target)[0].sum(axis=0)
        if not said.any() or not np.isfinite(said).all() or _is_masked(view, target, said):
            return ()
        k = np.array([0])
        found = [
            Estimate(
                attack=self.name, target=target, quantity="direction", k=k, value=said[None]
            )
        ]  # fmt: skip
        g = None if _open_size(view, target) else self._gradient(view, target)
        if g is not None:
            found.append(
                Estimate(attack=self.name, target=target, quantity="gradient", k=k, value=g[None])
            )
        return tuple(found)

    def _gradient(self, view: Knowledge, target: int) -> Floats | None:
        path = steps(view, target, min(self.first, view.iterations - 1))
        if path is None:
            return None
        x, h = path
        rho, residual = fitted_rho(view, x, h)
        if residual > _FITS:
            return None
        return unmasked(view, target, h[0] / stepsizes(view, rho)[0], x[0])


def _open_size(view: Knowledge, target: int) -> str | None:
    """Why the first step itself stays open."""
    if not isinstance(cast("Private", view.algorithm).splitting, PrivateConstantSplit):
        return "splits are not constant"
    if reason := unheard(view, target):
        return reason
    heard = len(heard_receivers(view, target))
    return None if heard > 1 else f"hears {heard} of the messages of agent {target}, 2 needed"


def _is_masked(view: Knowledge, target: int, said: Floats) -> bool:
    """Whether the shares that no member knows are too long for g̃_i to point along g_i."""
    honest, L = honest_laplacian(view)
    partners = float(L[honest.index(target), honest.index(target)])
    mask = ShareSizes.of(view).linear * np.sqrt(partners * view.dim)
    largest = stepsizes(view, 0.0)[0]  # of b_ji λ_i^0: so g̃_i is at least that long
    return bool(mask > _COVERED * np.linalg.norm(said) / largest)


def _start(view: Knowledge) -> Floats:
    """The start of agents as far as the adversary knows it: that of its members, or 0."""
    own = [view.own(j).x[0] for j in sorted(view.members)]
    return np.mean(own, axis=0) if own else np.zeros(view.dim)


def _less_start(view: Knowledge, target: int) -> Floats:
    """The messages heard (n, receivers, d), the first less its public part."""
    receivers = heard_receivers(view, target)
    said = np.nan_to_num(messages(view, target, receivers))
    said[0] -= coefficients(view, target, receivers).sum(axis=1)[:, None] * _start(view)
    return said


def steps(view: Knowledge, target: int, n: int) -> tuple[Floats, Floats] | None:
    """x_i^k and h_i^k, (n, d) each, from a constant split; None where messages do not differ."""
    said = _less_start(view, target)[: n + 1]
    pi = said[0] @ said[0].sum(axis=0)  # b_ji up to one factor
    if n < 1 or not (np.abs(pi) > 0).all():
        return None
    weights = coefficients(view, target, heard_receivers(view, target))[:, 0] / pi
    apart = weights - weights.mean()
    if np.linalg.norm(apart) <= _APART * np.linalg.norm(weights):
        return None
    # Σ_j n_j v_ji / π_j with Σ_j n_j = 0 leaves the position
    y = np.einsum("j,kjd->kd", apart, said / pi[:, None]) / (apart @ weights)
    x = np.empty_like(y)
    x[0] = _start(view)
    for k in range(1, n + 1):
        x[k] = y[k] + x[k - 1] / 2 if is_two_step(view) else y[k]
    F, moved = net_inflow(view, target)[:n], x[1:] - x[:-1]
    return x[:-1], (np.cumsum(F, axis=0) if is_two_step(view) else F) - moved


def fitted_rho(view: Knowledge, x: Floats, h: Floats) -> tuple[float, float]:
    """The ϱ for which h / λ(ϱ) is nearest to affine in x, and the relative residual there.

    A grid finds the valley, halving finds its floor. For d + 1 points or fewer every ϱ fits, and
    the residual is infinite: nothing is known.
    """
    if len(x) < x.shape[1] + 3:
        return 0.5, np.inf
    middle = x.mean(axis=0)
    design = np.column_stack([np.ones(len(x)), x - middle])
    design /= np.maximum(np.linalg.norm(design, axis=0), 1e-300)
    basis, sizes, _ = np.linalg.svd(design, full_matrices=False)
    basis = basis[:, sizes > 1e-9 * sizes[0]]

    def residual(rho: float) -> float:
        lam = stepsizes(view, rho)[: len(h)]
        if not (lam > 0).all():
            return np.inf
        g = h / lam[:, None]
        off = g - basis @ (basis.T @ g)
        return float(np.linalg.norm(off) / max(np.linalg.norm(g - g.mean(axis=0)), 1e-300))

    grid = np.linspace(0.0, 1.0, _GRID)
    at = int(np.argmin([residual(rho) for rho in grid]))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, _GRID - 1)]
    for _ in range(_HALVINGS):
        third = (high - low) / 3
        if residual(low + third) < residual(high - third):
            high -= third
        else:
            low += third
    return float(low + high) / 2, residual(float(low + high) / 2)
