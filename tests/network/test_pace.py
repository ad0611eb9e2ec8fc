"""Slow rounds are noticed, even among quick ones, and hiccups of the machine are forgiven."""

import time

from hushgrad.network.pace import QUICK, Pace

HEARTBEAT = 5.0  # seconds


def is_slow(*, quick, times, slow=0.5):
    """The verdict after `times` slow rounds, each with `quick` quick rounds behind it."""
    pace = Pace(HEARTBEAT)
    for _ in range(times):
        pace.note(slow)
        for _ in range(quick):
            pace.note(0.01)
    return pace.is_slow


def test_rounds_that_are_slow_now_and_then_are_found_to_be_slow():
    """Algorithms evaluate a gradient in every round, in every second, or in every eighth."""
    assert is_slow(quick=0, times=3)
    assert is_slow(quick=1, times=5)
    assert is_slow(quick=7, times=8)


def test_a_busy_machine_that_delays_few_rounds_is_forgiven():
    assert not is_slow(quick=0, times=2)
    assert not is_slow(quick=20, times=1000)


def test_one_round_longer_than_a_heartbeat_makes_an_agent_slow_for_good():
    assert is_slow(quick=20, times=1, slow=1.1 * HEARTBEAT)
    assert not is_slow(quick=20, times=1, slow=0.9 * HEARTBEAT)


def test_a_timed_round_gives_its_result_and_counts():
    pace = Pace(heartbeat=QUICK / 100)
    assert pace.timed(divmod, 7, 2) == (3, 1)
    assert not pace.is_slow
    pace.timed(time.sleep, QUICK / 50)
    assert pace.is_slow
