"""Graphs that come from outside: edges, networkx graphs, files. Only this module knows networkx.

A graph from outside may be disconnected; `Network` refuses it then.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import GraphError, optional
from hushgrad.graphs.checks import check_count
from hushgrad.graphs.graph import Graph, Ints, graph_of_arcs, link_keys, undirected

HEADERS = (("source", "target"), ("sender", "receiver"), ("from", "to"))


def from_edges(
    edges: Iterable[Iterable[int]] | NDArray[Any],
    n_agents: int | None = None,
    is_directed: bool = False,
) -> Graph:
    """A graph from pairs of agent numbers, given as a list or an (n, 2) array.

    Directed pairs are (sender, receiver). ``n_agents`` defaults to the largest number plus one.
    Repeated edges and self loops are errors. The graph may be disconnected; `Network` refuses it
    then.

    >>> from_edges([(0, 1), (1, 2)]).in_degree.tolist()
    [1, 2, 1]
    >>> from_edges([(0, 1), (1, 2), (2, 0)], is_directed=True)
    Graph(3 agents, 3 arcs)
    """
    pairs = _integer_pairs(edges)

    def place(k: int) -> str:
        return f"edges[{k}] = ({pairs[k, 0]}, {pairs[k, 1]})"

    return _checked_graph(pairs, n_agents, is_directed, place)


def from_networkx(graph: Any) -> Graph:
    """A graph from a networkx Graph or DiGraph; its edge u -> v means that u sends to v.

    The nodes become the agents 0, 1, … in the graph's order of iteration, and ``names`` keeps what
    they were called, unless that was just these numbers. Self loops are refused, like parallel
    edges: the mixing rule gives every agent a weight for itself. Edge attributes are ignored.
    """
    if not hasattr(graph, "is_multigraph"):
        raise GraphError(
            f"from_networkx needs a networkx Graph or DiGraph, but got a {type(graph).__name__}. "
            "Use from_edges for pairs of numbers."
        )
    if graph.is_multigraph():
        raise GraphError(
            f"from_networkx needs at most one link per pair, but got a {type(graph).__name__}. "
            "Merge parallel edges first: networkx.Graph(graph) or networkx.DiGraph(graph)."
        )
    nodes = list(graph)
    number = {node: i for i, node in enumerate(nodes)}
    edges = list(graph.edges())
    pairs = np.array([(number[u], number[v]) for u, v in edges], dtype=np.int64).reshape(-1, 2)

    def place(k: int) -> str:
        return f"the networkx edge {edges[k]!r}"

    names = tuple(str(node) for node in nodes)
    return _checked_graph(pairs, len(nodes), graph.is_directed(), place, names)


def from_file(path: str | PathLike[str], is_directed: bool | None = None) -> Graph:
    """A graph from a GraphML file or a CSV file of edges.

    A ``.graphml`` file says by itself whether it is directed; ``is_directed`` overrules it.
    A ``.csv`` file has two columns, sender and receiver, with an optional header ``source,target``,
    ``sender,receiver`` or ``from,to``; it is undirected unless ``is_directed=True``. If all its
    entries are integers they are agent numbers from 0; otherwise they are names, numbered by first
    appearance.
    Empty lines and lines that start with ``#`` are skipped.
    """
    file = Path(path)
    if file.suffix.lower() in (".graphml", ".csv") and not file.is_file():
        raise GraphError(f"from_file reads a file, but there is none at '{file}'.")
    match file.suffix.lower():
        case ".graphml":
            return _from_graphml(file, is_directed)
        case ".csv":
            try:
                return _from_csv(file, bool(is_directed))
            except UnicodeDecodeError as error:
                raise GraphError(f"{file} is not UTF-8 text: {error}. Save it as UTF-8.") from error
        case suffix:
            raise GraphError(
                f"from_file reads .graphml and .csv, but {file} ends in {suffix!r}. "
                "Read it with networkx and pass the graph to from_networkx."
            )


def _from_graphml(file: Path, is_directed: bool | None) -> Graph:
    networkx = optional("networkx", "sim")
    # networkx lets through whatever its XML parser and its type conversions raise.
    parse_errors = (networkx.NetworkXError, SyntaxError, ValueError, KeyError, TypeError)
    try:
        graph: Any = networkx.read_graphml(file)
    except parse_errors as error:
        raise GraphError(
            f"{file} is not a GraphML file that networkx can read: {error}. "
            "Write it anew with networkx.write_graphml."
        ) from error
    if is_directed is not None and is_directed != graph.is_directed():
        graph = graph.to_directed() if is_directed else graph.to_undirected()
    try:
        return from_networkx(graph)
    except GraphError as error:
        raise GraphError(f"{file}: {error}") from error


def _from_csv(file: Path, is_directed: bool) -> Graph:
    rows: list[tuple[str, str]] = []
    lines: list[int] = []
    is_first = True
    with file.open(newline="", encoding="utf-8-sig") as text:
        reader = csv.reader(text, skipinitialspace=True)
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells) or cells[0].startswith("#"):
                continue
            is_header = is_first and tuple(cell.lower() for cell in cells) in HEADERS
            is_first = False
            if is_header:
                continue
            if len(cells) != 2 or not all(cells):
                raise GraphError(
                    f"{file}, line {reader.line_num}: an edge is two names or numbers, but the "
                    f"line is {','.join(row)!r}. Write for example 0,1."
                )
            rows.append((cells[0], cells[1]))
            lines.append(reader.line_num)
    if not rows:
        raise GraphError(f"{file} has no edges. Write one per line, for example 0,1.")

    def place(k: int) -> str:
        return f"{file}, line {lines[k]}: {','.join(rows[k])}"

    if all(re.fullmatch(r"-?\d{1,18}", cell) for row in rows for cell in row):
        pairs = np.array([(int(a), int(b)) for a, b in rows], dtype=np.int64)
        return _checked_graph(pairs, None, is_directed, place)
    if len(rows) > 1 and all(re.fullmatch(r"-?\d+", cell) for row in rows[1:] for cell in row):
        raise GraphError(
            f"{place(0)} is neither a header nor numbers like all other lines. A header is "
            f"{' or '.join(','.join(header) for header in HEADERS)}."
        )
    names = tuple(dict.fromkeys(cell for row in rows for cell in row))
    number = {name: i for i, name in enumerate(names)}
    pairs = np.array([(number[a], number[b]) for a, b in rows], dtype=np.int64)
    return _checked_graph(pairs, len(names), is_directed, place, names)


def _integer_pairs(edges: Any) -> Ints:
    way_out = "Pass pairs of agent numbers such as [(0, 1), (1, 2)]; for names use from_networkx."
    try:
        listed: Any = edges if hasattr(edges, "dtype") else [tuple(edge) for edge in edges]
        pairs = np.asarray(listed)
    except (TypeError, ValueError) as error:
        raise GraphError(f"from_edges needs pairs, but got {edges!r:.80}. {way_out}") from error
    if pairs.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise GraphError(f"from_edges needs shape (n, 2), but got {pairs.shape}. {way_out}")
    if not np.issubdtype(pairs.dtype, np.integer):
        wrong = [k for k, pair in enumerate(pairs.tolist()) if not _are_integers(pair)]
        k = wrong[0] if wrong else 0  # a whole-number float array has no single culprit
        raise GraphError(
            f"from_edges needs integers, but edges[{k}] = {tuple(pairs[k].tolist())}. {way_out}"
        )
    return pairs.astype(np.int64)


def _are_integers(pair: list[Any]) -> bool:
    return all(isinstance(x, int | float) and x == x // 1 for x in pair)


def _checked_graph(
    pairs: Ints,
    n_agents: int | None,
    is_directed: bool,
    place: Callable[[int], str],
    names: tuple[str, ...] | None = None,
) -> Graph:
    """The graph of the pairs (sender, receiver), or an error with the place of the wrong one."""
    if n_agents is None and not len(pairs):
        raise GraphError(
            "from_edges cannot tell the number of agents from no edges. Pass n_agents, too."
        )
    needed = int(pairs.max(initial=0)) + 1
    n = check_count("a graph", "n_agents", needed if n_agents is None else n_agents, 1)
    senders, receivers = pairs[:, 0], pairs[:, 1]

    outside = np.flatnonzero((pairs < 0).any(axis=1) | (pairs >= n).any(axis=1))
    if outside.size:
        raise GraphError(
            f"agents are numbered 0 to {n - 1}, but {place(outside[0])}. "
            "Number them from 0, or pass a larger n_agents."
        )
    loops = np.flatnonzero(senders == receivers)
    if loops.size:
        raise GraphError(
            f"a link joins two agents, but {place(loops[0])} joins one with itself. Leave it out: "
            "every agent keeps a share for itself anyway."
        )
    keys = receivers * n + senders if is_directed else link_keys(n, senders, receivers)
    order = np.argsort(keys, kind="stable")
    repeats = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    if repeats.size:
        first, again = order[repeats[0] : repeats[0] + 2].tolist()
        raise GraphError(
            f"an edge is given once, but {place(again)} repeats {place(first)}. Leave one out"
            f"{'' if is_directed else ', or pass is_directed=True if each is one way'}."
        )
    if names is not None and len(set(names)) < n:
        twice = max(names, key=Counter(names).__getitem__)
        raise GraphError(f"agents need distinct names, but two are {twice!r}. Rename one.")
    if names == tuple(map(str, range(n))):
        names = None
    if is_directed:
        return graph_of_arcs(n, senders, receivers, is_directed=True, names=names)
    return undirected(n, senders, receivers, names)
