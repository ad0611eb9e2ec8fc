"""Round after round, without I/O but the journal's: what came in, what goes out, when to end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ReplayError, StateError
from hushgrad.runtime.config import RunConfig
from hushgrad.runtime.journal import Section, StateDirectory
from hushgrad.runtime.result import Status
from hushgrad.runtime.stats import Stats
from hushgrad.runtime.steps import Steps
from hushgrad.runtime.stopping import Stopping
from hushgrad.runtime.wire import Data, digest, encode_data


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
        self.frames: dict[int, dict[int, bytes]] = {}  # the last two rounds, by peer
        self.consumed: dict[int, dict[int, bytes]] = {}  # digests of the messages before, by peer

    # ---- beginning

    def begin(self) -> None:
        """From the journal, or from the beginning."""
        steps = self._state.read()
        if not steps:
            self.steps.begin()
            self._commit({}, is_new=True)
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
        facts = sections[0].facts
        if facts.get("is_final"):
            self.status = Status(facts["status"])
            self._note_consumed(facts)
            self.is_settled = any(s.facts.get("is_settled") for s in sections)

    def _compare(self, section: Section) -> None:
        facts = section.facts
        self._stopping.bits = facts["bits"]
        self._is_still, self._must_stop = facts["is_still"], facts["must_stop"]
        if self._encode() != facts["sent"]:
            raise ReplayError(
                f"rerun from its journal, round {facts['round']} gives other messages than were "
                "committed. Sending them would tell two things for one round. Run the agent with "
                "the version, configuration and machine that wrote the journal, or start a new run."
            )
        self._note_consumed(facts)

    def _note_consumed(self, facts: Mapping[str, Any]) -> None:
        if facts["consumed"]:
            seen = {int(j): bytes.fromhex(text) for j, text in facts["consumed"].items()}
            self.consumed[facts["round"] - 1] = seen
            self.consumed.pop(facts["round"] - 3, None)

    # ---- going on

    @property
    def round(self) -> int:
        """The last that was committed."""
        return max(self.frames, default=-1)

    def turn(self, box: Mapping[int, Data]) -> bool:
        """Consume the messages of the present round; whether an iteration ended with it."""
        steps = self.steps
        before = steps.x
        has_ended = steps.receive({j: data.payload for j, data in box.items() if data.present})
        if has_ended and steps.was_awake and self._run.tolerance is not None:
            self._is_still = self._stands_still(before)
        stop = (data.stop for data in box.values())
        self._must_stop |= self._stopping.next(stop, is_still=self._is_still)
        consumed = {j: data.digest for j, data in box.items()}
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

    def _encode(self) -> str:
        """Make the frames of the present round; gives the digests of all, in hex."""
        stop = self._stopping.encode()
        made: dict[tuple[int, ...], tuple[bytes, bytes]] = {}  # a Pull sends one to all
        frames: dict[int, bytes] = {}
        seen = b""
        for j in self._peers:
            payload = self.steps.mail.get(j, ())
            same = tuple(map(id, payload))
            if same not in made:
                frame = encode_data(self.steps.round, stop, payload)
                made[same] = frame, digest(frame)
            frames[j], tag = made[same]
            seen += tag
        self.frames[self.steps.round] = frames
        self.frames.pop(self.steps.round - 2, None)
        return seen.hex()

    def _commit(self, consumed: Mapping[int, bytes], *, is_new: bool) -> None:
        steps = self.steps
        steps.check()
        facts = {
            "sent": self._encode(),
            "consumed": {str(j): seen.hex() for j, seen in consumed.items()},
            "bits": self._stopping.bits,
            "is_still": self._is_still,
            "must_stop": self._must_stop,
        }
        started = time.perf_counter()
        if is_new:
            self._state.begin(steps.k, steps.record(facts, is_first=True))
        else:
            self._state.append(steps.k, steps.record(facts))
        self._stats.commit_seconds.add(time.perf_counter() - started)

    def _finish(self, consumed: Mapping[int, bytes]) -> None:
        status = Status.CONVERGED if self._must_stop else Status.DONE
        facts = {
            "status": str(status),
            "consumed": {str(j): seen.hex() for j, seen in consumed.items()},
        }
        self._state.begin(self.steps.k, self.steps.final(facts))
        self.status = status

    def settle(self) -> None:
        """Every neighbour has finished: nobody will ask for the last message again."""
        if not self.is_settled:
            self._state.append(self.steps.k, Section({"is_settled": True}))
            self.is_settled = True
