"""Mask partners: a public rule that every agent computes alone. `ZeroSum` uses it.

Agent i masks with the agents i ± o (mod m), for a few offsets o. The graph of these pairs should
connect any two agents by many short paths: the more such paths, the less a masked statistic tells
about the agent that holds a row (docs/guarantee.md measures it by effective resistance). The pairs
must also form one component, because the sum over every component is no secret. The rule is

    o_t = u · b^t  (mod m),    t = 0 … n_partners/2 − 1,    b near m^(2/n_partners),    u a unit

Without u the offsets 1, b, b², … fold the numbers into a torus with equal sides: the offset 1
connects all agents, and no short walk leads back. Multiplication by a unit (gcd(u, m) = 1) only
renames the agents, so it keeps both properties. It moves partners away from adjacent numbers,
which networks often link. The rule uses integers only, so it is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

_TURN = 0x9E37_79B9  # 2³² / golden ratio: u starts there, far from 0 and from m / 2


@cache  # every agent of a simulation asks for the same offsets
def offsets(n_agents: int, n_partners: int) -> tuple[int, ...]:
    """The offsets o: agent i masks with the agents i + o (mod m). n_partners is even.

    In a small network an agent masks with every other agent. Otherwise no offset is ±1, except
    where such offsets do not exist (m ≤ n_partners + 2, and two partners of six agents).

    >>> offsets(5, 4)
    (1, 2, 3, 4)
    >>> offsets(100, 4)
    (39, 10, -39, -10)
    """
    if n_partners >= n_agents - 1:
        return tuple(range(1, n_agents))
    half = n_partners // 2
    first: list[int] = []
    for b in _bases(n_agents, half):
        torus = _powers(n_agents, half, b)
        for u in _units(n_agents):
            found = [_fold(u * o, n_agents) for o in torus]
            first = first or found
            if 1 not in found:
                return (*found, *(-o for o in found))
        if n_agents <= n_partners + 2:
            break  # every set of offsets has ±1
    return (*first, *(-o for o in first))


def _fold(offset: int, n_agents: int) -> int:
    """The offset or its opposite, the one up to m / 2."""
    offset %= n_agents
    return min(offset, n_agents - offset)


def _bases(n_agents: int, half: int) -> Iterator[int]:
    """The bases b from 2 on, those nearest to the root of m first."""
    root = 2
    while half > 1 and (2 * root + 1) ** half <= 2**half * n_agents:  # root + ½ ≤ m^(1/half)
        root += 1
    yield root
    for step in range(1, n_agents):
        yield root + step
        if root - step >= 2:
            yield root - step


def _powers(n_agents: int, half: int, b: int) -> list[int]:
    """1, b, b², … folded; a power that cannot serve gives way to the next free offset."""
    found: list[int] = []
    for t in range(half):
        o = _fold(pow(b, t, n_agents), n_agents)
        while o in found or o == 0 or 2 * o == n_agents:
            o = o % (n_agents // 2) + 1
        found.append(o)
    return found


def _units(n_agents: int) -> Iterator[int]:
    """The numbers without a common divisor with m, from the golden section on."""
    start = n_agents * _TURN >> 32
    return (
        u for u in range(start, start + n_agents) if math.gcd(u, n_agents) == 1 and u % n_agents
    )
