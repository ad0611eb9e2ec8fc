"""Compiled C in the user's cache: made once, and loaded only where nobody else could write it."""

import ctypes
import os
import shutil

import pytest

from hushgrad.simulate.stacked.library import load_library

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

ANSWER = "int answer(void) { return 42; }\n"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hushgrad"


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "answer.c"
    file.write_text(ANSWER)
    return file


def test_a_library_is_compiled_once_for_its_user_alone(cache, source, monkeypatch):
    assert load_library(source).answer() == 42
    (built,) = cache.iterdir()
    assert cache.stat().st_mode & 0o777 == built.stat().st_mode & 0o777 == 0o700
    made = built.stat().st_mtime_ns
    assert load_library(source).answer() == 42
    assert built.stat().st_mtime_ns == made


def test_another_text_is_another_library(cache, source):
    load_library(source)
    source.write_text(ANSWER.replace("42", "43"))
    assert load_library(source).answer() == 43
    assert len(list(cache.iterdir())) == 2


@pytest.fixture
def loaded(monkeypatch):
    """The libraries that were loaded as code."""
    paths = []
    monkeypatch.setattr(ctypes, "CDLL", lambda path: paths.append(path) or object())
    return paths


def test_a_library_that_others_can_write_is_not_loaded(cache, source, loaded):
    assert load_library(source) is not None
    (built,) = cache.iterdir()
    for mode in (0o720, 0o702, 0o777):
        built.chmod(mode)
        loaded.clear()
        assert load_library(source) is None
        assert not loaded
    built.chmod(0o755)
    assert load_library(source) is not None


def test_a_library_of_another_user_is_not_loaded(cache, source, loaded, monkeypatch):
    assert load_library(source) is not None
    (built,) = cache.iterdir()
    own, real = os.geteuid(), type(built).stat

    def stat(path, **options):
        found = real(path, **options)
        if path != built:
            return found
        planted = list(found)
        planted[4] = own + 1  # st_uid
        return os.stat_result(planted)

    monkeypatch.setattr(type(built), "stat", stat)
    loaded.clear()
    assert load_library(source) is None
    assert not loaded


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_library_that_was_given_away_is_not_loaded(cache, source, loaded):
    assert load_library(source) is not None
    (built,) = cache.iterdir()
    os.chown(built, 65534, -1)
    loaded.clear()
    assert load_library(source) is None
    assert not loaded


def test_nothing_is_loaded_from_a_cache_that_others_can_write(cache, source, loaded):
    assert load_library(source) is not None
    cache.chmod(0o770)
    loaded.clear()
    assert load_library(source) is None
    assert not loaded


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_there_is_no_library(cache, source, monkeypatch, compiler):
    monkeypatch.setenv("CC", compiler)
    assert load_library(source) is None
    assert not list(cache.rglob("*.so"))
