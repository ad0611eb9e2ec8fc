"""The agents' data: pytrees of arrays, checked once, kept read-only, and grouped by shape.

A pytree is here a dict, tuple, list or namedtuple of pytrees, down to the arrays. It is walked
without JAX, so that an agent with a NumPy objective never imports it.

`Problem` keeps its data here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrad.errors import ProblemError


@dataclass(frozen=True, eq=False)
class Group:
    """Agents whose arrays have equal shapes, stacked so that one vmap serves them all."""

    agents: NDArray[np.int64]  # (n,) their numbers, ascending
    data: Any  # leaves (n, ...), or (trials, n, ...) when every trial has its own


class AgentsData:
    """The data of all agents, and of all trials where every trial has its own.

    `Problem` makes it of the data that a user gives, and asks it for the parts.
    """

    def __init__(self, data: Any, *, per_trial: bool, numbers: ArrayLike | None = None) -> None:
        """`numbers` are those of the trials, ascending; by default 0, 1, 2, …"""
        if isinstance(data, list) and per_trial:
            count = len(cast("list[Any]", data))
            raise ProblemError(
                "With per_trial=True data is one pytree with leading axes (trials, agents), but it "
                f"is a list of {count}. Stack the arrays, padding unequal ones."
            )
        self._is_list = isinstance(data, list)
        self.groups: tuple[Group, ...] = (
            listed_groups(cast("list[Any]", data))
            if self._is_list
            else stacked_groups(data, per_trial=per_trial)
        )
        lead = next(iter(leaves(self.groups[0].data).values())).shape
        self._numbers = np.arange(lead[0]) if numbers is None else np.asarray(numbers, np.int64)
        self.n_trials: int | None = int(self._numbers[-1]) + 1 if per_trial else None
        self.n_agents = sum(len(group.agents) for group in self.groups)
        self.n_groups = len(self.groups)

    @cached_property
    def _place(self) -> dict[int, tuple[int, int]]:
        """The group of each agent, and its place there."""
        return {
            int(i): (g, n)
            for g, group in enumerate(self.groups)
            for n, i in enumerate(group.agents)
        }

    @property
    def trials(self) -> list[int] | list[None]:
        """The trials that have data of their own; [None] where all have the same."""
        return [None] if self.n_trials is None else self._numbers.tolist()

    def places(self, trials: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of these trials' data on the axis of the trials."""
        return np.searchsorted(self._numbers, trials)

    def as_given(self) -> Any:
        """A stacked pytree, or a list of one for each agent."""
        if self._is_list:
            return [self.of_agent(i, None) for i in range(self.n_agents)]
        return self.groups[0].data

    def of_agent(self, i: int, trial: int | None) -> Any:
        if i not in range(self.n_agents):
            raise ProblemError(
                f"Agents are numbered 0 to {self.n_agents - 1}, but agent {i!r} was asked for."
            )
        group, place = (0, i) if self.n_groups == 1 else self._place[i]
        return map_leaves(lambda _, leaf: leaf[place], self.of_groups(trial)[group])

    def copy_of_agent(self, i: int, trial: int | None) -> Any:
        """A copy, since a NumPy view would lead to the data of all agents."""
        return map_leaves(lambda _, leaf: np.array(leaf), self.of_agent(i, trial))

    def of_each(self, trial: int | None) -> Iterator[Any]:
        """The data of one agent after the other."""
        return (self.of_agent(i, trial) for i in range(self.n_agents))

    def of_groups(self, trial: int | None) -> tuple[Any, ...]:
        """The data of every group, leaves (n, ...), in one trial."""
        if self.n_trials is None:
            return tuple(group.data for group in self.groups)
        if trial is None or trial not in self._numbers:
            raise ProblemError(
                "Every trial of this problem has its own data, so trial= is a number from 0 to "
                f"{self.n_trials - 1}, but it is {trial!r}."
            )
        place = self.places(np.array(trial))
        return tuple(map_leaves(lambda _, leaf: leaf[place], g.data) for g in self.groups)

    def parts(self, trial: int | None) -> Iterator[tuple[Any, ...]]:
        """The data of every group, in parts of agents whose sums are formed one after the other."""
        yield self.of_groups(trial)

    def summands(self) -> Iterator[Any]:
        """The data in the form it was given, in parts: of every trial, of some of the agents."""
        return iter(self.of_trials())

    def rows(self, agents: NDArray[np.int64]) -> Any:
        """The data of these agents, where all agents are one group; leaves as in `Group`."""
        axis = 0 if self.n_trials is None else 1
        return map_leaves(lambda _, leaf: leaf.take(agents, axis), self.groups[0].data)

    def of_trials(self) -> list[Any]:
        """The data in the form it was given, of every trial."""
        if self.n_trials is None:
            return [self.as_given()]
        return [self.of_groups(trial)[0] for trial in self.trials]

    def first_of_each_group(self) -> list[tuple[int, Any]]:
        """Number and data of one agent for each shape, in the first trial."""
        first = self.trials[0]
        numbers = [int(group.agents[0]) for group in self.groups]
        return [(i, self.of_agent(i, first)) for i in numbers]


def map_leaves(function: Callable[[str, Any], Any], tree: Any, path: str = "data") -> Any:
    """`tree` with function(path, leaf) for every leaf; path is how a user would write it."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        items = cast("dict[Any, Any]", tree).items()
        return {key: map_leaves(function, value, f"{path}[{key!r}]") for key, value in items}
    if isinstance(tree, tuple) and hasattr(cast("Any", tree), "_fields"):
        named = cast("Any", tree)
        parts = (map_leaves(function, getattr(named, f), f"{path}.{f}") for f in named._fields)
        return type(named)(*parts)
    if isinstance(tree, tuple | list):
        values = cast("Sequence[Any]", tree)
        mapped = [map_leaves(function, value, f"{path}[{n}]") for n, value in enumerate(values)]
        return mapped if isinstance(tree, list) else tuple(mapped)
    return function(path, tree)


def leaves(tree: Any, path: str = "data") -> dict[str, Any]:
    """The leaves of `tree` by path."""
    found: dict[str, Any] = {}
    map_leaves(found.__setitem__, tree, path)
    return found


def stacked_groups(data: Any, *, per_trial: bool) -> tuple[Group, ...]:
    """One group from a pytree whose leaves lead with the axis of agents (after that of trials)."""
    arrays = map_leaves(_array, data)
    lead = ("trials", "agents") if per_trial else ("agents",)
    found = leaves(arrays)
    if not found:
        raise ProblemError("Data needs at least one array, but it has none. Give every agent some.")
    first_path, first = next(iter(found.items()))
    for path, array in found.items():
        if array.ndim < len(lead):
            raise ProblemError(
                f"Every array leads with the axes ({', '.join(lead)}), but {path} has shape "
                f"{array.shape}. Repeat what the agents share with np.broadcast_to, or give a list "
                "with one entry for each agent."
            )
        for axis, word in enumerate(lead):
            if array.shape[axis] == 0:
                raise ProblemError(
                    f"A problem needs at least one of its {word}, but {path} has shape "
                    f"{array.shape}, with none on axis {axis}. Give one entry for each."
                )
            if array.shape[axis] != first.shape[axis]:
                raise ProblemError(
                    f"All arrays have the same number of {word} on axis {axis}, but {first_path} "
                    f"has {first.shape[axis]} and {path} has {array.shape[axis]}. If agents have "
                    "unequal amounts of data, give a list with one entry for each agent."
                )
        _check_filled(path, array, "every agent")
        _check_finite(path, array, lead)
    return (Group(np.arange(first.shape[len(lead) - 1]), arrays),)


def listed_groups(data: Sequence[Any]) -> tuple[Group, ...]:
    """Groups from one pytree for each agent; the leaves of different agents may differ in shape."""
    if not data:
        raise ProblemError(
            "A problem needs at least one agent, but the list of data is empty. Give one entry for "
            "each agent."
        )
    agents = [map_leaves(_array, tree, f"data[{i}]") for i, tree in enumerate(data)]
    flat = [leaves(tree) for tree in agents]
    if not flat[0]:
        raise ProblemError("Data needs at least one array, but agent 0 has none. Give it some.")
    members: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for i, found in enumerate(flat):
        if found.keys() != flat[0].keys():
            odd = sorted(found.keys() ^ flat[0].keys())[0]
            lacks = i if odd in flat[0] else 0
            raise ProblemError(
                f"All agents' data has the same structure, but agent {lacks} lacks "
                f"{odd.removeprefix('data')}, which agent {0 if lacks else i} has. A list stands "
                "for the agents; one pytree with a leading agent axis is a tuple or a dict."
            )
        for path, array in found.items():
            _check_filled(f"data[{i}]{path.removeprefix('data')}", array, f"agent {i}")
            _check_finite(path, array[None], ("agents",), agent=i)
        members.setdefault(tuple(found[path].shape for path in flat[0]), []).append(i)

    def stack(numbers: list[int]) -> Any:
        return map_leaves(
            lambda path, _: _frozen(np.stack([flat[i][path] for i in numbers])), agents[numbers[0]]
        )

    return tuple(Group(np.array(numbers), stack(numbers)) for numbers in members.values())


def _array(path: str, leaf: Any) -> NDArray[Any]:
    """A read-only copy of `leaf`: floats as float64, integers and booleans as they are."""
    try:
        array = np.array(leaf)
    except (TypeError, ValueError) as error:
        raise ProblemError(
            f"Data is made of arrays of numbers, but {path} of type {type(leaf).__name__} is none "
            f"({error}). Convert it to a NumPy array."
        ) from error
    if array.dtype.kind not in "fiub":
        raise ProblemError(
            f"Data is made of real numbers, integers or booleans, but {path} has dtype "
            f"{array.dtype} (a {type(leaf).__name__}). Convert it to float64; pytrees are dicts, "
            "tuples, lists and namedtuples of arrays."
        )
    return _frozen(array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _check_filled(path: str, array: NDArray[Any], whose: str) -> None:
    if array.size == 0:
        raise ProblemError(
            f"Every agent holds data, but {path} of {whose} is empty, with shape {array.shape}. "
            "Leave that array out, or give the agent at least one entry."
        )


def _check_finite(path: str, array: NDArray[Any], lead: Sequence[str], agent: int = 0) -> None:
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    place = [int(n) for n in np.argwhere(~np.isfinite(array))[0]]
    where = f"agent {place[len(lead) - 1] + agent}"
    if len(lead) == 2:
        where = f"trial {place[0]}, {where}"
    raise ProblemError(
        f"Data must be finite, but {path} of {where} is {array[tuple(place)]} at index "
        f"{tuple(place[len(lead) :])}. Remove or impute the entry."
    )
