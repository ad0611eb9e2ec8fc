"""An agent that sends and waits: what remains when nearly all its work costs nothing.

`strip` takes from the agent of this process what hushgrad promises: bounds and digests of messages,
the journal of rounds, the watch on jumps, checks of the objective, counters, and the algorithm's
arithmetic. The objective is still called, and the whole state is still written once in eight steps.
The messages have the same size and mean nothing.
"""

from __future__ import annotations

from typing import Any

from hushgrad.agent import machine, rounds, stepping
from hushgrad.network import deployed, journaled, pace, suspicion
from hushgrad.network import rounds as network_rounds
from hushgrad.network.objective import objectives
from hushgrad.network.ops import counters
from hushgrad.network.protocol import frames
from hushgrad.network.state import journal, sections

_FIRST = 5  # rounds that are written to the journal as usual


def strip() -> None:
    """Take the work out of the agent of this process."""
    nothing, yes, digest = _always(None), _always(True), _always(bytes(16))
    _replace(suspicion.JumpPolicy, "look", nothing)
    _replace(machine.StepMachine, "is_within", yes)
    _replace(frames, "is_within", yes)
    _replace(frames, "digest", digest)
    _replace(network_rounds, "joint_digest", digest)
    _replace(sections, "digest", digest)
    _replace(journal.StateDirectory, "append", nothing)
    _replace(journaled.JournaledMachine, "record", _record(journaled.JournaledMachine.record))
    _replace(counters.Total, "add", nothing)
    _replace(deployed.Agent, "_note", nothing)
    _replace(pace.Pace, "timed", lambda _self, work, *given: work(*given))
    _replace(objectives, "_sound", lambda function, given, *_rest: function(*given))
    _replace(objectives, "_seen", lambda vector: vector)
    _replace(rounds, "divide", lambda weights, vectors: ([vectors[0]] * len(weights), vectors[0]))
    for module in (rounds, stepping):
        _replace(module, "combine", lambda _weights, vectors: vectors[0])


def _always(value: Any) -> Any:
    return lambda *_given, **_named: value


def _record(real: Any) -> Any:
    section = sections.Section(0, 0)

    def record(self: Any, blob: bytes, *, is_head: bool) -> Any:
        if is_head or self.machine.round < _FIRST:
            return real(self, blob, is_head=is_head)
        self._gradients = []
        return section

    return record


def _replace(owner: Any, name: str, new: Any) -> None:
    """Put `new` in the place of `name`; if hushgrad has no such name any more, that is an error."""
    getattr(owner, name)
    setattr(owner, name, new)
