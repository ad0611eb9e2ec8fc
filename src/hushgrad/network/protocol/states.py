"""The states of a connection and of a run, and every transition between them.

Both tables below are the whole protocol of order: a pair of state and event that has no entry does
not occur. The connection (transport/connection.py), the dispatch of frames (transport/dispatch.py)
and the session (session.py) ask these tables and keep no flags of their own.

A connection. Its events are the frames that the peer sends and the acts of this agent:

    MEET         The transport has verified the peer, and this agent has sent its HELLO, or OVER
                 in its place if its run is over.
    ACKNOWLEDGE  Both agents have finished, and this agent has sent a FIN that says so.
    REFUSE       The peer broke a rule, and this agent has sent a REJECT.
    END          This agent ends the connection for any other reason.
    LOST         The transport is gone.

A frame without an entry is out of turn, and the agent refuses the peer for it ("order"). Once a
connection is over (UNMET, LEFT or REFUSED), the agent reads no frame of it, and the first reason
for its end counts.

A run, as the neighbours of this agent see it. Its events:

    COMMIT        A round is in the journal, and the agent may send it.
    FINISH        The last round is consumed, and the result is safe.
    ALL_FINISHED  The agent and all its neighbours have finished.
    FAIL          The agent cannot go on.

An agent may fail while it computes a round in a thread. The computation still ends with a COMMIT or
a FINISH. A COMMIT does not heal the failure; a FINISH does, because the result is safe. For the
same reason no failure leads out of FINISHED. An agent that is started again after its last round
says FIN again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from hushgrad.network.protocol.frames import FrameKind


class _Quick(enum.Enum):
    """Looked up in every round: Enum's own hash is a call of Python."""

    __hash__ = object.__hash__


class ConnectionState(_Quick):
    """The state of one connection."""

    NEW = enum.auto()  # dialled or accepted; this agent does not know the peer yet
    GREETED = enum.auto()  # this agent has said HELLO, and waits for the peer's
    OPEN = enum.auto()  # both have said HELLO
    ACKNOWLEDGED = enum.auto()  # open, and this agent has acknowledged the peer's FIN
    UNMET = enum.auto()  # over before a good HELLO of the peer
    LEFT = enum.auto()  # over after it was open
    REFUSED = enum.auto()  # over because one end refused the other


class Act(_Quick):
    """An act of this agent, or of the transport, on a connection."""

    MEET = enum.auto()
    ACKNOWLEDGE = enum.auto()
    REFUSE = enum.auto()
    END = enum.auto()
    LOST = enum.auto()


class RunState(_Quick):
    """The state of this agent's run, as its neighbours see it."""

    INTRODUCING = enum.auto()  # the agent has committed no round yet
    RUNNING = enum.auto()  # the agent has committed a round
    FINISHED = enum.auto()  # the agent has consumed the last round, and serves its last message
    SETTLED = enum.auto()  # all neighbours have finished too: nobody needs this agent any more
    FAILED = enum.auto()  # the agent will consume no further round


class RunEvent(_Quick):
    """An event in a run."""

    COMMIT = enum.auto()
    FINISH = enum.auto()
    ALL_FINISHED = enum.auto()
    FAIL = enum.auto()


type ConnectionEvent = FrameKind | Act

_, _, OPEN, ACKNOWLEDGED, UNMET, LEFT, REFUSED = ConnectionState
OPEN_STATES = (OPEN, ACKNOWLEDGED)
OVER_STATES = (UNMET, LEFT, REFUSED)
FINISHED_STATES = (RunState.FINISHED, RunState.SETTLED)


def _table[S: enum.Enum, E: enum.Enum](
    states: type[S], events: Iterable[E], text: str
) -> Mapping[tuple[S, E], S]:
    """The transitions that a text shows: the state in a cell follows the state above it."""
    names, *rows = [line.split() for line in text.strip().splitlines()]
    by_name = {event.name: event for event in events}
    return {
        (states[name], by_name[event]): states[cell]
        for event, *cells in rows
        for name, cell in zip(names[1:], cells, strict=True)
        if cell != "-"
    }


CONNECTION: Mapping[tuple[ConnectionState, ConnectionEvent], ConnectionState] = _table(
    ConnectionState,
    (*FrameKind, *Act),
    """
    event        NEW      GREETED  OPEN          ACKNOWLEDGED  UNMET  LEFT  REFUSED
    HELLO        -        OPEN     -             -             -      -     -
    ROW          -        -        OPEN          ACKNOWLEDGED  -      -     -
    DATA         -        -        OPEN          ACKNOWLEDGED  -      -     -
    HEARTBEAT    -        -        OPEN          ACKNOWLEDGED  -      -     -
    FIN          -        -        OPEN          ACKNOWLEDGED  -      -     -
    REJECT       -        REFUSED  REFUSED       REFUSED       -      -     -
    GOSSIP       -        -        OPEN          ACKNOWLEDGED  -      -     -
    ANNOUNCE     -        -        OPEN          ACKNOWLEDGED  -      -     -
    STAGE        -        -        OPEN          ACKNOWLEDGED  -      -     -
    OVER         -        UNMET    LEFT          LEFT          -      -     -
    CONFIRM      -        -        OPEN          ACKNOWLEDGED  -      -     -
    MEET         GREETED  -        -             -             -      -     -
    ACKNOWLEDGE  -        -        ACKNOWLEDGED  -             -      -     -
    REFUSE       -        REFUSED  REFUSED       REFUSED       UNMET  LEFT  REFUSED
    END          UNMET    UNMET    LEFT          LEFT          UNMET  LEFT  REFUSED
    LOST         UNMET    UNMET    LEFT          LEFT          UNMET  LEFT  REFUSED
    """,
)

RUN: Mapping[tuple[RunState, RunEvent], RunState] = _table(
    RunState,
    RunEvent,
    """
    event         INTRODUCING  RUNNING   FINISHED  SETTLED  FAILED
    COMMIT        RUNNING      RUNNING   -         -        FAILED
    FINISH        -            FINISHED  FINISHED  SETTLED  FINISHED
    ALL_FINISHED  -            -         SETTLED   -        -
    FAIL          FAILED       FAILED    FINISHED  SETTLED  FAILED
    """,
)


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
