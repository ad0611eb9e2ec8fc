"""Owners and modes of an agent's files: a part of `hushgrad doctor`.

Everyone who may change a trusted certificate decides whom the agent trusts. Everyone who may read
the state directory can compute the agent's masks while the run goes on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from hushgrad.network.config.model import AgentConfig

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

type Line = tuple[str, bool | None, str]  # a check, whether it is good, its text


def access(config: AgentConfig) -> Iterator[Line]:
    """One line for the state directory, one for the certificates, one for the data."""
    state = config.state
    if state.is_dir():
        bad = list(_state_objections(state))
        good = f"only its owner may look into {state}"
        yield _line("access state", bad, [], good)
    others = [*config.neighbours, *config.partners]
    certificates = {config.certificate, *(one.certificate for one in others)}
    bad = list(_objections(certificates))
    yield _line("access trusted", bad, [], "nobody else may change or replace a certificate")
    file = config.objective.file
    if file is not None and file.exists():
        open_to_all = [
            f"every user of this machine may read '{file}' (mode {_mode(file):04o}). Run: chmod "
            f"o-rwx '{file}'"
        ]
        weak = open_to_all if _mode(file) & stat.S_IROTH else []
        good = f"nobody else may change {file.name}, and not every user may read it"
        yield _line("access data", list(_objections([file])), weak, good)


def _line(check: str, bad: list[str], weak: list[str], good: str) -> Line:
    if bad or weak:
        return check, False if bad else None, "; ".join(bad or weak)
    return check, True, good


def _state_objections(state: Path) -> Iterator[str]:
    yield from _owned(state)
    if _mode(state) & _OTHERS:
        yield f"others may look into '{state}' (mode {_mode(state):04o}). Run: chmod 700 '{state}'"
    try:
        inside = sorted(state.iterdir())
    except OSError:
        return  # the check of the state itself says more
    for path in inside:
        if _owner(path) not in (os.geteuid(), None):
            yield from _owned(path)
            return


def _objections(paths: Iterable[Path]) -> Iterator[str]:
    """The reasons why somebody else could change one of these files, the first of each file."""
    for path in sorted(paths):
        if path.exists():
            yield from list(_of_file(path))[:1]


def _of_file(path: Path) -> Iterator[str]:
    yield from _owned(path)
    if _mode(path) & _OTHERS_WRITE:
        yield f"others may change '{path}' (mode {_mode(path):04o}). Run: chmod go-w '{path}'"
    home = path.resolve().parent
    if _mode(home) & _OTHERS_WRITE and not home.stat().st_mode & stat.S_ISVTX:
        yield (
            f"others may replace '{path}', because they may write into '{home}' (mode "
            f"{_mode(home):04o}). Run: chmod go-w '{home}'"
        )


def _owned(path: Path) -> Iterator[str]:
    """An objection to a file of somebody else; root may change everything anyway."""
    owner = _owner(path)
    if owner is not None and owner not in (0, os.geteuid()):
        yield (
            f"'{path}' belongs to user {owner}, and this agent runs as user {os.geteuid()}. Run: "
            f"chown {os.geteuid()} '{path}'"
        )


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
