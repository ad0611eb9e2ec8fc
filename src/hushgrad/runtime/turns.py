"""Round after round, without I/O but the journal's: what came in, what goes out, when to end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from operator import is_not
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ReplayError, StateError
from hushgrad.runtime.config import RunConfig
from hushgrad.runtime.digest import DIGEST, digest
from hushgrad.runtime.journal import Section, StateDirectory
from hushgrad.runtime.result import Status
from hushgrad.runtime.stats import Stats
from hushgrad.runtime.steps import Steps
from hushgrad.runtime.stopping import Stopping
from hushgrad.runtime.wire import Data, encode_data


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
        self.frames: dict[int, dict[int, bytes]] = {}  # the last two rounds, by peer
        self.consumed: dict[int, dict[int, bytes]] = {}  # digests of the messages before, by peer

    # ---- beginning

    def begin(self) -> None:
        """From the journal, or from the beginning."""
        steps = self._state.read()
        if not steps:
            self.steps.begin()
            self._commit(b"", is_new=True)
            return
        last = max(steps)
        for k in (last - 1, last):
            if k in steps:
                self._replay(steps[k])
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
        stop, sent, consumed = self._cut(section.blob)
        self._stopping.bits = int.from_bytes(stop, "little")
        self._is_still = bool(section.facts["is_still"])
        self._must_stop = bool(section.facts["must_stop"])
        if self._encode() != sent:
            raise ReplayError(
                f"rerun from its journal, round {self.round} gives other messages than were "
                "committed. Sending them would tell two things for one round. Run the agent with "
                "the version, configuration and machine that wrote the journal, or start a new run."
            )
        self._note_consumed(self.round, consumed)

    def _cut(self, blob: bytes) -> tuple[bytes, bytes, bytes]:
        """The stop bits, the digests sent and the digests consumed, as `_commit` joined them."""
        first = self._stopping.n_bytes
        second = first + DIGEST * len(self._peers)
        return blob[:first], blob[first:second], blob[second:]

    def _note_consumed(self, round_: int, digests: bytes) -> None:
        """What came before `round_` was committed, in the order of the peers' numbers."""
        if digests:
            self.consumed[round_ - 1] = {
                j: digests[DIGEST * n : DIGEST * (n + 1)] for n, j in enumerate(self._peers)
            }
            self.consumed.pop(round_ - 3, None)

    # ---- going on

    def turn(self, box: Mapping[int, Data]) -> bool:
        """Consume the messages of the present round; whether an iteration ended with it."""
        steps = self.steps
        before = None if self._run.tolerance is None else steps.x
        has_ended = steps.receive({j: data.payload for j, data in box.items() if data.present})
        if before is not None:
            if has_ended and steps.was_awake:
                self._is_still = self._stands_still(before)
            stop = [data.stop for data in box.values()]
            self._must_stop |= self._stopping.next(stop, is_still=self._is_still)
        consumed = b"".join([box[j].digest for j in self._peers])
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

    def _encode(self) -> bytes:
        """Make the frames of the present round; gives the digests of all."""
        stop, mail, round_ = self._stopping.encode(), self.steps.mail, self.steps.round
        frames: dict[int, bytes] = {}
        seen: list[bytes] = []
        last: Any = None
        frame = tag = b""
        for j in self._peers:
            payload = mail.get(j, ())
            # a Pull sends one to all
            if last is None or len(payload) != len(last) or any(map(is_not, payload, last)):
                frame = encode_data(round_, stop, payload)
                tag, last = digest(frame), payload
            frames[j] = frame
            seen.append(tag)
        self.round = round_
        self.frames[round_] = frames
        self.frames.pop(round_ - 2, None)
        return b"".join(seen)

    def _commit(self, consumed: bytes, *, is_new: bool) -> None:
        steps = self.steps
        steps.check()
        blob = b"".join((self._stopping.encode(), self._encode(), consumed))
        facts = {"is_still": self._is_still, "must_stop": self._must_stop}
        section = steps.record(facts, blob, is_first=is_new)
        started = time.perf_counter()
        if is_new:
            self._state.begin(steps.k, section)
        else:
            self._state.append(steps.k, section)
        self._stats.commit_seconds.add(time.perf_counter() - started)

    def _finish(self, consumed: bytes) -> None:
        status = Status.CONVERGED if self._must_stop else Status.DONE
        self._state.begin(self.steps.k, self.steps.final({"status": str(status)}, consumed))
        self.status = status

    def settle(self) -> None:
        """Every neighbour has finished: nobody will ask for the last message again."""
        if not self.is_settled:
            facts = {"k": self.steps.k, "round": self.steps.round, "is_settled": True}
            self._state.append(self.steps.k, Section(facts))
            self.is_settled = True
