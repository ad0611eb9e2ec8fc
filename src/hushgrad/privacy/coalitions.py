"""The smallest coalition that exposes an agent.

Candidates are the agent's neighbours; if these do not suffice, also the agents that share a mask
with it. Beyond them are all other agents, to whom θ* alone tells g_i(θ*). More members never learn
less. So attacks that fail for all candidates together are not run for fewer. A candidate that
cannot be spared from all of them belongs to every coalition that succeeds: the smallest one is
these candidates, or these and some more, tried by increasing size. An attack is run only if the
heard links allow it. `audit` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

from hushgrad.privacy.adversaries import Curious
from hushgrad.privacy.lab import Lab

MOST = 100  # coalitions that are looked at for one agent


@dataclass(frozen=True, kw_only=True)
class Coalition:
    """The agents that together expose an agent."""

    agent: int
    members: tuple[int, ...] | None  # None: nobody was found
    is_smallest: bool  # False: the search was cut off, or an attack in it failed; fewer may do

    def __str__(self) -> str:
        if self.members is None:
            return "none found"
        n = len(self.members)
        numbers = ", ".join(map(str, self.members)) if n <= 8 else f"{n} in all"
        return f"agent{'s' * (n > 1)} {numbers}{'' if self.is_smallest else ', or fewer'}"


def smallest_coalition(lab: Lab, target: int, *, most: int = MOST) -> Coalition:
    """Search by increasing size, `most` coalitions at most."""
    near = frozenset(lab.neighbours(target))
    for pool in (near, near | frozenset(lab.partners(target))):
        attacks = lab.outcome(Curious(pool), target).exposing
        if attacks:
            return _search(lab, target, pool, attacks, most)
    others = frozenset(range(lab.run.network.n_agents)) - {target}
    exposed = lab.outcome(Curious(others), target).verdict == "exposed"
    members = tuple(sorted(others)) if exposed else None
    return Coalition(agent=target, members=members, is_smallest=False)


def _search(
    lab: Lab, target: int, pool: frozenset[int], attacks: frozenset[str], most: int
) -> Coalition:
    def expose(members: frozenset[int]) -> bool:
        return bool(members) and lab.exposes(Curious(members), target, attacks)

    def found(members: frozenset[int], *, is_smallest: bool) -> Coalition:
        sure = len(members) == 1 or not lab.is_unsure(target)
        return Coalition(
            agent=target, members=tuple(sorted(members)), is_smallest=is_smallest and sure
        )

    for member in sorted(pool):
        if expose(frozenset({member})):
            return found(frozenset({member}), is_smallest=True)
    needed = frozenset(member for member in pool if not expose(pool - {member}))
    for members in islice(_between(needed, pool), most):
        if members == pool or expose(members):
            return found(members, is_smallest=True)
    return found(pool, is_smallest=False)


def _between(least: frozenset[int], most: frozenset[int]) -> Iterator[frozenset[int]]:
    """All sets between two, by increasing size."""
    rest = sorted(most - least)
    for size in range(len(rest) + 1):
        for more in combinations(rest, size):
            yield least | frozenset(more)
