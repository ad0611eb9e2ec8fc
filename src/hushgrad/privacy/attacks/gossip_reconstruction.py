"""Gossip reconstruction: a few curious agents against agents that are not their neighbours.

**Averaging.** In x^{k+1} = W x^k the coalition sees x_j^k of every agent j ∈ S that some member
hears, members included. Everything that it sees is linear in the secrets x^0:

    y = K x^0,        K = [E_S; E_S W; E_S W²; …]        E_S: the rows S of I

with the knowledge matrix K, and x_i^0 is determined if and only if the unit vector e_i lies in the
row space of K. After m rounds K grows no further (Cayley and Hamilton). On most graphs the row
space is everything. If a symmetry of the graph exchanges agents without moving S, it has their sums
only.

**DGD**, x^{k+1} = W x^k − h^k, h = λg. With the unknowns [x^0; h^0; h^1; …] K is again built row by
row (`steps=True`), but now each relay j adds an unknown h_j^k of its own to the vectors that it
passes on. The row space has those h_j^k only whose sender j is in S with all agents that j listens
to. The inversion of DGD gives the same, and no agent further away is reached, whatever the
gradients were.

The attack reaches further because gradients are not arbitrary. With a common start x^0 = 1cᵀ, z = x
− 1cᵀ and small stepsizes they hardly change in the first iterations, g_i^k = g_i^0 + drift:

    z^{k+1} = W z^k − λ^k (g^0 + k a + Σ_{l<k} ξ^l),        z^0 = 0

Without drift the differences z^{k+1} − z^k average −λg^0, as above. The drift (a slope a_i and a
random walk ξ_i^l) is unknown too, but the members know its size τ from their own gradients. So K
has columns for g^0, and columns for a and ξ that are weighed by τ; the projection of e_i on its row
space then says how well g_i^0 is known beside the drift. The change of the members' own gradients
is known and subtracted. The smaller λL, the further the attack sees.

**Doubt.** With K = UΣVᵀ and the tolerance ε = 1e-10 σ_max, the estimate is V Σ(Σ² + ε²)⁻¹ Uᵀ y, and

    doubt_i² = 1 − Σ_r V_ir² σ_r² / (σ_r² + ε²)

is the part of e_i outside of the row space: 0 if unknown i is determined, 1 if nothing is known of
it. The attack gives an estimate only if the doubt is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.dgd import DGD
from hushgrad.privacy.attacks.base import Attack, Estimate
from hushgrad.privacy.attacks.broadcasts import Broadcast, ears
from hushgrad.privacy.attacks.pdg import stepsizes
from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]

_TOLERANCE = 1e-10  # singular values below this part of the largest are rounding
_WILD = 1e6  # a drift beside which nothing is known: of members, too, who start at their minimum
_SAME = 1e-12  # relative difference of starting points that counts as rounding
_X = Broadcast(letter="W")


def knowledge(W: Floats, observed: Sequence[int], rounds: int, *, steps: bool = False) -> Floats:
    """K (rounds · observed, unknowns): what is seen of x^0 … x^{rounds−1} at `observed`.

    The unknowns are x^0 (m of them) of x⁺ = Wx; with `steps` x^0, h^0, …, h^{rounds−2} of
    x⁺ = Wx − h.

    >>> knowledge(np.array([[0.5, 0.5], [0.5, 0.5]]), [0], 2)
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    m = len(W)
    x = np.eye(m, m * (rounds if steps else 1))
    rows: list[Floats] = []
    for k in range(rounds):
        rows.append(x[list(observed)])
        x = W @ x
        if steps and k < rounds - 1:
            x[:, (k + 1) * m : (k + 2) * m] -= np.eye(m)
    return np.concatenate(rows)


def reconstruct(K: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The unknowns (unknowns, d) from y = K · unknowns (rows, d), and the doubt of each."""
    U, sigma, Vt = np.linalg.svd(K, full_matrices=False)
    noise = (_TOLERANCE * sigma[0]) ** 2
    found = Vt.T @ ((sigma / (sigma**2 + noise))[:, None] * (U.T @ y))
    inside = (Vt**2 * (sigma**2 / (sigma**2 + noise))[:, None]).sum(0)
    return found, np.sqrt(np.maximum(0.0, 1.0 - inside))


@dataclass(frozen=True, kw_only=True)
class GossipReconstruction(Attack):
    """g_i^0 of DGD, or with `averaging` x_i^0 of plain averaging, of agents that nobody hears."""

    averaging: bool = False  # whether all objectives are known to be zero
    rounds: int = 20  # first iterations of DGD that are used
    most_doubt: float = 0.05  # beyond it nothing is claimed

    name = "gossip-reconstruction"
    title = "gossip reconstruction"

    def applies(self, view: Knowledge, target: int) -> str | None:
        if not isinstance(view.algorithm, DGD):
            return f"reconstructs DGD, not {view.algorithm.title}"
        if target in view.members:
            return f"agent {target} belongs to the adversary"
        observed = _observed(view)
        if self.averaging:
            return None if observed else "hears nobody"
        if not view.members:
            return "needs a curious agent, whose own gradients show how fast gradients drift"
        start = np.array([_X.said(view, j)[0] for j in observed])
        if np.abs(start - start[0]).max() > _SAME * np.abs(start).max():
            return "needs a common start, but those who are heard start at different points"
        return None

    def __call__(self, view: Knowledge, target: int) -> tuple[Estimate, ...]:
        if self.averaging:
            system, place = _averaging(view), target
        else:
            system = _early_gradients(view, min(self.rounds, view.iterations))
            place = _others(view).index(target)
        found, doubt = reconstruct(*system)
        if doubt[place] > self.most_doubt:
            return ()
        return (
            Estimate(
                attack=self.name,
                target=target,
                quantity="position" if self.averaging else "gradient",
                k=np.array([0]),
                value=found[place][None],
            ),
        )


def _observed(view: Knowledge) -> list[int]:
    return [j for j in range(view.n_agents) if ears(view, j)]


def _others(view: Knowledge) -> list[int]:
    return [i for i in range(view.n_agents) if i not in view.members]


def _averaging(view: Knowledge) -> tuple[Floats, Floats]:
    observed, rounds = _observed(view), min(view.n_agents, view.iterations)
    seen = np.stack([_X.said(view, j)[:rounds] for j in observed], axis=1)
    return knowledge(_X.matrix(view), observed, rounds), seen.reshape(-1, view.dim)


def _early_gradients(view: Knowledge, rounds: int) -> tuple[Floats, Floats]:
    """K of [g^0; a; ξ^0; …; ξ^{rounds−2}] of the others, drifts in units of τ, and what is seen."""
    W, lam, observed, others = _X.matrix(view), stepsizes(view), _observed(view), _others(view)
    seen = np.stack([_X.said(view, j)[:rounds] for j in observed], axis=1)
    start, tau, n = seen[0, 0].copy(), _drift(view, rounds), len(others)
    z = np.zeros((view.n_agents, n * (rounds + 1)))
    z_known = np.zeros((view.n_agents, view.dim))
    rows: list[Floats] = []
    for k in range(rounds):
        rows.append(z[observed])
        seen[k] -= start + z_known[observed]
        z, z_known = W @ z, W @ z_known
        step = np.concatenate([[1.0, tau * k], np.full(k, tau), np.zeros(rounds - 1 - k)])
        z[others] -= lam[k] * np.kron(step, np.eye(n))
        for member in view.members:
            own = view.own(member)
            z_known[member] -= own.lam[k] * own.gradients[k]
    return np.concatenate(rows), seen.reshape(-1, view.dim)


def _drift(view: Knowledge, rounds: int) -> float:
    """τ: how far the members' own gradients move in an iteration, against their size."""
    own = np.stack([view.own(i).gradients[:rounds] for i in view.members])
    moved, size = np.sqrt(np.mean(np.diff(own, axis=1) ** 2)), np.sqrt(np.mean(own[:, 0] ** 2))
    return float(moved / size) if moved < _WILD * size else _WILD
