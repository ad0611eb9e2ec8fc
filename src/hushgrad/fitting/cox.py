"""Cox's partial likelihood of one site's rows; the sites are its strata.

At the n-th event of a site let R be the rows still at risk and D the rows whose event has the same
time. With ties in Efron's way the l-th of the d events of D (l = 0 … d − 1) has the denominator

    S = Σ_R e^η − (l/d) Σ_D e^η                 (Breslow: without the second part)

    f = −Σ_events (η − log S),     g = −Σ_events (z − E),     E = (Σ_R z e^η − (l/d) Σ_D z e^η) / S

The Hessian is Σ_events (second moment / S − E Eᵀ). The sum of second moments is one weighted sum of
z zᵀ over the rows: a row's weight is e^η times Σ 1/S over the events while it is at risk.

`site_sums.py` makes the sums of a site with it, `site_check.py` its own check.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.fitting.determined import CoxNumbers
from hushgrad.fitting.sums import Vector


@dataclass(frozen=True, eq=False)
class Risk:
    """The order of a site's times. Rows are sorted by time, latest first."""

    order: NDArray[np.intp]  # (n,)
    last: NDArray[np.intp]  # (events,) the last sorted row that is at risk at the event
    block: NDArray[np.intp]  # (events,) the number of the event's time
    part: Vector  # (events,) l/d
    dead: NDArray[np.intp]  # (events,) the sorted row of each event
    n_blocks: int


def risk(time: Vector, event: Vector, ties: str) -> Risk:
    order = np.lexsort((event, -time))
    sorted_time = time[order]
    dead = np.flatnonzero(event[order] > 0.5)
    _, block, count = np.unique(-sorted_time[dead], return_inverse=True, return_counts=True)
    first = np.concatenate([[0], np.cumsum(count)])[:-1]
    part = (np.arange(len(dead)) - first[block]) / count[block]
    last = np.searchsorted(-sorted_time, -sorted_time[dead], side="right") - 1
    return Risk(order, last, block, part if ties == "efron" else 0 * part, dead, len(count))


def partial_likelihood(at: Risk, rows: Vector, eta: Vector) -> tuple[float, Vector, Vector]:
    """f, g (p,) and H (p, p) of the rows z (n, p) with the linear predictor η (n,)."""
    Z, eta = rows[at.order], eta[at.order]
    if not len(at.dead):
        return 0.0, np.zeros(Z.shape[1]), np.zeros((Z.shape[1], Z.shape[1]))
    size = np.exp(eta - eta.max())  # the constant cancels in every quotient
    moment = Z * size[:, None]
    tied, tied_moment = np.zeros(at.n_blocks), np.zeros((at.n_blocks, Z.shape[1]))
    np.add.at(tied, at.block, size[at.dead])
    np.add.at(tied_moment, at.block, moment[at.dead])
    S = np.cumsum(size)[at.last] - at.part * tied[at.block]
    first = np.cumsum(moment, axis=0)[at.last] - at.part[:, None] * tied_moment[at.block]
    E = first / S[:, None]
    f = float((np.log(S) + eta.max() - eta[at.dead]).sum())
    g = E.sum(axis=0) - Z[at.dead].sum(axis=0)
    at_risk = np.zeros(len(eta))
    np.add.at(at_risk, at.last, 1 / S)
    at_risk = np.cumsum(at_risk[::-1])[::-1]  # Σ 1/S over the events while the row is at risk
    less = np.zeros(at.n_blocks)
    np.add.at(less, at.block, at.part / S)
    at_risk[at.dead] -= less[at.block]
    H = (Z * (size * at_risk)[:, None]).T @ Z - E.T @ E
    return f, g, H


def numbers(at: Risk, rows: Vector, gamma: Vector) -> CoxNumbers:
    """The part of every row in the derivatives of f, g and H (determined.py), in row order."""
    (n, p), (a, b) = rows.shape, np.triu_indices(rows.shape[1])
    Z, eta = rows[at.order], rows[at.order] @ gamma
    size = np.exp(eta - eta.max())
    pairs = Z[:, a] * Z[:, b]
    moments = np.column_stack([np.ones(n), Z, pairs]) * size[:, None]  # (n, 1 + p + pairs)
    tied = np.zeros((at.n_blocks, moments.shape[1]))
    np.add.at(tied, at.block, moments[at.dead])
    sums = np.cumsum(moments, axis=0)[at.last] - at.part[:, None] * tied[at.block]
    S = sums[:, :1]
    E, second = sums[:, 1 : p + 1] / S, sums[:, p + 1 :] / S
    told = np.column_stack([np.ones(len(S)), E, 2 * E[:, a] * E[:, b] - second]) / S  # of an event
    later = np.zeros((n, told.shape[1]))
    np.add.at(later, at.last, told)
    later = np.cumsum(later[::-1], axis=0)[::-1]  # over the events while the row is at risk
    less = np.zeros((at.n_blocks, told.shape[1]))
    np.add.at(less, at.block, at.part[:, None] * told)
    later[at.dead] -= less[at.block]
    found = np.zeros((n, told.shape[1] + 1))
    found[at.order, :-1] = later * size[:, None]
    found[at.order[at.dead], -1] = 1.0
    lengths = np.sqrt((rows**2).sum(axis=1))
    A, B, C, event = found[:, 0], found[:, 1 : p + 1], found[:, p + 1 : -1], found[:, -1]
    return CoxNumbers(A, B, C, event, lengths, gamma)
