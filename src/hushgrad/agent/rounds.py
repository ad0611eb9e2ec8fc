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

from hushgrad.agent.combination import Combination, late, pieces
from hushgrad.agent.single import SingleAgent
from hushgrad.exchange import Array, Links, Parcel, Pull, Push, Round, exchanges

type Vector = NDArray[np.float64]  # (d,)
type Payload = tuple[Vector | None, ...]  # one message for each exchange, or None
type _Sent = tuple[dict[int, Vector], Vector]  # message by receiver, own share


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
        came = {j: opened.own[e] if j == me else inbox[j][e] for j in senders}
        row = agent.row(exchange.matrix) if isinstance(exchange, Pull) else {}
        weighed = [(row.get(j, 1.0), u) for j, u in came.items() if u is not None]
        parts = {id(u): pair for pair in weighed for u in pair[1:]}
        sums.append(Combination(len(opened.own[e]), parts).vector)
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
    messages, own = np.empty((len(receivers), dim)), np.empty(dim)
    for where in pieces(dim):
        _divide(terms, messages, own, where)
    if exchange.over is None:
        return dict(zip(receivers, messages, strict=True)), own
    awake = (np.asarray(exchange.over).ravel() > 0).tolist()
    every = zip(receivers, messages, awake, strict=True)
    return {i: message for i, message, is_awake in every if is_awake}, own


def _divide(terms: list[_Term], messages: Any, own: Vector, where: slice) -> None:
    """Fill one piece of the messages (receivers, d) and of the own share (d,)."""
    parts = [term.vector.piece(where) for term in terms]
    rest = own[where]
    rest[:] = parts[0]
    for part in parts[1:]:
        rest += part
    for i, row in enumerate(messages):
        message = row[where]
        is_first = True
        for part, (_, weights, shares) in zip(parts, terms, strict=True):
            if weights is not None:
                share = part * weights[i]
            elif shares is not None:
                share = shares[i, where]
                rest += share  # the vector of such a term is the own share alone
            else:
                continue
            if is_first:
                message[:] = share
                is_first = False
            else:
                message += share
        rest -= message
