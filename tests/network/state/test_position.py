"""The position of an agent, from journals that the test writes."""

import fcntl
import threading

import numpy as np
import pytest

from hushgrad.errors import StateError
from hushgrad.network.state.journal import FORMAT, StateDirectory
from hushgrad.network.state.position import is_locked, read_position
from hushgrad.network.state.sections import Section

X = {"x": np.ones(3)}


@pytest.fixture
def state(tmp_path):
    state = StateDirectory(tmp_path / "state", run="r1", agent="ann", durability="process")
    yield state
    state.close()


def test_a_new_directory_is_before_its_first_round(state):
    position = read_position(state.path)
    assert (position.agent, position.run, position.starts) == ("ann", "r1", 1)
    assert position.is_running
    assert position.round is None
    assert position.summary == "runs, before its first round"


def test_the_position_is_the_last_round_that_was_committed(state):
    state.begin(Section(0, 0, X))
    assert (read_position(state.path).iteration, read_position(state.path).round) == (0, 0)
    state.append(Section(0, 1))
    assert (read_position(state.path).iteration, read_position(state.path).round) == (0, 1)
    state.begin(Section(1, 2, X))
    position = read_position(state.path)
    assert (position.iteration, position.round, position.status) == (1, 2, None)


def test_a_torn_section_does_not_count(state):
    state.begin(Section(0, 0, X))
    state.append(Section(0, 1, X))
    slot = state.path / "slot-0"
    slot.write_bytes(slot.read_bytes()[:-1])
    assert read_position(state.path).round == 0


def test_a_directory_of_another_format_is_named(state):
    label = state.path / "run.json"
    label.write_text(label.read_text().replace(f'"format": {FORMAT}', '"format": 3'))
    with pytest.raises(StateError, match=f"is of format 3, but this version reads {FORMAT}"):
        read_position(state.path)


def test_a_run_that_has_ended_says_how(state):
    state.begin(Section(7, 14, X, facts={"is_final": True, "status": "converged"}))
    position = read_position(state.path)
    assert (position.iteration, position.round, position.status) == (7, 13, "converged")
    assert position.summary == (
        "converged after 7 iterations; it still serves neighbours that are not finished"
    )
    state.append(Section(7, 14, facts={"is_settled": True}))
    assert read_position(state.path).summary == "converged after 7 iterations"


def test_looking_does_not_keep_an_agent_out(tmp_path):
    path = tmp_path / "state"
    assert not is_locked(path)
    StateDirectory(path, run="r1", agent="ann").close()
    assert not is_locked(path)
    with (path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.02, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        state = StateDirectory(path, run="r1", agent="ann")  # opening waits for a reader
        assert is_locked(path)
        state.close()
