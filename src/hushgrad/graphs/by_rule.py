"""Graphs that know the links of any agents by a rule, and need not be built whole.

A shard of a large simulation asks for the links of its own agents alone. Facts that depend on all
agents are found in passes over blocks of agents. A caller that reads the arrays of all arcs gets
them: they are made then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from hushgrad.errors import optional
from hushgrad.graphs.graph import Graph, Ints, rows_of

type Rule = Callable[[Ints], tuple[Ints, Ints]]  # ascending agents → `Graph.arcs_into`

BLOCK = 2**18  # agents of a pass at a time


class RuleGraph(Graph):
    """An undirected graph by a rule.

    rule       the arcs into some agents, whose numbers ascend
    text       the builder and its arguments: graphs with the same text are the same
    arcs       how many there are, where the rule tells it
    connected  whether the rule makes sure of it; else a pass finds out
    """

    def __init__(
        self, n_agents: int, rule: Rule, text: str, *, arcs: int | None = None, connected: bool
    ):
        self.__dict__.update(  # the fields of the base class are frozen
            n_agents=n_agents, is_directed=False, names=None,
            _rule=rule, text=text, _known_arcs=arcs, _is_known_connected=connected,
        )  # fmt: skip

    text: str
    _rule: Rule
    _known_arcs: int | None
    _is_known_connected: bool

    # ---- by the rule alone

    def arcs_into(self, agents: Ints) -> tuple[Ints, Ints]:
        if (agents[1:] > agents[:-1]).all():
            return self._rule(agents)
        distinct = np.unique(agents)
        senders, receivers = self._rule(distinct)
        starts = np.searchsorted(receivers, np.append(distinct, self.n_agents))
        arcs = rows_of(starts, np.searchsorted(distinct, agents))
        return senders[arcs], receivers[arcs]

    def degrees(self, agents: Ints) -> Ints:
        _, receivers = self.arcs_into(np.unique(agents))
        first, behind = (np.searchsorted(receivers, agents, side=s) for s in ("left", "right"))
        return behind - first

    def passing(self) -> Iterator[tuple[Ints, Ints]]:
        """Senders and receivers of all arcs, block by block of receivers."""
        for low in range(0, self.n_agents, BLOCK):
            yield self.arcs_into(np.arange(low, min(low + BLOCK, self.n_agents)))

    @property
    def n_arcs(self) -> int:
        return self._counted if self._known_arcs is None else self._known_arcs

    @property
    def largest_degree(self) -> int:
        return max(int(np.bincount(r - r[0]).max()) if len(r) else 0 for _, r in self.passing())

    @property
    def is_connected(self) -> bool:
        return self._is_known_connected or self._is_found_connected

    def link_numbers(self, low: Ints, high: Ints) -> Ints:
        agents = np.unique(low)
        starts = np.zeros(len(agents), np.int64)
        before = 0
        for number, (senders, receivers) in enumerate(self.passing()):
            up = np.bincount(receivers[senders > receivers] - number * BLOCK, minlength=BLOCK)
            own = slice(*np.searchsorted(agents, [number * BLOCK, (number + 1) * BLOCK]))
            inside = before + np.concatenate([[0], np.cumsum(up)])
            starts[own] = inside[agents[own] - number * BLOCK]
            before = int(inside[-1])
        senders, receivers = self.arcs_into(agents)
        up = senders > receivers
        keys = receivers[up] * self.n_agents + senders[up]
        place = np.searchsorted(keys, low * self.n_agents + high)
        first = np.searchsorted(receivers[up], agents)
        which = np.searchsorted(agents, low)
        return starts[which] + place - first[which]

    def two_hop(self) -> Graph:
        def rule(agents: Ints) -> tuple[Ints, Ints]:
            near, receivers = self.arcs_into(agents)
            between = np.unique(near)
            far, via = self.arcs_into(between)
            starts = np.searchsorted(via, np.append(between, self.n_agents))
            which = np.searchsorted(between, near)
            ends = np.repeat(receivers, (starts[1:] - starts[:-1])[which])
            keys = np.concatenate([receivers, ends]) * self.n_agents
            keys += np.concatenate([near, far[rows_of(starts, which)]])
            receivers, senders = np.divmod(np.unique(keys), self.n_agents)
            apart = senders != receivers
            return senders[apart], receivers[apart]

        return RuleGraph(self.n_agents, rule, f"two hops in {self.text}", connected=True)

    # ---- passes and arrays, made when somebody asks

    @cached_property
    def _counted(self) -> int:
        return sum(len(senders) for senders, _ in self.passing())

    @cached_property
    def _is_found_connected(self) -> bool:
        """Agents that are known to be in one component have one label."""
        sparse, csgraph = (optional(f"scipy.sparse{part}", "sim") for part in ("", ".csgraph"))
        label, n = np.arange(self.n_agents, dtype=np.int32), self.n_agents
        for senders, receivers in self.passing():
            ends = label[senders], label[receivers]
            links = sparse.coo_array((np.ones(len(senders), np.int8), ends), shape=(n, n))
            n, merged = csgraph.connected_components(links, directed=False)
            label = merged[label]
        return n == 1

    @cached_property
    def arcs(self) -> tuple[Ints, Ints]:
        """All senders and receivers."""
        senders, receivers = (np.concatenate(ends) for ends in zip(*self.passing(), strict=True))
        senders.flags.writeable = receivers.flags.writeable = False
        return senders, receivers

    @property
    def senders(self) -> Ints:  # type: ignore[override]  # a field there, made late here
        return self.arcs[0]

    @property
    def receivers(self) -> Ints:  # type: ignore[override]  # the same
        return self.arcs[1]


def by_candidates(n_agents: int, candidates: Callable[[Ints], Ints]) -> Rule:
    """The rule of a function that gives a row of possible neighbours for every agent.

    An agent itself, a repeated one and the number `n_agents` are no neighbours.
    """

    def rule(agents: Ints) -> tuple[Ints, Ints]:
        found = candidates(agents)
        found.sort(axis=1)
        is_arc = (found < n_agents) & (found != agents[:, None])
        is_arc[:, 1:] &= found[:, 1:] != found[:, :-1]
        return found[is_arc], np.repeat(agents, is_arc.sum(1))

    return rule
