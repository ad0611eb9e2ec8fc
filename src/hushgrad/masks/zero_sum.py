"""Zero-sum masks of the objective: every agent adds a secret quadratic to its f_i.

    f_i(θ) + c_iᵀθ + ½ θᵀQ_iθ,    Σ_i c_i = 0,    Σ_i Q_i = 0,    Q_i = Q_iᵀ

The masks sum to zero, so the optimum of Σ f_i stays. Every agent computes with its masked
objective, so its messages tell nothing else about f_i. Two partners i < j draw the same numbers
from a key that only the two have; i adds the numbers, j subtracts them:

    c_i = Σ_{j partner of i} ± c_ij,    Q_i = Σ_j ± Q_ij

One honest partner is enough: all other agents together do not know the share of that partner. The
pairs of partners and the distribution are public: the entries of c_ij, the upper triangle of a
matrix W_ij and a number τ_ij are independent discrete Gaussians on a grid, and
Q_ij = W_ij + τ_ij I. The part τI hides the trace, a sum of d entries, in which the entries of W
almost cancel: the trace of a Hessian tells how many rows the agent has.

Every share is an integer times a grid, and the grid is a power of two. So sums and differences of
shares are exact: Σ c_i and Σ Q_i are zero to the last bit. An agent that masks numbers rounds them
to the grid first (`Mask.statistic`), so the sum of all masked numbers is the sum of the rounded
numbers.

The sizes must be large against g_i(θ*) and H_i, which are secret. So sizes are stated in public
units:

    c_ij,  one entry            σ = `linear` · scale, where `scale` covers every |q_i| and |g_i|;
                                without a scale, λ c_ij has the size `linear`, in the units of θ
    λ Q_ij,  as an operator     size `quadratic`, by default 0.2 (1 − η) / √n_partners

The neighbours balance a curvature of −q at one agent only if λq is small against 1 − η. So the
default bounds the whole mask of an agent, the sum of its shares: λ Q_i has the size 0.2 (1 − η),
for any number of partners. Shares are Gaussian, so some Q_i are several times as large. With this
default no draw of benchmarks/simulator/stability.py is unstable.
A larger size hides more: given one honest partner, masks hide Hessians up to `quadratic`/λ and
gradients at θ* up to σ. Masks do not hide the changes of the Hessian of an f_i that is not
quadratic. An attacker who knows the rule could tell f_i from a mask that varied in time or depended
on a filtered θ. The attacker cannot tell f_i from a constant mask.
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
from hushgrad.masks import partners
from hushgrad.masks.gaussian import BASE_BITS, BITS, LEVELS, Integers, Words, gaussians

type Floats = NDArray[np.float64]
type PairWords = Callable[[int], Words]  # n → the first n words of a pair's key stream

MOST_QUADRATIC = 1024  # Q is dense, 8 MB here; a larger Q costs more than most objectives
GAP_PART = 0.2  # size of λ Q_i / (1 − η): stable in every draw of benchmarks/simulator/stability.py
_IDENTITY_PART = 0.7  # of the size of Q, for τI; W takes the rest of its square

_EXACT = 2.0**53  # float64 holds every integer up to here


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

    def statistic(self, H: Floats, q: Floats, sizes: Sizes) -> tuple[Floats, Floats]:
        """(H + Q, q + c) of H (d, d) and q (d,), which are rounded to the grids first."""
        linear, curvature = sizes.on_grid(q, H)
        linear = linear + self.c
        curvature = curvature if self.Q is None else curvature + self.Q
        _check_exact("q + c", linear, sizes.linear_grid)
        _check_exact("H + Q", curvature, sizes.quadratic_grid)
        return curvature, linear


@dataclass(frozen=True)
class Sizes:
    """The standard deviations of the numbers that a pair of partners draws."""

    dim: int
    linear: float  # σ of an entry of c_ij
    quadratic: float  # σ of an entry of W_ij; 0: no quadratic part
    identity: float = 0.0  # σ of τ_ij

    @property
    def count(self) -> int:
        """The number of integers of a pair: c, the upper triangle of W row by row, τ."""
        d = self.dim
        return d + (d * (d + 1) // 2 + 1) * (self.quadratic > 0)

    @property
    def n_words(self) -> int:
        """The number of words from which a pair makes its integers."""
        return LEVELS * self.count

    @property
    def linear_grid(self) -> float:
        """c_ij lies on the multiples of this power of two."""
        return _grid(self.linear)

    @property
    def quadratic_grid(self) -> float:
        """W and τ share their grid, so the diagonal of Q lies on it too."""
        return _grid(max(self.quadratic, self.identity))

    @property
    def curvature(self) -> float:
        """The size of Q_ij as an operator: the root mean square of ‖Q_ij v‖, ‖v‖ = 1."""
        return math.hypot(math.sqrt(self.dim) * self.quadratic, self.identity)

    def share(self, words: Words) -> Integers:
        """The integers (count, …) of a pair, from its words (4 count, …).

        The lower partner adds them and the higher partner subtracts them.
        """
        words = words.reshape(LEVELS, self.count, *words.shape[1:])
        return gaussians(words, self._steps().reshape(-1, *(1 for _ in words.shape[2:])))

    def _steps(self) -> Integers:
        """The steps (count,) of the discrete Gaussians: of c, of W and of τ."""
        linear = math.ceil(_step(self.linear, self.linear_grid))
        white, identity = (
            math.floor(_step(size, self.quadratic_grid)) for size in (self.quadratic, self.identity)
        )
        n_white = self.count - self.dim - 1  # negative without a quadratic part
        return np.repeat([linear, white, identity], [self.dim, max(0, n_white), n_white >= 0])

    def parts(self, total: Integers) -> tuple[Floats, Floats | None]:
        """The parts c (d, …) and Q (d, d, …) of the sum of an agent's shares (count, …)."""
        d = self.dim
        c = _floats(total[:d], self.linear_grid)
        if not self.quadratic:
            return c, None
        index = np.zeros((d, d), np.int64)
        upper = np.triu_indices(d)
        index[upper] = index.T[upper] = np.arange(d, self.count - 1)
        Q = total[index]
        Q[np.arange(d), np.arange(d)] += total[-1]
        return c, _floats(Q, self.quadratic_grid)

    def on_grid(self, q: Floats, H: Floats) -> tuple[Floats, Floats]:
        """q (…) and H (…), rounded to the grids of their masks; numbers without masks stay."""
        return _rounded("q", q, self.linear_grid), _rounded("H", H, self.quadratic_grid)


def _grid(size: float) -> float:
    """The power of two by which a share of this size is an integer of σ ≤ 2⁴⁷."""
    return math.ldexp(1.0, math.frexp(size)[1] - BITS) if size else 0.0


def _step(size: float, grid: float) -> float:
    """The largest step of a discrete Gaussian of this size on this grid, not rounded."""
    return size / grid * 2.0**-BASE_BITS if grid else 0.0


def _floats(integers: Integers, grid: float) -> Floats:
    """The integers times the grid, exactly."""
    if np.abs(integers).max(initial=0) > _EXACT:
        raise AlgorithmError(
            "a mask is exact while the sum of an agent's shares is below 2⁵³ steps of the grid, "
            "but so many partners' shares exceed it. Use hg.masks.zero_sum(n_partners=…) with at "
            "most 64."
        )
    return integers.astype(np.float64) * grid


def _rounded(name: str, values: Floats, grid: float) -> Floats:
    if not grid:
        return values
    _check_exact(name, values, grid)
    return np.rint(values / grid) * grid


def _check_exact(name: str, values: Floats, grid: float) -> None:
    largest = np.abs(values).max(initial=0.0)
    if grid and not largest <= _EXACT * grid:
        raise AlgorithmError(
            f"a sum with these masks is exact up to {_EXACT * grid:.3g}, but an entry of {name} is "
            f"{largest:.3g}, far larger than its mask. Use a smaller stepsize, or declare a larger "
            "scale."
        )


@dataclass(frozen=True, kw_only=True)
class ZeroSum:
    """Zero-sum masks, linear and quadratic, from pairwise keys."""

    linear: float = 1.0  # σ of an entry of c_ij, over the scale or over 1/λ
    quadratic: float | None = None  # size of λ Q_ij; None: by the network's 1 − η
    n_partners: int = 4
    honest: int = 2  # agents of the smallest honest component, whose sums are counted

    def offsets(self, n_agents: int) -> tuple[int, ...]:
        """The offsets o: agent i masks with the agents i + o (mod m)."""
        return partners.offsets(n_agents, self.n_partners)

    def partners(self, number: int, n_agents: int) -> tuple[int, ...]:
        """The partners of an agent, ascending.

        >>> zero_sum().partners(0, 5)
        (1, 2, 3, 4)
        >>> zero_sum().partners(7, 1_000_000)
        (33007, 381974, 618040, 967007)
        """
        return tuple(sorted((number + o) % n_agents for o in self.offsets(n_agents)))

    def partner_table(self, n_agents: int) -> NDArray[np.int64]:
        """The partners of every agent, (partners, agents), ascending."""
        offsets = np.array(self.offsets(n_agents), np.int64)[:, None]
        return np.sort((np.arange(n_agents) + offsets) % n_agents, axis=0)

    def quadratic_part(self, eta: float) -> float:
        """The default of `quadratic` on a network with this η.

        >>> round(zero_sum().quadratic_part(0.5), 12)
        0.05
        """
        return GAP_PART * (1.0 - eta) / math.sqrt(self.n_partners)

    def sizes(
        self, dim: int, *, lam: float, eta: float | None, scale: float | None = None
    ) -> Sizes:
        """The sizes for stepsizes about λ on a network with this η; None: no quadratic part.

        scale    covers the entries of every q_i and g_i; None: 1/λ, in the units of θ
        """
        part = self.quadratic
        if part is None:
            part = 0.0 if eta is None or dim > MOST_QUADRATIC else self.quadratic_part(eta)
        elif part > 0 and dim > MOST_QUADRATIC:
            raise AlgorithmError(
                f"quadratic masks are dense d × d matrices, for d ≤ {MOST_QUADRATIC}, but "
                f"d = {dim}. Use hg.masks.zero_sum(quadratic=0): gradients stay masked, H_i leaks."
            )
        linear = self.linear / lam if scale is None else self.linear * scale
        room = part / lam  # of Q_ij as an operator
        white = room * math.sqrt((1 - _IDENTITY_PART**2) / dim)
        return Sizes(dim, linear, white, room * _IDENTITY_PART)

    def mask(
        self,
        number: int,
        sizes: Sizes,
        *,
        n_agents: int,
        pair_words: Callable[[int], PairWords],
    ) -> Mask:
        """An agent's mask. pair_words(partner)(n) are n words that both partners draw."""
        total = np.zeros(sizes.count, np.int64)
        for partner in self.partners(number, n_agents):
            share = sizes.share(pair_words(partner)(sizes.n_words))
            total += share if number < partner else -share
        return Mask(*sizes.parts(total))


def zero_sum(
    linear: float = 1.0, quadratic: float | None = None, n_partners: int = 4, honest: int = 2
) -> ZeroSum:
    """Masks c_iᵀθ + ½ θᵀQ_iθ that sum to zero over the agents, in units of the stepsize.

    linear       standard deviation of an entry of c_ij, as a multiple of the scale of gradients;
                 without a scale of λ c_ij: above the largest step λ g_i(θ*), in the units of θ
    quadratic    size of λ Q_ij: above λ L, and small against 1 − η; by default
                 0.2 (1 − η) / √n_partners, so 0.1 (1 − η) with four partners
    n_partners   number of partners of an agent; m − 1 or more makes every pair partners
    honest       number of agents, any agent itself included, that are assumed to be honest and
                 joined by pairs of partners. The sums over them are no secret: a run in stages
                 counts what they reveal about these agents' rows (hushgrad.theory).
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
    if not isinstance(honest, int) or isinstance(honest, bool) or honest < 1:
        raise AlgorithmError(
            "masks assume a whole number of honest agents, the agent itself included, but "
            f"honest = {honest!r}. Use 2: the agent and one honest partner."
        )
    return ZeroSum(
        linear=float(linear),
        quadratic=None if quadratic is None else float(quadratic),
        n_partners=n_partners,
        honest=honest,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_masks(masks: object, owner: str) -> None:
    """Refuse a value that is no design of masks. The message shows how to write one."""
    if masks is not None and not isinstance(masks, ZeroSum):
        raise AlgorithmError(
            f"{owner} takes masks of the objective, but got {masks!r}. Write hg.masks.zero_sum()."
        )
