"""Where an agent stands, from journals written by hand."""

import fcntl
import threading

import numpy as np
import pytest

from hushgrad.errors import StateError
from hushgrad.runtime.journal import FORMAT, StateDirectory
from hushgrad.runtime.sections import Section
from hushgrad.runtime.standing import is_locked, read_standing

X = {"x": np.ones(3)}


@pytest.fixture
def state(tmp_path):
    state = StateDirectory(tmp_path / "state", run="r1", agent="ann", durability="process")
    yield state
    state.close()


def test_a_new_directory_stands_before_its_first_round(state):
    standing = read_standing(state.path)
    assert (standing.agent, standing.run, standing.starts) == ("ann", "r1", 1)
    assert standing.is_running
    assert standing.round is None
    assert standing.summary == "runs, before its first round"


def test_it_stands_at_the_last_round_that_was_committed(state):
    state.begin(Section(0, 0, X))
    assert (read_standing(state.path).iteration, read_standing(state.path).round) == (0, 0)
    state.append(Section(0, 1))
    assert (read_standing(state.path).iteration, read_standing(state.path).round) == (0, 1)
    state.begin(Section(1, 2, X))
    standing = read_standing(state.path)
    assert (standing.iteration, standing.round, standing.status) == (1, 2, None)


def test_a_torn_section_does_not_count(state):
    state.begin(Section(0, 0, X))
    state.append(Section(0, 1, X))
    slot = state.path / "slot-0"
    slot.write_bytes(slot.read_bytes()[:-1])
    assert read_standing(state.path).round == 0


def test_a_directory_of_another_format_is_named(state):
    label = state.path / "run.json"
    label.write_text(label.read_text().replace(f'"format": {FORMAT}', '"format": 3'))
    with pytest.raises(StateError, match=f"is of format 3, but this version reads {FORMAT}"):
        read_standing(state.path)


def test_a_run_that_has_ended_says_how(state):
    state.begin(Section(7, 14, X, facts={"is_final": True, "status": "converged"}))
    standing = read_standing(state.path)
    assert (standing.iteration, standing.round, standing.status) == (7, 13, "converged")
    assert standing.summary == (
        "converged after 7 iterations; it still serves neighbours that are not finished"
    )
    state.append(Section(7, 14, facts={"is_settled": True}))
    assert read_standing(state.path).summary == "converged after 7 iterations"


def test_looking_does_not_keep_an_agent_out(tmp_path):
    path = tmp_path / "state"
    assert not is_locked(path)
    StateDirectory(path, run="r1", agent="ann").close()
    assert not is_locked(path)
    with (path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.02, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        state = StateDirectory(path, run="r1", agent="ann")  # it waits for an instant
        assert is_locked(path)
        state.close()
