"""PDG-NDS: privacy-preserving decentralised gradient method with non-diminishing stepsizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from hushgrad.algorithms.base import Private
from hushgrad.errors import AlgorithmError
from hushgrad.exchange import Array, Links, Push, Square, Step
from hushgrad.mixing import Kind, Network

_NEAR_MINUS_ONE = -0.5  # below -0.5, the stable stepsize of "square" is under an eighth of 1/L


class PDGNDSState(NamedTuple):
    x: Array  # (agents, d, trials) x^k
    x_prev: Array  # (agents, d, trials) x^{k−1}
    h_prev: Array  # (agents, d, trials) λ^{k−1} g^{k−1}


@dataclass(frozen=True, kw_only=True)
class PDGNDS(Private):
    """PDG-NDS in two forms, each with one message per link; h^k = Λ^k g^k.

    ``"lazy"`` is our one-hop form of the paper's method, with M = (I + W)/2:

        x^{k+1} = M (2x^k − x^{k−1}) − B^k (h^k − h^{k−1}),      x^{−1} = x^0, h^{−1} = 0

    ``"square"`` is the paper's form. It has a link, and an entry of B, wherever (W²)_ij ≠ 0:

        x^1     = W x^0 − h^0
        x^{k+1} = 2W x^k − W² x^{k−1} − B^k (h^k − h^{k−1})

    The printed paper has + W² in the message of an agent, and sends to one-hop neighbours only.
    Each of the two makes the iterates diverge (docs/notation.md).
    """

    form: Literal["lazy", "square"] = "lazy"

    title = "PDG-NDS"
    alternative = ' PDGNDS(form="square") takes a nonsymmetric W.'
    guarantee = "exact, convex f_i, stepsizes that need not diminish (Theorem 3)"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form not in ("lazy", "square"):
            raise AlgorithmError(
                f'PDGNDS comes in form="lazy" (one hop) and "square" (the paper\'s, two hops), '
                f"but form = {self.form!r}."
            )

    @property
    def needs(self) -> Mapping[str, Kind]:  # type: ignore[override]  # depends on the form
        return {"W": Kind.SYMMETRIC if self.form == "lazy" else Kind.DOUBLY}

    @property
    def label(self) -> str:
        return super().label + (" (square)" if self.form == "square" else "")

    @property
    def links(self) -> Links:  # type: ignore[override]  # depends on the form
        return Links.GRAPH if self.form == "lazy" else Links.TWO_HOP

    def init(self, agent: Any, x0: Array) -> PDGNDSState:
        return PDGNDSState(x=x0, x_prev=x0, h_prev=0.0 * x0)

    @property
    def first_differs(self) -> bool:
        return self.form == "square"

    def first(self, agent: Any, s: PDGNDSState) -> Step[PDGNDSState]:
        h = self.lam(agent) * agent.gradient(s.x)
        x = yield Push(agent.W @ s.x - agent.I @ h)
        return PDGNDSState(x=x, x_prev=s.x, h_prev=h)

    def step(self, agent: Any, s: PDGNDSState) -> Step[PDGNDSState]:
        h = self.lam(agent) * agent.gradient(s.x)
        if self.form == "lazy":
            mixed = agent.M @ (2.0 * s.x - s.x_prev)
        else:
            mixed = 2 * (agent.W @ s.x) - Square(agent.W) @ s.x_prev
        x = yield Push(mixed - self.B(agent, self.links) @ (h - s.h_prev))
        return PDGNDSState(x=x, x_prev=s.x, h_prev=h)

    def risks(self, network: Network, smoothness: float) -> Iterator[str]:
        lam = self.schedule.limit
        if lam == 0:
            yield (
                "PDGNDS with a diminishing stepsize gives up its speed: use "
                "hg.stepsizes.constant(value), or PDGDS."
            )
        elif lam * smoothness > 1:
            yield (
                f"PDGNDS with λL = {lam * smoothness:.4g} may diverge. "
                f"Use hg.stepsizes.constant({1 / smoothness:.2g}) or less."
            )
        if self.form == "square" and network.is_symmetric:
            smallest = network.smallest_eigenvalue
            if smallest < _NEAR_MINUS_ONE:
                yield (
                    f'PDGNDS(form="square") with the eigenvalue {smallest:.4f} of W near −1: the '
                    "stable stepsize shrinks to about "
                    f"{(1 + smallest) ** 2 / 2 / smoothness:.2g}. Use "
                    'mixing="lazy_metropolis" or form="lazy".'
                )
