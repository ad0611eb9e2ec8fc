"""The vectors that gradient trackers send, for the attacks on them.

With t the vector that an agent sends and y its tracker, y^0 = g^0:

                 t_i^k                        y_i^{k+1}
    DIGing       y^k                          Σ_j w_ij t_j^k + g^{k+1} − g^k
    Push-Pull    y^k                          Σ_j c_ij t_j^k + g^{k+1} − g^k
    ADD-OPT      y^k (its letter is w)        Σ_j c_ij t_j^k + g^{k+1} − g^k
    AB           y^k + g^{k+1} − g^k          Σ_j c_ij t_j^k
    Aug-DGM      y^k + g^{k+1} − g^k          Σ_j w_ij t_j^k
    AsynDGM      y^k + g^{k+1} − g^k          (t_i^k + t_j^k)/2 with the partner j, if i is awake

so t_i^k = (y_i^k − g_i^k) + g_i^{k+lag}, with lag 0 in the first three and 1 in the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hushgrad.algorithms.ab import AB
from hushgrad.algorithms.add_opt import ADDOPT
from hushgrad.algorithms.aug_dgm import AugDGM
from hushgrad.algorithms.base import Algorithm
from hushgrad.algorithms.diging import DIGing
from hushgrad.algorithms.push_pull import PushPull
from hushgrad.privacy.attacks.broadcasts import Broadcast


@dataclass(frozen=True)
class Tracking:
    """The way in which a method sends its trackers."""

    broadcast: Broadcast
    lag: int  # t^k holds g^{k + lag}


TRACKING: Mapping[type[Algorithm], Tracking] = {
    DIGing: Tracking(Broadcast(letter="W", exchange=1), 0),
    PushPull: Tracking(Broadcast(letter="C", exchange=1, pushed=True), 0),
    ADDOPT: Tracking(Broadcast(letter="C", exchange=2, pushed=True), 0),
    AB: Tracking(Broadcast(letter="C", round=1, pushed=True), 1),
    AugDGM: Tracking(Broadcast(letter="W", round=1), 1),
}
