"""The vectors that an agent sends to all of its receivers alike, for the attacks on other methods.

A pulled vector is the same on every link. A pushed one is it times the public weight c_lj. So one
heard link out of j gives away the vector that j sends to all. The sum that i forms is known if
every neighbour of i is heard on some link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrad.privacy.knowledge import Knowledge

type Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Broadcast:
    """One exchange of an algorithm over a public matrix A: i forms Σ_j a_ij t_j."""

    letter: str  # of A: W, R or C
    round: int = 0
    exchange: int = 0
    pushed: bool = False

    def matrix(self, view: Knowledge) -> Floats:
        """A, (m, m)."""
        return view.network.matrix(view.algorithm.needs[self.letter])

    def said(self, view: Knowledge, j: int) -> Floats:
        """t_j^k, (n, numbers), from the first link out of j that is heard."""
        receiver = ears(view, j)[0]
        sent = view.sent(j, receiver, round=self.round, exchange=self.exchange)
        return sent / self.matrix(view)[receiver, j] if self.pushed else sent

    def carried(self, view: Knowledge, j: int, i: int) -> Floats:
        """a_ij t_j^k, (n, numbers): what j gives to i, heard on the link or known from another."""
        if self.pushed and view.hears(j, i):
            return view.sent(j, i, round=self.round, exchange=self.exchange)
        return self.matrix(view)[i, j] * self.said(view, j)

    def received(self, view: Knowledge, i: int) -> Floats:
        """Σ_{j≠i} a_ij t_j^k, (n, numbers)."""
        return np.sum([self.carried(view, j, i) for j in view.in_links(i)], axis=0)

    def given(self, view: Knowledge, i: int) -> Floats:
        """Σ_{l≠i} a_li t_i^k, (n, numbers)."""
        return np.sum([self.carried(view, i, to) for to in view.out_links(i)], axis=0)


def silent(view: Knowledge, target: int, *, with_senders: bool, iterations: int = 1) -> str | None:
    """Why not everything is known that the target says (and, with_senders, is told)."""
    if target in view.members:
        return f"agent {target} belongs to the adversary"
    if view.iterations < iterations:
        return f"needs {iterations} iterations, but there is {view.iterations}"
    if not ears(view, target):
        return f"hears none of the {len(view.out_links(target))} links out of agent {target}"
    missing = [j for j in view.in_links(target) if not ears(view, j)] if with_senders else []
    if missing:
        named = ", ".join(map(str, missing))
        return (
            f"hears nothing of agent{'s' * (len(missing) > 1)} {named}, whom agent {target} listens"
            " to"
        )
    return None


def ears(view: Knowledge, j: int) -> list[int]:
    """Receivers whose link from j is heard."""
    return [i for i in view.out_links(j) if view.hears(j, i)]
