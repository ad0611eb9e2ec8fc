"""The position of an agent in its run, read from its state directory without a change to it.

`hushgrad status`, `hushgrad doctor` and the supervisor of local processes use it.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushgrad.errors import StateError
from hushgrad.files.strict_json import parse_json
from hushgrad.network.state.journal import FORMAT
from hushgrad.network.state.sections import Section, decode_sections


@dataclass(frozen=True, kw_only=True)
class Position:
    """The position of an agent, as its state directory tells it."""

    agent: str
    run: str
    starts: int  # how often an agent was started in the directory
    is_running: bool
    iteration: int  # the present one; after the end, the number of iterations
    round: int | None  # the last round in the journal; None before the first
    status: str | None  # None while the run has not ended
    is_settled: bool  # the agent and all its neighbours have finished
    stage: int = 0  # the present one, from 1 on; 0 in a run of one stage or none
    stages: int = 0  # of the run
    is_open: bool = False  # the run of a fit, which may end after any stage

    @property
    def summary(self) -> str:
        """The position in words."""
        if self.status is not None:
            serves = self.is_running and not self.is_settled
            rest = "; it still serves neighbours that are not finished" if serves else ""
            after = f"{self.stage} stages" if self.is_open else f"{self.iteration} iterations"
            return f"{self.status} after {after}{rest}"
        if self.round is None:
            where = "before its first round"
        else:
            most = "at most " if self.is_open else ""
            stage = f"stage {self.stage} of {most}{self.stages}, " if self.stages else ""
            where = f"in {stage}iteration {self.iteration}, round {self.round}"
        return f"{'runs' if self.is_running else 'stopped'}, {where}"


def read_position(state: Path) -> Position | None:
    """The position of the agent of a directory; None if no agent was ever started there."""
    if not (state / "run.json").exists():
        return None
    try:
        belongs = parse_json((state / "run.json").read_text(encoding="utf-8"))
        if belongs["format"] != FORMAT:
            raise StateError(
                f"'{state}' is of format {belongs['format']}, but this version reads {FORMAT}. "
                "Look at it with the version that wrote it."
            )
        starts = int((state / "starts").read_text()) if (state / "starts").exists() else 0
        slots = [_sections(state / f"slot-{n}") for n in (0, 1)]
        last = max((s for s in slots if s), key=lambda s: s[0].round, default=None)
        return Position(
            agent=belongs["agent"],
            run=belongs["run"],
            starts=starts,
            is_running=is_locked(state),
            **_position(last),
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StateError(f"'{state}' is no state directory of an agent: {error}.") from error


def _sections(slot: Path) -> list[Section]:
    return decode_sections(slot.read_bytes())[0] if slot.exists() else []


def _position(sections: list[Section] | None) -> dict[str, Any]:
    if sections is None:
        return {"iteration": 0, "round": None, "status": None, "is_settled": False}
    head, last = sections[0], sections[-1]
    n_stages = int(head.facts.get("stages", 0))
    stage = int(head.facts.get("stage", 0)) + 1 if n_stages else 0
    is_open = bool(head.facts.get("is_open"))
    stages = {"stage": stage, "stages": n_stages, "is_open": is_open}
    if head.facts.get("is_final"):
        return {
            "iteration": head.k,
            "round": head.round - 1,
            "status": head.facts["status"],
            "is_settled": any(section.facts.get("is_settled") for section in sections),
            **stages,
        }
    where = {"iteration": last.k, "round": last.round, "status": None, "is_settled": False}
    return where | stages


def is_locked(state: Path) -> bool:
    """Whether a process runs the agent of a directory now."""
    try:
        lock = os.open(state / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
