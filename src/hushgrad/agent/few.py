"""A traced step on vectors of few numbers, as plain Python: number by number, without arrays.

To NumPy an operation on two numbers costs as much as one on a hundred. Here a step becomes two
functions of some dozens of lines, each one operation on floats; the bits are those of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.single import OneAgent
from hushgrad.agent.trace import Trace
from hushgrad.agent.writer import Writer, tools

MOST = 16  # numbers of a vector
_MOST_LINES = 256  # for all messages; from there on arrays are as quick

type Numbers = tuple[float, ...]
type State = tuple[Numbers, ...]
type Few = tuple[tuple[int, ...], tuple[Numbers, ...]]  # receivers and their messages
type Sent = tuple[Few, None, dict[int, Any], Numbers, bool]


def are_few(dim: int, n_receivers: int) -> bool:
    return dim <= MOST and 3 * dim * n_receivers <= _MOST_LINES


def is_finite(numbers: Numbers) -> bool:
    """A finite sum is the quickest proof; it may overflow, though."""
    return isfinite(sum(numbers)) or all(map(isfinite, numbers))


class FewSteps:
    """The steps of one agent: `send`, then `receive` what came, or `answer` with its sum."""

    def __init__(
        self,
        trace: Trace,
        agent: OneAgent,
        dim: int,
        gradient: Callable[[Numbers], Iterable[float]],
    ):
        self._trace, self._agent, self._dim = trace, agent, dim
        self._receivers = trace.receivers
        self._tools = tools(agent) | {"gradient": gradient}
        first = Writer(dim)
        first.names[trace.k] = "k"
        first.take("state", trace.fields)
        first.evaluate(trace.gradients[: trace.n_before])
        messages = first.tuples(trace.messages)
        own = first.tuple(trace.own)
        last = Writer(dim, first.names)
        last.take("(total,)", (trace.total,))
        results = self._results(last)
        self._kept = [trace.own, *(u for u in last.outer if u is not trace.own)]
        kept = ", ".join([name for u in self._kept for name in first.each(u)])
        self._before = first.names
        self._send = first.function("k, state", f"{messages}, {own}, ({kept},)", self._tools)
        self._answer = last.function("kept, total", results, self._tools, self._kept)
        self._receive: dict[tuple[int, ...], Callable[[Any, Any], tuple[Numbers, State]]] = {}
        self._now: tuple[float, ...] = ()  # numbers that are needed again after the round

    def _results(self, writer: Writer) -> str:
        writer.evaluate(self._trace.gradients[self._trace.n_before :])
        return writer.tuples(self._trace.results)

    def of(self, vector: NDArray[np.float64]) -> Numbers:
        return tuple(vector.tolist())

    def send(self, k: int, state: State) -> Sent:
        """What goes out in iteration k, as few numbers, letters or mail; what stays here, and
        whether that is finite.
        """
        messages, own, self._now = self._send(float(k), state)
        return (self._receivers, messages), None, {}, own, is_finite(own)

    def receive(self, senders: tuple[int, ...], came: Iterable[Numbers]) -> tuple[Numbers, State]:
        """(their sum, the next state) of what senders sent."""
        try:
            receive = self._receive[senders]
        except KeyError:
            receive = self._receive[senders] = self._written(senders)
        return receive(self._now, came)

    def answer(self, total: Numbers) -> State:
        """The next state, from a sum that is known."""
        return self._answer(self._now, total)

    def _written(self, senders: tuple[int, ...]) -> Callable[[Any, Any], tuple[Numbers, State]]:
        writer = Writer(self._dim, self._before)
        came, total = self._trace.sum_of(self._agent.local.number, senders)
        writer.take("came", came)
        sums = writer.tuple(total)
        writer.call(self._trace.total, total)
        return writer.function(
            "kept, came", f"{sums}, {self._results(writer)}", self._tools, self._kept
        )
