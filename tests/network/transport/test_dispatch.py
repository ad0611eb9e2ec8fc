"""A real hub obeys the table of states, for every kind of frame in every state of a connection."""

import asyncio

import pytest

from hushgrad.errors import (
    DiameterError,
    DivergedError,
    IdentityError,
    JumpError,
    MaskError,
    PeerEndedError,
    PeerLostError,
    ProblemError,
    StageError,
    StaleCopyError,
    StateError,
)
from hushgrad.network.protocol.codes import Ending, reason_of
from hushgrad.network.protocol.frames import FrameKind, Parser, encode
from hushgrad.network.protocol.states import (
    CONNECTION,
    OVER_STATES,
    Act,
    ConnectionState,
    RunState,
    is_in_turn,
)
from support import hub_alone
from support.hub_alone import PEER, ROUND

FRAMES = hub_alone.honest_frames()
HELLO, FIN = FRAMES[FrameKind.HELLO], FRAMES[FrameKind.FIN]


def finish(hub):
    """The agent has consumed its last round."""
    session = hub.session
    session.accept(session.peers[PEER], Parser(hub.longest).feed(FRAMES[FrameKind.DATA])[0])
    session.take()
    hub.broadcast(session.finish())


def connection_in(state, hub):
    """A connection of the peer that has come to a state, by what an honest peer and agent do."""
    link, end = hub_alone.connect(hub)
    if state in (ConnectionState.OPEN, ConnectionState.LEFT, ConnectionState.ACKNOWLEDGED):
        hub_alone.deliver(link, HELLO)
    if state is ConnectionState.ACKNOWLEDGED:
        finish(hub)
        hub_alone.deliver(link, FIN)
    elif state is ConnectionState.REFUSED:
        hub_alone.deliver(link, FRAMES[FrameKind.REJECT])
    elif state in OVER_STATES:
        link.close("test")
    assert link.state is state
    return link, end


def heard(end, hub):
    """The frames that the agent has sent over a wire."""
    return Parser(hub.longest).feed(end.written)


@pytest.mark.parametrize("kind", FrameKind, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    "state", [s for s in ConnectionState if s is not ConnectionState.NEW], ids=lambda s: s.name
)
def test_a_frame_is_taken_or_refused_as_the_table_says(state, kind, caplog):
    async def check():
        hub = hub_alone.hub_alone()
        link, end = connection_in(state, hub)
        before = len(end.written)
        link.get_buffer(-1)[: len(FRAMES[kind])] = FRAMES[kind]
        link.buffer_updated(len(FRAMES[kind]))
        if is_in_turn(state, kind):
            assert link.state is CONNECTION[state, kind]
            assert not hub._stats.rejected
        elif state in OVER_STATES:  # the agent does not read the frame
            assert (link.state, len(end.written)) == (state, before)
            assert not hub._stats.rejected
        else:
            assert link.state is ConnectionState.REFUSED
            assert hub._stats.rejected == {"order": 1}
            rule = "said HELLO twice" if kind is FrameKind.HELLO else f"sent {kind.name} before"
            assert reason_of(heard(end, hub)[-1].flags) == "order"
            assert f"refused: peer {rule}" in caplog.text
        is_over = kind is FrameKind.OVER and state in (
            ConnectionState.GREETED,
            ConnectionState.OPEN,
        )
        assert (hub.failure is not None) == is_over

    asyncio.run(check())


def test_a_connection_that_the_transport_does_not_know_is_over_before_it_began():
    async def check():
        hub = hub_alone.hub_alone()

        def nobody(connection):
            raise IdentityError("nobody known")

        hub._transport.name_of = nobody
        link, end = hub_alone.connect(hub)
        assert link.state is ConnectionState.UNMET
        assert end.has_ended
        assert hub._stats.rejected == {"stranger": 1}

    asyncio.run(check())


def test_a_lost_connection_ends_in_the_state_that_tells_how_far_it_came():
    async def check():
        for state in ConnectionState:
            if state is not ConnectionState.NEW:
                link, _ = connection_in(state, hub_alone.hub_alone())
                link.connection_lost(None)
                assert link.state is CONNECTION[state, Act.LOST]
                assert link.closed.done()

    asyncio.run(check())


def test_each_agent_acknowledges_the_others_end_once():
    """An acknowledgement of an acknowledgement would be answered without end."""

    async def check():
        hub = hub_alone.hub_alone()
        link, end = connection_in(ConnectionState.OPEN, hub)
        finish(hub)
        for flags in (0, 1, 1):
            hub_alone.deliver(link, encode(FrameKind.FIN, round_=ROUND + 1, flags=flags))
        fins = [frame.flags for frame in heard(end, hub) if frame.kind is FrameKind.FIN]
        assert fins == [0, 1]
        assert hub.session.state is RunState.SETTLED
        # nor on a later connection, whose first FIN acknowledges already
        again, end = hub_alone.connect(hub)
        hub_alone.deliver(again, HELLO)
        assert again.state is ConnectionState.ACKNOWLEDGED
        hub_alone.deliver(again, FIN)
        fins = [frame.flags for frame in heard(end, hub) if frame.kind is FrameKind.FIN]
        assert fins == [1]

    asyncio.run(check())


def test_a_failed_agent_consumes_no_further_round_and_gives_a_new_connection_none():
    async def check():
        hub = hub_alone.hub_alone()
        link, _ = connection_in(ConnectionState.OPEN, hub)
        completed = []
        hub.complete = lambda: completed.append(hub.session.round)
        hub.fail(MaskError("the masks do not cancel"))
        hub_alone.deliver(link, FRAMES[FrameKind.DATA])
        assert (hub.session.state, completed) == (RunState.FAILED, [])
        assert not hub.session.missing  # the message is here
        assert not hub.session.is_complete
        again, end = hub_alone.connect(hub)
        hub_alone.deliver(again, HELLO)
        (told,) = heard(end, hub)  # and nothing of the run
        assert (told.kind, told.flags, told.round) == (FrameKind.OVER, Ending.MASKS, 0)

    asyncio.run(check())


def test_a_failure_while_the_last_round_is_computed_does_not_undo_its_result():
    async def check():
        hub = hub_alone.hub_alone()
        connection_in(ConnectionState.OPEN, hub)
        hub.fail(PeerLostError("peer"))
        finish(hub)
        assert hub.session.has_finished
        hub.fail(PeerLostError("another"))
        assert hub.session.has_finished
        with pytest.raises(PeerLostError, match="peer"):
            hub.check()

    asyncio.run(check())


def test_messages_follow_each_other_on_a_connection_and_each_counts_once():
    async def check():
        hub = hub_alone.hub_alone()
        completed = []
        hub.complete = lambda: completed.append(hub.session.round)
        link, _ = connection_in(ConnectionState.OPEN, hub)
        hub_alone.deliver(link, hub_alone.message(ROUND) + hub_alone.message(ROUND + 1))
        assert (completed, link.due, link.has_helped) == ([ROUND], ROUND + 2, True)
        hub_alone.deliver(link, hub_alone.message(ROUND + 1))
        assert link.reason == "refused (replay)"
        early, _ = connection_in(ConnectionState.OPEN, hub_alone.hub_alone())
        hub_alone.deliver(early, hub_alone.message(ROUND + 1))
        assert early.reason == "refused (future round)"

    asyncio.run(check())


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (DivergedError("far"), Ending.DIVERGED),
        (StateError("the disk is full"), Ending.FAILED),
        (ProblemError("an objective"), Ending.FAILED),
        (KeyError("a crash"), None),
        (StaleCopyError("old"), Ending.REFUSED),
        (JumpError("jump"), Ending.JUMP),
        (PeerLostError("peer"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_agent_that_ends_tells_its_neighbours_a_code_and_no_word_of_its_own(error, ending):
    async def check():
        hub = hub_alone.hub_alone()
        _, end = connection_in(ConnectionState.OPEN, hub)
        before = len(end.written)
        hub.fail(error)
        told = Parser(hub.longest).feed(end.written[before:])
        assert [frame.kind for frame in told] == [FrameKind.OVER] * (ending is not None)
        for frame in told:
            assert (frame.flags, frame.round) == (ending, hub_alone.NUMBER)
            assert str(error).encode() not in frame.whole
        hub.fail(MaskError("a second"))  # the first failure counts
        assert hub.failure is error

    asyncio.run(check())


ENDINGS = {
    Ending.FAILED: (PeerLostError, "peer at round 5: it failed"),
    Ending.DIVERGED: (PeerEndedError, "peer ended the run: its numbers grew without bound"),
    Ending.REFUSED: (PeerEndedError, "peer ended the run: its state is an old copy"),
    Ending.MASKS: (MaskError, "peer ended the run: masks do not cancel"),
    Ending.DIAMETER: (DiameterError, "peer ended the run: agents would not stop"),
    Ending.STAGE: (StageError, "peer ended the run: agents would not begin"),
    Ending.JUMP: (PeerEndedError, "peer ended the run: a neighbour's messages jumped"),
    Ending.EXPOSURE: (PeerEndedError, "peer ended the run: a stage would expose its data"),
}


@pytest.mark.parametrize("origin", [PEER, 2], ids=["its own", "passed on"])
@pytest.mark.parametrize("ending", Ending, ids=lambda e: e.name)
def test_an_agent_whose_neighbour_ended_ends_at_once_by_name_and_code(ending, origin):
    async def check():
        hub = hub_alone.hub_alone()
        link, _ = connection_in(ConnectionState.OPEN, hub)
        hub_alone.deliver(link, hub_alone.over(ending, origin))
        kind, words = ENDINGS[ending]
        with pytest.raises(kind) as ended:
            hub.check()
        assert str(ended.value).startswith(words)
        assert ("says that it began with agent 2" in str(ended.value)) == (origin == 2)
        assert not hub.is_telling  # nobody but the peer, which knows
        _, end = hub_alone.connect(hub)  # a neighbour would hear the same, and whose it is
        (told,) = heard(end, hub)
        assert (told.kind, told.flags, told.round) == (FrameKind.OVER, ending, origin)

    asyncio.run(check())


@pytest.mark.parametrize(
    "frame",
    [
        encode(FrameKind.OVER, bytes(16), flags=2),
        hub_alone.over(0),
        hub_alone.over(Ending.FAILED, 3),
    ],
    ids=["another run", "no ending", "nobody"],
)
def test_the_end_of_another_run_and_an_end_that_is_none_end_nothing(frame):
    async def check():
        hub = hub_alone.hub_alone()
        link, _ = connection_in(ConnectionState.OPEN, hub)
        hub_alone.deliver(link, frame)
        assert link.state is ConnectionState.REFUSED
        assert hub.failure is None

    asyncio.run(check())


def test_a_neighbour_that_had_finished_may_end_as_it_likes():
    async def check():
        hub = hub_alone.hub_alone()
        link, _ = connection_in(ConnectionState.ACKNOWLEDGED, hub)
        hub_alone.deliver(link, FRAMES[FrameKind.OVER])
        assert hub.failure is None
        assert hub.session.is_settled

    asyncio.run(check())
