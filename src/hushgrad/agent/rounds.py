"""One communication round of one agent: the messages that go out, the sums that come back.

The messages of an exchange are a small matrix times the vectors that a step knows, see `Sending`.
The step machine (machine.py) opens and closes rounds. A sum adds messages in the order of the
senders' numbers, never in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.single import SingleAgent
from hushgrad.agent.vectors import Vector, combine, divide, total
from hushgrad.exchange import Links, Parcel, Pull, Push

type Payload = tuple[Vector | None, ...]  # one message for each exchange, or None
type Numbers = float | NDArray[np.float64]  # one, or one for each iteration that the agent sees
type Parts = Mapping[int, Numbers]  # number of a vector → its coefficient


class Outbox(NamedTuple):
    """The messages of one agent in one round, for frames and for the journal."""

    sizes: tuple[int, ...]  # numbers in a message of each exchange
    payloads: dict[int, Payload]  # by receiver; other agents get no message


class Sending(NamedTuple):
    """The messages of an exchange, in some iterations."""

    asked: Push | Pull
    receivers: tuple[int, ...]
    of: tuple[int, ...]  # numbers of the known vectors
    # (iterations, rows, known vectors); Push: a row for each receiver and the whole; Pull: one
    weights: NDArray[np.float64]
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


def weights_of(rows: Sequence[Parts], ahead: int) -> tuple[tuple[int, ...], NDArray[np.float64]]:
    """The known vectors that the rows combine, and their weights (ahead, rows, known vectors)."""
    of = tuple(sorted({n for parts in rows for n in parts}))
    weights = np.zeros((ahead, len(rows), len(of)))
    for r, parts in enumerate(rows):
        for n, numbers in parts.items():
            weights[:, r, of.index(n)] = numbers
    return of, weights


def sending_of(
    agent: SingleAgent, exchange: Push | Pull, parts_of: Callable[[Any], Parts]
) -> Sending:
    """The sending of an exchange; `parts_of` tells a vector's combination of known ones."""
    if isinstance(exchange, Pull):
        matrix = exchange.matrix
        one = weights_of([parts_of(exchange.vector)], agent.ahead)
        receivers = agent.receivers(matrix.links)
        return Sending(exchange, receivers, *one, agent.own_weight(matrix), None)
    links = exchange.terms.links
    receivers = agent.receivers(links)
    rows: list[dict[int, Numbers]] = [{} for _ in (*receivers, "whole")]

    def add(row: dict[int, Numbers], parts: Parts, weight: Numbers) -> None:
        for n, numbers in parts.items():
            row[n] = row.get(n, 0.0) + weight * numbers

    for matrix, vector in exchange.terms.parts:
        if type(vector) is Parcel:
            own, out = vector
            add(rows[-1], parts_of(own), 1.0)
            for i in range(len(receivers)):
                share = parts_of(out[i : i + 1])
                add(rows[i], share, 1.0)
                add(rows[-1], share, 1.0)  # the own share of such a split is given without it
            continue
        parts = parts_of(vector)
        add(rows[-1], parts, 1.0)
        if matrix.links is not Links.NONE:
            for row, weight in zip(rows, agent.column(matrix, links), strict=False):
                add(row, parts, weight)
    awake = None
    if exchange.over is not None:
        awake = np.broadcast_to(exchange.over[:, 0].T > 0, (agent.ahead, len(receivers)))
    return Sending(exchange, receivers, *weights_of(rows, agent.ahead), None, awake)


def open_round(sendings: Sequence[Sending], known: Sequence[Vector], at: int) -> OpenRound:
    """Compute the messages of a round from the known vectors; `at` is the place of the iteration
    among those of the sendings.
    """
    sent = [_send(sending, known, at) for sending in sendings]
    own = tuple([stays for _, stays in sent])
    if len(sent) == 1:
        payloads: dict[int, Payload] = {i: (message,) for i, message in sent[0][0].items()}
    else:
        receivers = sorted({i for messages, _ in sent for i in messages})
        payloads = {i: tuple([messages.get(i) for messages, _ in sent]) for i in receivers}
    return OpenRound(sendings, Outbox(tuple(map(len, own)), payloads), own)


def _send(sending: Sending, known: Sequence[Vector], at: int) -> tuple[dict[int, Vector], Vector]:
    """The messages by receiver, and the own share."""
    _, receivers, of, weights, own_weight, awake = sending
    vectors = [known[n] for n in of]
    if own_weight is not None:  # a Pull: one vector, which the receivers weigh
        message = combine(weights[at, 0].tolist(), vectors)
        return dict.fromkeys(receivers, message), own_weight * message
    messages, own = divide(weights[at], vectors)
    sent = dict(zip(receivers, messages, strict=True))
    if awake is not None:
        sent = {i: sent[i] for i, is_awake in zip(receivers, awake[at], strict=True) if is_awake}
    return sent, own


def close_round(
    agent: SingleAgent, opened: OpenRound, inbox: Mapping[int, Payload]
) -> tuple[Vector, ...]:
    """The sums of a round, in the order of the senders' numbers."""
    me = agent.local.number
    senders = sorted((*inbox, me))
    sums: list[Vector] = []
    for e, (sending, own) in enumerate(zip(opened.sendings, opened.own, strict=True)):
        came = {j: own if j == me else inbox[j][e] for j in senders}
        here = {j: u for j, u in came.items() if u is not None}
        if isinstance(sending.asked, Pull):
            row = agent.row(sending.asked.matrix)
            sums.append(combine([row.get(j, 1.0) for j in here], [*here.values()]))
        else:
            sums.append(total([*here.values()]))
    return tuple(sums)
