"""A lock is held by one program at a time, and leaves no file."""

import subprocess
import sys

from hushgrad.files.locks import locked

_OTHER = """
import sys
from pathlib import Path
from hushgrad.files.locks import locked
with locked(Path(sys.argv[1]), 0.1) as lock:
    print(lock is not None)
"""


def _other(path):
    asked = [sys.executable, "-c", _OTHER, str(path)]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def test_another_program_gets_the_lock_only_when_it_is_free(tmp_path):
    path = tmp_path / "lock"
    with locked(path) as lock:
        assert lock is not None
        assert _other(path) == "False"
    assert not path.exists()
    assert _other(path) == "True"
