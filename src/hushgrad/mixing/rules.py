"""The weights that a user asked for, by rule or by matrix, checked against Assumption 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import MixingError
from hushgrad.graphs import Graph
from hushgrad.mixing.weights import SAME, Floats, Kind, Weights, objection

type Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Degrees:
    """The degrees at both ends of some arcs j -> i."""

    into: Ints  # (arcs,) in-degree of i
    out: Ints  # (arcs,) out-degree of j
    graph: Graph

    @property
    def larger(self) -> Ints:
        return np.maximum(self.into, self.out)


type _Rule = Callable[[_Degrees], Floats]  # w_ij of every arc

UNDIRECTED_RULES: dict[str, _Rule] = {
    "metropolis": lambda d: 1 / (1.0 + d.larger),
    "lazy_metropolis": lambda d: 1 / (1.0 + d.larger) / 2,
    "max_degree": lambda d: np.full(len(d.into), 1 / (1 + d.graph.largest_degree)),
}
RULES: dict[str, _Rule] = {
    **UNDIRECTED_RULES,
    "uniform_row": lambda d: 1 / (1.0 + d.into),
    "uniform_column": lambda d: 1 / (1.0 + d.out),
}


def requests(mixing: Any, graph: Graph) -> list[tuple[Kind | None, Any]]:
    """The wanted matrices as (role, rule or matrix); the role is None where the sums decide."""
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


def make_weights(graph: Graph, role: Kind | None, spec: Any) -> Weights:
    """The weights of a rule or a matrix, with Assumption 1 checked."""
    weights = _by_rule(graph, spec) if isinstance(spec, str) else _by_matrix(graph, spec)
    by_row = objection(graph, weights, Kind.ROW)
    by_column = objection(graph, weights, Kind.COLUMN)
    if role is None and by_row and by_column:
        raise MixingError(
            f"a mixing matrix has rows or columns that sum to 1, but {by_column} and {by_row}. "
            "Divide every row (or every column) by its sum, or use a rule such as "
            f'mixing="{"uniform_row" if graph.is_directed else "metropolis"}".'
        )
    wrong = {Kind.ROW: by_row, Kind.COLUMN: by_column}.get(role) if role else None
    if wrong:
        raise MixingError(
            f'mixing={{"{role}": …}} needs a matrix whose {role}s sum to 1, but {wrong}. '
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
    into, out = graph.in_degree[graph.receivers], graph.out_degree[graph.senders]
    links = RULES[rule](_Degrees(into, out, graph))
    ends = graph.senders if rule == "uniform_column" else graph.receivers
    return Weights(_own(graph.n_agents, ends, links), links)


def rows_by_rule(graph: Graph, rule: str, agents: Ints) -> Weights:
    """The rows of these agents by a rule for undirected graphs: their degrees and those of their
    neighbours are enough.
    """
    senders, _ = graph.arcs_into(agents)
    near = np.unique(senders)
    which = np.searchsorted(near, senders)
    place = np.repeat(np.arange(len(agents)), graph.degrees(agents))
    degree = np.bincount(place, minlength=len(agents))[place]
    links = UNDIRECTED_RULES[rule](_Degrees(degree, graph.degrees(near)[which], graph))
    return Weights(_own(len(agents), place, links), links)


def _own(n_agents: int, ends: Ints, links: Floats) -> Floats:
    """The rest of 1 that the others leave, so that the sums hold to rounding.

    Where all weights of an agent are equal up to rounding, they are equal to the bit: on a complete
    graph, all agents then form the same sums.
    """
    own = 1.0 - np.bincount(ends, links, minlength=n_agents)
    least, most = np.full(n_agents, np.inf), np.zeros(n_agents)
    np.minimum.at(least, ends, links)
    np.maximum.at(most, ends, links)
    return np.where((least == most) & (np.abs(own - least) < SAME * own), least, own)


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
