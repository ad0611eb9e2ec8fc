"""The units of an agent's columns, and the longest row: public constants, the same at every agent.

objectives.py puts the columns of a regression into these units after it has read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hushgrad.errors import ProblemError
from hushgrad.network.objective.columns import Block
from hushgrad.problems.clipping import clip_rows


@dataclass(frozen=True, kw_only=True)
class Standardise:
    """(column − mean) / scale, with constants that all agents share."""

    mean: tuple[float, ...]  # (columns,)
    scale: tuple[float, ...]  # (columns,)


def standardise(block: Block, constants: Standardise, path: Path) -> None:
    """Standardise the block in place, except for its target and its ones."""
    n = len(block.labels) - 1
    if len(constants.mean) != n or len(constants.scale) != n:
        raise ProblemError(
            f"standardise has {len(constants.mean)} means and {len(constants.scale)} scales, but "
            f"'{path}' has {n} columns. Give one of each for every column."
        )
    columns = block.values[:, 1 : n + 1]
    columns -= constants.mean
    columns /= constants.scale


def clip_block(block: Block, clip: float) -> None:
    """Shorten long rows of the block in place; neither the target nor the ones count."""
    columns = block.values[:, 1 : len(block.labels)]
    columns[:] = clip_rows(columns, clip)
