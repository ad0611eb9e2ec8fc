"""Consensus: agents average vectors a_i by mixing alone, plainly or with Chebyshev's acceleration.

The vector of an agent is a_i = −∇f_i(0): the average of the a_i minimises Σ_i ½‖θ − a_i‖²
(`hushgrad.problems.average`). An agent asks for this one gradient in its first round, and for no
other. With zero-sum masks it sends a_i + c_i, and no message depends on the data otherwise.
Nothing has to stay stable, so masks may be as large as floating point allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, NamedTuple

from hushgrad.algorithms.base import Masked
from hushgrad.errors import AlgorithmError
from hushgrad.exchange import Array, Pull, Step
from hushgrad.masks import Sizes, ZeroSum, check_masks, zero_sum
from hushgrad.mixing import Kind, Network

MASKS = zero_sum(linear=1e4, quadratic=0)  # the average keeps about ten digits of the unit

_EXACT = 1e-12  # an η below this is 0 up to rounding


class ConsensusState(NamedTuple):
    x: Array  # (agents, d, trials) x^k
    x_prev: Array  # (agents, d, trials) x^{k−1}


@dataclass(frozen=True, kw_only=True)
class Consensus(Masked):
    """The average of the agents' vectors a_i = −∇f_i(0), with masks c_i that sum to zero.

    ``"none"`` mixes and nothing else:

        x^1     = W (a + c)
        x^{k+1} = W x^k

    ``"chebyshev"`` takes the polynomial of W that is smallest on [−η, η], and a symmetric W:

        x^1     = W x^0,      x^0 = a + c
        x^{k+1} = ω^k W x^k + (1 − ω^k) x^{k−1},      ω^k = (2/η) T_k(1/η) / T_{k+1}(1/η)

    with Chebyshev's polynomials T_k. The distance from the average falls to η^k, or to 1/T_k(1/η),
    of its value at a + c. On a complete graph one round is exact. The start of a run plays no part.

    masks    linear ones, by default of 10⁴ units; hg.masks.zero_sum(linear=0) for none
    scale    the public size of the data. The unit of masks is the power of two that covers it and
             all entries of all a_i. Shares have σ = linear · unit, and every a_i is rounded to
             their grid, a power of two of at most 2⁻⁴⁶ σ: with the default masks the average is
             off by less than 6e-11 units.
    eta      of the network, for "chebyshev"; None: the network's own, or eta in [run] of agents
    """

    acceleration: Literal["none", "chebyshev"] = "none"
    masks: ZeroSum | None = None
    scale: float = 1.0
    eta: float | None = None

    title = "Consensus"
    cites = ("xiao2004fast", "montijano2013chebyshev")
    guarantee = "exact average; rounds from η, one on a complete graph"
    masks_curvature = False

    def __post_init__(self) -> None:
        if self.acceleration not in ("none", "chebyshev"):
            raise AlgorithmError(
                'Consensus has the accelerations "none" and "chebyshev", but acceleration = '
                f"{self.acceleration!r}."
            )
        check_masks(self.masks, "Consensus")
        if self.masks is not None and self.masks.quadratic:
            raise AlgorithmError(
                "Consensus masks vectors and has no curvature to mask, but its masks have "
                f"quadratic = {self.masks.quadratic:g}. Leave quadratic out."
            )
        if not _is_number(self.scale) or not 0 < self.scale < math.inf:
            raise AlgorithmError(
                f"the scale of the data is a finite number > 0, but scale = {self.scale!r}."
            )
        if self.eta is not None:
            _check_eta(self.eta)

    @property
    def needs(self) -> Mapping[str, Kind]:  # type: ignore[override]  # depends on the acceleration
        return {"W": Kind.DOUBLY if self.acceleration == "none" else Kind.SYMMETRIC}

    @property
    def label(self) -> str:
        return self.title + (", Chebyshev" if self.acceleration == "chebyshev" else "")

    def on(self, network: Network) -> Consensus:
        if self.acceleration == "none" or self.eta is not None:
            return self
        self.check(network)  # η of a W that the method cannot use would be no help
        return replace(self, eta=min(network.eta, 1.0 - 2.0**-53))

    # ---- masks

    @property
    def masking(self) -> ZeroSum | None:
        masks = MASKS if self.masks is None else self.masks
        return masks if masks.linear else None

    @property
    def least_unit(self) -> float:
        return self.scale

    def mask_sizes(self, dim: int, eta: float | None, scale: float | None = None) -> Sizes:
        del eta  # nothing has to stay stable
        linear = 0.0 if self.masking is None else self.masking.linear
        return Sizes(dim, linear * (self.scale if scale is None else scale), 0.0)

    # ---- the equation

    def init(self, agent: Any, x0: Array) -> ConsensusState:
        return ConsensusState(x=x0, x_prev=x0)

    def first(self, agent: Any, s: ConsensusState) -> Step[ConsensusState]:
        a = -agent.gradient(0.0 * s.x)  # with its mask
        x = yield Pull(agent.W @ a)
        return ConsensusState(x=x, x_prev=a)

    def step(self, agent: Any, s: ConsensusState) -> Step[ConsensusState]:
        Wx = yield Pull(agent.W @ s.x)
        if self.acceleration == "none":
            return ConsensusState(x=Wx, x_prev=s.x)
        omega = self.omega(agent.k)
        return ConsensusState(x=omega * Wx + (1.0 - omega) * s.x_prev, x_prev=s.x)

    def omega(self, k: Any) -> Any:
        """ω^k for k ≥ 1: T_k(1/η) is (q^−k + q^k)/2 with q = η / (1 + √(1 − η²))."""
        if self.eta is None:
            raise AlgorithmError(
                'Consensus(acceleration="chebyshev") needs η of the network, but eta is missing. '
                "Give eta=network.eta; agents take eta in [run]."
            )
        root = 1.0 + (1.0 - self.eta**2) ** 0.5
        q2 = (self.eta / root) ** 2
        return 2.0 / root * (1.0 + q2**k) / (1.0 + q2 ** (k + 1.0))

    # ---- how long it takes

    def rounds(self, eta: float, tolerance: float) -> int:
        """The fewest rounds k that leave of any a + c − ā at most this part of its norm.

        Masks are part of a + c: for a tolerance in units of the data, divide it by the masks' size.

        >>> Consensus().rounds(0.9, 1e-6), Consensus(acceleration="chebyshev").rounds(0.9, 1e-6)
        (132, 32)
        """
        _check_eta(eta)
        if not _is_number(tolerance) or not 0 < tolerance < math.inf:
            raise AlgorithmError(
                f"a tolerance is a finite number > 0, but tolerance = {tolerance!r}."
            )
        if eta <= _EXACT or tolerance >= 1:
            return 1
        if self.acceleration == "none":
            needed = math.log(tolerance) / math.log(eta)
        else:
            needed = math.acosh(1.0 / tolerance) / math.acosh(1.0 / eta)
        return max(1, math.ceil(needed * (1.0 - _EXACT)))

    def risks(self, network: Network, smoothness: float) -> Iterator[str]:
        del network
        if abs(smoothness - 1.0) > 1e-9:
            yield (
                "Consensus gives the average of −∇f_i(0), which minimises Σ f_i if every f_i is "
                f"½‖θ − a_i‖², but here L = {smoothness:.4g}. Use hg.problems.average(values)."
            )


def _check_eta(eta: object) -> None:
    if not _is_number(eta) or not 0 <= eta < 1:  # type: ignore[operator]  # a number
        raise AlgorithmError(
            f"η is a number from 0 to below 1, but eta = {eta!r}. network.eta computes it."
        )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
