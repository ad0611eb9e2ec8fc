"""A simulation whose agents are divided among devices.

`ShardedSimulation` answers the driver as `Simulation` does. Each process lays out its own shards:
links, weights, data and start of their agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from hushgrad.algorithms.base import Algorithm
from hushgrad.draws import trial_keys
from hushgrad.errors import InputError
from hushgrad.exchange import Array, Links
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.simulate.stacked.numbers import stacked_numbers
from hushgrad.simulate.stacked.program import Simulation, program_of
from hushgrad.simulate.stacked.shards.agents import Crossing, ShardPlan
from hushgrad.simulate.stacked.shards.layout import LocalLinks, OwnPlaces, ShardLayout, ShardShapes
from hushgrad.simulate.stacked.shards.mesh import Shards
from hushgrad.simulate.stacked.shards.partition import partition
from hushgrad.simulate.stacked.shards.program import ShardedProgram

type Ints = NDArray[np.int64]
type Floats = NDArray[np.float64]


class ShardedSimulation(Simulation):
    """An algorithm on a problem and a network over several devices, for some trials of a study."""

    def __init__(
        self,
        shards: Shards,
        algorithm: Algorithm,
        problem: Problem,
        network: Network,
        *,
        seed: int,
        trials: Ints,
        stage: int = 0,
        variants: Sequence[Algorithm] | None = None,
        numbers: Sequence[Floats] | None = None,
    ):
        self.algorithm, self.network, self.trials = algorithm, network, trials
        self.shards, self._variants, self._problem = shards, variants, problem
        if numbers is None:
            numbers = [n.values for n in stacked_numbers([algorithm])]
        graph = network.graph
        self._partition = partition(graph, shards.n)
        self._graphs = {Links.GRAPH: graph}
        if algorithm.links is Links.TWO_HOP:
            self._graphs[Links.TWO_HOP] = graph.two_hop()
        self.arcs = {links: found.n_arcs for links, found in self._graphs.items()}
        layouts = self._lay_out()
        shapes = {links: own[shards.mine[0]].shapes for links, own in layouts.items()}
        self.plan = ShardPlan(
            sides=tuple((links, own.into.meta, own.out.meta) for links, own in shapes.items()),
            n_agents=shapes[Links.GRAPH].into.n_agents,
            n_links=graph.n_links,
            n_trials=len(trials),
            dim=problem.dim,
            gradient=problem.gradient_function,
            groups=problem.n_groups,
            per_trial=problem.n_trials is not None,
            varied=tuple(n for n, number in enumerate(numbers) if number.ndim > 1),
            shards=shards,
            crossings=tuple(
                (links, Crossing(own.halo, own.guests.meta, own.heard.meta))
                for links, own in shapes.items()
            ),
            n_real=graph.n_agents,
        )
        self.program = program_of(algorithm, self.plan, ShardedProgram)
        with jax.enable_x64(True):
            self.args = self._shared(seed, stage, numbers) | self._by_agent(seed, layouts)

    def _lay_out(self) -> dict[Links, dict[int, ShardLayout]]:
        found: dict[Links, dict[int, ShardLayout]] = {}
        self._own: dict[int, Ints] = {}  # by shard: its agents' numbers
        self._places: dict[int, OwnPlaces] = {}
        for links, graph in self._graphs.items():  # those of the graph first
            every = {s: LocalLinks.of(graph, self._partition, s) for s in self.shards.mine}
            n_places = next((places.n for places in self._places.values()), None)
            shapes = ShardShapes.of(every, self.shards, n_places)
            found[links] = {
                s: ShardLayout(local, shapes, self._places.get(s)) for s, local in every.items()
            }
            if links is Links.GRAPH:
                self._own = {s: local.own for s, local in every.items()}
                self._places = {s: layout.places for s, layout in found[links].items()}
        return found

    # ---- arguments of the program

    def _shared(self, seed: int, stage: int, numbers: Sequence[Floats]) -> dict[str, Any]:
        theta = self._problem.solution()
        theta = (
            theta[self._problem.places(self.trials)].T[None]
            if self.plan.per_trial
            else theta[None, :, None]
        )
        key = trial_keys(seed, self.trials, stage)
        return self.shards.share({"trial_key": key, "numbers": list(numbers), "solution": theta})

    def _by_agent(self, seed: int, layouts: dict[Links, dict[int, ShardLayout]]) -> dict[str, Any]:
        groups = self._groups()

        def make(shard: int) -> dict[str, Any]:
            own, places = self._own[shard], self._places[shard]
            layout = layouts[Links.GRAPH][shard]
            arrays: dict[str, Any] = {
                "agents": places.rows(own.astype(np.uint32), 0),
                "is_agent": places.rows(np.ones(len(own), np.bool_), False),
                "own": {},
                "receiving": {},
                **groups.pop(shard),
            }
            for letter, kind in self.algorithm.needs.items():
                weights, local = self.network.weights_into(kind, layout.local.targets), layout.local
                arrays["own"][letter] = places.rows(weights.own[local.is_own], 1.0)
                arrays["receiving"][Links.GRAPH, letter] = layout.receiving(
                    weights.links[local.is_sent]
                )
            if self.algorithm.wakes_links:
                arrays["link_number"] = self._link_numbers(layout)
            masks = self._masks(self._problem.dim, seed, own)
            if masks is not None:
                arrays["mask"] = jax.tree.map(lambda part: places.rows(part, 0.0), masks)
            arrays["tables"] = {links: found.pop(shard).tables for links, found in layouts.items()}
            return arrays

        return self.shards.put(make)

    def _link_numbers(self, layout: ShardLayout) -> Ints:
        """(out-slots,) the number of each undirected link, −1 where there is none."""
        senders, receivers = layout.ends
        ends = np.minimum(senders, receivers), np.maximum(senders, receivers)
        return layout.sending(self.network.graph.link_numbers(*ends) + 1) - 1

    def _groups(self) -> dict[int, dict[str, Any]]:
        """By shard: the agents' data, group by group of equal shapes, and their places."""
        problem, mine = self._problem, self.shards.mine
        if problem.n_groups == 1:
            return {s: {"data": [self._data(s)], "group_index": [], "ungroup": None} for s in mine}
        found: dict[int, dict[str, Any]] = {
            s: {"data": [], "group_index": [], "ungroup": np.zeros(self.plan.n_agents, np.int32)}
            for s in mine
        }
        low = 0
        for group in problem.groups:
            whose = {s: np.flatnonzero(np.isin(group.agents, self._own[s])) for s in mine}
            most = self.shards.together({s: np.array(len(rows)) for s, rows in whose.items()}).max()
            for s, rows in whose.items():
                where = self._places[s].of[np.searchsorted(self._own[s], group.agents[rows])]
                found[s]["ungroup"][where] = low + np.arange(len(rows))
                short = (0, int(most) - len(rows))
                padded = np.pad(rows, short)
                found[s]["data"].append(jax.tree.map(lambda leaf, r=padded: leaf[r], group.data))
                found[s]["group_index"].append(np.pad(where, short).astype(np.int32))
            low += int(most)
        return found

    def _data(self, shard: int) -> Any:
        """The data of a shard's agents in the canonical order, where all have equal shapes."""
        own, places = self._own[shard], self._places[shard]
        rows = places.rows(np.arange(len(own)), 0)  # places without an agent repeat the first one
        data = self._problem.rows(own if len(own) else np.zeros(1, np.int64))
        if self.plan.per_trial:  # (trials, agents, …) → (agents, …, trials)
            trials = self._problem.places(self.trials)
            return jax.tree.map(lambda leaf: np.moveaxis(leaf[trials][:, rows], 0, -1), data)
        return jax.tree.map(lambda leaf: leaf[rows], data)

    # ---- in and out

    def _put(self, values: Any) -> Any:
        """Arrays (agents, …) by number, on the devices."""
        return self.shards.put(
            lambda s: jax.tree.map(lambda a: self._places[s].rows(a[self._own[s]], 0), values)
        )

    def _stacked(self, x0: Floats) -> Array:
        def make(shard: int) -> Floats:
            rows = self._places[shard].rows(x0[:, self._own[shard]].transpose(1, 2, 0), 0.0)
            return np.ascontiguousarray(rows)

        return self.shards.put(make)

    def rows(self, array: Array, *, is_kept: bool = True) -> NDArray[Any]:
        found = np.empty((self.plan.n_real if is_kept else 0, *array.shape[1:]), array.dtype)
        number = {s: self._places[s].rows(own, -1) for s, own in self._own.items()}
        for part, values in self.shards.parts(array):
            numbers = self.shards.together({s: rows[part] for s, rows in number.items()})
            if is_kept:
                is_agent = numbers >= 0
                found[numbers[is_agent]] = values[is_agent]
        return found

    def load(self, state: Any, arrays: Sequence[NDArray[Any]]) -> Any:
        return jax.tree.unflatten(jax.tree.structure(state), self._put(list(arrays)))

    # ---- several processes

    def agree(
        self, per_call: int, most: int, is_stopped: bool, is_due: bool
    ) -> tuple[int, int, bool, bool]:
        if self.shards.n_processes == 1:
            return per_call, most, is_stopped, is_due
        own = np.array([per_call, most, is_stopped, is_due])
        every = self.shards.together(dict.fromkeys(self.shards.mine, own))
        is_any_stopped = bool(every[:, 2].any())
        return int(every[0, 0]), int(every[0, 1]), is_any_stopped, bool(every[0, 3])

    def check_kept(self, k: int) -> None:
        every = self.shards.together(dict.fromkeys(self.shards.mine, np.array(k)))
        if (every != every[0]).any():
            raise InputError(
                "all processes continue from the same state, but they see the iterations "
                f"{', '.join(map(str, np.unique(every)))} (-1: none). Keep the state where all of "
                "them can read it: set XDG_CACHE_HOME to a directory that the machines share."
            )
