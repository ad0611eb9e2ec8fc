"""Round after round, without I/O but the journal's: what came in, what goes out, when to end."""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_not
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ReplayError, StateError
from hushgrad.files.digest import joint_mark, mark, marked
from hushgrad.network.config.model import RunConfig
from hushgrad.network.ops.counters import Stats
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.frames import Bytes, Data, address, encode_data, encode_few, room
from hushgrad.network.protocol.stopping import Stopping
from hushgrad.network.state.journal import STEPS, StateDirectory
from hushgrad.network.state.sections import Section
from hushgrad.network.steps import Steps

type Frames = dict[int, Bytes]  # by peer

_FLAGS = 8  # bytes: these bits, and above them the length of what tells all that is sent apart
_STILL, _STOP, _LENGTH = 1, 2, 8


class Turns:
    """One agent's rounds; `turn` is given the messages of one and makes the next durable."""

    def __init__(
        self,
        run: RunConfig,
        steps: Steps,
        stopping: Stopping,
        state: StateDirectory,
        peers: Iterable[int],
        stats: Stats,
    ):
        self._run, self.steps, self._stopping, self._state = run, steps, stopping, state
        self._peers, self._stats = tuple(sorted(peers)), stats
        self._is_still = self._must_stop = False
        self.status: Status | None = None  # done or converged, once it is
        self.is_settled = False  # and every neighbour has finished too
        self.round = -1  # the last that was committed
        self.frames: dict[int, Frames] = {}  # the last two rounds
        self.consumed: dict[int, dict[int, bytes]] = {}  # marks of the messages before, by peer

    # ---- beginning

    def begin(self) -> None:
        """From the journal, or from the beginning."""
        slots = self._state.read()
        if not slots:
            self.steps.begin()
            self._commit(b"", is_new=True)
            return
        if len(slots) == 2 and slots[0][-1].round + 1 != slots[1][0].round:
            del slots[0]  # damaged in the middle
        for sections in slots:
            self._replay(sections)
        if not self.frames and not self.is_settled:
            raise StateError(
                f"the journal in '{self._state.path}' has the end of the run, but lost the last "
                "message, which a neighbour may need. Restore the newest state."
            )

    def _replay(self, sections: list[Section]) -> None:
        self.steps.replay(sections, self._compare)
        head = sections[0]
        if head.facts.get("is_final"):
            self.status = Status(str(head.facts["status"]))
            self._note_consumed(self.steps.round, head.blob)
            self.is_settled = any(s.facts.get("is_settled") for s in sections)

    def _compare(self, section: Section) -> None:
        """The messages that a rerun gives with those that were committed."""
        place = _FLAGS + self._stopping.n_bytes  # as `_commit` joined them
        flags = int.from_bytes(section.blob[:_FLAGS], "little")
        self._is_still, self._must_stop = bool(flags & _STILL), bool(flags & _STOP)
        stop = section.blob[_FLAGS:place]
        self._stopping.bits = int.from_bytes(stop, "little")
        rest = place + (flags >> _LENGTH)
        is_same = self._encode(stop) == section.blob[place:rest]
        self.frames.pop(self.round - 2, None)
        if not is_same:
            raise ReplayError(
                f"rerun from its journal, round {self.round} gives other messages than were "
                "committed. Sending them would tell two things for one round. Run the agent with "
                "the version, configuration and machine that wrote the journal, or start a new run."
            )
        self._note_consumed(self.round, section.blob[rest:])

    def _note_consumed(self, round_: int, marks: bytes) -> None:
        """What came before `round_` was committed, in the order of the peers' numbers."""
        if marks:
            size = len(marks) // len(self._peers)
            self.consumed[round_ - 1] = {
                j: marks[size * n : size * (n + 1)] for n, j in enumerate(self._peers)
            }
            self.consumed.pop(round_ - 3, None)

    # ---- going on

    def turn(self, box: dict[int, Data]) -> bool:
        """Consume the messages of the present round; whether an iteration ended with it."""
        steps = self.steps
        self.frames.pop(self.round - 1, None)  # who has sent this round has the one before
        before = None if self._run.tolerance is None else steps.x
        has_ended = steps.receive({j: data.payload for j, data in box.items() if data.present})
        if before is not None:
            if has_ended and steps.was_awake:
                self._is_still = self._stands_still(before)
            stop = [data.stop for data in box.values()]
            self._must_stop |= self._stopping.next(stop, is_still=self._is_still)
        marks = [box[j].mark for j in self._peers]
        if len(set(map(len, marks))) > 1:
            marks = list(map(marked, marks))
        consumed = b"".join(marks)
        box.clear()  # room for what is sent next
        if has_ended and (self._must_stop or steps.k == self._run.iterations):
            self._finish(consumed)
        else:
            if has_ended:
                steps.go_on()
            self._commit(consumed, is_new=has_ended)
        return has_ended

    def _stands_still(self, before: NDArray[np.float64]) -> bool:
        """‖x^{k+1} − x^k‖_∞ ≤ tolerance · λ^k: a stepsize that vanishes must not look like an
        optimum.
        """
        schedule: Any = getattr(self._run.algorithm, "schedule", None)
        lam = 1.0 if schedule is None else float(schedule.base(float(self.steps.k)))
        assert self._run.tolerance is not None
        return bool(np.abs(self.steps.x - before).max() <= self._run.tolerance * lam)

    def _encode(self, stop: bytes) -> bytes:
        """Make the frames of the present round; gives the mark of all that are different."""
        steps = self.steps
        letters, few = steps.letters, steps.few
        self.round = round_ = steps.round
        if few is not None and few[0] == self._peers:
            found = self._packed(round_, stop, few[1])
        elif letters is not None and letters[0] == self._peers:
            found = self._addressed(round_, stop, letters[1])
        else:
            found = self._encode_mail(round_, stop)
        self.frames[round_], seen = found
        return seen

    def _packed(self, round_: int, stop: bytes, messages: tuple[Any, ...]) -> tuple[Frames, bytes]:
        """The frames of messages of few numbers."""
        if len(messages) > 1 and messages[0] is messages[1]:  # a Pull sends one to all
            every = encode_few(round_, stop, messages[:1])
            return dict.fromkeys(self._peers, every[0]), mark(every[0])
        every = encode_few(round_, stop, messages)
        return dict(zip(self._peers, every, strict=True)), mark(b"".join(every))

    def _addressed(self, round_: int, stop: bytes, letters: Any) -> tuple[Frames, bytes]:
        """The frames of messages that lie where they are to be read from."""
        every = memoryview(letters).cast("B")
        size = 8 * letters.shape[1]
        frames: Frames = {}
        for place, j in enumerate(self._peers):
            frames[j] = frame = every[size * place : size * (place + 1)]
            address(frame, round_, stop)
        return frames, mark(every)

    def _encode_mail(self, round_: int, stop: bytes) -> tuple[Frames, bytes]:
        mail = self.steps.mail
        few, letters = self.steps.few, self.steps.letters
        if few is not None:  # but not for all peers
            arrays = {id(message): np.array(message) for message in few[1]}
            mail = {i: (arrays[id(message)],) for i, message in zip(*few, strict=True)}
        elif letters is not None:
            start = room(len(stop))
            mail = {i: (row[start:],) for i, row in zip(*letters, strict=True)}
        frames: Frames = {}
        different: list[bytes] = []
        last: Any = None
        for j in self._peers:
            payload = mail.get(j, ())
            # a Pull sends one to all
            if last is None or len(payload) != len(last) or any(map(is_not, payload, last)):
                different.append(encode_data(round_, stop, payload))
                last = payload
            frames[j] = different[-1]
        return frames, joint_mark(different)

    def _commit(self, consumed: bytes, *, is_new: bool) -> None:
        """Write the present round down; `is_new`: the first of its step."""
        steps = self.steps
        steps.check()
        stop = self._stopping.encode()
        sent = self._encode(stop)
        flags = self._is_still * _STILL | self._must_stop * _STOP | len(sent) << _LENGTH
        blob = flags.to_bytes(_FLAGS, "little") + stop + sent + consumed
        is_head = is_new and steps.k % STEPS == 0
        section = steps.record(blob, is_head=is_head)
        started = perf_counter()
        if is_head:
            self._state.begin(section)
        else:
            self._state.append(section)
        self._stats.commit_seconds.add(perf_counter() - started)

    def _finish(self, consumed: bytes) -> None:
        status = Status.CONVERGED if self._must_stop else Status.DONE
        self._state.begin(self.steps.final({"status": str(status)}, consumed))
        self.status = status

    def settle(self) -> None:
        """Every neighbour has finished: nobody will ask for the last message again."""
        if not self.is_settled:
            facts = {"is_settled": True}
            self._state.append(Section(self.steps.k, self.steps.round, facts=facts))
            self.is_settled = True
