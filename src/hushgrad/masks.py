"""Zero-sum masks of the objective: every agent adds a secret quadratic to its f_i.

    f_i(θ) + c_iᵀθ + ½ θᵀQ_iθ,    Σ_i c_i = 0,    Σ_i Q_i = 0,    Q_i = Q_iᵀ

The masks sum to zero, so the optimum of Σ f_i stays. Every agent computes with its masked
objective, so its messages tell nothing else about f_i. Two partners i < j draw the same numbers
from a key that only the two have; i adds the numbers, j subtracts them:

    c_i = Σ_{j partner of i} ± c_ij,    Q_i = Σ_j ± Q_ij

One honest partner is enough: all other agents together do not know the share of that partner. The
pairs of partners and the distribution are public. Every number is uniform in ±√3 times its size.
Only products and differences make the number, so two shares cancel to the bit on any machine. The
sizes must be large against g_i(θ*) and H_i, which are secret. So sizes are stated in the only
public unit, the stepsize:

    λ c_ij,  one entry          size `linear`, in the units of θ
    λ Q_ij,  as an operator     size `quadratic`, by default a part of the network's 1 − η

The neighbours balance a curvature of −q at one agent only if λq is small against 1 − η; the default
follows from this bound. A larger size hides more: given one honest partner, masks hide Hessians up
to `quadratic`/λ and gradients at θ* up to `linear`/λ. Masks do not hide the changes of the Hessian
of an f_i that is not quadratic. An attacker who knows the rule could tell f_i from a mask that
varied in time or depended on a filtered θ. The attacker cannot tell f_i from a constant mask.

The PDG algorithms choose the masks; the simulator and the networked agents draw and add them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import AlgorithmError

type Floats = NDArray[np.float64]
type Uniforms = Callable[[int], Floats]  # n → the first n uniforms of a pair

MOST_QUADRATIC = 1024  # Q is dense, 8 MB here; a larger Q costs more than most objectives
GAP_PART = 0.2  # quadratic / (1 − η): stable on every network of benchmarks/simulator/designs.py

_TURN = 0x9E37_79B9  # 2³² / golden ratio: its multiples spread evenly


@dataclass(frozen=True)
class Mask:
    """One agent's part of a zero-sum mask."""

    c: Floats  # (d,)
    Q: Floats | None  # (d, d), symmetric

    def gradient(self, x: Floats) -> Floats:
        """c + Qx, (d,)."""
        return self.c if self.Q is None else self.c + self.Q.dot(x)

    def over(self, gradient: Callable[[Floats], Any]) -> Callable[[Floats], Floats]:
        """The gradient of the masked objective."""
        return lambda x: np.asarray(gradient(x), np.float64) + self.gradient(x)


@dataclass(frozen=True)
class Sizes:
    """The size and the count of the numbers that a pair of partners draws."""

    dim: int
    linear: float  # size of an entry of c_ij
    quadratic: float  # size of an entry of Q_ij; 0: no quadratic part

    @property
    def count(self) -> int:
        """The number of uniforms of a pair: c, then the upper triangle of Q, row by row."""
        d = self.dim
        return d + d * (d + 1) // 2 * (self.quadratic > 0)

    def share(self, uniforms: Floats) -> Floats:
        """The numbers that the lower partner adds and the higher partner subtracts, (count, …)."""
        size = np.full(self.count, math.sqrt(3) * self.quadratic)
        size[: self.dim] = math.sqrt(3) * self.linear
        return size.reshape(-1, *[1] * (uniforms.ndim - 1)) * (2.0 * uniforms - 1.0)

    def parts(self, total: Floats) -> tuple[Floats, Floats | None]:
        """The parts c (d, …) and Q (d, d, …) of a mask's numbers (count, …)."""
        if not self.quadratic:
            return total, None
        index = np.zeros((self.dim, self.dim), np.int64)
        upper = np.triu_indices(self.dim)
        index[upper] = index.T[upper] = np.arange(self.dim, self.count)
        return total[: self.dim], total[index]


@dataclass(frozen=True, kw_only=True)
class ZeroSum:
    """Zero-sum masks, linear and quadratic, from pairwise keys."""

    linear: float = 1.0  # size of an entry of λ c_ij
    quadratic: float | None = None  # size of λ Q_ij; None: GAP_PART · (1 − η)
    n_partners: int = 4

    def offsets(self, n_agents: int) -> tuple[int, ...]:
        """The offsets o: agent i masks with the agents i + o (mod m).

        In a small network an agent masks with every other agent. Otherwise the offsets spread
        evenly over the numbers, because networks seldom link such distant numbers.
        """
        if self.n_partners >= n_agents - 1:
            return tuple(range(1, n_agents))
        # agents with adjacent numbers are often neighbours
        least = 2 if n_agents > self.n_partners + 2 else 1
        found: list[int] = []
        n = 0
        while len(found) < self.n_partners // 2:
            n += 1
            o = (n * _TURN % 2**32) * n_agents >> 32
            o = min(o, n_agents - o)
            if least <= o and 2 * o < n_agents and o not in found:
                found.append(o)
        return (*found, *(-o for o in found))

    def partners(self, number: int, n_agents: int) -> tuple[int, ...]:
        """The partners of an agent, ascending.

        >>> zero_sum().partners(0, 5)
        (1, 2, 3, 4)
        >>> zero_sum().partners(7, 1_000_000)
        (236074, 381974, 618040, 763940)
        """
        return tuple(sorted((number + o) % n_agents for o in self.offsets(n_agents)))

    def partner_table(self, n_agents: int) -> NDArray[np.int64]:
        """The partners of every agent, (partners, agents), ascending."""
        offsets = np.array(self.offsets(n_agents), np.int64)[:, None]
        return np.sort((np.arange(n_agents) + offsets) % n_agents, axis=0)

    def sizes(self, dim: int, *, lam: float, eta: float | None) -> Sizes:
        """The sizes for stepsizes about λ on a network with this η; None: no quadratic part."""
        part = self.quadratic
        if part is None:
            part = 0.0 if eta is None or dim > MOST_QUADRATIC else GAP_PART * (1.0 - eta)
        elif part > 0 and dim > MOST_QUADRATIC:
            raise AlgorithmError(
                f"quadratic masks are dense d × d matrices, for d ≤ {MOST_QUADRATIC}, but "
                f"d = {dim}. Use hg.masks.zero_sum(quadratic=0): gradients stay masked, H_i leaks."
            )
        return Sizes(dim, self.linear / lam, part / lam / math.sqrt(dim))

    def mask(
        self,
        number: int,
        sizes: Sizes,
        *,
        n_agents: int,
        pair_uniforms: Callable[[int], Uniforms],
    ) -> Mask:
        """An agent's mask. pair_uniforms(partner)(n) are n uniforms that both partners draw."""
        total = np.zeros(sizes.count)
        for partner in self.partners(number, n_agents):
            share = sizes.share(pair_uniforms(partner)(sizes.count))
            total = total + share if number < partner else total - share
        return Mask(*sizes.parts(total))


def zero_sum(linear: float = 1.0, quadratic: float | None = None, n_partners: int = 4) -> ZeroSum:
    """Masks c_iᵀθ + ½ θᵀQ_iθ that sum to zero over the agents, in units of the stepsize.

    linear       size of an entry of λ c_ij: above the largest step λ g_i(θ*), in the units of θ
    quadratic    size of λ Q_ij: above λ L, and small against 1 − η; by default 0.2 (1 − η)
    n_partners   number of partners of an agent; m − 1 or more makes every pair partners
    """
    for name, size in (("linear", linear), ("quadratic", quadratic)):
        if size is not None and not (_is_number(size) and size >= 0):
            raise AlgorithmError(
                f"the size of a mask is a finite number ≥ 0, but {name} = {size!r}. "
                f"Use {name}=0 for none."
            )
    if not isinstance(n_partners, int) or isinstance(n_partners, bool) or n_partners < 2:
        raise AlgorithmError(
            f"an agent has at least 2 partners, but n_partners = {n_partners!r}. Try 4."
        )
    if n_partners % 2:
        raise AlgorithmError(
            "the partners of i are the agents i ± o, so their number is even, but "
            f"n_partners = {n_partners}. Use {n_partners + 1}."
        )
    return ZeroSum(
        linear=float(linear),
        quadratic=None if quadratic is None else float(quadratic),
        n_partners=n_partners,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_masks(masks: object, owner: str) -> None:
    """Refuse a value that is no design of masks. The message shows how to write one."""
    if masks is not None and not isinstance(masks, ZeroSum):
        raise AlgorithmError(
            f"{owner} takes masks of the objective, but got {masks!r}. Write hg.masks.zero_sum()."
        )
