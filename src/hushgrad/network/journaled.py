"""The step machine of a deployed agent, whose steps can be run again from a journal.

A step is a function of its state, of the sums that its rounds gave back, of the gradients that it
asked for, and of draws that are addressed, not drawn in order. The journal holds the first three.
So a restarted agent reruns a step up to the round where it stood, without calling the user's
objective again. rounds.py decides when a section is written; state/journal.py writes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.local import Local
from hushgrad.agent.machine import StepMachine
from hushgrad.agent.rounds import Payload
from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import DivergedError, ReplayError
from hushgrad.network.state.sections import Section

type Vector = NDArray[np.float64]  # (d,)

# names of arrays in the journal
_SUM, _GRADIENT, _X0 = "sum ", "gradient ", "x0"


class JournaledMachine:
    """One agent's step machine with the sums and gradients that its journal needs."""

    def __init__(self, algorithm: Algorithm, local: Local, x0: Vector):
        self._objective = local.gradient
        self._told: deque[Vector] = deque()  # gradients from the journal, to be given again
        self._gradients: list[Vector] = []  # evaluated since the last `record`
        self._n_past = 0  # of these, before the present step: its state holds their effect
        self._sums: tuple[Vector, ...] = ()  # of the round before
        self.machine = StepMachine(algorithm, replace(local, gradient=self._gradient), x0)

    def _gradient(self, x: Vector) -> Vector:
        if self._told:
            return self._told.popleft()
        g = self._objective(x)
        self._gradients.append(g)
        return g

    # ---- going on

    def begin(self) -> None:
        self.machine.begin()

    def receive(self, inbox: Mapping[int, Payload]) -> bool:
        """Take the messages of this round; whether the step has ended (then `go_on`, or not)."""
        return self._advance(self.machine.receive(inbox))

    def _advance(self, sums: tuple[Vector, ...]) -> bool:
        self._sums = sums
        return self.machine.advance(sums)

    def go_on(self) -> None:
        """Open the first round of the next step."""
        self._n_past = len(self._gradients)
        self.machine.go_on()

    def check_finite(self) -> None:
        """Refuse to send numbers that no neighbour would take."""
        if not self.machine.is_finite:
            raise DivergedError(
                f"iteration {self.machine.k}: the numbers to be sent are not finite. Choose a "
                "smaller stepsize."
            )

    # ---- writing

    def record(self, blob: bytes, *, is_head: bool) -> Section:
        """The section of the present round: the sums of the round before and the gradients since.

        At the head of a slot, in the first round of a step, the state stands in place of both.
        """
        machine, gradients = self.machine, self._gradients
        self._gradients = []
        if not is_head:
            arrays = {f"{_SUM}{e}": total for e, total in enumerate(self._sums)}
        elif machine.k == 0:  # the state follows from x⁰ and the gradients at it
            arrays = {_X0: machine.x0}
        else:
            arrays, gradients = machine.state._asdict(), gradients[self._n_past :]
        arrays |= {f"{_GRADIENT}{n}": g for n, g in enumerate(gradients)}
        return Section(machine.k, machine.round, arrays, blob)

    def final(self, facts: dict[str, Any], blob: bytes) -> Section:
        """The section that ends a run."""
        machine = self.machine
        facts = {"is_final": True} | facts
        return Section(machine.k, machine.round, machine.state._asdict(), blob, facts)

    # ---- running again

    def replay(self, sections: list[Section], check: Callable[[Section], None]) -> None:
        """Rerun a slot's steps to its last round; `check` sees every round with its section."""
        head, machine = sections[0], self.machine
        if head.facts.get("is_final"):
            self._restore(head)
            machine.k, machine.round = head.k, head.round
            return
        self._tell(head)
        if head.k == 0:
            machine.x0 = np.array(head.arrays[_X0])
            machine.begin()
        else:
            self._restore(head)
            machine.resume(head.k, head.round)
        for section in sections:
            if section is not head:
                self._tell(section)
                if self._advance(_sums(section)):
                    self.go_on()
            if (section.k, section.round) != (machine.k, machine.round):
                raise ReplayError(
                    f"the journal has round {section.round} of step {section.k} where the rerun "
                    f"has round {machine.round} of step {machine.k}."
                )
            check(section)
        if self._told or self._gradients:
            raise ReplayError(
                f"step {machine.k} does not ask for the gradients that its journal holds. Run it "
                "with the version and configuration that wrote it."
            )

    def _tell(self, section: Section) -> None:
        """Have the gradients of a section at hand."""
        names = [name for name in section.arrays if name.startswith(_GRADIENT)]
        self._told.extend(np.array(section.arrays[name]) for name in names)

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
                f"the journal holds a state of the shapes {shapes}, but this run's are {own}. Run "
                "it with the configuration that wrote it."
            )
        self.machine.state = type(expected)(**stored)

    def _fresh_state(self) -> Any:
        """A state of the algorithm's, for its names and shapes only."""
        machine = self.machine
        calm = replace(machine.agent.local, gradient=np.zeros_like)
        other = StepMachine(machine.algorithm, calm, machine.x0)
        return machine.algorithm.init(other.agent, other.x0[None, :, None])


def _sums(section: Section) -> tuple[Vector, ...]:
    return tuple(np.array(a) for name, a in section.arrays.items() if name.startswith(_SUM))
