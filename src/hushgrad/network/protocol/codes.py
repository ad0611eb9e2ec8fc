"""The codes of REJECT and OVER frames: why an agent refuses a neighbour, and how its run ended.

A neighbour gets a number, never a text. Every agent has the words for the numbers here, so no agent
prints the words of another as its own verdict. Dispatch (transport/dispatch.py) and the hub
(transport/hub.py) send and take these codes; frames.py bounds them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from hushgrad.errors import (
    AgentError,
    DiameterError,
    DivergedError,
    ExposureError,
    JumpError,
    MaskError,
    PeerEndedError,
    PeerLostError,
    ProblemError,
    ReplayError,
    StageError,
    StaleCopyError,
    WireError,
)

OTHER_END = "other end"
RUN_DIGEST = 16  # bytes in an OVER: it may come from an agent that never said HELLO

# Reason → its meaning for the agent that is refused. The place in the table is the code.
REASONS: Mapping[str, str] = {
    "frame": "a frame of this agent was malformed",
    "order": "a frame of this agent came out of turn",
    "configuration": "the two agents' files describe different runs or links",
    "old copy": "this agent's state is older than messages that the neighbour holds",
    "future round": "this agent was too far ahead",
    "replay": "this agent sent a round again",
    "equivocation": "this agent sent two different messages for one round",
    "dimension": "a message of this agent had another length",
    "not finite": "a message of this agent had a number that is not finite",
    "too large": "a message of this agent had a number that is too large for the run",
    "claim": "this agent claimed links or rounds that the neighbour holds to be impossible",
    OTHER_END: "the two agents end the run in different rounds",
}
_REASONS = tuple(REASONS)


class Ending(enum.IntEnum):
    """The end of an agent's run, if it ended in a way that its neighbours must know."""

    FAILED = 1
    DIVERGED = 2
    REFUSED = 3
    MASKS = 4
    DIAMETER = 5
    STAGE = 6
    JUMP = 7
    EXPOSURE = 8


MEANINGS: Mapping[Ending, str] = {
    Ending.FAILED: "it failed (failed)",
    Ending.DIVERGED: "its numbers grew without bound (diverged)",
    Ending.REFUSED: "its state is an old copy or does not repeat itself (refused)",
    Ending.MASKS: "masks do not cancel (refused)",
    Ending.DIAMETER: "agents would not stop in the same round (refused)",
    Ending.STAGE: "agents would not begin or end a stage alike (refused)",
    Ending.JUMP: "a neighbour's messages jumped (refused)",
    Ending.EXPOSURE: "a stage would expose its data (refused)",
}
_ENDINGS: Mapping[type[Exception], Ending] = {
    DivergedError: Ending.DIVERGED, StaleCopyError: Ending.REFUSED, ReplayError: Ending.REFUSED,
    MaskError: Ending.MASKS, DiameterError: Ending.DIAMETER, StageError: Ending.STAGE,
    JumpError: Ending.JUMP, ExposureError: Ending.EXPOSURE,
}  # fmt: skip
# Endings that are wrong for every agent of the run: an agent that hears of one ends alike.
_FOR_ALL = {
    Ending.MASKS: MaskError, Ending.DIAMETER: DiameterError, Ending.STAGE: StageError,
}  # fmt: skip
MOST_REASON, MOST_ENDING = len(REASONS), len(Ending)


def reason_code(reason: str) -> int:
    """The code of a reason on the wire."""
    return _REASONS.index(reason) + 1


def reason_of(code: int) -> str:
    """The reason of a REJECT; WireError if there is none of this code."""
    if not 1 <= code <= MOST_REASON:
        raise WireError(f"a REJECT has a code from 1 to {MOST_REASON}, but its code is {code}")
    return _REASONS[code - 1]


def ending_of(error: Exception) -> Ending | None:
    """The ending that neighbours are told when an agent ends by an error; None: nothing.

    An agent that has lost a neighbour can go on when that neighbour is back, and so can the others.
    The same holds for a crash, which is no end of a run.
    """
    is_end = isinstance(error, (AgentError, DivergedError, ProblemError))
    if not is_end or isinstance(error, PeerLostError):
        return None
    return _ENDINGS.get(type(error), Ending.FAILED)


def heard_ending(code: int, origin: int, n_agents: int) -> Ending:
    """The ending in an OVER frame; WireError if there is no such ending, or no such agent."""
    if not 1 <= code <= MOST_ENDING or origin >= n_agents:
        raise WireError(
            f"an OVER has a code from 1 to {MOST_ENDING} and the number of an agent, but it has "
            f"{code} and {origin}"
        )
    return Ending(code)


def ended_by(name: str, number: int, ending: Ending, origin: int, round_: int) -> AgentError:
    """The error of an agent whose neighbour says that the run is over.

    name, number    of the neighbour
    origin          the number of the agent with which the end began, as the neighbour says
    """
    since = "" if origin == number else f", and says that it began with agent {origin}"
    if ending is Ending.FAILED:  # once its cause is corrected, all can go on
        return PeerLostError(f"{name} at round {round_}: {MEANINGS[ending]}{since}")
    text = f"{name} ended the run: {MEANINGS[ending]}{since}. Look at the log of that agent."
    return _FOR_ALL.get(ending, PeerEndedError)(text)
