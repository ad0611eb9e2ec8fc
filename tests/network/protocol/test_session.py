"""The protocol between neighbours, rule by rule, without I/O."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrad.agent.weights import Ends
from hushgrad.errors import StaleCopyError, WireError
from hushgrad.files.digest import digest
from hushgrad.network.protocol import frames as wire
from hushgrad.network.protocol.frames import FrameKind, Parser, encode_data
from hushgrad.network.protocol.hello import Hello, decode_hello
from hushgrad.network.protocol.session import Peer, SelfDescription, Session
from hushgrad.network.protocol.states import RunState, TransitionError

PUBLIC = {"run": "r", "algorithm": "DGD()", "iterations": "9"}
NAMES = ("alice", "bob")


def content(number, n, twist=0.0):
    return encode_data(n, b"", (np.array([number + 10.0 * n + twist, 1.0]),))


def session(number, *, public=PUBLIC, incarnation=1, direction="both", two_hop=False):
    other = 1 - number
    peers = {other: Peer(other, NAMES[other], direction, two_hop)}
    me = SelfDescription(public, number, incarnation, Ends(1, 1))
    return Session(me, peers, 0, n_agents=3, most_rounds=100)


def at(number, round_, **options):
    """A session that has committed `round_` and consumed the round before."""
    s = session(number, **options)
    frames = {n: {1 - number: content(number, n)} for n in (round_ - 1, round_) if n >= 0}
    consumed = {
        n: {1 - number: digest(content(1 - number, n))} for n in (round_ - 2, round_ - 1) if n >= 0
    }
    assert s.restore(frames, consumed, (2,)) == []
    return s


def peer_of(s):
    (peer,) = s.peers.values()
    return peer


def frame(data):
    (parsed,) = Parser(wire.limits(2, 0)).feed(data)
    return parsed


def accept(s, data):
    return s.accept(peer_of(s), frame(data))


def greet(here, there):
    """The frames that `here` sends after the HELLO of `there`."""
    return here.greet(peer_of(here), decode_hello(there.hello(peer_of(there)).encode()))


def refusal(act, *given):
    with pytest.raises(WireError) as refused:
        act(*given)
    return refused.value.reason, str(refused.value)


def test_messages_of_this_round_and_the_next_are_taken_once():
    s = at(0, 4)
    assert not s.is_complete
    assert accept(s, content(1, 5))  # a neighbour may be one round ahead
    assert not s.is_complete
    assert accept(s, content(1, 4))
    assert s.is_complete
    assert not accept(s, content(1, 4))  # and again after a reconnection
    assert not accept(s, content(1, 3))
    assert len(peer_of(s).inbox) == 2


def test_a_round_that_was_consumed_is_known_by_its_digest_and_the_next_is_there():
    s = at(0, 4)
    for n in (4, 5):
        accept(s, content(1, n))
    (data,) = s.take().values()
    assert (data.round, data.numbers[0]) == (4, 41.0)
    assert not s.is_complete  # the next round is not committed yet
    assert s.commit(5, {1: content(0, 5)}, (2,)) == []
    assert s.is_complete
    assert set(peer_of(s).digests) == {3, 4, 5}


def test_an_early_message_is_cut_into_exchanges_when_its_round_comes():
    s = at(0, 4)
    for n in (4, 5):
        accept(s, content(1, n))
    assert peer_of(s).inbox[5].payload == ()  # the agent does not know yet what round 5 holds
    s.take()
    assert s.commit(5, {1: content(0, 5)}, (2,)) == []
    assert list(peer_of(s).inbox[5].payload[0]) == [51.0, 1.0]


@st.composite
def bytes_on_a_link(draw):
    """A message for an agent in round 4, or something like one."""
    numbers = draw(
        st.sampled_from([[41.0, 1.0], [41.0], [1.0, 2.0, 3.0], [np.nan, 1.0], [1e308] * 2])
    )
    payload = draw(st.sampled_from([(np.array(numbers),), (), (None, np.array(numbers))]))
    data = bytearray(encode_data(draw(st.integers(2, 7)), b"", payload))
    if draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


@settings(max_examples=500)
@given(bytes_on_a_link())
def test_only_finite_messages_of_this_round_and_the_next_are_taken(data):
    s = at(0, 4)
    taken = []
    try:
        frames = [f for f in Parser(wire.limits(2, 0)).feed(data) if f.kind is FrameKind.DATA]
        taken = [f.round for f in frames if s.accept(peer_of(s), f)]
    except WireError:
        assert not taken
    inbox = peer_of(s).inbox
    assert list(inbox) == taken
    assert s.is_complete == (taken == [4])
    for n in taken:
        assert n in (4, 5)
        assert np.isfinite(inbox[n].numbers).all()
        assert peer_of(s).digests[n] == digest(data)


def test_a_message_that_the_journal_holds_is_recognised_by_its_digest():
    s = at(0, 4)
    assert not accept(s, content(1, 3))
    assert refusal(accept, s, content(1, 3, twist=1e-9))[0] == "equivocation"


@pytest.mark.parametrize("n", [3, 4, 5])
def test_two_different_messages_for_one_round_are_refused(n):
    s = at(0, 4)
    for known in (4, 5):
        accept(s, content(1, known))
    reason, text = refusal(accept, s, content(1, n, twist=1e-9))
    assert reason == "equivocation"
    assert f"bob sent two different messages for round {n}" in text
    assert peer_of(s).inbox[4].numbers[0] == 41.0  # the first message stays


@pytest.mark.parametrize("n", [6, 7, 2**63])
def test_a_round_too_far_ahead_is_refused(n):
    reason, text = refusal(accept, at(0, 4), content(1, n))
    assert reason == "future round"
    assert f"bob sent round {n}, but this agent is at round 4" in text


def test_a_message_of_another_dimension_is_refused_now_or_when_its_round_comes():
    short = encode_data(4, b"", (np.ones(1),))
    assert refusal(accept, at(0, 4), short)[0] == "dimension"
    s = at(0, 3)
    assert accept(s, short)  # early: this agent does not know yet what round 4 holds
    accept(s, content(1, 3))
    s.take()
    ((who, error),) = s.commit(4, {1: content(0, 4)}, (2,))
    assert (who.name, error.reason) == ("bob", "dimension")
    assert not s.is_complete
    assert accept(s, content(1, 4))  # the right one is welcome


@given(st.integers(0, 6), st.integers(-1, 1), st.booleans())
def test_a_neighbour_gets_the_messages_that_it_lacks_and_no_others(n, ahead, has_it):
    """Any two positions that a run can have, with or without the last message arrived."""
    here, there = at(0, n), at(1, max(0, n + ahead))
    has_it = has_it and there.round <= n
    if has_it:
        accept(there, content(0, there.round))
    sent = greet(here, there)
    needed = there.round + has_it
    assert sent == [content(0, q) for q in range(needed, n + 1)]


def test_no_more_than_two_rounds_are_ever_kept():
    s = at(0, 1)
    for n in range(1, 30):
        accept(s, content(1, n))
        if n % 2:
            accept(s, content(1, n + 1))
        s.take()
        s.commit(n + 1, {1: content(0, n + 1)}, (2,))
        assert len(s._sent) == 2
        assert len(peer_of(s).inbox) <= 1
        assert len(peer_of(s).digests) <= 3


def test_an_old_copy_of_this_agent_stops_itself():
    there = at(1, 5)
    accept(there, content(0, 5))
    said = (
        r"bob holds round 5 of this agent.*ends at round 4, as bob says. It is the only neighbour"
    )
    with pytest.raises(StaleCopyError, match=said):
        greet(at(0, 4), there)


def test_an_agent_whose_journal_gives_another_message_than_a_neighbour_holds_stops_itself():
    there = at(1, 5)
    accept(there, content(0, 5, twist=1e-9))
    with pytest.raises(StaleCopyError, match="another message of this agent for round 5"):
        greet(at(0, 5), there)


def in_the_middle(round_=4):
    """A session between two neighbours, bob (1) and carol (2), in the middle of a run."""
    peers = {j: Peer(j, name, "both", False) for j, name in ((1, "bob"), (2, "carol"))}
    me = SelfDescription(PUBLIC, 0, 2, Ends(2, 2))
    s = Session(me, peers, 0, n_agents=3, most_rounds=100)
    frames = {n: {j: content(0, n) for j in peers} for n in (round_ - 1, round_)}
    consumed = {
        n: {j: digest(content(j, n)) for j in peers} for n in (round_ - 2, round_ - 1) if n >= 0
    }
    s.restore(frames, consumed, (2,))
    return s


def hello_of(number, last, **changes):
    """The HELLO of a neighbour that holds this round of the agent, as an honest one would be."""
    return Hello(**{
        "public": PUBLIC, "number": number, "incarnation": 1, "life": str(number), "round": last,
        "needs": last + 1, "held": last, "held_digest": digest(content(0, last)).hex(),
        "degree_in": 1, "degree_out": 1, "direction": "both", "two_hop": False,
    } | changes)  # fmt: skip


def meet(s, number, last, **changes):
    return s.greet(s.peers[number], hello_of(number, last, **changes))


def test_an_old_copy_stops_itself_when_all_neighbours_say_so():
    s = in_the_middle()
    assert refusal(meet, s, 1, 9)[0] == "claim"
    with pytest.raises(StaleCopyError, match=r"carol holds round 8 .* ends at round 4"):
        meet(s, 2, 8)


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_a_neighbour_that_claims_a_later_round_than_others_can_ends_nobody(is_first):
    s = in_the_middle()
    if is_first:
        reason, text = refusal(meet, s, 1, 9)
        assert (reason, text.endswith("waits for the word of carol")) == ("claim", True)
    meet(s, 2, 4)
    reason, text = refusal(meet, s, 1, 9)
    assert reason == "claim"
    assert "bob holds round 9" in text
    assert "carol holds round 4 only" in text
    assert meet(s, 1, 4) == []  # the truth is welcome


def test_the_nearest_claim_that_two_neighbours_may_differ_by_is_believed():
    for theirs, is_believed in ((4, True), (3, False)):
        s = in_the_middle()
        meet(s, 2, theirs)
        with pytest.raises(StaleCopyError if is_believed else WireError, match="bob holds round 6"):
            meet(s, 1, 6)


def test_a_neighbour_that_was_met_before_cannot_hold_what_this_process_has_not_sent():
    s = in_the_middle()
    meet(s, 1, 4)
    meet(s, 2, 4)
    reason, text = refusal(meet, s, 1, 5)
    assert (reason, "have met before" in text) == ("claim", True)


def test_a_false_digest_of_a_message_that_this_process_made_ends_nobody():
    s = at(0, 4)
    accept(s, content(1, 4))
    s.take()
    s.commit(5, {1: content(0, 5)}, (2,))
    there = at(1, 5)
    accept(there, content(0, 5, twist=1e-9))
    reason, text = refusal(greet, s, there)
    assert (reason, "which this process has written" in text) == ("claim", True)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"round": 10**6, "held": 10**6, "needs": 10**6 + 1}, "round 1000000"),
        ({"round": 100, "held": 100, "needs": 101}, "at round 100"),
        ({"round": 4, "held": 6, "needs": 7}, "hold round 6"),
        ({"round": 6, "held": 4, "needs": 6}, "need round 6"),
        ({"round": 4, "held": 4, "needs": 6}, "need round 6"),
        ({"round": 4, "held": 4, "needs": 3}, "need round 3"),
        ({"degree_in": 10**9}, "1000000000 links in, but in a run of 3 agents it has 1 to 2"),
        ({"degree_out": 3}, "3 links out"),
        ({"degree_in": 0}, "0 links in"),
    ],
)
def test_links_and_rounds_that_no_agent_can_have_are_refused(changes, word):
    s = in_the_middle()
    reason, text = refusal(lambda: meet(s, 1, 4, **changes))
    assert reason == "claim"
    assert word in text
    assert s.peers[1].ends is None  # nothing of it is believed


@pytest.mark.parametrize(("direction", "least"), [("in", (0, 1)), ("out", (1, 0))])
def test_a_neighbour_on_a_directed_link_has_that_link_at_least(direction, least):
    mirror = {"in": "out", "out": "in"}[direction]
    for j in (0, 1):
        degrees = dict(zip(("degree_in", "degree_out"), least, strict=True))
        s = at(0, 4, direction=direction)
        meet(s, 1, 4, direction=mirror, **degrees)
        name = ("degree_in", "degree_out")[j]
        if degrees[name]:
            s = at(0, 4, direction=direction)
            assert (
                "0 links"
                in refusal(
                    lambda s=s, d=degrees, name=name: meet(
                        s, 1, 4, direction=mirror, **d | {name: 0}
                    )
                )[1]
            )


def test_an_old_copy_of_a_neighbour_is_refused():
    here = at(0, 5)
    accept(here, content(1, 5))
    reason, text = refusal(greet, here, at(1, 4))
    assert reason == "old copy"
    assert "bob is at round 4, but its round 5 is here" in text
    reason, text = refusal(greet, at(0, 5), session(1))
    assert reason == "old copy"


def test_an_earlier_incarnation_of_a_neighbour_is_refused():
    here = at(0, 5)
    greet(here, at(1, 5, incarnation=3))
    greet(here, at(1, 5, incarnation=3))  # the same may come again
    reason, text = refusal(greet, here, at(1, 5, incarnation=2))
    assert (reason, "incarnation 2" in text) == ("old copy", True)


def test_a_hello_that_was_overtaken_on_another_connection_is_known_as_such():
    """A process cannot be an old copy of itself: its HELLO is only late."""
    here, there = at(0, 5), at(1, 5)
    early = there.hello(peer_of(there))
    assert not here.is_outdated(peer_of(here), early)
    greet(here, there)
    assert not here.is_outdated(peer_of(here), early)  # nothing has happened since
    accept(here, content(1, 5))
    here.take()
    here.commit(6, {1: content(0, 6)}, (2,))
    accept(here, content(1, 6))
    assert here.is_outdated(peer_of(here), early)
    assert refusal(here.greet, peer_of(here), early)[0] == "old copy"
    assert not here.is_outdated(peer_of(here), replace(early, life="another"))


@pytest.mark.parametrize("n", [-1, 0])
def test_a_peer_that_has_not_begun_is_not_outdated(n):
    here, there = (session(0) if n < 0 else at(0, 0)), session(1)
    greet(here, there)
    assert not here.is_outdated(peer_of(here), there.hello(peer_of(there)))


def test_another_configuration_is_refused_and_the_difference_named():
    other = PUBLIC | {"iterations": "10"}
    reason, text = refusal(greet, at(0, 5), at(1, 5, public=other))
    assert reason == "configuration"
    assert "iterations: 9 here, 10 there" in text
    assert "algorithm" not in text


@pytest.mark.parametrize(
    ("here", "there", "fits"),
    [("both", "both", True), ("in", "out", True), ("out", "in", True), ("both", "in", False),
     ("in", "in", False), ("out", "out", False)],
)  # fmt: skip
def test_both_ends_of_a_link_must_agree_on_its_direction(here, there, fits):
    a, b = at(0, 5, direction=here), at(1, 5, direction=there)
    if fits:
        greet(a, b)
    else:
        assert refusal(greet, a, b)[0] == "configuration"
    two = at(1, 5, direction=there, two_hop=True)
    assert refusal(greet, a, two)[0] == "configuration"


@pytest.mark.parametrize("twice", [b'"number":1,"number":2', b'"number":NaN'])
def test_a_hello_that_parsers_may_read_differently_is_refused(twice):
    there = at(1, 5)
    said = there.hello(peer_of(there)).encode()
    assert decode_hello(said).number == 1
    with pytest.raises(WireError, match="a HELLO is JSON"):
        decode_hello(said.replace(b'"number":1', twice))


def test_a_neighbour_whose_links_change_during_the_run_is_refused():
    here, there = at(0, 5), at(1, 5)
    greet(here, there)
    there.me = replace(there.me, ends=Ends(2, 2))
    reason, text = refusal(greet, here, there)
    assert (reason, "the graph of a run does not change" in text) == ("configuration", True)


def test_another_number_is_refused():
    there = at(1, 5)
    there.me = replace(there.me, number=7)
    assert refusal(greet, at(0, 5), there)[0] == "configuration"


def test_a_finished_agent_serves_its_last_message_until_all_have_finished():
    here = at(0, 5)
    accept(here, content(1, 5))
    here.take()
    here.finish()
    assert not here.is_settled
    *messages, fin = greet(here, at(1, 5))
    assert messages == [content(0, 5)]
    assert (frame(fin).kind, frame(fin).round, frame(fin).flags) == (FrameKind.FIN, 6, 0)
    there = at(1, 5)
    accept(there, content(0, 5))
    there.take()
    there.accept_fin(peer_of(there), frame(fin))
    assert not there.is_settled  # this agent has not finished
    there.finish()
    assert there.is_settled
    here.accept_fin(peer_of(here), frame(there.fin(acknowledges=True)))
    assert here.is_settled
    assert peer_of(here).knows_finished


def test_a_run_goes_through_its_states():
    s = session(0)
    assert s.state is RunState.INTRODUCING
    with pytest.raises(TransitionError, match="state INTRODUCING the event FINISH"):
        s.finish()
    s = at(0, 5)
    assert (s.state, s.has_finished) == (RunState.RUNNING, False)
    accept(s, content(1, 5))
    s.take()
    s.finish()
    assert (s.state, s.has_finished, s.is_settled) == (RunState.FINISHED, True, False)
    with pytest.raises(TransitionError, match="state FINISHED the event COMMIT"):
        s.commit(6, {1: content(0, 6)}, (2,))
    s.accept_fin(peer_of(s), frame(wire.encode(FrameKind.FIN, round_=6)))
    assert (s.state, s.has_finished, s.is_settled) == (RunState.SETTLED, True, True)


def test_a_finished_agent_takes_no_further_round():
    s = at(0, 4)
    accept(s, content(1, 4))
    s.take()
    assert accept(s, content(1, 5))  # the agent may still commit round 5
    s.finish()
    assert not accept(s, content(1, 4))
    assert refusal(accept, s, content(1, 5))[0] == "future round"


def test_a_neighbour_cannot_finish_before_or_after_the_last_round():
    fin = frame(wire.encode(FrameKind.FIN, round_=4))
    s = at(0, 5)
    assert refusal(s.accept_fin, peer_of(s), fin)[0] == "other end"
    s.finish()
    later = frame(wire.encode(FrameKind.FIN, round_=8))
    assert refusal(s.accept_fin, peer_of(s), later)[0] == "other end"
    assert not peer_of(s).has_finished
