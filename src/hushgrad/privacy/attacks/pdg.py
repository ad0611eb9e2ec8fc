"""The start of the attacks on PDG-DS and PDG-NDS: public weights, flows, imagined stepsizes.

The wire from i to j carries, with h = λg (PAPER letters; first index receives),

    PDG-DS      v_ji = w_ji x_i^k − b_ji h_i^k
    "lazy"      v_ji = m_ji (2x_i^k − x_i^{k−1}) − b_ji (h_i^k − h_i^{k−1}),      m_ji = w_ji / 2
    "square"    v_ji = 2w_ji x_i^k − (W²)_ji x_i^{k−1} − b_ji (h_i^k − h_i^{k−1}),
                first v_ji = w_ji x_i^0

that is c_ji · (x_i^k, x_i^{k−1}) − b_ji s_i^k with public c and a secret step s, h or its change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Private
from hushgrad.algorithms.pdg_ds import PDGDS
from hushgrad.algorithms.pdg_nds import PDGNDS
from hushgrad.draws import Stream
from hushgrad.mixing import Kind
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.splits import FreshSplit, PrivateConstantSplit

type Floats = NDArray[np.float64]


def unfit(view: Knowledge, target: int) -> str | None:
    """Why no attack on the PDG family can be tried here."""
    if not isinstance(view.algorithm, PDGDS | PDGNDS):
        return f"{view.algorithm.title} is not of the PDG family"
    if target in view.members:
        return f"agent {target} belongs to the adversary"
    return None


def flat(view: Knowledge) -> str | None:
    """Why directions tell nothing here."""
    return "needs d ≥ 2: for d = 1 all directions are the same" if view.dim < 2 else None


def unheard(view: Knowledge, target: int) -> str | None:
    """Why the net inflow of the target is not known."""
    links = [link for link in view.links if target in link]
    heard = sum(link in view.heard for link in links)
    if heard == len(links):
        return None
    return f"hears {heard} of the {len(links)} links of agent {target}"


def is_two_step(view: Knowledge) -> bool:
    """Whether messages carry changes of h (PDG-NDS), not h itself (PDG-DS)."""
    return isinstance(view.algorithm, PDGNDS)


def is_square(view: Knowledge) -> bool:
    return isinstance(view.algorithm, PDGNDS) and view.algorithm.form == "square"


def mixing(view: Knowledge) -> Floats:
    """W, (m, m)."""
    return view.network.matrix(Kind.DOUBLY)


def coefficients(view: Knowledge, i: int, receivers: Sequence[int]) -> Floats:
    """c_ji (receivers, 2): what x_i^k and x_i^{k−1} weigh in a message from i."""
    W = mixing(view)
    w = W[list(receivers), i]
    if is_square(view):
        return np.column_stack([2 * w, -(W @ W)[list(receivers), i]])
    return np.column_stack([w, -w / 2] if is_two_step(view) else [w, 0 * w])


def messages(view: Knowledge, i: int, receivers: Sequence[int]) -> Floats:
    """v_ji^k, (n, receivers, d), NaN where a link was silent."""
    return np.stack([view.sent(i, j) for j in receivers], axis=1)


def outflow(view: Knowledge, i: int) -> Floats:
    """Σ_{j≠i} v_ji^k, (n, d)."""
    return np.nansum(messages(view, i, view.out_links(i)), axis=1)


def net_inflow(view: Knowledge, i: int) -> Floats:
    """F^k = Σ_{j≠i} (v_ij^k − v_ji^k), (n, d)."""
    received = np.stack([view.sent(j, i) for j in view.in_links(i)], axis=1)
    return np.nansum(received, axis=1) - outflow(view, i)


def mean_weights(view: Knowledge, i: int) -> dict[int, float]:
    """E b_ji by receiver, i included."""
    split, receivers = cast("Private", view.algorithm).splitting, view.out_links(i)
    if isinstance(split, PrivateConstantSplit) and split.own is not None:
        own = 0.75 * split.own
    elif isinstance(split, FreshSplit | PrivateConstantSplit):
        own = 1.0 / (len(receivers) + 1)
    else:  # isotropic shares have mean zero, and B = I keeps all
        own = 1.0
    return dict.fromkeys(receivers, (1.0 - own) / len(receivers)) | {i: own}


def known_mask(view: Knowledge, target: int) -> Floats:
    """[Q | c] (d, d + 1): what members share of the target's mask, and so can take off."""
    found = np.zeros((view.dim, view.dim + 1))
    for j in view.members:
        share = view.own(j).shared.get(target)
        if share is not None:
            found[:, -1] += share.c
            found[:, :-1] += 0.0 if share.Q is None else share.Q
    return found


def unmasked(view: Knowledge, target: int, g: Floats, x: Floats | None = None) -> Floats:
    """g (…, d) less the known part of the mask at x (…, d), by default where members end."""
    mask = known_mask(view, target)
    if not mask.any():
        return g
    if x is None:
        x = np.mean([view.own(j).x[-1] for j in view.members], axis=0)
    return g - x @ mask[:, :-1] - mask[:, -1]


def stepped_gradients(view: Knowledge, member: int) -> Floats:
    """The gradients with which a member steps, its mask included, (n, d)."""
    own = view.own(member)
    if own.mask is None:
        return own.gradients
    return own.gradients + np.array([own.mask.gradient(x) for x in own.x[:-1]])


class _Imagined:
    """An agent as outsiders picture it: the same ϱ in every iteration, and no burst."""

    xp = np

    def __init__(self, n: int, rho: float):
        self.k, self.rho = np.arange(float(n)), rho

    def uniform(self, stream: Stream, *, slot: int = 0, once: bool = False) -> Any:
        del stream, once
        return self.rho if slot == 0 else 0.0


def stepsizes(view: Knowledge, rho: float = 0.5) -> Floats:
    """λ^k (n,) as the public schedule gives it for one ϱ: by default for its mean."""
    lam = cast("Private", view.algorithm).lam(_Imagined(view.iterations, rho))
    return np.broadcast_to(np.asarray(lam, np.float64), view.iterations)
