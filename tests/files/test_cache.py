"""The cache belongs to its user alone."""

import os
import stat

import pytest

from hushgrad.errors import InputError
from hushgrad.files.cache import cache_directory, cache_path


@pytest.fixture(autouse=True)
def base(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_cache_is_below_the_users_directory_of_caches(base, monkeypatch):
    assert cache_path("a", "b") == base / "hushgrad" / "a" / "b"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/alice")
    assert str(cache_path()) == "/home/alice/.cache/hushgrad"


def test_every_directory_is_made_for_its_user_alone_whatever_the_umask(base):
    before = os.umask(0)
    try:
        cache_directory("unfinished", "study")
    finally:
        os.umask(before)
    for path in (cache_path(), cache_path("unfinished"), cache_path("unfinished", "study")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("names", [(), ("unfinished",)], ids=["itself", "inside"])
@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_directory_that_others_can_write_is_refused(names, mode):
    cache_directory("unfinished")
    cache_path(*names).chmod(mode)
    with pytest.raises(InputError, match=rf"can be written by others \(mode 0{mode:o}\)"):
        cache_directory("unfinished")
    cache_path(*names).chmod(0o755)  # others may read
    cache_directory("unfinished")


def test_a_directory_of_another_user_is_refused(monkeypatch):
    cache_directory()
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(InputError, match=rf"belongs to user {own}, not to user {own + 1}"):
        cache_directory()


def test_a_cache_that_cannot_be_made_is_bad_input(base):
    (base / "hushgrad").write_text("a file")
    with pytest.raises(InputError, match=r"cannot be made: .* Set XDG_CACHE_HOME"):
        cache_directory()
