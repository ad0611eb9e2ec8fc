"""An id is used once with a key: the file beside the key remembers it."""

import stat

import pytest

from hushgrad.errors import ConfigError, IdentityError, StateError
from hushgrad.network.keys.used_ids import check_unused, remember


def test_an_id_that_was_used_is_refused_with_the_way_out(tmp_path):
    key, state = tmp_path / "ann.key", tmp_path / "state"
    check_unused(key, "r1", state)
    remember(key, "r1")
    remember(key, "r2")
    for used in ("r1", "r2"):
        with pytest.raises(ConfigError, match=rf"'{used}' was used before .*Choose a new id"):
            check_unused(key, used, state)
    check_unused(key, "r", state)
    check_unused(tmp_path / "bob.key", "r1", state)


def test_the_file_grows_once_for_each_id_and_is_its_owners_alone(tmp_path):
    key = tmp_path / "ann.key"
    for run in ("r1", "r2", "r1"):
        remember(key, run)
    file = tmp_path / "ann.runs"
    assert file.read_text() == "r1\nr2\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    with pytest.raises(IdentityError, match="chmod 600"):
        check_unused(key, "r1", tmp_path)


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(StateError, match=r"nowhere/ann\.runs' cannot be written"):
        remember(tmp_path / "nowhere" / "ann.key", "r1")
