"""Estimates in clear: x_i^k read off one link.

    DGD, DIGing, AB     the wire carries x_j^k
    EXTRA               x_j^0, then u_j^k = 2x_j^k − x_j^{k−1}: x_j^k = (u_j^k + x_j^{k−1}) / 2
    ADD-OPT             c_ij x_j^k and c_ij y_j^k: the estimate is their ratio, c_ij drops out
    Push-Pull           u_j^k = x_j^k − λ^k y_j^k and c_ij y_j^k: x_j^k = u_j^k + λ^k y_j^k, with
                        the public c_ij and λ^k (its mean, where stepsizes deviate)

One heard link out of i is enough. Aug-DGM and AsynDGM send x − λy without y beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.ab import AB
from hushgrad.algorithms.add_opt import ADDOPT
from hushgrad.algorithms.base import Algorithm
from hushgrad.algorithms.dgd import DGD
from hushgrad.algorithms.diging import DIGing
from hushgrad.algorithms.extra import EXTRA
from hushgrad.algorithms.push_pull import PushPull
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.broadcasts import Broadcast, silent
from hushgrad.privacy.attacks.pdg import stepsizes
from hushgrad.privacy.attacks.trackers import TRACKING
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]


def _sent(letter: str) -> Callable[[Knowledge, int], Floats]:
    return Broadcast(letter=letter).said


def unrolled(u: Floats) -> Floats:
    """x^k of u^0 = x^0, u^k = 2x^k − x^{k−1}."""
    x = u.copy()
    for k in range(1, len(x)):
        x[k] = (u[k] + x[k - 1]) / 2
    return x


def _extra(view: Knowledge, i: int) -> Floats:
    return unrolled(Broadcast(letter="W").said(view, i))


def _add_opt(view: Knowledge, i: int) -> Floats:
    x, y = (Broadcast(letter="C", exchange=e, pushed=True).said(view, i) for e in (0, 1))
    return x / y


def _push_pull(view: Knowledge, i: int) -> Floats:
    y = TRACKING[PushPull].broadcast.said(view, i)
    return Broadcast(letter="R").said(view, i) + stepsizes(view)[:, None] * y


_READ: Mapping[type[Algorithm], Callable[[Knowledge, int], Floats]] = {
    DGD: _sent("W"),
    DIGing: _sent("W"),
    AB: _sent("R"),
    EXTRA: _extra,
    ADDOPT: _add_opt,
    PushPull: _push_pull,
}


@dataclass(frozen=True, kw_only=True)
class EstimatesInClear(Attack):
    """x_i^k for all k from one link."""

    name = "estimates-in-clear"
    title = "estimates in clear"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if type(view.algorithm) not in _READ:
            return f"{view.algorithm.title} does not send its estimates"
        return silent(view, target, with_senders=False)

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        x = _READ[type(view.algorithm)](view, target)
        return (
            Estimate(
                attack=self.name, target=target, quantity="position", k=np.arange(len(x)), value=x
            ),
        )
