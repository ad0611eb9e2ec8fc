"""The states of a connection and of a run, and every transition between them.

Both tables below are the whole protocol of order: a pair of state and event that has no entry does
not occur. The connection (transport/connection.py), the dispatch of frames (transport/dispatch.py)
and the session (session.py) ask these tables and keep no flags of their own.

A connection. Its events are the frames that the peer sends and the acts of this agent:

    MEET         The transport has verified the peer, and this agent has sent its HELLO.
    ACKNOWLEDGE  Both agents have finished, and this agent has sent a FIN that says so.
    REFUSE       The peer broke a rule, and this agent has sent a REJECT.
    END          This agent ends the connection for any other reason.
    LOST         The transport is gone.

    event        NEW      GREETED  OPEN          ACKNOWLEDGED  UNMET  LEFT  REFUSED
    HELLO        -        OPEN     -             -             -      -     -
    ROW          -        -        OPEN          ACKNOWLEDGED  -      -     -
    DATA         -        -        OPEN          ACKNOWLEDGED  -      -     -
    HEARTBEAT    -        -        OPEN          ACKNOWLEDGED  -      -     -
    FIN          -        -        OPEN          ACKNOWLEDGED  -      -     -
    REJECT       -        REFUSED  REFUSED       REFUSED       -      -     -
    GOSSIP       -        -        OPEN          ACKNOWLEDGED  -      -     -
    MEET         GREETED  -        -             -             -      -     -
    ACKNOWLEDGE  -        -        ACKNOWLEDGED  -             -      -     -
    REFUSE       -        REFUSED  REFUSED       REFUSED       UNMET  LEFT  REFUSED
    END          UNMET    UNMET    LEFT          LEFT          UNMET  LEFT  REFUSED
    LOST         UNMET    UNMET    LEFT          LEFT          UNMET  LEFT  REFUSED

A frame without an entry is out of turn, and the agent refuses the peer for it ("order"). Once a
connection is over (UNMET, LEFT or REFUSED), the agent reads no frame of it.

A run, as the neighbours of this agent see it. Its events:

    COMMIT        A round is in the journal, and the agent may send it.
    FINISH        The last round is consumed, and the result is safe.
    ALL_FINISHED  The agent and all its neighbours have finished.
    FAIL          The agent cannot go on.

    event         INTRODUCING  RUNNING   FINISHED  SETTLED  FAILED
    COMMIT        RUNNING      RUNNING   -         -        FAILED
    FINISH        -            FINISHED  FINISHED  SETTLED  FINISHED
    ALL_FINISHED  -            -         SETTLED   -        -
    FAIL          FAILED       FAILED    FINISHED  SETTLED  FAILED

An agent may fail while it computes a round in a thread. The computation still ends with a COMMIT or
a FINISH. A COMMIT does not heal the failure; a FINISH does, because the result is safe. For the
same reason no failure leads out of FINISHED.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from hushgrad.network.protocol.frames import FrameKind


class ConnectionState(enum.Enum):
    """How far one connection has come."""

    NEW = enum.auto()  # dialled or accepted; this agent does not know the peer yet
    GREETED = enum.auto()  # this agent has said HELLO, and waits for the peer's
    OPEN = enum.auto()  # both have said HELLO
    ACKNOWLEDGED = enum.auto()  # open, and this agent has acknowledged the peer's FIN
    UNMET = enum.auto()  # over before a good HELLO of the peer
    LEFT = enum.auto()  # over after it was open
    REFUSED = enum.auto()  # over because one end refused the other


class Act(enum.Enum):
    """What this agent, or the transport, does to a connection."""

    MEET = enum.auto()
    ACKNOWLEDGE = enum.auto()
    REFUSE = enum.auto()
    END = enum.auto()
    LOST = enum.auto()


class RunState(enum.Enum):
    """How far this agent's run has come, as its neighbours see it."""

    INTRODUCING = enum.auto()  # the agent has committed no round yet
    RUNNING = enum.auto()  # the agent has committed a round
    FINISHED = enum.auto()  # the agent has consumed the last round, and serves its last message
    SETTLED = enum.auto()  # all neighbours have finished too: nobody needs this agent any more
    FAILED = enum.auto()  # the agent will consume no further round


class RunEvent(enum.Enum):
    """What happens to a run."""

    COMMIT = enum.auto()
    FINISH = enum.auto()
    ALL_FINISHED = enum.auto()
    FAIL = enum.auto()


type ConnectionEvent = FrameKind | Act

NEW, GREETED, OPEN, ACKNOWLEDGED, UNMET, LEFT, REFUSED = ConnectionState
OPEN_STATES = frozenset({OPEN, ACKNOWLEDGED})
OVER_STATES = frozenset({UNMET, LEFT, REFUSED})

CONNECTION: Mapping[tuple[ConnectionState, ConnectionEvent], ConnectionState] = {
    (NEW, Act.MEET): GREETED,
    (NEW, Act.END): UNMET,
    (NEW, Act.LOST): UNMET,
    (GREETED, FrameKind.HELLO): OPEN,
    (GREETED, FrameKind.REJECT): REFUSED,
    (GREETED, Act.REFUSE): REFUSED,
    (GREETED, Act.END): UNMET,
    (GREETED, Act.LOST): UNMET,
    (OPEN, FrameKind.ROW): OPEN,
    (OPEN, FrameKind.DATA): OPEN,
    (OPEN, FrameKind.HEARTBEAT): OPEN,
    (OPEN, FrameKind.FIN): OPEN,
    (OPEN, FrameKind.REJECT): REFUSED,
    (OPEN, FrameKind.GOSSIP): OPEN,
    (OPEN, Act.ACKNOWLEDGE): ACKNOWLEDGED,
    (OPEN, Act.REFUSE): REFUSED,
    (OPEN, Act.END): LEFT,
    (OPEN, Act.LOST): LEFT,
    (ACKNOWLEDGED, FrameKind.ROW): ACKNOWLEDGED,
    (ACKNOWLEDGED, FrameKind.DATA): ACKNOWLEDGED,
    (ACKNOWLEDGED, FrameKind.HEARTBEAT): ACKNOWLEDGED,
    (ACKNOWLEDGED, FrameKind.FIN): ACKNOWLEDGED,
    (ACKNOWLEDGED, FrameKind.REJECT): REFUSED,
    (ACKNOWLEDGED, FrameKind.GOSSIP): ACKNOWLEDGED,
    (ACKNOWLEDGED, Act.REFUSE): REFUSED,
    (ACKNOWLEDGED, Act.END): LEFT,
    (ACKNOWLEDGED, Act.LOST): LEFT,
    # the first reason for the end of a connection counts
    (UNMET, Act.REFUSE): UNMET,
    (UNMET, Act.END): UNMET,
    (UNMET, Act.LOST): UNMET,
    (LEFT, Act.REFUSE): LEFT,
    (LEFT, Act.END): LEFT,
    (LEFT, Act.LOST): LEFT,
    (REFUSED, Act.REFUSE): REFUSED,
    (REFUSED, Act.END): REFUSED,
    (REFUSED, Act.LOST): REFUSED,
}

RUN: Mapping[tuple[RunState, RunEvent], RunState] = {
    (RunState.INTRODUCING, RunEvent.COMMIT): RunState.RUNNING,
    (RunState.INTRODUCING, RunEvent.FAIL): RunState.FAILED,
    (RunState.RUNNING, RunEvent.COMMIT): RunState.RUNNING,
    (RunState.RUNNING, RunEvent.FINISH): RunState.FINISHED,
    (RunState.RUNNING, RunEvent.FAIL): RunState.FAILED,
    # an agent that was started again after its last round says FIN again
    (RunState.FINISHED, RunEvent.FINISH): RunState.FINISHED,
    (RunState.FINISHED, RunEvent.ALL_FINISHED): RunState.SETTLED,
    (RunState.FINISHED, RunEvent.FAIL): RunState.FINISHED,
    (RunState.SETTLED, RunEvent.FINISH): RunState.SETTLED,
    (RunState.SETTLED, RunEvent.FAIL): RunState.SETTLED,
    (RunState.FAILED, RunEvent.COMMIT): RunState.FAILED,
    (RunState.FAILED, RunEvent.FINISH): RunState.FINISHED,
    (RunState.FAILED, RunEvent.FAIL): RunState.FAILED,
}


class TransitionError(RuntimeError):
    """An event that its state does not allow: a defect of this program, not of a peer."""


def after[S: enum.Enum, E: enum.Enum](table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """The state that follows `state` when `event` happens; TransitionError if it cannot happen."""
    following = table.get((state, event))
    if following is None:
        raise TransitionError(
            f"in the state {state.name} the event {event.name} cannot happen. The tables in "
            "hushgrad.network.protocol.states hold every transition."
        )
    return following


def is_in_turn(state: ConnectionState, kind: FrameKind) -> bool:
    """Whether the peer may send a frame of this kind now."""
    return (state, kind) in CONNECTION
