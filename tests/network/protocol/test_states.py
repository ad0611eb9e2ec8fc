"""The tables of states name every state and event, and every state leads to an end."""

import pytest

from hushgrad.network.protocol.frames import FrameKind
from hushgrad.network.protocol.states import (
    CONNECTION,
    OPEN_STATES,
    OVER_STATES,
    RUN,
    Act,
    ConnectionState,
    RunEvent,
    RunState,
    TransitionError,
    after,
    is_in_turn,
)

MACHINES = {
    "connection": (CONNECTION, ConnectionState, [*FrameKind, *Act]),
    "run": (RUN, RunState, [*RunEvent]),
}
machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


@machines
def test_every_entry_is_about_states_and_events_that_exist(machine):
    table, kinds, events = machine
    assert {state for state, _ in table} == set(kinds)
    assert {event for _, event in table} == set(events)
    assert set(table.values()) <= set(kinds)


def reachable(table, start):
    found, new = {start}, [start]
    while new:
        state = new.pop()
        following = {to for (at, _), to in table.items() if at is state} - found
        found |= following
        new += following
    return found


@machines
def test_every_state_is_reachable_from_the_first(machine):
    table, kinds, _ = machine
    assert reachable(table, next(iter(kinds))) == set(kinds)


@pytest.mark.parametrize(
    ("table", "final"), [(CONNECTION, OVER_STATES), (RUN, {RunState.SETTLED})], ids=MACHINES
)
def test_final_states_are_final_and_every_other_state_leads_to_one(table, final):
    for state in final:
        assert reachable(table, state) == {state}
    for state in {at for at, _ in table} - set(final):
        assert reachable(table, state) & set(final)


@machines
def test_every_event_without_an_entry_is_an_error_that_names_state_and_event(machine):
    table, kinds, events = machine
    for state in kinds:
        for event in events:
            if (state, event) in table:
                assert after(table, state, event) is table[state, event]
            else:
                words = f"in the state {state.name} the event {event.name} cannot happen"
                with pytest.raises(TransitionError, match=words):
                    after(table, state, event)


def test_a_peer_says_hello_once_and_first_and_may_reject_at_any_time():
    every = set(FrameKind)
    expected = {state: set() for state in ConnectionState}
    expected[ConnectionState.GREETED] = {FrameKind.HELLO, FrameKind.REJECT, FrameKind.OVER}
    expected |= dict.fromkeys(OPEN_STATES, every - {FrameKind.HELLO})
    for state, kinds in expected.items():
        assert {kind for kind in every if is_in_turn(state, kind)} == kinds


def test_the_transport_may_be_lost_and_the_agent_may_end_a_connection_in_every_state():
    for state in ConnectionState:
        for event in (Act.END, Act.LOST):
            assert after(CONNECTION, state, event) in OVER_STATES


def test_a_run_may_fail_in_every_state_but_a_safe_result_stays_safe():
    for state in RunState:
        is_safe = state in (RunState.FINISHED, RunState.SETTLED)
        assert after(RUN, state, RunEvent.FAIL) is (state if is_safe else RunState.FAILED)
