"""The stages that an agent has begun: the start of each, and the statistic that it computes with.

staging.py writes a stage before the agent sends its first message of the stage. So a restarted
agent never evaluates the objective again for a stage that has begun. The state directory holds the
last two stages, `stage-0` and `stage-1` by turns: between two stages, the journal may still need
the older one. Each file is one section (sections.py) with its checksum, replaced as a whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.stages import Statistic
from hushgrad.errors import StateError
from hushgrad.files.atomic import replace_file
from hushgrad.network.state.sections import NOTHING, Section, decode_sections, encode_section

_FILES = ("stage-0", "stage-1")
_ARRAYS = ("start", "H", "q", "earlier")


class Begun(NamedTuple):
    """A stage that has begun."""

    stage: int
    start: NDArray[np.float64]  # (d,) where all agents begin the stage
    statistic: Statistic  # masked
    earlier: NDArray[np.float64]  # (stage, d) where all stages before began


def write_stage(directory: Path, begun: Begun) -> None:
    """Keep a stage, in place of the stage before the last."""
    stage, start, (H, q), earlier = begun
    arrays = {"start": start, "H": H, "q": q, "earlier": earlier}
    pieces, _, _ = encode_section(Section(stage, 0, arrays), NOTHING)
    file = directory / _FILES[stage % 2]
    try:
        replace_file(file, lambda part: part.write(b"".join(pieces)), mode=0o600)
    except OSError as error:
        raise StateError(
            f"'{file}' cannot be written: {error.strerror}. Nothing of stage {stage} was sent, and "
            "the state is kept. Make room, then start the agent again."
        ) from error


def read_stages(directory: Path) -> dict[int, Begun]:
    """The last two stages that have begun, as far as there are two."""
    found: dict[int, Begun] = {}
    for name in _FILES:
        file = directory / name
        if not file.exists():
            continue
        sections, _, _ = decode_sections(file.read_bytes())
        if len(sections) != 1 or set(sections[0].arrays) != {*_ARRAYS}:
            raise StateError(
                f"'{file}' is damaged. Restore the newest state, or start a new run with a new id "
                "and directory."
            )
        start, H, q, earlier = (np.array(sections[0].arrays[key]) for key in _ARRAYS)
        found[sections[0].k] = Begun(sections[0].k, start, Statistic(H, q), earlier)
    return found
