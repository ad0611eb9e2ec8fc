"""One communication round of one agent: the messages that go out, the sums that come back.

The messages of an exchange are a small matrix times the vectors of the exchange, see `Sending`.
The step machine (machine.py) opens and closes rounds. A sum adds messages in the order of the
senders' numbers, never in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.single import SingleAgent
from hushgrad.agent.vectors import Vector, combine, divide, total
from hushgrad.exchange import Links, Parcel, Pull, Push

type Payload = tuple[Vector | None, ...]  # one message for each exchange, or None

_NO_WEIGHTS = np.empty((0, 0, 0))


class Outbox(NamedTuple):
    """The messages of one agent in one round, for frames and for the journal."""

    sizes: tuple[int, ...]  # numbers in a message of each exchange
    payloads: dict[int, Payload]  # by receiver; other agents get no message


class Sending(NamedTuple):
    """An exchange in some iterations: its links, and the weights of its vectors on them."""

    asked: Push | Pull
    receivers: tuple[int, ...]
    weights: NDArray[np.float64]  # of a Push: (iterations, receivers, vectors)
    own_weight: float | None  # of a Pull
    awake: NDArray[np.bool_] | None  # (iterations, receivers), where links take turns


class OpenRound(NamedTuple):
    """A round whose messages are known and whose sums are not."""

    sendings: Sequence[Sending]  # one for each exchange
    outbox: Outbox
    own: tuple[Vector, ...]  # the own share of each exchange

    @property
    def is_asleep(self) -> bool:
        """Whether links take turns in this round, and all links of this agent sleep."""
        return not self.outbox.payloads and all(s.awake is not None for s in self.sendings)


def sending_of(agent: SingleAgent, exchange: Push | Pull) -> tuple[Sending, list[Any]]:
    """The sending of an exchange, and its vectors as the step gave them.

    The vectors of a Push add up to the vector that the agent divides.
    """
    if isinstance(exchange, Pull):
        matrix = exchange.matrix
        receivers, own_weight = agent.receivers(matrix.links), agent.own_weight(matrix)
        return Sending(exchange, receivers, _NO_WEIGHTS, own_weight, None), [exchange.vector]
    links = exchange.terms.links
    receivers = agent.receivers(links)
    vectors: list[Any] = []
    columns: list[Any] = []  # of each vector: (receivers, iterations or 1) weights, or 0
    for matrix, vector in exchange.terms.parts:
        if type(vector) is Parcel:
            own, out = vector
            vectors += [own, *[out[i : i + 1] for i in range(len(receivers))]]
            columns += [0.0, *np.eye(len(receivers))[:, :, None]]
        else:
            vectors.append(vector)
            columns.append(0.0 if matrix.links is Links.NONE else agent.column(matrix, links))
    weights = np.empty((len(vectors), len(receivers), agent.ahead))
    for n, column in enumerate(columns):
        weights[n] = column
    awake = None
    if exchange.over is not None:
        awake = np.broadcast_to(exchange.over[:, 0].T > 0, (agent.ahead, len(receivers)))
    return Sending(exchange, receivers, weights.T, None, awake), vectors


def open_round(
    sendings: Sequence[Sending], vectors: Sequence[Sequence[Vector]], at: int
) -> OpenRound:
    """Compute the messages of a round from the vectors of each sending.

    A sending has weights for several iterations; `at` picks the weights of this one.
    """
    sent = [_send(*each, at) for each in zip(sendings, vectors, strict=True)]
    if len(sent) == 1:
        ((messages, own),) = sent
        payloads: dict[int, Payload] = {i: (message,) for i, message in messages.items()}
        return OpenRound(sendings, Outbox((len(own),), payloads), (own,))
    receivers = sorted({i for messages, _ in sent for i in messages})
    payloads = {i: tuple([messages.get(i) for messages, _ in sent]) for i in receivers}
    every = tuple([own for _, own in sent])
    return OpenRound(sendings, Outbox(tuple(map(len, every)), payloads), every)


def _send(sending: Sending, vectors: Sequence[Vector], at: int) -> tuple[dict[int, Vector], Vector]:
    """The messages by receiver, and the own share."""
    _, receivers, weights, own_weight, awake = sending
    if own_weight is not None:  # a Pull: one vector, which the receivers weigh
        (message,) = vectors
        return dict.fromkeys(receivers, message), own_weight * message
    messages, own = divide(weights[at].tolist(), vectors)
    sent = dict(zip(receivers, messages, strict=True))
    if awake is not None:
        sent = {i: sent[i] for i, is_awake in zip(receivers, awake[at], strict=True) if is_awake}
    return sent, own


def close_round(
    agent: SingleAgent, opened: OpenRound, inbox: Mapping[int, Payload]
) -> tuple[Vector, ...]:
    """The sums of a round, in the order of the senders' numbers."""
    came = {**inbox, agent.local.number: opened.own}
    senders = sorted(came)
    sums: list[Vector] = []
    for e, sending in enumerate(opened.sendings):
        here = {j: vector for j in senders if (vector := came[j][e]) is not None}
        if isinstance(sending.asked, Pull):
            row = agent.row(sending.asked.matrix)
            sums.append(combine([row.get(j, 1.0) for j in here], [*here.values()]))
        else:
            sums.append(total([*here.values()]))
    return tuple(sums)
