"""Telescoped trackers: the flow in and out of an agent adds up to its gradient.

The columns of C (of W, if it is doubly stochastic) sum to one. So i either sends or keeps every
part of its vector, and in every method of trackers.py the part of the tracker that is not its own
gradient, D_i = y_i − g_i, changes by the flow over the links of i alone:

    D_i^{k+1} = D_i^k + Σ_{j≠i} a_ij t_j^k − Σ_{l≠i} a_li t_i^k,        D_i^0 = 0

For AB, with s = y + g⁺ − g for t: y_i⁺ = c_ii s_i + Σ_{j≠i} c_ij s_j = s_i − Σ_{l≠i} c_li s_i +
Σ_{j≠i} c_ij s_j; subtract g_i⁺. For Push-Pull, ADD-OPT and DIGing the same holds with y for s and
g⁺ − g added outside. Aug-DGM is AB with C = W. In AsynDGM the two ends of the link that is awake
exchange halves; x_i and g_i rest while i sleeps.

1. D_i^n is a sum of messages. As the iterates settle, Σ_i y_i = Σ_i g_i → 0 and every y_i → 0, so
   g_i(θ*) = −D_i^∞: Wang & Nedić's attack on AB by a sole neighbour. It uses neither weights nor
   stepsizes, and works though both be secret and vary.
2. Where the weights are public, one message of i gives t_i^k, and with it every gradient,

       g_i^{k+lag} = t_i^k − D_i^k,

   to rounding, from the first iteration on.

Both need all messages that i receives and all that it sends. A message that is not heard itself
counts as heard if its sender sends the same vector to a neighbour that is. A sender of i that
nobody hears leaves a_ij t_j^k in D_i, for good.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.asyn_dgm import AsynDGM
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.broadcasts import silent
from hushgrad.privacy.attacks.trackers import TRACKING
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TelescopedTrackers(Attack):
    """g_i^k for all k, and g_i(θ*), from the flow of trackers."""

    name = "telescoped-trackers"
    title = "telescoped trackers"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if isinstance(view.algorithm, AsynDGM):
            return _unheard_pair(view, target)
        tracking = TRACKING.get(type(view.algorithm))
        if tracking is None:
            return f"{view.algorithm.title} sends no trackers"
        return silent(view, target, with_senders=True, iterations=1 + tracking.lag)

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        if isinstance(view.algorithm, AsynDGM):
            said, flow, lag = *_pairwise(view, target), 1
        else:
            tracking = TRACKING[type(view.algorithm)]
            sent, lag = tracking.broadcast, tracking.lag
            said = sent.said(view, target)
            flow = sent.received(view, target) - sent.given(view, target)
        D = np.concatenate([np.zeros((1, view.dim)), np.cumsum(flow, axis=0)])
        k, g = _known(said - D[:-1], lag)
        return (
            Estimate(attack=self.name, target=target, quantity="gradient", k=k, value=g),
            Estimate(attack=self.name, target=target, quantity="gradient at optimum", value=-D[-1]),
        )


def _unheard_pair(view: Knowledge, target: int) -> str | None:
    """Why AsynDGM's target cannot be followed: who wakes with it speaks to it alone."""
    links = [link for link in view.links if target in link]
    heard = [link for link in links if link in view.heard]
    if len(heard) < len(links):
        return f"hears {len(heard)} of the {len(links)} links of agent {target}"
    if target in view.members:
        return f"agent {target} belongs to the adversary"
    if view.iterations < 2 or not any(
        np.isfinite(view.sent(*link, round=1)[:-1]).any() for link in links
    ):
        return f"agent {target} was never awake"
    return None


def _pairwise(view: Knowledge, i: int) -> tuple[Floats, Floats]:
    """t_i^k of AsynDGM, NaN while i sleeps, and what flows in less what flows out, (n, d)."""
    sent = np.stack([view.sent(i, j, round=1) for j in view.out_links(i)])
    told = np.stack([view.sent(j, i, round=1) for j in view.in_links(i)])
    asleep = np.isnan(sent).all(0)
    said = np.where(asleep, np.nan, 2.0 * np.nansum(sent, axis=0))
    return said, np.nansum(told, axis=0) - np.nansum(sent, axis=0)


def _known(g: Floats, lag: int) -> tuple[NDArray[np.int64], Floats]:
    """The iterations k + lag < n whose gradient is known: it stays what it was where t was not
    said.
    """
    n = len(g)
    spoken = np.isfinite(g).all(1)
    last = np.maximum.accumulate(np.where(spoken, np.arange(n), -1))[: n - lag]
    since = np.flatnonzero(last >= 0)
    return since + lag, g[last[since]]
