"""Flow: an adversary that hears all links of agent i knows the part that i keeps to itself.

The columns of W, M, W² and B sum to one, so all shares of agent i add up to a vector in which no
secret weight is left. With the net inflow F^k = Σ_{j≠i} (v_ij^k − v_ji^k), which is heard,

    PDG-DS      x_i^{k+1} = x_i^k − h_i^k + F^k                                      h = λg
    PDG-NDS     x_i^{k+1} = 2x_i^k − x_i^{k−1} − (h_i^k − h_i^{k−1}) + F^k

**PDG-NDS** telescopes, in both forms, whatever the start (lazy: x^{−1} = x^0, h^{−1} = 0; square:
x_i^1 = x_i^0 − h_i^0 + F^0):

    Σ_{l≤k} F^l = h_i^k + x_i^{k+1} − x_i^k  →  λ g_i(θ*)

The iterates come to rest, λ is known in the limit: g_i(θ*) by division, averaged over the last
iterations so that ϱ averages out too.

**PDG-DS** gives, summed by parts, for any weights s_k that begin and end with zero,

    Σ_k s_k h_i^k = Σ_k s_k F^k + Σ_k (s_k − s_{k−1}) x_i^k

Over [a, b] the stepsizes add up to about log b/a, however late. The x_i^k are known from the
messages, Σ_{j≠i} v_ji = (1 − w_ii) x_i − (1 − b_ii) h_i, up to h ~ λ, and windows s that rise and
fall slowly average that. As h_i^k = λ^k (g_i(θ*) + H_i (x_i^k − θ*)), a regression over several
windows on Σ s λ and on Σ s λ (x_i − x_i^end), in the directions where these move, separates
g_i(θ*) from the approach to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.pdg import (
    is_two_step,
    mixing,
    net_inflow,
    outflow,
    stepsizes,
    unfit,
    unheard,
    unmasked,
)
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]

_TAIL = 20  # the last 1/20 of the iterations is the end of a run
_WINDOWS = 12
_OLDEST = 200  # windows begin at 1/200 of the run: later than the transient, long in ratio
_DIRECTIONS = 2  # in which the approach to θ* is taken out
_RIDGE = 1e-9  # of what x weighs in a window: an approach that is smaller is not told from rounding


@dataclass(frozen=True, kw_only=True)
class Flow(Attack):
    """g_i(θ*) from the net inflow of agent i."""

    name = "flow"
    title = "Flow"

    def applies(self, view: Knowledge, target: int) -> str | None:
        reason = unfit(view, target) or unheard(view, target)
        if reason is None and not is_two_step(view) and view.iterations < 2 * _OLDEST:
            return f"needs {2 * _OLDEST} iterations, the run has {view.iterations}"
        return reason

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        g = _telescoped(view, target) if is_two_step(view) else _regressed(view, target)
        g = unmasked(view, target, g)
        return (Estimate(attack=self.name, target=target, quantity="gradient at optimum", value=g),)


def _telescoped(view: Knowledge, target: int) -> Floats:
    tail = -max(1, view.iterations // _TAIL)
    sums = np.cumsum(net_inflow(view, target), axis=0)
    return (sums[tail:] / stepsizes(view)[tail:, None]).mean(axis=0)


def _regressed(view: Knowledge, target: int) -> Floats:
    lam = stepsizes(view)
    x = outflow(view, target) / (1.0 - mixing(view)[target, target])
    s, middle = _windows(view.iterations)
    steps = summed_by_parts(s, net_inflow(view, target), x)
    approach = (s * lam) @ (x - x[-max(1, view.iterations // _TAIL) :].mean(axis=0))
    axes = np.linalg.svd(approach, full_matrices=False)[2][:_DIRECTIONS]
    design = np.column_stack([s @ lam, approach @ axes.T])
    ridge = _RIDGE * np.abs(x).max() * (s @ lam * middle[:, 0]).max()
    held = ridge * np.eye(design.shape[1])[1:]  # so that no column is ever nothing but rounding
    # later windows are more exact, in proportion to k
    rows = np.concatenate([design * middle, held])
    sums = np.concatenate([steps * middle, np.zeros((len(held), view.dim))])
    return np.linalg.lstsq(rows, sums, rcond=None)[0][0]


def summed_by_parts(s: Floats, F: Floats, x: Floats) -> Floats:
    """Σ_k s_k h^k (windows, d) from weights s (windows, n), F (n, d) and x (n, d)."""
    return s @ F + np.diff(s, axis=1, prepend=0.0) @ x


def _windows(n: int) -> tuple[Floats, Floats]:
    """Triangles s (windows, n) between three successive edges, even in log k, and their middles."""
    edges = np.geomspace(n / _OLDEST, n - 1, _WINDOWS + 2)
    s = np.stack(
        [np.interp(np.arange(n), edges[e : e + 3], [0.0, 1.0, 0.0]) for e in range(_WINDOWS)]
    )
    return s, edges[1:-1, None]
