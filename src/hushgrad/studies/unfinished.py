"""The part of a study that is done: finished runs, and the state of the one under way.

`hushgrad run` keeps it in the user's cache, under a digest of the study and of the rows that it
runs, so that `--resume` can continue. It is removed when the study is done. One program at a time
uses it: a second program that runs the same study has a part of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgrad.files.cache import cache_directory, cache_path
from hushgrad.files.digest import content_digest
from hushgrad.simulate.result import Run, load_run

if TYPE_CHECKING:
    from hushgrad.studies.study import Study


class Unfinished:
    """The kept part of one study; every run of it has a name of its own."""

    is_writer = True  # of several processes the first one alone

    def __init__(self, study: Study, rows: Sequence[int] | None = None):
        from hushgrad import __version__

        where = str(study.source.directory.resolve())
        named = [__version__, where, study.to_toml(), *([] if rows is None else [list(rows)])]
        self._name = content_digest(named)
        self.directory = cache_path("unfinished", self._name)

    def part(self) -> None:
        """From now on use another part, for this program alone: no `--resume` finds it."""
        self.directory = cache_path("unfinished", f"{self._name}-{os.getpid()}")

    @property
    def n_done(self) -> int:
        """Runs that are finished."""
        return len(list(self.directory.glob("*.npz")))

    def lock_file(self) -> Path:
        """The file that a command locks while it runs the study."""
        return cache_directory("unfinished") / f"{self._name}.lock"

    @property
    def is_empty(self) -> bool:
        return not self.directory.exists()

    def done(self, name: str) -> Run | None:
        """A run that was finished before, if it was."""
        path = self.directory / f"{name}.npz"
        if not path.exists():
            return None
        self._make()
        return load_run(path)

    def run(self, name: str, work: Callable[..., Run], *, continues: bool) -> Run:
        """The run that `work(checkpoint=…)` gives, kept; `continues`: it can leave its state."""
        self._make()
        options: dict[str, Any] = (
            {"checkpoint": self.directory / f"{name}.state"} if continues else {}
        )
        run = work(**options)
        if self.is_writer:
            run.save(self.directory / f"{name}.npz")
        return run

    def _make(self) -> None:
        """Make the directory; InputError where another user could have written it."""
        cache_directory("unfinished", self.directory.name)

    def clear(self) -> None:
        """Remove everything that is kept of the study."""
        if not self.is_writer:
            return
        shutil.rmtree(self.directory, ignore_errors=True)
