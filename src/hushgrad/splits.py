"""How an agent splits a vector over its links, own link included, so that the shares add up to it.

A split, called with the agent, gives a matrix B^k whose columns sum to one: by weights that the
agent draws (the paper's), or by vectors (isotropic). `over` names the links, the graph's or those
of W².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hushgrad.draws import Stream
from hushgrad.errors import AlgorithmError
from hushgrad.exchange import IDENTITY, Links, Matrix, Terms

_LEAST = 1e-300


@dataclass(frozen=True, kw_only=True)
class Split:
    """Gives B^k for the agents here."""

    def __call__(self, agent: Any, over: Links = Links.GRAPH) -> Matrix:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class FreshSplit(Split):
    """b_ij^k = u_ij / Σ_l u_lj with fresh uniforms in every iteration: the paper's."""

    def __call__(self, agent: Any, over: Links = Links.GRAPH) -> Matrix:
        return agent.columns(*agent.link_uniforms(Stream.SPLIT, over), over)


@dataclass(frozen=True, kw_only=True)
class PrivateConstantSplit(Split):
    """b_ij = u_ij / Σ_l u_lj drawn once and kept secret: no fluctuation to listen to.

    With `own`, the agent keeps b_jj = own (1 + u_jj) / 2 and its links share the rest: an agent
    with few and weak links must not feed a curved step back to itself, nor give it all away.
    """

    own: float | None = None

    def __call__(self, agent: Any, over: Links = Links.GRAPH) -> Matrix:
        return agent.kept((self, over), lambda: self._columns(agent, over))

    def _columns(self, agent: Any, over: Links) -> Matrix:
        own, out = agent.link_uniforms(Stream.SPLIT_CONSTANT, over, once=True)
        if self.own is not None:
            share = self.own * 0.5 * (1.0 + own)
            # of an agent without links nothing but the last term is left
            own = share / (1.0 - share) * agent.sum_out(out, over) + _LEAST * own
        return agent.columns(own, out, over)


@dataclass(frozen=True, kw_only=True)
class IdentitySplit(Split):
    """B = I: every agent keeps its whole step to itself, as DGD and EXTRA do."""

    def __call__(self, agent: Any, over: Links = Links.GRAPH) -> Matrix:
        del agent, over
        return IDENTITY


@dataclass(frozen=True, kw_only=True)
class IsotropicSplit(Split):
    """Shares ξ_ij = s_j ‖h_j‖ u_ij with random unit vectors u_ij; own share h_j − Σ_i ξ_ij.

    s_j ∈ (0, scale] is drawn once and private. Vanishes with h, so it needs no schedule.
    """

    scale: float = 1.0

    def __call__(self, agent: Any, over: Links = Links.GRAPH) -> Matrix:
        return _Isotropic(agent, over, self.scale)


class _Isotropic(Matrix):
    def __init__(self, agent: Any, links: Links, scale: float):
        self.agent, self.links, self.scale = agent, links, scale

    def __matmul__(self, vector: Any) -> Terms:
        agent = self.agent
        size = agent.uniform(Stream.SPLIT_CONSTANT, once=True) * self.scale
        length = size * agent.xp.sqrt(agent.dot(vector, vector))
        direction = agent.link_directions(Stream.SPLIT, self.links, vector.shape[1])
        return agent.shares(vector, agent.to_links(length, self.links) * direction, self.links)


def fresh() -> Split:
    """New random weights in every iteration: the paper's B^k."""
    return FreshSplit()


def private_constant(own: float | None = None) -> Split:
    """Random weights drawn once per run; `own` bounds what an agent keeps, from half of it up."""
    if own is not None and (
        not isinstance(own, (int, float)) or isinstance(own, bool) or not 0 < own < 1
    ):
        raise AlgorithmError(
            "an agent keeps between own/2 and own of its step, 0 < own < 1, but "
            f"own = {own!r}. Try 0.45, or leave it out to draw it like the other weights."
        )
    return PrivateConstantSplit(own=None if own is None else float(own))


def isotropic(scale: float = 1.0) -> Split:
    """Shares in random directions; `scale` bounds their size against the vector's."""
    if not isinstance(scale, (int, float)) or isinstance(scale, bool) or not 0 < scale < 1e6:
        raise AlgorithmError(
            f"an isotropic split's shares are up to `scale` times the vector, scale > 0, but "
            f"scale = {scale!r}. Try 1.0."
        )
    return IsotropicSplit(scale=float(scale))


def identity() -> Split:
    """No split: B = I."""
    return IdentitySplit()


def check_split(split: object, owner: str) -> None:
    """Refuse what is not a split, with the way to write one."""
    if not callable(split):
        raise AlgorithmError(
            f"{owner} takes a split, but got {split!r}. Write hg.splits.fresh(), "
            "private_constant(), isotropic(scale) or identity()."
        )
