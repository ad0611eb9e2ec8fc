"""The weights of one agent, from its links and its neighbours' degrees, without the whole graph.

A deployed agent computes its weights while it meets its neighbours (network/introduction.py).
`hushgrad.mixing` has the same expressions and the same order of sums, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from hushgrad.agent.local import LocalWeights
from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import AlgorithmError, MixingError
from hushgrad.exchange import Links
from hushgrad.mixing.weights import SAME


@dataclass(frozen=True)
class Ends:
    """The numbers of agents that an agent hears (`into`) and sends to (`out`)."""

    into: int
    out: int


@dataclass(frozen=True)
class Row:
    """The weights of an agent's links, which its neighbours need for W²."""

    own: float
    links: Mapping[int, float]
    names: Mapping[int, str]


type _Weigh = Callable[[Ends, Ends, int], float]  # (receiver, sender, the network's largest degree)

_DOUBLY: Mapping[str, _Weigh] = {
    "metropolis": lambda i, j, _: 1 / (1.0 + max(i.into, j.into)),
    "lazy_metropolis": lambda i, j, _: 1 / (1.0 + max(i.into, j.into)) / 2,
    "max_degree": lambda _, __, most: 1 / (1 + most),
}


def _by_row(receiver: Ends, sender: Ends, most: int) -> float:
    del sender, most
    return 1 / (1.0 + receiver.into)


def _by_column(receiver: Ends, sender: Ends, most: int) -> float:
    del receiver, most
    return 1 / (1.0 + sender.out)


# rule → matrix → weight; a doubly stochastic W serves as R and as C, too
MIXING: Mapping[str, Mapping[str, _Weigh]] = {
    **{name: dict.fromkeys("WRC", rule) for name, rule in _DOUBLY.items()},
    "uniform": {"R": _by_row, "C": _by_column},
    "uniform_row": {"R": _by_row},
    "uniform_column": {"C": _by_column},
}


def public_weights(
    algorithm: Algorithm,
    mixing: str,
    max_degree: int | None,
    me: Ends,
    senders: Mapping[int, Ends],
    receivers: Mapping[int, Ends],
) -> dict[str, LocalWeights]:
    """One agent's weights in each matrix that the algorithm needs."""
    rules = MIXING.get(mixing, {})
    weights: dict[str, LocalWeights] = {}
    for letter in algorithm.needs:
        if letter not in rules:
            able = [name for name, served in MIXING.items() if letter in served]
            raise MixingError(
                f"{type(algorithm).__name__} needs {letter}, which mixing = {mixing!r} "
                f"does not give. Use one of {', '.join(able)}."
            )
        weigh, most = rules[letter], max_degree or 0
        if mixing == "max_degree" and most < max(e.into for e in [me, *senders.values()]):
            raise MixingError(
                f'mixing "max_degree" needs the network\'s largest degree, but max_degree = '
                f"{max_degree} and there are agents with more links. Correct max_degree in [run]."
            )
        into = {j: weigh(me, ends, most) for j, ends in sorted(senders.items())}
        out = {i: weigh(ends, me, most) for i, ends in sorted(receivers.items())}
        own = _own((out if weigh is _by_column else into).values())
        weights[letter] = LocalWeights(own, out, into)
    return weights


def _own(others: Collection[float]) -> float:
    """An agent's own weight, by the rule of hushgrad.mixing: what the others leave of 1.

    The sum goes from left to right, without the compensation of Python's `sum`.
    """
    total = 0.0
    for value in others:
        total += value
    own, first = 1.0 - total, next(iter(others), 0.0)
    is_even = all(value == first for value in others) and abs(own - first) < SAME * own
    return first if is_even else own


def square(me: int, weights: LocalWeights, rows: Mapping[int, Row]) -> LocalWeights:
    """Column `me` of W², W = Wᵀ, from the rows of the neighbours."""
    rows = {**rows, me: Row(weights.own, weights.into, {})}
    column: dict[int, float] = {}
    for through, row in sorted(rows.items()):
        first = weights.own if through == me else weights.out[through]
        for i, second in [(through, row.own), *row.links.items()]:
            column[i] = column.get(i, 0.0) + second * first
    own = column.pop(me)
    column = dict(sorted(column.items()))
    return LocalWeights(own, column, column)


def check_two_hop(
    algorithm: Algorithm, needed: Iterable[int], linked: Iterable[int], rows: Iterable[Row]
) -> None:
    """Refuse W² if links are missing, and list them."""
    missing = sorted(set(needed) - set(linked))
    if algorithm.links is Links.TWO_HOP and missing:
        names = {i: name for row in rows for i, name in row.names.items()}
        raise AlgorithmError(
            f"{algorithm.label} sends to agents two hops away, but links are missing to "
            f"{', '.join(f'{names.get(i, i)} (agent {i})' for i in missing)}. Add them as "
            'neighbours with two_hop = true, at both ends, or use form = "lazy".'
        )
