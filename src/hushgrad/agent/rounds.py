"""One communication round of one agent: the messages that go out, the sums that come back.

The step machine asks for both. Sums are formed in the order of the senders' numbers, never of
arrival. The own share of a Push is the rest of the vectors after the messages that were really
sent, so that rounding does not drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.combination import Combination, combine, late
from hushgrad.agent.single import SingleAgent
from hushgrad.exchange import Array, Parcel, Pull, Push, Round, exchanges

type Vector = NDArray[np.float64]  # (d,)
type Payload = tuple[Vector | None, ...]  # one message per exchange, None where a link is silent


@dataclass(frozen=True, slots=True)
class Outbox:
    """All that one agent sends in one round, from the step to the frame and the journal."""

    sizes: tuple[int, ...]  # how many numbers a message of each exchange has
    payloads: Mapping[int, Payload]  # by receiver; an agent that is not in it is sent nothing


@dataclass(frozen=True, slots=True)
class OpenRound:
    """A round whose messages are out and whose sums are not yet known."""

    asked: tuple[Push | Pull, ...]
    outbox: Outbox
    own: tuple[Vector, ...]  # for each exchange the share that stays here


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
            weights = [1.0 if j == me else row[j] for j in senders]
            pairs = [(w, u) for w, u in zip(weights, came, strict=True) if u is not None]
            found = combine(np.array([[w for w, _ in pairs]]), [u for _, u in pairs])[0]
        else:
            found = _sum([vector for vector in came if vector is not None])
        sums.append(found)
    return tuple(sums)


def answer(asked: Push | Pull, total: Vector) -> Array:
    """A sum as a step gets it back."""
    is_number = isinstance(asked, Push) and asked.scalar
    return total.reshape(1, -1, 1) if is_number else Combination.of(total)


def is_asleep(opened: OpenRound) -> bool:
    """Whether links take turns in this round, and none of this agent's is awake."""
    return not opened.outbox.payloads and all(
        getattr(exchange, "over", None) is not None for exchange in opened.asked
    )


def _pull(agent: SingleAgent, exchange: Pull) -> tuple[dict[int, Vector], Vector]:
    """(message by receiver, own share) of a vector that the receivers weigh."""
    message = late(exchange.vector).vector
    own = agent.own_weight(exchange.matrix) * message
    return dict.fromkeys(agent.receivers(exchange.matrix.links), message), own


def _push(agent: SingleAgent, exchange: Push) -> tuple[dict[int, Vector], Vector]:
    """(message by receiver, own share) of vectors that this agent weighs: columns add up to one,
    so the own share is the whole less all messages.
    """
    links = exchange.terms.links
    receivers = agent.receivers(links)
    products: list[tuple[Any, Combination]] = []
    shares: list[Any] = []  # (receivers, d) of splits by vectors
    for matrix, vector in exchange.terms.parts:
        if type(vector) is Parcel:
            own, out = vector
            shares.append(out[:, :, 0])
            products.append((agent.column(agent.I, links), late(own)))
        else:
            products.append((agent.column(matrix, links), late(vector)))
    vectors = {key: v for _, late_ in products for key, (_, v) in late_.parts.items()}
    coefficients: Any = None
    for column, combination in products:
        parts = combination.parts
        row = np.array([parts[key][0] if key in parts else 0.0 for key in vectors])
        block = column * row
        coefficients = block if coefficients is None else coefficients + block
    found = combine(coefficients, list(vectors.values()))
    messages, own = found[1:], found[0]
    for share in shares:  # which the own share of such a split lacks
        messages += share
        own = own + share.sum(0)
    own = np.subtract.reduce([own, *messages]) if shares else np.subtract.reduce(found)
    if exchange.over is None:
        return dict(zip(receivers, messages, strict=True)), own
    awake = (np.asarray(exchange.over).ravel() > 0).tolist()
    every = zip(receivers, messages, awake, strict=True)
    return {i: message for i, message, is_awake in every if is_awake}, own


def _sum(vectors: list[Vector]) -> Vector:
    """From the first to the last; none of them is changed."""
    if len(vectors) == 1:
        return vectors[0]
    found = vectors[0] + vectors[1]
    for vector in vectors[2:]:
        found += vector
    return found
