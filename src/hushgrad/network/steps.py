"""An algorithm's steps as rounds that can be told again from a journal.

A step is a function of its state, of the sums that its rounds gave back, of the gradients it asked
for, and of draws that are addressed, not drawn in order. The first three are written down; so a
step can be rerun, up to the round where it stood, without calling the user's objective again.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.few import Few, FewSteps, are_few
from hushgrad.agent.long import plain
from hushgrad.agent.many import ManySteps
from hushgrad.agent.single import Letters, Local, OneAgent, Payload, Vector
from hushgrad.agent.trace import trace
from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import DivergedError, ReplayError
from hushgrad.exchange import Round, Step, exchanges, reply
from hushgrad.network.objective.objectives import FewGradient
from hushgrad.network.protocol.frames import MOST_EXCHANGES, Numbers, is_finite
from hushgrad.network.state.sections import Section, Vectors

log = logging.getLogger("hushgrad.agent")

# what arrays of the journal are called
_SUMS = tuple(f"sum {e}" for e in range(MOST_EXCHANGES))
_GRADIENT = "gradient "


def _is_asleep(asked: Round) -> bool:
    """Whether links take turns in this round."""
    return all(getattr(e, "over", None) is not None for e in exchanges(asked))


def _array(numbers: Any) -> Any:
    return np.array(numbers) if type(numbers) is tuple else numbers


@functools.cache
def _names(n_gradients: int) -> tuple[str, ...]:
    """Of a sum and the gradients after it."""
    return _SUMS[0], *(f"{_GRADIENT}{n}" for n in range(n_gradients))


class Steps:
    """One agent's algorithm, standing in a round: `mail` goes out, `receive` takes what came."""

    mail: Mapping[int, Payload]  # by receiver, or all in `letters`
    letters: Letters | None  # with room before each
    few: Few | None  # the same, of few numbers
    sizes: tuple[int, ...]  # of the exchanges of this round
    was_awake: bool  # in the present step: who slept and stood still has said nothing by it

    def __init__(
        self,
        algorithm: Algorithm,
        local: Local,
        x0: Vector,
        *,
        room: int,
        few: FewGradient | None = None,
    ):
        """`room`: words before each message that goes out, for the frame around it; `few`: the
        local gradient for vectors of few numbers, if there is one of their own.
        """
        self.algorithm, self._x0 = algorithm, np.array(x0, np.float64)
        self._objective = local.gradient
        self._few_objective = few or (lambda x: tuple(self._objective(np.array(x)).tolist()))
        self._view = OneAgent(replace(local, gradient=self._gradient), room=room)
        self._told: deque[Vector] = deque()  # gradients from the journal
        self.gradients: list[Numbers] = []  # evaluated since the last `record`
        self._n_past = 0  # of these, before the present step: its state holds what they gave
        self._sums: tuple[Any, ...] = ()  # of the round before
        nameless = self._nameless_state()
        self._state_type, self._shapes = type(nameless), [np.shape(u) for u in nameless]
        self._state: Any = None  # as arrays, and in the form of a written step; one can be None
        self._numbers: tuple[Any, ...] | None = None
        self._written = self._traced(room)
        self._running: FewSteps | ManySteps | None = None  # which the present step is of
        self.k, self.round = 0, 0

    def _nameless_state(self) -> Any:
        """A state of the algorithm's, for its type only."""
        calm = replace(self._view.local, gradient=np.zeros_like)
        return self.algorithm.init(OneAgent(calm), self._x0[None, :, None])

    def _traced(self, room: int) -> FewSteps | ManySteps | None:
        """The step as it was written down; None where it cannot be."""
        dim, view = len(self._x0), self._view
        if any(shape != (1, dim, 1) for shape in self._shapes):
            return None
        try:
            found = trace(self.algorithm, view, self._state_type)
        except Exception as error:  # a step may do anything with symbols; then it runs as it is
            log.debug("steps are not traced: %s", error)
            return None
        if are_few(dim, len(found.receivers)):
            return FewSteps(found, view, dim, self._few_gradient)
        return ManySteps(found, view, dim, self._gradient, room=room)

    @property
    def state(self) -> Any:
        """At the start of the present step, or at the end of one that has ended; as arrays."""
        if self._state is None:
            assert self._numbers is not None
            arrays = [np.asarray(u).reshape(1, -1, 1) for u in self._numbers]
            self._state = self._state_type(*arrays)
        return self._state

    def _gradient(self, x: Vector) -> Vector:
        if self._told:
            return self._told.popleft()
        g = self._objective(x)
        self.gradients.append(g)
        return g

    def _few_gradient(self, x: tuple[float, ...]) -> tuple[float, ...]:
        if self._told:
            return tuple(self._told.popleft().tolist())
        g = self._few_objective(x)
        self.gradients.append(g)
        return g

    def prepare(self, senders: tuple[int, ...]) -> None:
        """Have all that is compiled ready before these send for the first time."""
        if isinstance(self._written, ManySteps):
            self._written.prepare(senders)

    # ---- going on

    def begin(self) -> None:
        """Iteration 0, round 0."""
        self._view.bind(0)
        self._state = self.algorithm.init(self._view, self._x0[None, :, None])
        self._numbers = None
        self._begin(0, 0)

    def _begin(self, k: int, round_: int) -> None:
        self.k, self.round, self.was_awake = k, round_, False
        self._n_past = len(self.gradients)
        self._view.bind(k)
        is_first = k == 0 and self.algorithm.first_differs
        self._running = written = None if is_first else self._written
        if written is not None:
            if self._numbers is None:
                self._numbers = tuple([written.of(u[0, :, 0]) for u in self._state])
            self.few, self.letters, self.mail, own, self._is_finite = written.send(k, self._numbers)
            self.sizes, self.was_awake = (len(own),), True
            return
        step = self.algorithm.first if is_first else self.algorithm.step
        self._step: Step[Any] = step(self._view, self._view.lengthened(self.state))
        self._ask(next(self._step))

    def _ask(self, asked: Round) -> None:
        self.few = None
        self._asked = asked
        self.mail, self._own = self._view.outgoing(asked)
        self.letters = self._view.letters
        self.sizes = tuple([len(own) for own in self._own])
        self._is_finite = all(map(is_finite, self._own))
        if not self.was_awake:
            self.was_awake = bool(self.letters or self.mail) or not _is_asleep(asked)

    def receive(self, box: Mapping[int, tuple[Numbers | None, ...]]) -> bool:
        """The messages of this round; whether the step ended with it (then `go_on`, or not)."""
        running = self._running
        if running is not None:
            came: list[Any] = [payload[0] for payload in box.values()]
            total, numbers = running.receive(tuple(box), came)
            return self._ended((total,), numbers=numbers)
        arrays = {j: tuple([_array(u) for u in payload]) for j, payload in box.items()}
        return self._answer(self._view.incoming(self._asked, self._own, arrays))

    def _answer(self, sums: tuple[NDArray[np.float64], ...]) -> bool:
        running = self._running
        if running is not None:
            total: Any = running.of(sums[0][0, :, 0])
            return self._ended((total,), numbers=running.answer(total))
        try:
            asked = self._step.send(reply(self._asked, sums))
        except StopIteration as end:
            return self._ended(sums, state=self._view.computed(end.value))
        self._sums = sums
        self.round += 1
        self._ask(asked)
        return False

    def _ended(
        self, sums: tuple[Any, ...], *, state: Any = None, numbers: tuple[Any, ...] | None = None
    ) -> bool:
        self._sums, self._state, self._numbers = sums, state, numbers
        self.round += 1
        self.k += 1
        return True

    def go_on(self) -> None:
        """The first round of the next step."""
        self._begin(self.k, self.round)

    @property
    def x(self) -> Vector:
        """θ̂ at the start of the present step."""
        return self.algorithm.estimate(self.state)[0, :, 0]

    # ---- the journal

    def final(self, facts: dict[str, Any], blob: bytes) -> Section:
        """What a run ends with."""
        return Section(self.k, self.round, self._fields(), blob, {"is_final": True} | facts)

    def _fields(self) -> dict[str, Any]:
        return dict(zip(self.state._fields, self.state, strict=True))

    def record(self, blob: bytes, *, is_head: bool) -> Section:
        """What the present round adds: the sums of the round before and the gradients since; at
        the head of a slot, in the first round of a step, the state in place of all before it.
        """
        gradients, sums = self.gradients, self._sums
        self.gradients = []
        if not is_head:
            if sums and type(sums[0]) is tuple:  # of few numbers; then gradients are so too
                vectors = Vectors(_names(len(gradients)), tuple(chain(sums[0], *gradients)))
                return Section(self.k, self.round, blob=blob, vectors=vectors)
            arrays: dict[str, Any] = {_SUMS[e]: plain(u) for e, u in enumerate(sums)}
        elif self.k == 0:  # the state follows from x⁰ and the gradients at it
            arrays = {"x0": self._x0}
        else:
            arrays, gradients = self._fields(), gradients[self._n_past :]
        for n, g in enumerate(gradients):
            arrays[f"{_GRADIENT}{n}"] = g
        return Section(self.k, self.round, arrays, blob)

    def check(self) -> None:
        """Refuse numbers that no neighbour would take."""
        if not self._is_finite:  # what remains is so only if all that is sent is
            raise DivergedError(
                f"iteration {self.k}: the numbers to be sent are not finite. Choose a smaller "
                "stepsize."
            )

    def replay(self, sections: list[Section], check: Callable[[Section], None]) -> None:
        """Rerun a slot's steps to its last round; `check` sees every round with its section."""
        head = sections[0]
        if head.facts.get("is_final"):
            self._restore(head)
            self.round = head.round
            return
        self._tell(head)
        if head.k == 0:
            self._x0 = np.array(head.arrays["x0"])
            self.begin()
        else:
            self._restore(head)
            self._begin(self.k, head.round)
        for section in sections:
            if section is not head:
                self._tell(section)
                self._answer_again(section)
            if (section.k, section.round) != (self.k, self.round):
                raise ReplayError(
                    f"the journal has round {section.round} of step {section.k} where the rerun "
                    f"has round {self.round} of step {self.k}."
                )
            check(section)
        if self._told or self.gradients:
            raise ReplayError(
                f"step {self.k} does not ask for the gradients that its journal holds. Run it with "
                "the version and configuration that wrote it."
            )

    def _tell(self, section: Section) -> None:
        """Have the gradients at hand that were written with a round."""
        names = [name for name in section.arrays if name.startswith(_GRADIENT)]
        self._told.extend(np.asarray(section.arrays[name]) for name in names)

    def _answer_again(self, section: Section) -> None:
        """Give the sums that were written with a round, which is then the present one."""
        arrays = section.arrays
        sums = tuple(np.array(arrays[n]).reshape(1, -1, 1) for n in arrays if n in _SUMS)
        if self._answer(sums):
            self.go_on()

    def _restore(self, head: Section) -> None:
        self.k = head.k
        names = [name for name in head.arrays if not name.startswith(_GRADIENT)]
        stored = {name: np.array(head.arrays[name]) for name in names}
        if set(stored) != set(self._state_type._fields):
            raise ReplayError(
                f"the journal holds the state {sorted(stored)}, but "
                f"{type(self.algorithm).__name__} has {list(self._state_type._fields)}."
            )
        shapes = [stored[name].shape for name in self._state_type._fields]
        if shapes != self._shapes:
            raise ReplayError(
                f"the journal holds a state of the shapes {shapes}, but this run's are "
                f"{self._shapes}. Run it with the configuration that wrote it."
            )
        self._state, self._numbers = self._state_type(**stored), None
