"""The weights with which agents mix what they hear, by rule or by matrix, checked before use.

Assumption 1 of the paper: W1 = 1, 1ᵀW = 1ᵀ, w_ii > 0, w_ij > 0 if and only if j sends to i, and
η = ‖W − 11ᵀ/m‖ < 1, which the other conditions imply when the graph is (strongly) connected.
Matrices R and C for directed graphs satisfy it with W1 = 1 (row) or 1ᵀW = 1ᵀ (column) only.

`W[i, j]` is the weight that i gives to what comes from j. Inside there is one number per agent and
one per arc, never an m x m matrix.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hushgrad import graphs
from hushgrad.errors import MixingError, optional
from hushgrad.graphs import Graph

type Floats = NDArray[np.float64]

# A row or column of n weights must sum to 1 within SUM_TOLERANCE, room for the caller's arithmetic,
# plus n * 2**-52, which bounds the rounding of the sum itself.
SUM_TOLERANCE = 1e-12

# w_ij and w_ji may differ by this much in a matrix that counts as symmetric.
SYMMETRY_TOLERANCE = 1e-12

# Above this many agents, a dense float64 matrix takes more than 3.2 GB.
MOST_DENSE_AGENTS = 20_000

# Up to here a dense SVD takes some milliseconds; above, Lanczos' method is used.
MOST_SVD_AGENTS = 300

# Lanczos stops when the residual of both ends is this part of 1 − |eigenvalue|. The error of an
# eigenvalue is at most the residual, and of the order of its square over the gap.
RESIDUAL_TOLERANCE = 1e-6

# A ring of n agents takes about n/2 steps, an expander a few hundred whatever its size.
MOST_LANCZOS_STEPS = 20_000


class Kind(enum.StrEnum):
    """What the sums of a matrix are: all rows (W1 = 1), all columns (1ᵀW = 1ᵀ), or both."""

    DOUBLY = "doubly"
    SYMMETRIC = "symmetric"  # doubly stochastic and W = Wᵀ
    ROW = "row"
    COLUMN = "column"


@dataclass(frozen=True, eq=False)
class Weights:
    """A mixing matrix by its entries, in the order of the graph's arcs; read-only."""

    own: Floats  # (m,) w_ii
    links: Floats  # (n_arcs,) w_ij of every arc j -> i

    def __post_init__(self) -> None:
        self.own.flags.writeable = self.links.flags.writeable = False


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
        requests = _requests(mixing, self.graph)
        self.mixing = ", ".join(
            description
            if role is None or description == f"uniform_{role}"
            else f"{role} {description}"
            for role, spec in requests
            for description in [spec if isinstance(spec, str) else "matrix"]
        )
        self._given = [_weights(self.graph, role, spec) for role, spec in requests]
        self._by_kind = {
            role: weights
            for (role, _), weights in zip(requests, self._given, strict=True)
            if role is not None
        }
        for weights in self._given:
            for kind in Kind:
                if _objection(self.graph, weights, kind) is None:
                    self._by_kind.setdefault(kind, weights)

    @property
    def n_agents(self) -> int:
        return self.graph.n_agents

    @property
    def is_directed(self) -> bool:
        return self.graph.is_directed

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of matrices that this network has, doubly stochastic first."""
        return tuple(kind for kind in Kind if kind in self._by_kind)

    @property
    def is_symmetric(self) -> bool:
        return Kind.SYMMETRIC in self._by_kind

    def weights(self, kind: str) -> Weights:
        """The matrix of this kind as weights per agent and per arc."""
        if kind not in list(Kind):
            raise MixingError(
                f"a kind of matrix is one of {', '.join(Kind)}, but kind = {kind!r}. "
                f"This network has {', '.join(self.kinds)}."
            )
        if kind not in self._by_kind:
            raise MixingError(
                self._refusal(Kind(kind), f"this network has no {_phrase(Kind(kind))}")
            )
        return self._by_kind[Kind(kind)]

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
        if Kind.DOUBLY not in self._by_kind:
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

        return float(np.sqrt(_spectrum_ends(square, self.n_agents)[1]))

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

        return _spectrum_ends(product, self.n_agents)

    def shortfall(self, kind: Kind) -> str | None:
        """Why there is no matrix of this kind (`column 3 sums to 0.8333`), or None if there is."""
        return None if kind in self._by_kind else _objection(self.graph, self._given[0], kind)

    def _refusal(self, kind: Kind, rule: str) -> str:
        way_out = _way_out(kind, self.is_directed)
        return f"{rule}, but with mixing {self.mixing} {self.shortfall(kind)}. {way_out}"

    def __repr__(self) -> str:
        links = "arcs" if self.is_directed else "links"
        return (
            f"Network({self.n_agents} agents, {self.graph.n_links} {links}, "
            f"mixing {self.mixing}: {', '.join(self.kinds)})"
        )


def _metropolis(graph: Graph) -> Floats:
    d = graph.in_degree
    return 1 / (1.0 + np.maximum(d[graph.receivers], d[graph.senders]))


def _lazy_metropolis(graph: Graph) -> Floats:
    return _metropolis(graph) / 2


def _max_degree(graph: Graph) -> Floats:
    return np.full(graph.n_arcs, 1 / (1 + graph.in_degree.max()))


def _uniform_row(graph: Graph) -> Floats:
    return 1 / (1.0 + graph.in_degree[graph.receivers])


def _uniform_column(graph: Graph) -> Floats:
    return 1 / (1.0 + graph.out_degree[graph.senders])


UNDIRECTED_RULES: dict[str, Callable[[Graph], Floats]] = {
    "metropolis": _metropolis,
    "lazy_metropolis": _lazy_metropolis,
    "max_degree": _max_degree,
}
RULES: dict[str, Callable[[Graph], Floats]] = {
    **UNDIRECTED_RULES,
    "uniform_row": _uniform_row,
    "uniform_column": _uniform_column,
}


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


def _requests(mixing: Any, graph: Graph) -> list[tuple[Kind | None, Any]]:
    """What was asked for, as (role, rule or matrix); the role is None where the sums decide."""
    if mixing is None:
        if not graph.is_directed:
            return [(None, "metropolis")]
        return [(Kind.ROW, "uniform_row"), (Kind.COLUMN, "uniform_column")]
    if not isinstance(mixing, Mapping):
        return [(None, mixing)]
    roles = dict(cast("Mapping[Any, Any]", mixing))
    unknown = [role for role in roles if role not in (Kind.ROW, Kind.COLUMN)]
    if unknown or not roles:
        raise MixingError(
            f"a mapping of mixing has the keys 'row' and 'column', but its keys are {list(roles)}. "
            "Pass a doubly stochastic matrix or a rule by itself: mixing=W."
        )
    return [(Kind(role), roles[role]) for role in (Kind.ROW, Kind.COLUMN) if role in roles]


def _weights(graph: Graph, role: Kind | None, spec: Any) -> Weights:
    """The weights of a rule or a matrix, with Assumption 1 checked."""
    weights = _by_rule(graph, spec) if isinstance(spec, str) else _by_matrix(graph, spec)
    by_row = _objection(graph, weights, Kind.ROW)
    by_column = _objection(graph, weights, Kind.COLUMN)
    if role is None and by_row and by_column:
        raise MixingError(
            f"a mixing matrix has rows or columns that sum to 1, but {by_column} and {by_row}. "
            "Divide every row (or every column) by its sum, or use a rule such as "
            f'mixing="{"uniform_row" if graph.is_directed else "metropolis"}".'
        )
    objection = {Kind.ROW: by_row, Kind.COLUMN: by_column}.get(role) if role else None
    if objection:
        raise MixingError(
            f'mixing={{"{role}": …}} needs a matrix whose {role}s sum to 1, but {objection}. '
            f'Divide every {role} by its sum, or use the rule "uniform_{role}".'
        )
    return weights


def _by_rule(graph: Graph, rule: str) -> Weights:
    if rule not in RULES:
        raise MixingError(
            f"mixing is a rule, a matrix or a mapping, but there is no rule {rule!r}. "
            f"The rules are {', '.join(RULES)}."
        )
    if graph.is_directed and rule in UNDIRECTED_RULES:
        raise MixingError(
            f"mixing {rule!r} needs an undirected graph, but this one has {graph.n_arcs} directed "
            'arcs. Use "uniform_row" or "uniform_column", or leave mixing out to get both.'
        )
    links = RULES[rule](graph)
    # The own weight is what the others leave of 1, so that the sums hold to rounding.
    ends = graph.senders if rule == "uniform_column" else graph.receivers
    return Weights(1.0 - np.bincount(ends, links, minlength=graph.n_agents), links)


def _by_matrix(graph: Graph, matrix: Any) -> Weights:
    m = graph.n_agents
    rows, columns, values = _entries(matrix, m)

    def refuse(rule: str, wrong: NDArray[np.bool_], way_out: str) -> None:
        if wrong.any():
            k = int(np.argmax(wrong))
            entry = f"W[{rows[k]}, {columns[k]}] = {values[k]:.6g}"
            raise MixingError(f"{rule}, but {entry}. {way_out}")

    refuse("weights are finite", ~np.isfinite(values), "Replace this entry.")
    refuse("weights are not negative", values < 0, 'Use a rule such as mixing="metropolis".')
    is_own = rows == columns
    own = np.zeros(m)
    own[rows[is_own]] = values[is_own]
    if not own.all():
        i = int(np.argmin(own))
        raise MixingError(
            f"every agent keeps a positive weight for itself, but W[{i}, {i}] = 0. "
            "Use (I + W)/2 instead of W."
        )
    here = rows * m + columns
    arcs = graph.receivers * m + graph.senders
    is_link = np.isin(here, arcs)
    refuse(
        "w_ij > 0 needs an arc j -> i",
        ~is_own & ~is_link,
        "Set the entry to 0 or add the link; the first index receives, the second sends.",
    )
    missing = ~np.isin(arcs, here)
    if missing.any():
        i, j = divmod(int(arcs[np.argmax(missing)]), m)
        raise MixingError(
            f"every arc j -> i needs w_ij > 0, but W[{i}, {j}] = 0. Give it weight, or leave the "
            "arc out of the graph; the first index receives, the second sends."
        )
    return Weights(own, values[is_link])


def _entries(
    matrix: Any, m: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Rows, columns and values of the entries that are not zero, sorted by (row, column)."""
    is_sparse = hasattr(matrix, "tocsr")
    try:
        dense = None if is_sparse else np.asarray(matrix)
        dtype = np.dtype(matrix.dtype if dense is None else dense.dtype)
    except (TypeError, ValueError):
        dense, dtype = np.empty(0), np.dtype(object)
    if dtype.kind not in "fiu":
        raise MixingError(
            f"mixing is a rule, a real matrix or a mapping, but got a {type(matrix).__name__} of "
            f"type {dtype}. Pass an array of floats or one of the rules {', '.join(RULES)}."
        )
    shape: tuple[int, ...] = matrix.shape if dense is None else dense.shape
    if shape != (m, m):
        raise MixingError(
            f"a mixing matrix of {m} agents has shape {(m, m)}, but its shape is {shape}. "
            "Pass one row and one column per agent of the graph."
        )
    if dense is not None:
        rows, columns = np.divmod(np.flatnonzero(dense), m)
        return rows, columns, dense[rows, columns].astype(np.float64)
    csr = matrix.tocsr(copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    rows = np.repeat(np.arange(m), np.diff(csr.indptr))
    return rows, csr.indices.astype(np.int64), csr.data.astype(np.float64)


def _objection(graph: Graph, weights: Weights, kind: Kind) -> str | None:
    """Why the weights are not of this kind, or None if they are."""
    match kind:
        case Kind.ROW:
            return _sum_objection("row", graph, weights, graph.receivers)
        case Kind.COLUMN:
            return _sum_objection("column", graph, weights, graph.senders)
        case Kind.DOUBLY:
            by_column = _objection(graph, weights, Kind.COLUMN)
            return by_column or _objection(graph, weights, Kind.ROW)
        case Kind.SYMMETRIC:
            by_sum = _objection(graph, weights, Kind.DOUBLY)
            return by_sum or _asymmetry(graph, weights)


def _sum_objection(
    line: str, graph: Graph, weights: Weights, ends: NDArray[np.int64]
) -> str | None:
    sums = weights.own + np.bincount(ends, weights.links, minlength=graph.n_agents)
    n_weights = 1 + np.bincount(ends, minlength=graph.n_agents)
    excess = np.abs(sums - 1) - (SUM_TOLERANCE + n_weights * 2.0**-52)
    worst = int(np.argmax(excess))
    if excess[worst] <= 0:
        return None
    is_close = abs(sums[worst] - 1) < 1e-4
    return f"{line} {worst} sums to {sums[worst]:{'.16g' if is_close else '.4g'}}"


def _asymmetry(graph: Graph, weights: Weights) -> str | None:
    # A stable sort by sender lists the arcs of the transposed graph, by (sender, receiver).
    order = np.argsort(graph.senders, kind="stable")
    i, j = graph.receivers, graph.senders
    is_one_way = (j[order] != i) | (i[order] != j)
    if is_one_way.any():
        # The first arc without its way back, whichever of the two lists it is missing from.
        k = int(np.argmax(is_one_way))
        a, b = min((i[k], j[k]), (j[order[k]], i[order[k]]))
        return f"W[{a}, {b}] and W[{b}, {a}] are not both positive"
    gap = np.abs(weights.links - weights.links[order])
    k = int(np.argmax(gap)) if gap.size else 0
    if not gap.size or gap[k] <= SYMMETRY_TOLERANCE:
        return None
    there, back = weights.links[k], weights.links[order[k]]
    return f"W[{i[k]}, {j[k]}] = {there:.6g} and W[{j[k]}, {i[k]}] = {back:.6g}"


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


def _spectrum_ends(product: Callable[[Floats], Floats], m: int) -> tuple[float, float]:
    """The ends of the spectrum of a symmetric operator on the vectors that sum to zero.

    Lanczos' recursion without reorthogonalisation: it needs three vectors, and the ends converge
    all the same (Paige 1980). ARPACK's restarts take minutes at a million agents.
    """
    eigh_tridiagonal = optional("scipy.linalg", "sim").eigh_tridiagonal
    diagonal: list[float] = []
    beside: list[float] = []
    before = np.zeros(m)
    now = np.random.default_rng(0).standard_normal(m)
    now -= now.mean()
    now /= np.linalg.norm(now)
    next_look = 16
    low = high = 0.0
    for step in range(1, MOST_LANCZOS_STEPS + 1):
        new = product(now)
        new -= new.mean()
        diagonal.append(float(new @ now))
        new -= diagonal[-1] * now
        if beside:
            new -= beside[-1] * before
        length = float(np.linalg.norm(new))
        is_exhausted = length < 1e-13
        if step == next_look or is_exhausted:
            ends = [
                eigh_tridiagonal(diagonal, beside, select="i", select_range=(k, k))
                for k in (0, step - 1)
            ]
            low, high = (float(values[0]) for values, _ in ends)
            residual = max(length * abs(float(vectors[-1, 0])) for _, vectors in ends)
            if residual <= RESIDUAL_TOLERANCE * (1 - max(-low, high)) or is_exhausted:
                return low, high
            next_look = step + step // 4
        beside.append(length)
        before, now = now, new / length
    raise MixingError(
        f"the spectrum of W did not settle in {MOST_LANCZOS_STEPS} Lanczos steps: its eigenvalues "
        f"reach from {low:.9g} to at least {high:.9g}, too near 1 to tell. Use a graph that mixes "
        "faster, such as random_regular or exponential."
    )
