"""Who listens: an eavesdropper on links, or agents of the network that are curious.

Both follow Kerckhoffs: they know the graph, the weights, the algorithm and the distributions of
its stepsizes and splits, never the draws.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
        """Which of a run's links this adversary hears."""


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


def _pair(link: Any) -> Link:
    try:
        j, i = link
        return operator.index(j), operator.index(i)
    except (TypeError, ValueError):
        raise InputError(
            f"a link is a pair (sender, receiver) of agents' numbers, but got {link!r}. "
            "Write hg.Eavesdropper([(0, 1), (1, 0)])."
        ) from None
