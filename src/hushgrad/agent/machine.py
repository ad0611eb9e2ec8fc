"""The step machine: one agent runs an algorithm round by round, without I/O.

The machine gives the messages of a round and takes the neighbours' messages. Agents in one process
(simulate/in_memory.py), agents on a network (network/journaled.py adds a journal and its replay)
and the audit's witness (privacy/witness.py) all run this one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.combination import is_finite, late, settled
from hushgrad.agent.local import Local
from hushgrad.agent.rounds import (
    OpenRound,
    Outbox,
    Payload,
    answer,
    close_round,
    is_asleep,
    open_round,
)
from hushgrad.agent.single import SingleAgent
from hushgrad.algorithms.base import Algorithm
from hushgrad.exchange import Pull, Push, Round, Step, reply

type Vector = NDArray[np.float64]  # (d,)


class StepMachine:
    """One agent's algorithm, always in one round: `outbox` goes out, `receive` takes the inbox.

    When a step has ended, `go_on` opens the first round of the next step.
    """

    was_awake: bool  # a link was awake in this step; otherwise x stays, whether optimal or not

    def __init__(self, algorithm: Algorithm, local: Local, x0: Vector):
        self.algorithm, self.agent = algorithm, SingleAgent(local)
        self.x0 = np.array(x0, np.float64)
        self.k, self.round = 0, 0  # the present iteration and round, both counted over the run
        self._state: Any = None  # at the start of this step; its vectors are combinations

    # ---- the present round

    @property
    def x(self) -> Vector:
        """θ̂ at the start of the present step; after its end, θ̂ at its end."""
        return late(self.algorithm.estimate(self._state)).vector

    @property
    def state(self) -> Any:
        """The algorithm's NamedTuple of arrays (1, ·, 1), at the same time as `x`."""
        return type(self._state)(*[np.asarray(u) for u in self._state])

    @state.setter
    def state(self, state: Any) -> None:
        self._state = _settled(state, len(self.x0))

    @property
    def outbox(self) -> Outbox:
        """The messages of the present round."""
        return self._opened.outbox

    def drop_messages(self) -> None:
        """Let go of the messages, once they are encoded; only their sizes are kept."""
        self._opened = self._opened._replace(outbox=Outbox(self.outbox.sizes, {}))

    @property
    def asked(self) -> tuple[Push | Pull, ...]:
        """The exchanges of the present round."""
        return self._opened.asked

    @property
    def is_finite(self) -> bool:
        """Whether all numbers of the present round are finite.

        An own share is finite only if all messages are, so the own shares tell.
        """
        return all(map(is_finite, self._opened.own))

    # ---- going on

    def begin(self) -> None:
        """Open round 0 of iteration 0."""
        self.agent.bind(0)
        self.state = self.algorithm.init(self.agent, self.x0[None, :, None])
        self.resume(0, 0)

    def resume(self, k: int, round_: int) -> None:
        """Open the first round of step k from `state`."""
        self.k, self.round, self.was_awake = k, round_, False
        self.agent.bind(k)
        is_first = k == 0 and self.algorithm.first_differs
        step = self.algorithm.first if is_first else self.algorithm.step
        self._step: Step[Any] = step(self.agent, self._state)
        self._open(next(self._step))

    def go_on(self) -> None:
        """Open the first round of the next step."""
        self.resume(self.k, self.round)

    def receive(self, inbox: Mapping[int, Payload]) -> tuple[Vector, ...]:
        """Take the messages of this round, by sender; returns their sums, for `advance`."""
        return close_round(self.agent, self._opened, inbox)

    def advance(self, sums: tuple[Vector, ...]) -> bool:
        """Go on with the sums of this round; returns whether the step has ended."""
        given = tuple([answer(e, total) for e, total in zip(self.asked, sums, strict=True)])
        answered = reply(self._asked, given)
        del self._opened, self._asked  # a round that is over makes room for long vectors
        self.round += 1
        try:
            asked = self._step.send(answered)
        except StopIteration as end:
            self.state = end.value
            self.k += 1
            return True
        self._open(asked)
        return False

    def _open(self, asked: Round) -> None:
        self._asked = asked
        self._opened: OpenRound = open_round(self.agent, asked)
        self.was_awake |= not is_asleep(self._opened)


def _settled(state: Any, dim: int) -> Any:
    """A state for the next step: its vectors are computed, its single numbers are unchanged."""
    shape = (1, dim, 1)
    return type(state)(*[settled(u) if u.shape == shape else np.asarray(u) for u in state])
