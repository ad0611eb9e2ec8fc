"""The stacked agents of a run that keeps a transcript: every message is formed on its link.

program.py takes them in place of `StackedAgents`.
"""

from __future__ import annotations

from typing import Any

from hushgrad.exchange import (
    Array,
    Columns,
    IdentityMatrix,
    Links,
    Matrix,
    Pull,
    Push,
    Shares,
    Square,
)
from hushgrad.simulate.stacked.agents import StackedAgents
from hushgrad.simulate.stacked.constants import LoopConstants, Wire


class Recorder(StackedAgents):
    """Agents that form every message on its link, keep it, and add up the messages themselves."""

    def __init__(self, constants: LoopConstants, k: Any):
        super().__init__(constants, k)
        # per exchange: (out-slots, d, trials) pushed, (agents, d, trials) pulled
        self.wire: list[Array] = []
        # per pushed exchange over some links only: (out-slots, 1, trials)
        self.masks: list[Array] = []

    def answer(self, asked: tuple[Push | Pull, ...]) -> tuple[Array, ...]:
        for e, exchange in enumerate(asked):
            if exchange.terms.links is not Links.NONE:
                pushed = isinstance(exchange, Push)
                masked = pushed and exchange.over is not None
                wire = Wire(self.traffic.rounds, e, pushed, exchange.terms.links, masked)
                self.traffic.wires.append(wire)
        return super().answer(asked)

    def _sum(self, exchange: Push | Pull, parts: list[tuple[Matrix, Array]]) -> Array:
        links = exchange.terms.links
        if isinstance(exchange, Pull):
            self.wire.append(exchange.vector)
            return super()._sum(exchange, parts)
        if links is Links.NONE:
            return super()._sum(exchange, parts)
        messages: Any = 0.0
        own: Any = 0.0
        for matrix, vector in parts:
            if not isinstance(matrix, IdentityMatrix):
                messages = messages + self._message(matrix, vector, links)
            own = own + self._sums.own(matrix, vector)
        messages = self._hold(messages)
        self.wire.append(messages)
        if exchange.over is not None:
            self.masks.append(exchange.over)
        return self._sums.collect(messages, own, links)

    def _message(self, matrix: Matrix, vector: Array, links: Links) -> Array:
        """The part (out-slots, d, trials) that one matrix has in each link's message."""
        if isinstance(matrix, Shares):
            return vector[1]
        at_sender = self.to_links(vector, links)
        if isinstance(matrix, Columns):
            return matrix.out * at_sender
        name = matrix.of.name + "2" if isinstance(matrix, Square) else matrix.name  # type: ignore[attr-defined]  # Columns went above
        return self.constants.args["sending"][links, name][:, None, None] * at_sender
