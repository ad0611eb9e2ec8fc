"""The step machine: one agent runs an algorithm round by round, without I/O.

The machine gives the messages of a round and takes the neighbours' messages. Agents in one process
(simulate/in_memory.py), agents on a network (network/journaled.py adds a journal and its replay)
and the audit's witness (privacy/witness.py) all run this one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hushgrad.agent.local import Local
from hushgrad.agent.rounds import OpenRound, Outbox, Payload, close_round
from hushgrad.agent.single import SingleAgent
from hushgrad.agent.stepping import StepPlan, as_it_is, as_traced, traced
from hushgrad.agent.vectors import Vector, is_within
from hushgrad.algorithms.base import Algorithm
from hushgrad.exchange import Pull, Push


class StepMachine:
    """One agent's algorithm, always in one round: `outbox` goes out, `receive` takes the inbox.

    When a step has ended, `go_on` opens the first round of the next step.
    """

    was_awake: bool  # a link was awake in this step; otherwise x stays, whether optimal or not

    def __init__(self, algorithm: Algorithm, local: Local, x0: Vector, *, since: int = 0):
        """`since`: the iteration of the run that is iteration 0 of the algorithm, in a stage."""
        self.algorithm, self.agent = algorithm, SingleAgent(local)
        self.x0, self.since = np.array(x0, np.float64), since
        self.k, self.round = since, 0  # the present iteration and round, both counted over the run
        self._type: type[Any]  # of the algorithm's state
        self._vectors: list[Vector] = []  # the state at the start of this step
        self._is_linear = True  # as far as known
        self._plan: StepPlan | None = None

    # ---- the present round

    @property
    def x(self) -> Vector:
        """θ̂ at the start of the present step; after its end, θ̂ at its end."""
        return np.asarray(self.algorithm.estimate(self.state))[0, :, 0]

    @property
    def state(self) -> Any:
        """The algorithm's NamedTuple of arrays (1, ·, 1), at the same time as `x`."""
        return self._type(*[u[None, :, None] for u in self._vectors])

    @state.setter
    def state(self, state: Any) -> None:
        self._type = type(state)
        self._vectors = [np.asarray(u, np.float64)[0, :, 0] for u in state]

    @property
    def outbox(self) -> Outbox:
        """The messages of the present round."""
        return self._opened.outbox

    def drop_messages(self) -> None:
        """Let go of the messages, once they are encoded; only their sizes are kept."""
        self.outbox.payloads.clear()

    @property
    def asked(self) -> tuple[Push | Pull, ...]:
        """The exchanges of the present round."""
        return tuple(sending.asked for sending in self._opened.sendings)

    def is_within(self, most: float) -> bool:
        """Whether the numbers of the present round, own shares and messages, are at most `most`."""
        opened = self._opened
        sent = {id(v): v for payload in opened.outbox.payloads.values() for v in payload}
        return all(v is None or is_within(v, most) for v in (*opened.own, *sent.values()))

    # ---- going on

    def begin(self, round_: int = 0) -> None:
        """Open the first round of the algorithm's iteration 0, which is this round of the run."""
        self.agent.bind(0)
        self.state = self.algorithm.init(self.agent, self.x0[None, :, None])
        self.resume(self.since, round_)

    def resume(self, k: int, round_: int) -> None:
        """Open the first round of step k from `state`."""
        self.k, self.round, self.was_awake = k, round_, False
        k -= self.since
        is_first = k == 0 and self.algorithm.first_differs
        plan = None if is_first else self._plan_for(k)
        if plan is not None:
            self._step = as_traced(plan, self.agent.local, k, self._vectors)
        else:
            self.agent.bind(k)
            step = self.algorithm.first if is_first else self.algorithm.step
            self._step = as_it_is(self.agent, step(self.agent, self.state))
        self._open(next(self._step))

    def _plan_for(self, k: int) -> StepPlan | None:
        """The plan of step k; None if steps are not linear."""
        if self._is_linear and (self._plan is None or k not in self._plan.iterations):
            self._plan = traced(self.algorithm, self.agent.local, self._type, k)
            self._is_linear = self._plan is not None
        return self._plan

    def go_on(self) -> None:
        """Open the first round of the next step."""
        self.resume(self.k, self.round)

    def receive(self, inbox: Mapping[int, Payload]) -> tuple[Vector, ...]:
        """Take the messages of this round, by sender; returns their sums, for `advance`."""
        return close_round(self.agent, self._opened, inbox)

    def advance(self, sums: tuple[Vector, ...]) -> bool:
        """Go on with the sums of this round; returns whether the step has ended."""
        del self._opened  # a round that is over makes room for long vectors
        self.round += 1
        try:
            opened = self._step.send(sums)
        except StopIteration as end:
            self._vectors = end.value
            self.k += 1
            return True
        self._open(opened)
        return False

    def _open(self, opened: OpenRound) -> None:
        self._opened = opened
        self.was_awake |= not opened.is_asleep
