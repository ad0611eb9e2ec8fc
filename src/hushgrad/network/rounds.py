"""The rounds of a deployed agent: it consumes one round, writes the next to the journal, and ends.

The only I/O is the journal's. The deployed agent (deployed.py) sends the frames of a round once
they are in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.machine import StepMachine
from hushgrad.errors import DivergedError, ReplayError, StateError
from hushgrad.files.digest import DIGEST, joint_digest
from hushgrad.network.config.model import RunConfig
from hushgrad.network.journaled import JournaledMachine
from hushgrad.network.ops.counters import Stats
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.frames import Data, encode_data
from hushgrad.network.protocol.stopping import Stopping
from hushgrad.network.state.journal import STEPS, StateDirectory
from hushgrad.network.state.sections import Section
from hushgrad.network.suspicion import JumpPolicy

type Frames = dict[int, bytes]  # by peer

# The blob of a section: flags, stop bits, the digest of all frames that go out, and the digest of
# each message that was consumed, in the order of the peers' numbers.
_FLAGS = 8  # bytes
_STILL, _STOP = 1, 2


class Rounds:
    """The rounds of one agent; `advance` goes from one round to the next."""

    def __init__(
        self,
        run: RunConfig,
        steps: JournaledMachine,
        stopping: Stopping,
        state: StateDirectory,
        peers: Iterable[int],
        stats: Stats,
        suspicion: JumpPolicy,
    ):
        self._run, self.steps, self._stopping, self._state = run, steps, stopping, state
        self._peers, self._stats = tuple(sorted(peers)), stats
        self._suspicion, self._bound = suspicion, run.bound
        self._is_still = self._must_stop = False
        self.due: int | None = None  # the stage to be entered, since the last one is over
        self._consumed = b""  # digests of the last messages of that stage
        self.status: Status | None = None  # done, converged or not, once the run has ended
        self.is_settled = False  # the run has ended at every neighbour, too
        self.round = -1  # the last round in the journal
        self.frames: dict[int, Frames] = {}  # of the last two rounds
        self.consumed: dict[int, dict[int, bytes]] = {}  # round → peer → digest of its message

    @property
    def machine(self) -> StepMachine:
        """The step machine of the present stage."""
        return self.steps.machine

    @property
    def stage(self) -> int:
        return self.steps.stage

    @property
    def _is_last_stage(self) -> bool:
        return self.stage + 1 == len(self.steps.begins)

    # ---- beginning

    def begin(self) -> None:
        """Go to the last round of the journal; if the journal is empty, open round 0."""
        slots = self._state.read()
        if not slots:
            self.machine.begin()
            self._commit(b"", is_new=True)
            return
        if len(slots) == 2 and slots[0][-1].round + 1 != slots[1][0].round:
            del slots[0]  # its last sections are damaged
        for sections in slots:
            self._replay(sections)
        if not self.frames and not self.is_settled:
            raise StateError(
                f"the journal in '{self._state.path}' holds the end of the run, but has lost the "
                "last message, which a neighbour may need. Restore the newest state."
            )

    def _replay(self, sections: list[Section]) -> None:
        self.steps.replay(sections, self._compare)
        head = sections[0]
        if head.facts.get("is_final"):
            self.status = Status(str(head.facts["status"]))
            self._note_consumed(self.machine.round, head.blob)
            self.is_settled = any(s.facts.get("is_settled") for s in sections)

    def _compare(self, section: Section) -> None:
        """Refuse a rerun whose messages differ from the messages in the journal."""
        blob, place = section.blob, _FLAGS + self._stopping.n_bytes
        flags = int.from_bytes(blob[:_FLAGS], "little")
        self._is_still, self._must_stop = bool(flags & _STILL), bool(flags & _STOP)
        stop = blob[_FLAGS:place]
        self._stopping.bits = int.from_bytes(stop, "little")
        is_same = self._encode(stop) == blob[place : place + DIGEST]
        self.frames.pop(self.round - 2, None)
        if not is_same:
            raise ReplayError(
                f"rerun from its journal, round {self.round} gives other messages than were "
                "committed. The agent would send two different messages for one round. Run the "
                "agent with the version, configuration and machine that wrote the journal, or "
                "start a new run."
            )
        self._note_consumed(self.round, blob[place + DIGEST :])

    def _note_consumed(self, round_: int, digests: bytes) -> None:
        """Keep the digests of the messages that were consumed before `round_`."""
        if digests:
            self.consumed[round_ - 1] = {
                j: digests[DIGEST * n : DIGEST * (n + 1)] for n, j in enumerate(self._peers)
            }
            self.consumed.pop(round_ - 3, None)

    # ---- going on

    def advance(self, inbox: dict[int, Data]) -> bool:
        """Consume the messages of the present round; returns whether an iteration has ended."""
        steps, machine = self.steps, self.steps.machine
        self.frames.pop(self.round - 1, None)  # a peer that has sent this round holds the last
        before = None if self._run.tolerance is None else machine.x
        came = {j: data.payload for j, data in inbox.items() if data.present}
        self._suspicion.look(came, stage=steps.stage, k=machine.k, round_=machine.round)
        has_ended = steps.advance(machine.receive(came))
        del came
        if before is not None:
            if has_ended and machine.was_awake and self._is_last_stage:
                self._is_still = self._stands_still(before)
            stop = [data.stop for data in inbox.values()]
            self._must_stop |= self._stopping.next(stop, is_still=self._is_still)
        consumed = b"".join([inbox[j].digest for j in self._peers])
        inbox.clear()  # frees the memory of long messages before the next ones are made
        if not has_ended:
            self._commit(consumed, is_new=False)
        elif self._must_stop:
            self._finish(consumed, Status.CONVERGED)
        elif machine.k < self._end_of_stage():
            steps.go_on()
            self._commit(consumed, is_new=True)
        elif self._is_last_stage and self._run.model is None:  # a fit ends when it knows enough
            self._finish(consumed, self._complete)
        else:
            self.due, self._consumed = self.stage + 1, consumed
        return has_ended

    @property
    def _complete(self) -> Status:
        """The status after all iterations."""
        return Status.DONE if self._run.tolerance is None else Status.NOT_CONVERGED

    def _end_of_stage(self) -> int:
        """The iteration with which the next stage begins, or the run ends."""
        return self._run.iterations if self._is_last_stage else self.steps.begins[self.stage + 1]

    def enter(self, start: NDArray[np.float64]) -> None:
        """Enter the stage that is due, from its start."""
        assert self.due is not None
        self.steps.enter(self.due, start)
        self.due = None
        self._commit(self._consumed, is_new=True)

    def end(self, status: Status) -> None:
        """End the run instead of entering the stage that is due."""
        self._finish(self._consumed, status)
        self.due = None

    def _stands_still(self, before: NDArray[np.float64]) -> bool:
        """Whether ‖x^{k+1} − x^k‖_∞ ≤ tolerance · λ^k.

        Without the factor λ^k, a vanishing stepsize would look like an optimum.
        """
        schedule: Any = getattr(self._run.algorithm, "schedule", None)
        k, number = float(self.machine.k - self.machine.since), self.machine.agent.local.number
        lam = 1.0 if schedule is None else float(schedule.of(number).base(k))
        assert self._run.tolerance is not None
        return bool(np.abs(self.machine.x - before).max() <= self._run.tolerance * lam)

    def _encode(self, stop: bytes) -> bytes:
        """Make the frames of the present round; returns their digest."""
        machine = self.steps.machine
        self.round = round_ = machine.round
        payloads = machine.outbox.payloads
        made: dict[tuple[int, ...], bytes] = {}  # by the ids of the vectors in a payload
        frames: Frames = {}
        for j in self._peers:
            payload = payloads.get(j, ())
            key = tuple(map(id, payload))
            if key not in made:  # a Pull sends one vector to all
                made[key] = encode_data(round_, stop, payload)
            frames[j] = made[key]
        self.frames[round_] = frames
        machine.drop_messages()  # the frames hold them
        return joint_digest(*made.values())

    def _commit(self, consumed: bytes, *, is_new: bool) -> None:
        """Write the present round to the journal; `is_new`: the round is the first of a step."""
        machine = self.steps.machine
        if not machine.is_within(self._bound):  # every neighbour would refuse the numbers
            raise DivergedError(
                f"iteration {machine.k}: the numbers to be sent are not finite, or larger than "
                f"{self._bound:.3g}. Choose a smaller stepsize, or scale the data."
            )
        stop = self._stopping.encode()
        sent = self._encode(stop)
        flags = self._is_still * _STILL | self._must_stop * _STOP
        blob = flags.to_bytes(_FLAGS, "little") + stop + sent + consumed
        is_head = is_new and (machine.k - machine.since) % STEPS == 0
        section = self.steps.record(blob, is_head=is_head)
        started = perf_counter()
        if is_head:
            self._state.begin(section)
        else:
            self._state.append(section)
        self._stats.commit_seconds.add(perf_counter() - started)

    def _finish(self, consumed: bytes, status: Status) -> None:
        self._state.begin(self.steps.final({"status": str(status)}, consumed))
        self.status = status

    def settle(self) -> None:
        """Note in the journal that no neighbour will ask for the last message again."""
        if not self.is_settled:
            facts = {"is_settled": True}
            self._state.append(Section(self.machine.k, self.machine.round, facts=facts))
            self.is_settled = True
