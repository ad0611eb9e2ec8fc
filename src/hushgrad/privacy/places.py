"""The places of the agents of a rendezvous, as an adversary reconstructs them, for the lab."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.attacks.base import Estimate
from hushgrad.problems import Problem

type Floats = NDArray[np.float64]

_FLAT = 1e-6  # curvature against the largest: of a rendezvous all are the same


def true_places(problem: Problem) -> Floats | None:
    """p_i (m, 2) of a rendezvous in the plane, else None."""
    if problem.name != "rendezvous" or problem.dim != 2:
        return None
    return np.array([problem.agent_data(i)["p"] for i in range(problem.n_agents)])


def recovered_place(
    attack: str, estimates: Sequence[Estimate], theta: Floats
) -> tuple[float, ...] | None:
    """p_i from what an attack gave of g_i(θ) = 2(θ − p_i), or None."""
    positions = [(e.k, e.value) for e in estimates if e.quantity == "position" and e.k is not None]
    for e in (e for e in estimates if e.attack == attack and np.isfinite(e.value).all()):
        found: Floats | None = None
        if e.quantity == "data":
            found = e.value
        elif e.quantity == "gradient at optimum":
            found = theta - e.value / 2
        elif e.quantity == "objective":
            found = -np.linalg.lstsq(e.value[:, :-1], e.value[:, -1], rcond=_FLAT)[0]
        elif e.quantity == "gradient" and e.k is not None:
            for k, x in positions:
                _, at_x, at_g = np.intersect1d(k, e.k, return_indices=True)
                if len(at_x):
                    found = np.median(x[at_x] - e.value[at_g] / 2, axis=0)
        if found is not None:
            return tuple(map(float, found))
    return None
