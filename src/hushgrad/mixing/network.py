"""`Network`: a connected graph with its mixing matrices, dense or as weights per arc."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad import graphs
from hushgrad.errors import MixingError
from hushgrad.graphs import Graph, RuleGraph
from hushgrad.mixing.rules import UNDIRECTED_RULES, make_weights, requests, rows_by_rule
from hushgrad.mixing.spectrum import spectrum_ends
from hushgrad.mixing.weights import Floats, Kind, Weights, objection

# Above this many agents, a dense float64 matrix takes more than 3.2 GB.
MOST_DENSE_AGENTS = 20_000

# Up to here a dense SVD takes some milliseconds; above, Lanczos' method is used.
MOST_SVD_AGENTS = 300


class Network:
    """A connected graph with weights that satisfy Assumption 1.

    ``graph`` is a `Graph`, a networkx graph, or undirected edges as pairs of agent numbers.
    ``mixing`` is one of

    - a rule: ``"metropolis"`` w_ij = 1/(1 + max(d_i, d_j)), ``"lazy_metropolis"`` (I + that W)/2,
      ``"max_degree"`` w_ij = 1/(1 + max d), which need an undirected graph and give a symmetric
      doubly stochastic W; ``"uniform_row"`` w_ij = 1/(1 + in-degree of i), ``"uniform_column"``
      w_ij = 1/(1 + out-degree of j);
    - a matrix, dense or scipy sparse, whose kind is found from its sums;
    - a mapping ``{"row": …, "column": …}`` of rules or matrices;
    - None: ``"metropolis"``, or on a directed graph both uniform rules.

    A doubly stochastic matrix serves as every kind, whichever way it was given.

    >>> network = Network(graphs.ring(4), mixing="metropolis")
    >>> network
    Network(4 agents, 4 links, mixing metropolis: doubly, symmetric, row, column)
    >>> network.matrix()[0].round(3).tolist()
    [0.333, 0.333, 0.0, 0.333]
    """

    graph: Graph
    mixing: str  # a description: the rule's name, "matrix", or both roles of a mapping

    def __init__(
        self,
        graph: Graph | Iterable[Iterable[int]] | Any,
        mixing: str | Mapping[str, Any] | Any = None,
    ) -> None:
        self.graph = _as_graph(graph)
        _check_connected(self.graph)
        wanted = requests(mixing, self.graph)
        self.mixing = ", ".join(
            description
            if role is None or description == f"uniform_{role}"
            else f"{role} {description}"
            for role, spec in wanted
            for description in [spec if isinstance(spec, str) else "matrix"]
        )
        self._wanted = wanted
        # such a rule is symmetric and doubly stochastic on every graph, so nothing has to be built
        is_late = isinstance(self.graph, RuleGraph) and self.mixing in UNDIRECTED_RULES
        self._rule = self.mixing if is_late else None
        if not is_late:
            self._by_kind  # noqa: B018  # complains now

    @cached_property
    def _given(self) -> list[Weights]:
        return [make_weights(self.graph, role, spec) for role, spec in self._wanted]

    @cached_property
    def _by_kind(self) -> dict[Kind, Weights]:
        found = {
            role: weights
            for (role, _), weights in zip(self._wanted, self._given, strict=True)
            if role is not None
        }
        for weights in self._given:
            for kind in Kind:
                if objection(self.graph, weights, kind) is None:
                    found.setdefault(kind, weights)
        return found

    @property
    def n_agents(self) -> int:
        return self.graph.n_agents

    @property
    def is_directed(self) -> bool:
        return self.graph.is_directed

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of matrices that this network has, doubly stochastic first."""
        return tuple(kind for kind in Kind if self._rule or kind in self._by_kind)

    @property
    def is_symmetric(self) -> bool:
        return Kind.SYMMETRIC in self.kinds

    def weights(self, kind: str) -> Weights:
        """The matrix of this kind as weights per agent and per arc."""
        if kind not in list(Kind):
            raise MixingError(
                f"a kind of matrix is one of {', '.join(Kind)}, but kind = {kind!r}. "
                f"This network has {', '.join(self.kinds)}."
            )
        if kind not in self.kinds:
            raise MixingError(
                self._refusal(Kind(kind), f"this network has no {_phrase(Kind(kind))}")
            )
        return self._by_kind[Kind(kind)]

    def weights_into(self, kind: str, agents: NDArray[np.int64]) -> Weights:
        """The rows of these agents, aligned with `graph.arcs_into(agents)`."""
        if self._rule and kind in self.kinds:
            return rows_by_rule(self.graph, self._rule, agents)
        weights = self.weights(kind)
        return Weights(weights.own[agents], weights.links[self.graph.arcs_at(agents)])

    def matrix(self, kind: str | None = None) -> Floats:
        """The dense (m, m) matrix of this kind, by default of the first in `kinds`."""
        if self.n_agents > MOST_DENSE_AGENTS:
            raise MixingError(
                f"a dense matrix is made for at most {MOST_DENSE_AGENTS} agents, but there are "
                f"{self.n_agents}. Use network.weights(kind), aligned with network.graph's arcs."
            )
        weights = self.weights(self.kinds[0] if kind is None else kind)
        matrix = np.diag(weights.own)
        matrix[self.graph.receivers, self.graph.senders] = weights.links
        return matrix

    @cached_property
    def eta(self) -> float:
        """η = ‖W − 11ᵀ/m‖₂ of the doubly stochastic W: what one round leaves of a disagreement."""
        if Kind.DOUBLY not in self.kinds:
            rule = "eta = ||W - 11'/m|| is defined for a doubly stochastic W"
            raise MixingError(self._refusal(Kind.DOUBLY, rule))
        if self.n_agents <= MOST_SVD_AGENTS:
            return float(np.linalg.norm(self.matrix(Kind.DOUBLY) - 1 / self.n_agents, 2))
        if self.is_symmetric:
            low, high = self._spectrum
            return max(-low, high)
        weights = self._by_kind[Kind.DOUBLY]
        arcs = self.graph.to_scipy(weights.links)
        back = arcs.T.tocsr()

        def square(x: Floats) -> Floats:  # WᵀWx
            y = weights.own * x + arcs @ x
            return weights.own * y + back @ y

        return float(np.sqrt(spectrum_ends(square, self.n_agents)[1]))

    @cached_property
    def smallest_eigenvalue(self) -> float:
        """The smallest eigenvalue of the symmetric W; near −1, two-step methods become fragile."""
        if not self.is_symmetric:
            rule = "the smallest eigenvalue is defined for a symmetric W"
            raise MixingError(self._refusal(Kind.SYMMETRIC, rule))
        if self.n_agents <= MOST_SVD_AGENTS:
            return float(np.linalg.eigvalsh(self.matrix(Kind.SYMMETRIC))[0])
        return self._spectrum[0]

    @cached_property
    def _spectrum(self) -> tuple[float, float]:
        """The smallest and the second largest eigenvalue of the symmetric W."""
        weights = self._by_kind[Kind.SYMMETRIC]
        arcs = self.graph.to_scipy(weights.links)

        def product(x: Floats) -> Floats:
            return weights.own * x + arcs @ x

        return spectrum_ends(product, self.n_agents)

    def shortfall(self, kind: Kind) -> str | None:
        """Why there is no matrix of this kind (`column 3 sums to 0.8333`), or None if there is."""
        return None if kind in self.kinds else objection(self.graph, self._given[0], kind)

    def _refusal(self, kind: Kind, rule: str) -> str:
        way_out = _way_out(kind, self.is_directed)
        return f"{rule}, but with mixing {self.mixing} {self.shortfall(kind)}. {way_out}"

    def __repr__(self) -> str:
        links = "arcs" if self.is_directed else "links"
        return (
            f"Network({self.n_agents} agents, {self.graph.n_links} {links}, "
            f"mixing {self.mixing}: {', '.join(self.kinds)})"
        )


def _as_graph(graph: Any) -> Graph:
    if isinstance(graph, Graph):
        return graph
    if hasattr(graph, "is_multigraph"):
        return graphs.from_networkx(graph)
    return graphs.from_edges(graph)


def _check_connected(graph: Graph) -> None:
    if graph.is_connected:
        return
    way_out = "Add links, or run each component as a network of its own."
    degree = np.minimum(graph.in_degree, graph.out_degree)
    if not degree.all():
        agent = int(np.argmin(degree))
        lack = "no link" if not graph.is_directed else "no arc to or no arc from another agent"
        raise MixingError(
            f"Assumption 1 needs a connected graph, but agent {agent} has {lack} (agents are "
            f"numbered from 0). {way_out}"
        )
    other = int(np.argmax(graph.components != graph.components[0]))
    lack = "no directed path there and back" if graph.is_directed else "no path"
    raise MixingError(
        f"Assumption 1 needs a {'strongly ' if graph.is_directed else ''}connected graph, but "
        f"there is {lack} between agents 0 and {other}. {way_out}"
    )


def _phrase(kind: Kind) -> str:
    if kind is Kind.SYMMETRIC:
        return "symmetric doubly stochastic matrix"
    return f"{kind}{' ' if kind is Kind.DOUBLY else '-'}stochastic matrix"


def _way_out(kind: Kind, is_directed: bool) -> str:
    if kind in (Kind.ROW, Kind.COLUMN):
        return (
            f'Use mixing={{"row": "uniform_row", "column": "uniform_column"}} or "uniform_{kind}".'
        )
    if is_directed:
        return (
            'Use mixing="metropolis" on an undirected graph, or an algorithm for directed graphs '
            "such as PushPull."
        )
    return 'Use mixing="metropolis".'
