"""PDG-DS: privacy-preserving decentralised gradient method with diminishing stepsizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from hushgrad.algorithms.base import Private
from hushgrad.exchange import Array, Push, Step
from hushgrad.mixing import Kind, Network
from hushgrad.stepsizes import Auto, Schedule, diminishing

_LARGE = 20.0  # λL: iterates grow by 2^20 and lose six digits before they come back


class PDGDSState(NamedTuple):
    x: Array  # (agents, d, trials)


@dataclass(frozen=True, kw_only=True)
class PDGDS(Private):
    """x^{k+1} = W x^k − B^k Λ^k g^k

    The wire from j to i carries v_ij = w_ij x_j − b_ij λ_j g_j. Wang & Nedić, Theorem 1: the
    limit is exact if Σ λ = ∞, Σ λ² < ∞ and Σ |λ_i − λ_j| < ∞.
    """

    stepsize: Schedule | Auto = diminishing()

    title = "PDG-DS"
    needs = {"W": Kind.DOUBLY}
    guarantee = "exact, convex f_i, diminishing stepsizes (Theorem 1)"

    def init(self, agent: Any, x0: Array) -> PDGDSState:
        return PDGDSState(x=x0)

    def step(self, agent: Any, s: PDGDSState) -> Step[PDGDSState]:
        h = self.lam(agent) * agent.gradient(s.x)
        x = yield Push(agent.W @ s.x - self.B(agent) @ h)
        return PDGDSState(x=x)

    def risks(self, network: Network, smoothness: float) -> Iterator[str]:
        failed = self.schedule.theorem_1()
        if failed:
            yield (
                f"PDGDS with this stepsize is not exact by Theorem 1: {', '.join(failed)}. "
                "Use hg.stepsizes.diminishing(), or PDGNDS with a constant stepsize."
            )
        if self.masking is not None and self.masking.linear > 0:
            yield (
                "PDGDS uses masked gradients in every step, so its error grows with the masks. "
                "PDGNDS with the same masks does not lose accuracy."
            )
        steps = float(self.schedule.base(1.0)) * smoothness
        if steps > _LARGE:
            yield (
                f"PDGDS starts with λL = {steps:.4g}: the iterates first grow by about "
                f"2^{steps:.0f}. "
                f"Use diminishing(scale={1 / smoothness:.2g}), or offset={smoothness:.0f}."
            )
