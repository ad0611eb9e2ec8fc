"""The ids of the runs in which a key has shared masks, in a file beside the key: NAME.runs.

A run has one id and one state directory at every agent. If an id comes again with a new directory,
an agent lost its state or a file was copied: neighbours may hold messages of the other run. So the
deployed agent (deployed.py) refuses the id.

A line has the id and, if a bound on the rows is declared, μ of the run (promise.py): the file is a
ledger of the runs of the key. A fit adds a line before every average, with its μ so far; the last
line of an id counts.
"""

from __future__ import annotations

import os
from pathlib import Path

from hushgrad.errors import ConfigError, StateError
from hushgrad.network.keys.identity import check_mode


def check_unused(key: Path, run: str, state: Path) -> None:
    """Refuse an id that was used before; only for a state directory that is not there yet."""
    if run in mus(key):
        raise ConfigError(
            f"the run id {run!r} was used before with '{key}', and a new state directory "
            f"'{state}' would be a second run with that id. Choose a new id in every agent's file, "
            "or go on with the state directory of the first run."
        )


def mus(key: Path) -> dict[str, float | None]:
    """μ of every run of the key by its id; None: the file declared no bound."""
    found: dict[str, float | None] = {}
    for line in _lines(key):
        run, _, mu = line.partition(" ")
        found[run] = float(mu) if mu else None
    return found


def remember(key: Path, run: str, mu: float | None = None) -> None:
    """Note that a run uses the key, and its μ."""
    if run not in mus(key):
        _append(key, run, mu)


def note_spent(key: Path, run: str, mu: float | None) -> None:
    """Note the μ of a run so far, if it has one and it has grown."""
    if mu is not None and (mus(key).get(run) or 0.0) < mu:
        _append(key, run, mu)


def _append(key: Path, run: str, mu: float | None) -> None:
    line = run if mu is None else f"{run} {mu!r}"
    file = _file(key)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StateError(
            f"'{file}' cannot be written: {error.strerror}. It keeps the ids of runs beside the "
            "key: make its directory writable."
        ) from error


def _lines(key: Path) -> list[str]:
    file = _file(key)
    if not file.exists():
        return []
    check_mode(file)
    return file.read_text().splitlines()


def _file(key: Path) -> Path:
    return key.with_suffix(".runs")
