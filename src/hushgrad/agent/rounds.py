"""One communication round of one agent: the messages that go out, the sums that come back.

The step machine (machine.py) opens and closes rounds. A sum adds messages in the order of the
senders' numbers, never in the order of arrival. The own share of a Push is the rest of the vectors
after the messages as they were sent, so that rounding errors do not accumulate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.combination import Combination, is_long, late, pieces
from hushgrad.agent.single import SingleAgent
from hushgrad.exchange import Array, Links, Parcel, Pull, Push, Round, exchanges

type Vector = NDArray[np.float64]  # (d,)
type Payload = tuple[Vector | None, ...]  # one message for each exchange, or None
type _Sent = tuple[dict[int, Vector], Vector]  # message by receiver, own share


_ALL = slice(None)


class Outbox(NamedTuple):
    """The messages of one agent in one round, for frames and for the journal."""

    sizes: tuple[int, ...]  # numbers in a message of each exchange
    payloads: Mapping[int, Payload]  # by receiver; other agents get no message


class OpenRound(NamedTuple):
    """A round whose messages are known and whose sums are not."""

    asked: tuple[Push | Pull, ...]
    outbox: Outbox
    own: tuple[Vector, ...]  # the own share of each exchange


def open_round(agent: SingleAgent, asked: Round) -> OpenRound:
    """Compute the messages of a round."""
    every = exchanges(asked)
    sent = [_pull(agent, e) if isinstance(e, Pull) else _push(agent, e) for e in every]
    own = tuple([stays for _, stays in sent])
    sizes = tuple([len(stays) for stays in own])
    if len(sent) == 1:
        payloads: dict[int, Payload] = {i: (message,) for i, message in sent[0][0].items()}
    else:
        receivers = sorted({i for messages, _ in sent for i in messages})
        payloads = {i: tuple([messages.get(i) for messages, _ in sent]) for i in receivers}
    return OpenRound(every, Outbox(sizes, payloads), own)


def close_round(
    agent: SingleAgent, opened: OpenRound, inbox: Mapping[int, Payload]
) -> tuple[Vector, ...]:
    """The sums of a round, in the order of the senders' numbers."""
    me = agent.local.number
    senders = sorted((*inbox, me))
    sums: list[Vector] = []
    for e, exchange in enumerate(opened.asked):
        came = [opened.own[e] if j == me else inbox[j][e] for j in senders]
        if isinstance(exchange, Pull):
            row = agent.row(exchange.matrix)
            weighed = [(row.get(j, 1.0), u) for j, u in zip(senders, came, strict=True)]
            parts = {id(u): (weight, u) for weight, u in weighed if u is not None}
            sums.append(Combination(len(opened.own[e]), parts).vector)
        else:
            sums.append(_sum([u for u in came if u is not None]))
    return tuple(sums)


def answer(asked: Push | Pull, total: Vector) -> Array:
    """The sum of an exchange, in the form that a step expects."""
    is_number = isinstance(asked, Push) and asked.scalar
    return total.reshape(1, -1, 1) if is_number else Combination.of(total)


def is_asleep(opened: OpenRound) -> bool:
    """Whether links take turns in this round, and all links of this agent sleep."""
    return not opened.outbox.payloads and all(
        getattr(exchange, "over", None) is not None for exchange in opened.asked
    )


def _pull(agent: SingleAgent, exchange: Pull) -> _Sent:
    """The messages and the own share of a Pull: one vector, which the receivers weigh."""
    message = late(exchange.vector).vector
    own = agent.own_weight(exchange.matrix) * message
    return dict.fromkeys(agent.receivers(exchange.matrix.links), message), own


class _Term(NamedTuple):
    """One product of a Push; without weights and shares, the matrix is I."""

    vector: Combination
    weights: list[float] | None  # by receiver
    shares: NDArray[np.float64] | None = None  # (receivers, d)


def _push(agent: SingleAgent, exchange: Push) -> _Sent:
    """The messages and the own share of a Push: columns add up to one, so the rest is own."""
    links = exchange.terms.links
    terms: list[_Term] = []
    for matrix, vector in exchange.terms.parts:
        if type(vector) is Parcel:
            own, out = vector
            terms.append(_Term(late(own), None, out[:, :, 0]))
        else:
            weights = None if matrix.links is Links.NONE else agent.column(matrix, links)
            terms.append(_Term(late(vector), weights))
    receivers, dim = agent.receivers(links), terms[0].vector.dim
    found = _long(terms, receivers, dim) if is_long(dim) else _divided(terms, len(receivers), _ALL)
    messages, own = found
    if exchange.over is None:
        return dict(zip(receivers, messages, strict=True)), own
    awake = (np.asarray(exchange.over).ravel() > 0).tolist()
    every = zip(receivers, messages, awake, strict=True)
    return {i: message for i, message, is_awake in every if is_awake}, own


def _divided(terms: list[_Term], n_receivers: int, where: slice) -> tuple[list[Vector], Vector]:
    """One piece of every message, and of the own share."""
    parts = [term.vector.piece(where) for term in terms]
    rest = _sum(parts) if len(parts) > 1 else parts[0].copy()
    messages: list[Vector] = []
    for i in range(n_receivers):
        shares: list[Vector] = []
        for part, (_, weights, given) in zip(parts, terms, strict=True):
            if weights is not None:
                shares.append(part * weights[i])
            elif given is not None:
                shares.append(given[i, where])
                rest += shares[-1]  # the own share of such a split is given without it
        message = _sum(shares)
        rest -= message
        messages.append(message)
    return messages, rest


def _long(terms: list[_Term], receivers: tuple[int, ...], dim: int) -> tuple[Any, Vector]:
    """The messages (receivers, d) and the own share (d,) of long vectors, piece by piece."""
    messages, own = np.empty((len(receivers), dim)), np.empty(dim)
    for where in pieces(dim):
        found, own[where] = _divided(terms, len(receivers), where)
        for row, message in zip(messages, found, strict=True):
            row[where] = message
    return messages, own


def _sum(vectors: list[Vector]) -> Vector:
    """The sum from the first to the last; none of them is changed."""
    if len(vectors) == 1:
        return vectors[0]
    found = vectors[0] + vectors[1]
    for vector in vectors[2:]:
        found += vector
    return found
