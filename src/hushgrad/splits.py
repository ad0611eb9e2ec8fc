"""Splits: an agent divides a vector into one share per link and one for itself.

The shares add up to the vector. The PDG algorithms call a split with the agent and get a matrix
B^k whose columns sum to one. The entries of B^k are weights that the agent draws, as in the paper,
or the shares are vectors (isotropic). `over` names the links: the links of the graph, or the
two-hop links of W².
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
    """A rule that gives B^k for the agents here."""

    def __call__(self, agent: Any, over: Links = Links.GRAPH) -> Matrix:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class FreshSplit(Split):
    """b_ij^k = u_ij / Σ_l u_lj with fresh uniforms in every iteration, as in the paper."""

    def __call__(self, agent: Any, over: Links = Links.GRAPH) -> Matrix:
        return agent.columns(*agent.link_uniforms(Stream.SPLIT, over), over)


@dataclass(frozen=True, kw_only=True)
class PrivateConstantSplit(Split):
    """b_ij = u_ij / Σ_l u_lj drawn once and kept secret: no fluctuation tells b_ij.

    With `own`, the agent keeps b_jj = own (1 + u_jj) / 2 and its links share the rest. An agent
    with few and weak links must neither keep a curved step nor give the whole step away.
    """

    own: float | None = None

    def __call__(self, agent: Any, over: Links = Links.GRAPH) -> Matrix:
        return agent.kept((self, over), lambda: self._columns(agent, over))

    def _columns(self, agent: Any, over: Links) -> Matrix:
        own, out = agent.link_uniforms(Stream.SPLIT_CONSTANT, over, once=True)
        if self.own is not None:
            share = self.own * 0.5 * (1.0 + own)
            # the last term keeps the weight of an agent without links above zero
            own = share / (1.0 - share) * agent.sum_out(out, over) + _LEAST * own
        return agent.columns(own, out, over)


@dataclass(frozen=True, kw_only=True)
class IdentitySplit(Split):
    """B = I: every agent keeps its whole step, as in DGD and EXTRA."""

    def __call__(self, agent: Any, over: Links = Links.GRAPH) -> Matrix:
        del agent, over
        return IDENTITY


@dataclass(frozen=True, kw_only=True)
class IsotropicSplit(Split):
    """Shares ξ_ij = s_j ‖h_j‖ u_ij with random unit vectors u_ij; own share h_j − Σ_i ξ_ij.

    The agent draws s_j ∈ (0, scale] once and keeps it secret. The shares vanish with h, so they
    need no schedule.
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
    """The paper's B^k: new random weights in every iteration."""
    return FreshSplit()


def private_constant(own: float | None = None) -> Split:
    """Random weights drawn once per run. An agent keeps between own/2 and `own` of its step."""
    if own is not None and (
        not isinstance(own, (int, float)) or isinstance(own, bool) or not 0 < own < 1
    ):
        raise AlgorithmError(
            "an agent keeps between own/2 and own of its step, 0 < own < 1, but "
            f"own = {own!r}. Try 0.45, or leave `own` out: the agent then draws b_jj like b_ij."
        )
    return PrivateConstantSplit(own=None if own is None else float(own))


def isotropic(scale: float = 1.0) -> Split:
    """Shares in random directions. `scale` bounds the ratio of a share's length to the vector's."""
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
    """Refuse a value that is not a split. The message shows how to write a split."""
    if not callable(split):
        raise AlgorithmError(
            f"{owner} takes a split, but got {split!r}. Write hg.splits.fresh(), "
            "private_constant(), isotropic(scale) or identity()."
        )
