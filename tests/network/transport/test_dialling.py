"""An agent dials at once after a good connection, ever more slowly after bad ones, and says why."""

import asyncio
import logging
import ssl

import pytest

from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.session import Peer
from hushgrad.network.transport import dialling
from hushgrad.network.transport.connection import Connection
from hushgrad.network.transport.dialling import COURTESY, FIRST_DELAY, LONGEST_DELAY, Dialling
from support import hub_alone

FRAMES = hub_alone.honest_frames()


class Over(Exception):  # noqa: N818  # it ends a test
    """The script has no further attempt."""


class ScriptedTransport:
    """A transport whose attempts to dial end as a script says: with an error, or with a connection
    on which the peer says these frames before it is lost.
    """

    def __init__(self, script):
        self._script = iter(script)

    async def dial(self, name, new):
        outcome = next(self._script, None)
        if outcome is None:
            raise Over
        if isinstance(outcome, Exception):
            raise outcome
        link = new()
        link.connection_made(hub_alone.Wire())
        for frame in outcome:
            hub_alone.deliver(link, frame)
        link.connection_lost(None)


@pytest.fixture
def delays(monkeypatch):
    """The seconds that an agent would have slept; the test does not wait."""
    slept, sleep = [], asyncio.sleep

    async def note(seconds):
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(dialling.asyncio, "sleep", note)
    monkeypatch.setattr(dialling.random, "uniform", lambda low, high: high)
    return slept


def dial(script, *, number=hub_alone.NUMBER):
    """Dial as the script says; returns the objections and the counters."""

    async def run():
        hub = hub_alone.hub_alone()
        new = lambda: Connection(hub, is_dialled=True)  # noqa: E731  # one line, used here
        objections = {}
        dials = Dialling(
            number, ScriptedTransport(script), new, links=hub._links, objections=objections,
             stats=hub._stats,
        )  # fmt: skip
        with pytest.raises(Over):
            await dials.dial(Peer(hub_alone.PEER, "peer", "both", False))
        return objections, hub._stats

    return asyncio.run(run())


def reports(caplog):
    return [r for r in caplog.records if getattr(r, "event", "") == "unreachable"]


def test_attempts_that_fail_become_rarer_and_are_reported_once(delays, caplog):
    caplog.set_level(logging.INFO)
    objections, _ = dial([ConnectionRefusedError("nobody there")] * 9)
    expected = [min(FIRST_DELAY * 2**n, LONGEST_DELAY) for n in range(9)]
    assert delays == pytest.approx(expected)
    (report,) = reports(caplog)
    text = "ConnectionRefusedError: nobody there"
    assert report.getMessage() == f"cannot reach peer yet: {text}"
    assert objections == {hub_alone.PEER: text}


def test_after_a_connection_that_was_open_dialling_begins_anew(delays, caplog):
    caplog.set_level(logging.INFO)
    fails = [OSError("no route")] * 3
    dial([*fails, [FRAMES[FrameKind.HELLO]], *fails])
    slow = [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY]
    assert delays == pytest.approx([*slow, *slow[:1], *(2 * d for d in slow)])
    assert len(reports(caplog)) == 2


def test_a_connection_that_ends_in_a_refusal_is_no_reason_to_hurry(delays, caplog):
    caplog.set_level(logging.INFO)
    refusal = [FRAMES[FrameKind.HELLO], FRAMES[FrameKind.REJECT]]
    dial([refusal] * 3)
    assert delays == pytest.approx([FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY])
    assert not reports(caplog)  # the refusal itself was logged


def test_after_a_message_that_helped_dialling_begins_anew_even_if_a_refusal_followed(delays):
    helped = [FRAMES[FrameKind.HELLO], FRAMES[FrameKind.DATA], FRAMES[FrameKind.REJECT]]
    dial([OSError(), OSError(), helped, OSError()])
    assert delays[2:] == pytest.approx([FIRST_DELAY, 2 * FIRST_DELAY])


def test_a_peer_that_leaves_before_hello_and_one_with_another_certificate_are_told_apart(
    delays, caplog
):
    caplog.set_level(logging.INFO)
    stranger = ssl.SSLCertVerificationError("certificate")
    stranger.verify_message = "self-signed"
    _, stats = dial([[], stranger])
    left, other = reports(caplog)
    assert (left.levelno, other.levelno) == (logging.INFO, logging.WARNING)
    assert "it ended the connection before HELLO: closed by the peer" in left.getMessage()
    assert "does not show the certificate of peer: self-signed" in other.getMessage()
    assert stats.rejected == {"certificate": 1}


def test_the_greater_number_waits_for_the_smaller_to_dial(delays):
    dial([OSError(), OSError()], number=hub_alone.PEER + 1)
    assert delays == pytest.approx([COURTESY, FIRST_DELAY, COURTESY, 2 * FIRST_DELAY, COURTESY])


def test_nobody_dials_a_peer_that_is_connected(delays):
    async def run():
        hub = hub_alone.hub_alone()
        link, _ = hub_alone.connect(hub)
        hub_alone.deliver(link, FRAMES[FrameKind.HELLO])
        dials = Dialling(
            hub_alone.NUMBER, ScriptedTransport([]), lambda: Connection(hub), links=hub._links,
            objections={}, stats=hub._stats,
        )  # fmt: skip
        task = asyncio.create_task(dials.dial(hub.session.peers[hub_alone.PEER]))
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
        link.connection_lost(None)
        with pytest.raises(Over):
            await task

    asyncio.run(run())
