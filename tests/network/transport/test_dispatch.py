"""A real hub obeys the table of states, for every kind of frame in every state of a connection."""

import asyncio

import pytest

from hushgrad.errors import IdentityError, MaskError, PeerLostError
from hushgrad.network.protocol.frames import FrameKind, Parser, encode
from hushgrad.network.protocol.hello import decode_reject
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
def test_a_frame_is_taken_or_refused_as_the_table_says(state, kind):
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
            reason, text = decode_reject(heard(end, hub)[-1].body)
            rule = "said HELLO twice" if kind is FrameKind.HELLO else f"sent {kind.name} before"
            assert reason == "order"
            assert text.startswith(f"peer {rule}")
        assert hub.failure is None

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
        kinds = [frame.kind for frame in heard(end, hub)]
        assert kinds == [FrameKind.HELLO, FrameKind.GOSSIP, FrameKind.STAGE]

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
