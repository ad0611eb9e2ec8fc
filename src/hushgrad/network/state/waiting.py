"""The neighbours for whom a running agent waits, in the file `waiting` of its state directory.

The agent writes the file when it has waited for a while, and removes it when the wait is over.
`hushgrad status` reads it: an agent need not serve metrics to say for whom it waits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hushgrad.files.atomic import replace_file
from hushgrad.files.strict_json import parse_json

WAITING = "waiting"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A wait of an agent."""

    names: tuple[str, ...]  # of neighbours, or of what else does not come
    since: str  # ISO 8601, UTC


def tell_waiting(state: Path, names: Sequence[str], since: str) -> None:
    """Keep a wait, or its end if there are no names; a full disk is no reason to end."""
    content = json.dumps(asdict(Waiting(names=tuple(names), since=since))).encode()
    with suppress(OSError):
        if names:
            replace_file(state / WAITING, lambda file: file.write(content))
        else:
            (state / WAITING).unlink(missing_ok=True)


def read_waiting(state: Path) -> Waiting | None:
    """The wait of the agent of a directory, if it waits."""
    try:
        said = parse_json((state / WAITING).read_text(encoding="utf-8"))
        return Waiting(names=tuple(map(str, said["names"])), since=str(said["since"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None
