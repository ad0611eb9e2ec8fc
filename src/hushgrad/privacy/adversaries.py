"""The adversaries: an eavesdropper on links, or agents of the network that are curious or active.

All follow Kerckhoffs: they know the graph, the weights, the algorithm and the distributions of its
stepsizes and splits, never the draws. Users name them to `hg.audit`.
"""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.rounds import Payload
from hushgrad.errors import InputError

type Link = tuple[int, int]  # (sender, receiver)


class Adversary(abc.ABC):
    """Hears some links of a run; its `members`, if any, are agents who share all they know."""

    members: frozenset[int]

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """The adversary in a few words, for tables."""

    @abc.abstractmethod
    def hears(self, links: Iterable[Link]) -> frozenset[Link]:
        """The links of a run that this adversary hears."""


@dataclass(frozen=True)
class Eavesdropper(Adversary):
    """Hears the links (sender, receiver) that are given, by default all, and is no agent.

    >>> Eavesdropper([(0, 1), (1, 0)]).label
    'eavesdropper on 2 links'
    """

    links: Iterable[Link] | None = None

    members = frozenset[int]()

    def __post_init__(self) -> None:
        if self.links is not None:
            pairs = frozenset(_pair(link) for link in self.links)
            object.__setattr__(self, "links", pairs)

    @property
    def label(self) -> str:
        if self.links is None:
            return "eavesdropper"
        n = len(frozenset(self.links))
        return f"eavesdropper on {n} link{'s' * (n != 1)}"

    def hears(self, links: Iterable[Link]) -> frozenset[Link]:
        every = frozenset(links)
        if self.links is None:
            return every
        wanted = frozenset(self.links)
        for j, i in sorted(wanted - every):
            raise InputError(
                f"an eavesdropper hears links that carry messages, but none leads from {j} to {i}. "
                "Links are (sender, receiver) pairs; run.transcript.links lists them."
            )
        return wanted


@dataclass(frozen=True)
class Curious(Adversary):
    """Agents who follow the protocol and pool what they know: their states, draws, gradients and
    data, and every message that one of them sent or received.

    >>> Curious({3, 2}).label
    'curious agents 2, 3'
    """

    members: frozenset[int]

    def __post_init__(self) -> None:
        try:
            members = frozenset(operator.index(i) for i in self.members)
        except TypeError:
            members = frozenset[int]()
        if not members:
            raise InputError(
                f"curious agents are given by their numbers, at least one, but members = "
                f"{self.members!r}. Write hg.Curious({{2, 3}})."
            )
        object.__setattr__(self, "members", members)

    @property
    def label(self) -> str:
        numbers = ", ".join(str(i) for i in sorted(self.members))
        return f"curious agent{'s' * (len(self.members) != 1)} {numbers}"

    def hears(self, links: Iterable[Link]) -> frozenset[Link]:
        return frozenset((j, i) for j, i in links if j in self.members or i in self.members)


@dataclass(frozen=True)
class Active(Curious):
    """Curious agents that also perturb what they send: +δ in an iteration of `at`, −δ in the next.

    The two cancel in every sum that the method conserves, so all agents still end at θ*. Every
    neighbour outside gets a random δ of length `size` of its own, other ones each time. The run is
    made again with the perturbation, agent by agent.

    >>> Active({2}, size=1.0, at=range(2000, 8000, 200)).label
    'active agent 2'
    """

    size: float = 1.0
    at: Iterable[int] = ()
    seed: int = 0
    begin: int = 0  # where the iterations begin to count: of a stage, its first in the run

    def __post_init__(self) -> None:
        super().__post_init__()
        at = tuple(sorted({operator.index(k) for k in self.at}))
        if not at or at[0] < 0 or any(b - a < 2 for a, b in pairwise(at)):
            raise InputError(
                "a perturbation takes two iterations, +δ and −δ, so its iterations are at least 2 "
                f"apart, and there is at least one, but at = {list(at)!r}. "
                "Write at=range(2000, 8000, 200)."
            )
        if not 0 < self.size < math.inf:
            raise InputError(f"the length of a perturbation is positive, but size = {self.size!r}.")
        object.__setattr__(self, "at", at)

    @property
    def label(self) -> str:
        return super().label.replace("curious", "active", 1)

    def delta(self, k: int, sender: int, receiver: int, dim: int) -> NDArray[np.float64]:
        """The δ (d,) that the sender adds for the receiver in iteration k of `at`."""
        address = [self.seed, self.begin + k, sender, receiver]
        direction = np.random.default_rng(address).normal(size=dim)
        return self.size / np.linalg.norm(direction) * direction

    def within(self, begin: int, length: int) -> Active | None:
        """The same agents as one stage of a run sees them; None where they leave it alone."""
        at = [k - begin for k in self.at if begin <= k < begin + length]
        return replace(self, at=at, begin=self.begin + begin) if at else None

    def tamper(self, k: int, sender: int, receiver: int, payload: Payload) -> Payload:
        """The payload that the sender really sends in iteration k."""
        at = frozenset(self.at)
        if sender not in self.members or receiver in self.members or not {k, k - 1} & at:
            return payload
        sign, when = (1.0, k) if k in at else (-1.0, k - 1)

        def moved(vector: Any) -> Any:
            return vector + sign * self.delta(when, sender, receiver, len(vector))

        return tuple([None if vector is None else moved(vector) for vector in payload])


def _pair(link: Any) -> Link:
    try:
        j, i = link
        return operator.index(j), operator.index(i)
    except (TypeError, ValueError):
        raise InputError(
            f"a link is a pair (sender, receiver) of agents' numbers, but got {link!r}. "
            "Write hg.Eavesdropper([(0, 1), (1, 0)])."
        ) from None
