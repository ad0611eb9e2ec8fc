"""The smallest coalition that exposes an agent.

Candidates are the agent's neighbours; where these do not suffice, also those who share a mask with
it; beyond them there is everyone else, to whom θ* alone tells g_i(θ*). Whether an attack *can be
tried* by a coalition is a question of who hears what, and only then it is run. An attack that
fails for all candidates together is not run for fewer of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations, islice

from hushgrad.privacy.adversaries import Curious
from hushgrad.privacy.lab import Lab

MOST = 40  # coalitions per agent whose attacks are run
_LOOKS = 2000  # coalitions per agent that are looked at


@dataclass(frozen=True, kw_only=True)
class Coalition:
    """Who together exposes an agent."""

    agent: int
    members: tuple[int, ...] | None  # None: nobody was found
    is_smallest: bool  # False: the search was cut off, fewer may do

    def __str__(self) -> str:
        if self.members is None:
            return "none found"
        n = len(self.members)
        numbers = ", ".join(map(str, self.members)) if n <= 8 else f"{n} in all"
        return f"agent{'s' * (n > 1)} {numbers}{'' if self.is_smallest else ', or fewer'}"


def smallest_coalition(lab: Lab, target: int, *, most: int = MOST) -> Coalition:
    """Search by increasing size; the attacks of at most `most` coalitions are run."""
    near = frozenset(lab.neighbours(target))
    for pool in (near, near | frozenset(lab.partners(target))):
        attacks = lab.outcome(Curious(pool), target).exposing
        if attacks:
            members, is_smallest = _search(lab, target, pool, attacks, most)
            return Coalition(agent=target, members=members, is_smallest=is_smallest)
    others = frozenset(range(lab.run.network.n_agents)) - {target}
    exposed = lab.outcome(Curious(others), target).verdict == "exposed"
    members = tuple(sorted(others)) if exposed else None
    return Coalition(agent=target, members=members, is_smallest=False)


def _search(
    lab: Lab, target: int, pool: Collection[int], attacks: Collection[str], most: int
) -> tuple[tuple[int, ...], bool]:
    able = (
        members
        for members in islice(_by_size(pool), _LOOKS)
        if lab.can_try(Curious(frozenset(members)), target, attacks)
    )
    for members in islice(able, most):
        if lab.outcome(Curious(frozenset(members)), target).verdict == "exposed":
            return members, True
    return tuple(sorted(pool)), False


def _by_size(pool: Collection[int]) -> Iterator[tuple[int, ...]]:
    ordered = sorted(pool)
    for size in range(1, len(ordered) + 1):
        yield from combinations(ordered, size)
