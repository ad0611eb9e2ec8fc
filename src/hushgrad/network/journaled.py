"""The step machine of a deployed agent, with a journal from which its steps can run again.

A step is a function of its state, of the sums that its rounds gave back, of the gradients that it
asked for, and of draws. The journal holds the first three, and a draw depends on its address alone.
So a restarted agent reruns a step up to the last round in the journal, and does not call the user's
objective again. rounds.py decides when to write a section; state/journal.py writes it.

Every stage of a run has a step machine of its own, with the draws and the gradient of the stage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from hushgrad.agent.local import Local
from hushgrad.agent.machine import StepMachine
from hushgrad.agent.vectors import Vector
from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import ReplayError
from hushgrad.network.state.sections import Section

# the names of arrays in the journal
_SUM, _GRADIENT, _X0 = "sum ", "gradient ", "x0"


class JournaledMachine:
    """One agent's step machine, and the sums and gradients that the journal needs."""

    def __init__(
        self,
        algorithm: Algorithm,
        local_of: Callable[[int], Local],
        x0: Vector,
        *,
        begins: tuple[int, ...] = (0,),
        is_open: bool = False,
    ):
        """`local_of` gives the agent's part of the network in a stage; stage s begins with
        iteration begins[s]. `is_open`: the run may end after any stage.
        """
        self._algorithm, self._local_of, self.begins = algorithm, local_of, begins
        self._is_open = is_open
        self._replayed: deque[Vector] = deque()  # gradients from the journal, for the rerun
        self._gradients: list[Vector] = []  # evaluated since the last `record`
        self._n_past = 0  # gradients from steps before the present one, whose state includes them
        self._sums: tuple[Vector, ...] = ()  # of the last round that was consumed
        self._make(0, x0)

    def _make(self, stage: int, x0: Vector) -> None:
        """Make the step machine of a stage."""
        local = self._local_of(stage)
        self.stage, self._objective = stage, local.gradient
        self.machine = StepMachine(
            self._algorithm, replace(local, gradient=self._gradient), x0, since=self.begins[stage]
        )

    def _gradient(self, x: Vector) -> Vector:
        if self._replayed:
            return self._replayed.popleft()
        g = self._objective(x)
        self._gradients.append(g)
        return g

    # ---- going on

    def advance(self, sums: tuple[Vector, ...]) -> bool:
        """Go on with the sums of this round; returns whether the step has ended.

        After the end of a step, `go_on` opens the next one.
        """
        self._sums = sums
        return self.machine.advance(sums)

    def go_on(self) -> None:
        """Open the first round of the next step."""
        self._n_past = len(self._gradients)
        self.machine.go_on()

    def enter(self, stage: int, start: Vector) -> None:
        """Open the first round of a stage."""
        round_ = self.machine.round
        self._gradients, self._n_past = [], 0  # the last ones belong to the stage before
        self._make(stage, start)
        self.machine.begin(round_)

    # ---- writing

    def record(self, blob: bytes, *, is_head: bool) -> Section:
        """The section of the present round: the sums of the last round and the gradients since.

        The head of a slot is the first round of a step, and holds the state instead of the sums.
        """
        machine, gradients = self.machine, self._gradients
        self._gradients = []
        if not is_head:
            arrays = dict(zip(_names(_SUM, len(self._sums)), self._sums, strict=True))
        elif machine.k == machine.since:  # the start and the gradients there give the state
            arrays = {_X0: machine.x0}
        else:
            arrays, gradients = machine.state._asdict(), gradients[self._n_past :]
        arrays.update(zip(_names(_GRADIENT, len(gradients)), gradients, strict=True))
        return Section(machine.k, machine.round, arrays, blob, self._facts() if is_head else {})

    def _facts(self) -> Mapping[str, Any]:
        """The stage, in a run of several."""
        n = len(self.begins)
        opened = {"is_open": True} if self._is_open else {}
        return {"stage": self.stage, "stages": n, **opened} if n > 1 else {}

    def final(self, facts: dict[str, Any], blob: bytes) -> Section:
        """The section that ends a run."""
        machine = self.machine
        facts = {"is_final": True, **facts, **self._facts()}
        return Section(machine.k, machine.round, machine.state._asdict(), blob, facts)

    # ---- running again

    def replay(self, sections: list[Section], check: Callable[[Section], None]) -> None:
        """Rerun the steps of a slot up to its last round; calls `check` in every round."""
        head = sections[0]
        stage = int(head.facts.get("stage", 0))
        if stage != self.stage:
            self._make(stage, self.machine.x0)
        machine = self.machine
        if head.facts.get("is_final"):
            self._restore(head)
            machine.k, machine.round = head.k, head.round
            return
        self._queue_gradients(head)
        if head.k == machine.since:
            machine.x0 = np.array(head.arrays[_X0])
            machine.begin(head.round)
        else:
            self._restore(head)
            machine.resume(head.k, head.round)
        for section in sections:
            if section is not head:
                self._queue_gradients(section)
                if self.advance(_sums(section)):
                    self.go_on()
            if (section.k, section.round) != (machine.k, machine.round):
                raise ReplayError(
                    f"the journal holds round {section.round} of step {section.k}, but the rerun "
                    f"is in round {machine.round} of step {machine.k}."
                )
            check(section)
        if self._replayed or self._gradients:
            raise ReplayError(
                f"step {machine.k} does not ask for the gradients that its journal holds. Run the "
                "agent with the version and configuration that wrote the journal."
            )

    def _queue_gradients(self, section: Section) -> None:
        """Let the rerun use the gradients of a section."""
        names = [name for name in section.arrays if name.startswith(_GRADIENT)]
        self._replayed.extend(np.array(section.arrays[name]) for name in names)

    def _restore(self, head: Section) -> None:
        names = [name for name in head.arrays if not name.startswith(_GRADIENT)]
        stored = {name: np.array(head.arrays[name]) for name in names}
        expected = self._fresh_state()
        fields = type(expected)._fields
        if set(stored) != set(fields):
            raise ReplayError(
                f"the journal holds the state {sorted(stored)}, but "
                f"{type(self.machine.algorithm).__name__} has {list(fields)}."
            )
        shapes = [stored[name].shape for name in fields]
        if shapes != (own := [np.shape(u) for u in expected]):
            raise ReplayError(
                f"the journal holds a state of the shapes {shapes}, but the state of this run has "
                f"{own}. Run the agent with the configuration that wrote the journal."
            )
        self.machine.state = type(expected)(**stored)

    def _fresh_state(self) -> Any:
        """A state of the algorithm, only for its names and shapes."""
        machine = self.machine
        local = replace(machine.agent.local, gradient=np.zeros_like)
        other = StepMachine(machine.algorithm, local, machine.x0)
        return machine.algorithm.init(other.agent, other.x0[None, :, None])


@cache
def _names(kind: str, count: int) -> tuple[str, ...]:
    """The names of that many arrays of one kind, the same objects in every round."""
    return tuple([f"{kind}{n}" for n in range(count)])


def _sums(section: Section) -> tuple[Vector, ...]:
    return tuple(np.array(a) for name, a in section.arrays.items() if name.startswith(_SUM))
