"""Data that is made for the agents that are asked for: by a function, by addressed draws, from
files.

A shard of a large simulation asks for its own agents; sums over all go part by part.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import ProblemError
from hushgrad.problems.data import Group, leaves, map_leaves, stacked_groups

type Ints = NDArray[np.int64]
type Make = Callable[[Ints], Any]  # numbers of agents (n,), ascending → a pytree, leaves (n, …)

PART = 2**16  # agents of a part
DRAWN = 2**12  # agents whose data have one address


@dataclass(frozen=True, eq=False)
class AgentRows:
    """The data of agents as a function of their numbers, for `hg.Problem`.

    make    numbers of agents (n,), ascending → a pytree of arrays (n, …), one row for each agent
    name    what the data is: a checkpoint continues a run on data of the same name

    >>> rows = AgentRows(10**9, lambda agents: {"a": agents % 7.0}, name="weekdays")
    >>> rows.make(np.array([8, 15]))
    {'a': array([1., 1.])}
    """

    n_agents: int
    make: Make
    name: str


class LateData:
    """`AgentsData` of `AgentRows`: one group, made when somebody asks for it."""

    n_trials, n_groups = None, 1

    def __init__(self, rows: AgentRows) -> None:
        if not isinstance(rows.n_agents, int) or rows.n_agents < 1:
            raise ProblemError(f"AgentRows have n_agents ≥ 1, but n_agents = {rows.n_agents!r}.")
        self._rows, self.n_agents, self.trials = rows, rows.n_agents, [None]
        self.name = rows.name

    def rows(self, agents: Ints) -> Any:
        """The data of these agents, ascending, leaves (agents, …); checked."""
        (group,) = stacked_groups(self._rows.make(agents), per_trial=False)
        if len(group.agents) != len(agents):
            raise ProblemError(
                f"AgentRows '{self.name}' give one row for each agent that is asked for, but for "
                f"{len(agents)} agents they gave {len(group.agents)}."
            )
        return group.data

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The data of all agents at once."""
        every = np.arange(self.n_agents)
        return (Group(every, self.rows(every)),)

    def parts(self, trial: int | None) -> Iterator[tuple[Any, ...]]:
        """The data of all agents, part by part."""
        del trial
        for low in range(0, self.n_agents, PART):
            yield (self.rows(np.arange(low, min(low + PART, self.n_agents))),)

    def summands(self) -> Iterator[Any]:
        return (part for (part,) in self.parts(None))

    def of_trials(self) -> list[Any]:
        return [self.as_given()]

    def places(self, trials: Ints) -> Ints:
        return trials

    def as_given(self) -> Any:
        return self.groups[0].data

    def of_groups(self, trial: int | None) -> tuple[Any, ...]:
        del trial
        return (self.groups[0].data,)

    def of_agent(self, i: int, trial: int | None) -> Any:
        del trial
        if i not in range(self.n_agents):
            raise ProblemError(
                f"Agents are numbered 0 to {self.n_agents - 1}, but agent {i!r} was asked for."
            )
        return map_leaves(lambda _, leaf: leaf[0], self.rows(np.array([i])))

    def copy_of_agent(self, i: int, trial: int | None) -> Any:
        return map_leaves(lambda _, leaf: np.array(leaf), self.of_agent(i, trial))

    def of_each(self, trial: int | None) -> Iterator[Any]:
        return (self.of_agent(i, trial) for i in range(self.n_agents))

    def first_of_each_group(self) -> list[tuple[int, Any]]:
        return [(0, self.of_agent(0, None))]


def drawn_rows(
    n_agents: int, draw: Callable[[np.random.Generator, int], Any], *address: int
) -> Make:
    """Rows that `draw(rng, n)` makes for blocks of n agents, each with a stream of its own."""

    def make(agents: Ints) -> Any:
        found: list[Any] = []
        blocks, starts = np.unique(agents // DRAWN, return_index=True)
        for block, own in zip(blocks.tolist(), np.split(agents, starts[1:]), strict=True):
            rng = np.random.default_rng(np.random.SeedSequence((*address, block)))
            rows = draw(rng, min(DRAWN, n_agents - block * DRAWN))
            found.append(map_leaves(lambda _, leaf, w=own - block * DRAWN: leaf[w], rows))
        parts = [leaves(rows) for rows in found]
        return map_leaves(lambda path, _: np.concatenate([part[path] for part in parts]), found[0])

    return make


def rows_from_files(files: Mapping[str, str | Path]) -> AgentRows:
    """Rows in .npy files: {name of an array: a file, or a pattern of files in their order}.

    The files of a pattern stand in the order of their names; together they have one row for each
    agent. Rows are read when they are asked for.
    """
    arrays = {key: _FileRows(key, str(pattern)) for key, pattern in files.items()}
    lengths = {key: array.n for key, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise ProblemError(
            f"All arrays have one row for each agent, but the files have {lengths or 'none'}. "
            'Give for example {"M": "M-*.npy", "z": "z-*.npy"} with equally many rows.'
        )

    def make(agents: Ints) -> Any:
        return {key: array.rows(agents) for key, array in arrays.items()}

    told = "; ".join(f"{key} {array.text}" for key, array in arrays.items())
    return AgentRows(next(iter(lengths.values())), make, told)


class _FileRows:
    """One array in one file or in several."""

    def __init__(self, key: str, pattern: str):
        paths = sorted(map(Path, glob.glob(pattern)))  # noqa: PTH207  # it may be absolute
        if not paths:
            raise ProblemError(f"'{key}' needs .npy files, but no file matches '{pattern}'.")
        try:
            self._parts = [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]
        except (OSError, ValueError) as error:
            raise ProblemError(f"'{key}' needs .npy files, but in '{pattern}': {error}.") from None
        self._starts = np.concatenate([[0], np.cumsum([len(part) for part in self._parts])])
        self.n = int(self._starts[-1])
        sizes = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
        self.text = str(sizes)

    def rows(self, agents: Ints) -> NDArray[Any]:
        cuts = np.searchsorted(agents, self._starts)
        return np.concatenate(
            [
                part[agents[low:high] - start]
                for part, start, low, high in zip(
                    self._parts, self._starts, cuts[:-1], cuts[1:], strict=False
                )
                if high > low
            ]
        )
