"""What an interrupted study leaves behind: finished runs, and the state of the one under way.

It lies in the user's cache, named by a digest of the study, and is gone when the study is done.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgrad.simulate.checkpoint import digest
from hushgrad.simulate.result import Run, load_run

if TYPE_CHECKING:
    from hushgrad.studies.study import Study


def cache() -> Path:
    """Where hushgrad may keep things between two commands."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hushgrad"


class Unfinished:
    """The kept part of one study; every run of it has a name of its own."""

    def __init__(self, study: Study):
        from hushgrad import __version__

        where = str(study.source.directory.resolve())
        self.directory = cache() / "unfinished" / digest([__version__, where, study.to_toml()])

    @property
    def n_done(self) -> int:
        """Runs that are finished."""
        return len(list(self.directory.glob("*.npz")))

    @property
    def is_empty(self) -> bool:
        return not self.directory.exists()

    def done(self, name: str) -> Run | None:
        """A run that was finished before, if it was."""
        path = self.directory / f"{name}.npz"
        return load_run(path) if path.exists() else None

    def run(self, name: str, work: Callable[..., Run], *, continues: bool) -> Run:
        """The run that `work(checkpoint=…)` gives, kept; `continues`: it can leave its state."""
        self.directory.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = (
            {"checkpoint": self.directory / f"{name}.state"} if continues else {}
        )
        run = work(**options)
        run.save(self.directory / f"{name}.npz")
        return run

    def clear(self) -> None:
        """Forget it."""
        shutil.rmtree(self.directory, ignore_errors=True)
