"""Zero-sum masks of the objective: what everybody computes with is f_i plus a secret quadratic.

    f_i(θ) + c_iᵀθ + ½ θᵀQ_iθ,    Σ_i c_i = 0,    Σ_i Q_i = 0,    Q_i = Q_iᵀ

so the optimum is that of Σ f_i, and nobody sees more of f_i than the masked one. Two partners
i < j draw the same numbers from a key that only they have; i adds them, j subtracts them:

    c_i = Σ_{j partner of i} ± c_ij,    Q_i = Σ_j ± Q_ij

One honest partner is enough: its share stays unknown to all others together. Public are who masks
with whom and the distribution: every number is uniform in ±√3 times its size, made by products
and differences only, so that the two shares cancel to the bit on any machine. Sizes must be large
against g_i(θ*) and H_i, which are secret, so they are told in the only public unit there is, the
stepsize:

    λ c_ij,  one entry          size `linear`, in the units of θ
    λ Q_ij,  as an operator     size `quadratic`, by default a part of the network's 1 − η

A curvature of −q at one agent is held by its neighbours only if λq is small against 1 − η, hence
the default. The larger the size, the better hidden: Hessians up to `quadratic`/λ and gradients at
θ* up to `linear`/λ are, given one honest partner. What masks do not hide: how the Hessian of an
f_i that is not quadratic changes along the way. A mask that varied in time, or saw a filtered θ,
could be told apart from f_i by who knows the rule; a constant one cannot.
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

MOST_QUADRATIC = 1024  # a dense Q of 8 MB; beyond, it costs more than most objectives
GAP_PART = 0.2  # quadratic / (1 − η): stable on every network of benchmarks/simulator/designs.py

_TURN = 0x9E37_79B9  # 2³² / golden ratio: multiples of it spread evenly


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
    """How large the numbers of a pair are, and how many."""

    dim: int
    linear: float  # of an entry of c_ij
    quadratic: float  # of an entry of Q_ij, 0 for none

    @property
    def count(self) -> int:
        """Uniforms that a pair draws: c, then the upper triangle of Q, row by row."""
        d = self.dim
        return d + d * (d + 1) // 2 * (self.quadratic > 0)

    def share(self, uniforms: Floats) -> Floats:
        """What the lower of two partners adds and the higher subtracts, (count, …)."""
        size = np.full(self.count, math.sqrt(3) * self.quadratic)
        size[: self.dim] = math.sqrt(3) * self.linear
        return size.reshape(-1, *[1] * (uniforms.ndim - 1)) * (2.0 * uniforms - 1.0)

    def parts(self, total: Floats) -> tuple[Floats, Floats | None]:
        """C (d, …) and Q (d, d, …) of numbers (count, …)."""
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
        """Agent i masks with i + o (mod m): everyone where few are, otherwise n_partners spread
        evenly over the numbers, which networks seldom link.
        """
        if self.n_partners >= n_agents - 1:
            return tuple(range(1, n_agents))
        least = 2 if n_agents > self.n_partners + 2 else 1  # next numbers are often neighbours
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
        """Who an agent masks with, ascending.

        >>> zero_sum().partners(0, 5)
        (1, 2, 3, 4)
        >>> zero_sum().partners(7, 1_000_000)
        (236074, 381974, 618040, 763940)
        """
        return tuple(sorted((number + o) % n_agents for o in self.offsets(n_agents)))

    def partner_table(self, n_agents: int) -> NDArray[np.int64]:
        """(partners, agents): everyone's, ascending."""
        offsets = np.array(self.offsets(n_agents), np.int64)[:, None]
        return np.sort((np.arange(n_agents) + offsets) % n_agents, axis=0)

    def sizes(self, dim: int, *, lam: float, eta: float | None) -> Sizes:
        """The sizes for stepsizes about λ on a network with this η; unknown: no quadratic part."""
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
        """An agent's mask; pair_uniforms(partner)(n) are the uniforms that both draw alike."""
        total = np.zeros(sizes.count)
        for partner in self.partners(number, n_agents):
            share = sizes.share(pair_uniforms(partner)(sizes.count))
            total = total + share if number < partner else total - share
        return Mask(*sizes.parts(total))


def zero_sum(linear: float = 1.0, quadratic: float | None = None, n_partners: int = 4) -> ZeroSum:
    """Masks c_iᵀθ + ½ θᵀQ_iθ that sum to zero over the agents, in units of the stepsize.

    linear       size of an entry of λ c_ij: above the largest step λ g_i(θ*), in the units of θ
    quadratic    size of λ Q_ij: above λ L, and small against 1 − η; by default 0.2 (1 − η)
    n_partners   with how many others an agent masks; at least m − 1 for all pairs
    """
    for name, size in (("linear", linear), ("quadratic", quadratic)):
        if size is not None and not (_is_number(size) and size >= 0):
            raise AlgorithmError(
                f"the size of a mask is a finite number ≥ 0, but {name} = {size!r}. "
                f"Use {name}=0 for none."
            )
    if not isinstance(n_partners, int) or isinstance(n_partners, bool) or n_partners < 2:
        raise AlgorithmError(
            f"an agent masks with 2 others or more, but n_partners = {n_partners!r}. Try 4."
        )
    if n_partners % 2:
        raise AlgorithmError(
            "partners are the agents i ± o, an even number of them, but "
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
    """Refuse what is not a mask, with the way to write one."""
    if masks is not None and not isinstance(masks, ZeroSum):
        raise AlgorithmError(
            f"{owner} takes masks of the objective, but got {masks!r}. Write hg.masks.zero_sum()."
        )
