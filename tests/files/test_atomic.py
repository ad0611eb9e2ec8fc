"""Files are there whole or not at all, and on the disk before anyone relies on them."""

import os
from pathlib import Path

import pytest

from hushgrad.errors import InputError
from hushgrad.files.atomic import create_file, replace_file, replacing, write_file


def names(directory):
    return [path.name for path in directory.iterdir()]


def replace(path, content):
    replace_file(path, lambda file: file.write(content))


def write_replacing(path, content):
    with replacing(path) as partial:
        partial.write_bytes(content)


WRITERS = {"replace_file": replace, "replacing": write_replacing, "write_file": write_file}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path, write):
    path = tmp_path / "new" / "file"
    write(path, b"old")
    write(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_content_is_on_the_disk_before_the_name_and_the_name_before_the_call_ends(
    tmp_path, monkeypatch, write
):
    done = []
    fsync, move = os.fsync, Path.replace

    def note_sync(descriptor):
        kind = "directory" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "content"
        done.append(kind)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", lambda *a: (done.append("name"), move(*a))[1])
    write(tmp_path / "file", b"content")
    assert done == ["content", "name", "directory"]


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, write, failing):
    path = tmp_path / "file"
    write(path, b"old")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    if failing == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    elif failing == "replace":
        monkeypatch.setattr(Path, "replace", full)
    elif write is replace:
        with pytest.raises(OSError, match="No space"):
            replace_file(path, full)
        write = None
    else:
        monkeypatch.setattr(Path, "write_bytes", full)
    if write is not None:
        with pytest.raises(OSError, match="No space"):
            write(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_mode_holds_whatever_an_older_partial_file_had(tmp_path):
    partial = tmp_path / ".secret.part"
    partial.touch(0o644)
    seen = []
    replace_file(
        tmp_path / "secret",
        lambda file: (seen.append(os.fstat(file.fileno()).st_mode & 0o777), file.write(b"s")),
        mode=0o600,
    )
    assert seen == [0o600]
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_a_place_that_cannot_be_written_is_bad_input(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(InputError, match=r"file' cannot be written: Permission denied\. Choose"):
        write_file(tmp_path / "file", "text")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"files go into a directory, but '.*file' cannot be one"):
        write_file(tmp_path / "file" / "deeper", "text")


def test_a_created_file_never_overwrites_one(tmp_path):
    create_file(tmp_path / "key", b"first", mode=0o600)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "key", b"second")
    assert (tmp_path / "key").read_bytes() == b"first"


def test_half_a_created_file_is_removed(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        create_file(tmp_path / "key", b"first")
    assert not names(tmp_path)
