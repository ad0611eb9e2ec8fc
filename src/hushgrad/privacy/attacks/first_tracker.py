"""The first tracker message: a gradient in clear.

Trackers start at y_i^0 = g_i^0, so the first message about them is a gradient (trackers.py):

    DIGing, Push-Pull, ADD-OPT     t_i^0 = y_i^0 = g_i^0
    AB, Aug-DGM                    t_i^0 = y_i^0 + g_i^1 − g_i^0 = g_i^1

One heard link out of i is enough; where the sender weighs (Push-Pull, ADD-OPT, AB), the public
weight c_li is divided out. No stepsize enters. Later messages need what i receives:
telescoped_trackers.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.broadcasts import silent
from hushgrad.privacy.attacks.trackers import TRACKING
from hushgrad.privacy.knowledge import Knowledge


@dataclass(frozen=True, kw_only=True)
class FirstTracker(Attack):
    """g_i^0 or g_i^1 from one link."""

    name = "first-tracker"
    title = "first tracker message"

    def applies(self, view: Knowledge, target: int) -> str | None:
        tracking = TRACKING.get(type(view.algorithm))
        if tracking is None:
            return f"{view.algorithm.title} does not send a tracker first"
        return silent(view, target, with_senders=False, iterations=1 + tracking.lag)

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        tracking = TRACKING[type(view.algorithm)]
        value = tracking.broadcast.said(view, target)[:1]
        return (
            Estimate(
                attack=self.name, target=target, quantity="gradient", k=np.array([tracking.lag]),
                value=value,
            ),
        )  # fmt: skip
