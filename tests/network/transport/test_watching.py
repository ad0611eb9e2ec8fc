"""An agent ends connections that are dead, keeps those that are not, and notices lost peers."""

import asyncio
import logging

import pytest

from hushgrad.errors import PeerLostError
from hushgrad.network.ops.logs import iso_time
from hushgrad.network.protocol.frames import FrameKind, Parser
from hushgrad.network.protocol.session import Peer
from hushgrad.network.transport import watching as watching_module
from hushgrad.network.transport.tls import HANDSHAKE
from hushgrad.network.transport.watching import SILENCE
from support import hub_alone

FRAMES = hub_alone.honest_frames()
HEARTBEAT = MAX_WAIT = 1.0  # seconds, of the hub that is alone


def open_connection(hub):
    link, end = hub_alone.connect(hub)
    hub_alone.deliver(link, FRAMES[FrameKind.HELLO])
    assert link.is_open
    return link, end


def watch(hub, now):
    hub.watching.look(now)


def as_test(check):
    """A test that runs `check` with a hub that is alone, in an event loop."""

    async def run():
        check(hub_alone.hub_alone())

    return lambda: asyncio.run(run())


@as_test
def test_an_open_connection_is_dead_after_three_silent_heartbeats(hub):
    link, _ = open_connection(hub)
    watch(hub, link.heard + SILENCE * HEARTBEAT - 0.01)
    assert link.is_open
    watch(hub, link.heard + SILENCE * HEARTBEAT + 0.01)
    assert link.reason == "silent"


@as_test
def test_a_peer_has_the_time_of_a_handshake_for_its_hello(hub):
    link, end = hub_alone.connect(hub)
    said = end.written
    watch(hub, link.made + HANDSHAKE - 0.01)
    assert not link.is_over
    assert end.written == said  # and no heartbeat before that
    watch(hub, link.made + HANDSHAKE + 0.01)
    assert link.reason == "silent"


@as_test
def test_a_connection_that_is_over_gets_three_heartbeats_for_its_last_bytes(hub):
    link, end = open_connection(hub)
    ends = []
    end.abort = lambda: ends.append("aborted")
    link.close("left")
    watch(hub, link.heard + SILENCE * HEARTBEAT - 0.01)
    assert not ends
    watch(hub, link.heard + SILENCE * HEARTBEAT + 0.01)
    assert (ends, link.reason) == (["aborted"], "left")


@as_test
def test_an_agent_that_has_nothing_to_say_says_that_it_is_here(hub):
    link, end = open_connection(hub)
    before = len(end.written)
    watch(hub, link.spoke + HEARTBEAT / 2 - 0.01)
    assert len(end.written) == before
    watch(hub, link.spoke + HEARTBEAT / 2 + 0.01)
    (frame,) = Parser(hub.longest).feed(end.written[before:])
    assert frame.kind is FrameKind.HEARTBEAT


@as_test
def test_the_time_that_an_agent_itself_stood_still_is_nobodys_silence(hub):
    link, _ = open_connection(hub)
    heard, absent = link.heard, dict(hub.watching._absent_since)
    hub.watching.forgive(100.0, heard + 100.5)
    watch(hub, heard + 100.0 + SILENCE * HEARTBEAT - 0.01)
    assert link.is_open
    watch(hub, heard + 100.0 + SILENCE * HEARTBEAT + 0.01)
    assert link.reason == "silent"
    for j, since in hub.watching._absent_since.items():
        assert since == absent[j] + 100.0
    hub.watching.forgive(100.0, heard + 110.0)  # not into the future
    assert set(hub.watching._absent_since.values()) == {heard + 110.0}


def test_an_agent_notices_that_it_itself_stood_still(monkeypatch):
    """The clock leaps while the agent sleeps for half a heartbeat."""
    forgiven, looks, now = [], [], [0.0]

    async def sleep(seconds):
        now[0] += seconds + leaps.pop(0)

    def look(time):
        looks.append(time)
        if not leaps:
            raise EOFError

    async def run():
        watching = hub_alone.hub_alone().watching
        monkeypatch.setattr(watching_module, "monotonic", lambda: now[0])
        monkeypatch.setattr(watching_module.asyncio, "sleep", sleep)
        watching.forgive = lambda late, time: forgiven.append((late, time))
        watching.look = look
        with pytest.raises(EOFError):
            await watching.run()

    leaps = [0.0, 0.4, 7.0, 0.0]
    asyncio.run(run())
    assert forgiven == [(7.0, pytest.approx(8.9))]
    assert looks == pytest.approx([0.5, 1.4, 8.9, 9.4])


def lost(hub, now):
    """Whether the peer counts as lost at a time."""
    watch(hub, now)
    return hub.failure is not None


@as_test
def test_a_peer_is_lost_when_it_is_waited_for_and_absent_for_too_long(hub):
    link, _ = open_connection(hub)
    link.close("test")
    link.connection_lost(None)
    left = hub.watching._absent_since[hub_alone.PEER]
    hub.watching.objections[hub_alone.PEER] = "it has no route"
    assert not lost(hub, left + MAX_WAIT - 0.01)
    assert lost(hub, left + MAX_WAIT + 0.01)
    with pytest.raises(PeerLostError, match=r"^peer at round 5 \(it has no route\)$"):
        hub.check()


@as_test
def test_a_peer_that_is_not_waited_for_is_never_lost(hub):
    link, _ = open_connection(hub)
    hub_alone.deliver(link, FRAMES[FrameKind.DATA])  # the agent has all that it needs
    link.close("test")
    link.connection_lost(None)
    assert hub.watching.missing() == set()
    assert not lost(hub, link.heard + 1000)


@as_test
def test_a_peer_that_comes_and_goes_without_a_message_was_absent_all_the_time(hub):
    watching = hub.watching
    watching._absent_since[hub_alone.PEER] -= 0.7 * MAX_WAIT
    began = watching._absent_since[hub_alone.PEER]
    link, _ = open_connection(hub)
    link.connection_lost(None)
    assert watching._absent_since[hub_alone.PEER] < began + 0.5 * MAX_WAIT
    link, _ = open_connection(hub)
    hub_alone.deliver(link, FRAMES[FrameKind.DATA])
    link.connection_lost(None)
    assert watching._absent_since[hub_alone.PEER] > began + 0.5 * MAX_WAIT


@as_test
def test_the_peers_that_are_waited_for_are_named(hub):
    assert hub._stats.waiting_for == ("peer",)
    link, _ = open_connection(hub)
    hub_alone.deliver(link, FRAMES[FrameKind.DATA])
    assert hub._stats.waiting_for == ()
    hub.session.take()
    hub.session.finish()
    assert hub._stats.waiting_for == ("peer",)  # it may need this agent's last message
    hub_alone.deliver(link, FRAMES[FrameKind.FIN])
    assert hub._stats.waiting_for == ()


def silent(hub, link, now):
    """The peer sends heartbeats only, up to this time."""
    link.heard = link.spoke = now
    return lost(hub, now)


@as_test
def test_a_connected_peer_that_sends_heartbeats_only_is_lost_by_name(hub):
    link, _ = open_connection(hub)
    hub.watching.waits_since = link.made
    assert not silent(hub, link, link.made + MAX_WAIT - 0.01)
    assert silent(hub, link, link.made + MAX_WAIT + 0.01)
    with pytest.raises(PeerLostError, match=r"^peer at round 5 \(connected, but silent for 1 s\)$"):
        hub.check()


@as_test
def test_a_peer_that_was_refused_is_named_before_one_that_is_silent(hub):
    """The silent peer may itself wait for the refused one."""
    link, _ = open_connection(hub)
    hub.session.peers[2] = Peer(2, "refused", "both", False)
    hub.session.missing.add(2)
    hub.watching._absent_since[2] = link.made + MAX_WAIT  # it came and went a moment ago
    hub.watching.objections[2] = "its numbers are not finite"
    hub.watching.waits_since = link.made
    assert silent(hub, link, link.made + MAX_WAIT + 0.01)
    with pytest.raises(PeerLostError, match=r"^refused at round 5 \(its numbers are not finite\)$"):
        hub.check()


@as_test
def test_a_peer_that_came_back_late_has_its_whole_time_but_not_more_than_twice(hub):
    link, _ = open_connection(hub)
    hub.watching.waits_since = link.made - 0.9 * MAX_WAIT
    assert not silent(hub, link, link.made + 0.9 * MAX_WAIT)
    again, _ = open_connection(hub)  # it takes the place of the first, and the wait goes on
    again.made = link.made + 0.9 * MAX_WAIT
    assert not silent(hub, again, link.made + 1.09 * MAX_WAIT)
    assert silent(hub, again, link.made + 1.11 * MAX_WAIT)


@as_test
def test_nobody_is_lost_while_this_agent_itself_computes_or_after_its_message_came(hub):
    link, _ = open_connection(hub)
    hub_alone.deliver(link, FRAMES[FrameKind.DATA])
    assert not silent(hub, link, link.made + 3 * MAX_WAIT)
    hub.session.take()  # the agent computes the next round
    assert hub.watching.missing() == {hub_alone.PEER}
    assert not silent(hub, link, link.made + 3 * MAX_WAIT)


@as_test
def test_the_time_that_an_agent_stood_still_is_no_wait_either(hub):
    link, _ = open_connection(hub)
    hub.watching.waits_since = link.made
    hub.watching.forgive(100.0, link.made + 100.5)
    assert not silent(hub, link, link.made + 0.9 * MAX_WAIT)
    assert hub.watching.waits_since == pytest.approx(link.made)


@as_test
def test_what_comes_from_afar_is_waited_for_as_long_and_named(hub):
    link, _ = open_connection(hub)
    hub_alone.deliver(link, FRAMES[FrameKind.DATA])
    hub.session.take()
    with hub.watching.awaiting(lambda: ["the start of stage 2 of agent 0"]):
        hub.watching.waits_since = link.made
        assert not silent(hub, link, link.made + MAX_WAIT - 0.01)
        assert silent(hub, link, link.made + MAX_WAIT + 0.01)
    with pytest.raises(PeerLostError, match=r"^the start of stage 2 of agent 0 at round 5 \(not"):
        hub.check()


def test_a_wait_is_told_once_it_lasts_ever_more_rarely_and_when_it_is_over(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    told = []

    @as_test
    def check(hub):
        hub.watching.max_wait = 1e9
        hub.watching.tell = lambda names, since: told.append((tuple(names), since))
        link, _ = open_connection(hub)
        began = hub.watching.waits_since = link.made
        wall = watching_module.time() - watching_module.monotonic() + began
        monkeypatch.setattr(watching_module, "time", lambda: wall + now)
        for now in range(0, 100, 5):
            silent(hub, link, began + now)
        assert told == [(("peer",), iso_time(wall))] * 3
        hub_alone.deliver(link, FRAMES[FrameKind.DATA])
        silent(hub, link, began + 100)
        assert told[-1] == ((), "")

    check()
    lines = [r.getMessage() for r in caplog.records if getattr(r, "event", "") == "waiting"]
    assert lines == [f"waiting for peer since {told[0][1]}"] * 3  # after 15, 30 and 60 s
    assert "the wait for peer is over" in caplog.text
