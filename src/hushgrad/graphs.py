"""Who can send to whom: graphs as arc arrays, their builders, and the door to networkx and files.

An arc j -> i lets agent j send to agent i and corresponds to the entry ``W[i, j]``: the first index
receives. Agents are numbered from 0. Builders of random graphs return connected ones; graphs that
come from outside (`from_edges`, `from_networkx`, `from_file`) may be disconnected, and `Network`
refuses them.
"""

from __future__ import annotations

import csv
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import GraphError, optional

type Ints = NDArray[np.int64]

# Arcs are sorted as single integers receiver * n_agents + sender, which must fit 63 bits.
MOST_AGENTS = 2**31

# A random graph that is disconnected is drawn again from the same stream, this often at most.
ATTEMPTS = 100

# Rounds in which clashing links look for another place. Each settles a good part of them, so only
# tiny dense graphs, where a link may have nowhere to go, ever come near it.
ROUNDS = 1000

HEADERS = (("source", "target"), ("sender", "receiver"), ("from", "to"))


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed or undirected graph without self loops, as arrays of its arcs.

    Made by the builders of this module. The arcs are unique and sorted by (receiver, sender), the
    order in which every array "per arc" of hushgrad is laid out; an undirected graph has every arc
    in both directions. The arrays are read-only.
    """

    n_agents: int
    senders: Ints  # (n_arcs,) j of every arc j -> i
    receivers: Ints  # (n_arcs,) i of every arc j -> i
    is_directed: bool
    names: tuple[str, ...] | None = None  # (n_agents,) labels the agents had outside

    @property
    def n_arcs(self) -> int:
        return len(self.senders)

    @property
    def n_links(self) -> int:
        """Pairs of an undirected graph, arcs of a directed one."""
        return self.n_arcs if self.is_directed else self.n_arcs // 2

    @property
    def links(self) -> Ints:
        """(n_links, 2) sorted pairs i < j; of a directed graph (sender, receiver).

        `from_edges` makes the same graph of them.
        """
        if self.is_directed:
            return np.stack([self.senders, self.receivers], axis=1)
        once = self.receivers < self.senders
        return np.stack([self.receivers[once], self.senders[once]], axis=1)

    @property
    def in_degree(self) -> Ints:
        """(n_agents,) how many others each agent hears."""
        return np.bincount(self.receivers, minlength=self.n_agents)

    @property
    def out_degree(self) -> Ints:
        """(n_agents,) how many others each agent sends to."""
        return np.bincount(self.senders, minlength=self.n_agents)

    @cached_property
    def components(self) -> NDArray[np.int32]:
        """(n_agents,) the number of each agent's component, strongly connected if directed."""
        csgraph = optional("scipy.sparse.csgraph", "sim")
        return csgraph.connected_components(
            self.to_scipy(), directed=self.is_directed, connection="strong"
        )[1]

    @property
    def is_connected(self) -> bool:
        """Whether every agent reaches every other one along the arcs."""
        if self.n_agents > 1 and not (self.in_degree.all() and self.out_degree.all()):
            return False
        return not self.components.any()

    def two_hop(self) -> Graph:
        """The graph of all pairs at distance one or two, along the arcs: the pattern of W².

        >>> path(4).two_hop().links.tolist()
        [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]
        """
        near = self.to_scipy()
        both = (near + near @ near).tocoo()
        apart = both.row != both.col
        receivers, senders = both.row[apart].astype(np.int64), both.col[apart].astype(np.int64)
        return _graph(self.n_agents, senders, receivers, self.is_directed, self.names)

    def to_scipy(self, values: NDArray[Any] | None = None) -> Any:
        """A scipy CSR array with ``values`` (n_arcs,) at [receiver, sender]; by default True."""
        sparse = optional("scipy.sparse", "sim")
        starts = np.concatenate([[0], np.cumsum(self.in_degree)])
        data = np.ones(self.n_arcs, dtype=bool) if values is None else values
        return sparse.csr_array((data, self.senders, starts), shape=(self.n_agents,) * 2)

    def to_networkx(self) -> Any:
        """A networkx Graph or DiGraph of the agents' names, or of their numbers."""
        networkx = optional("networkx", "sim")
        graph = networkx.DiGraph() if self.is_directed else networkx.Graph()
        nodes = range(self.n_agents) if self.names is None else self.names
        graph.add_nodes_from(nodes)
        graph.add_edges_from((nodes[a], nodes[b]) for a, b in self.links.tolist())
        return graph

    def __repr__(self) -> str:
        links = "arcs" if self.is_directed else "links"
        return f"Graph({self.n_agents} agents, {self.n_links} {links})"


def ring(n_agents: int) -> Graph:
    """Agents in a circle, each linked with the next. Two agents share one link, one agent has none.

    >>> ring(5)
    Graph(5 agents, 5 links)
    """
    n = _count("ring", "n_agents", n_agents, 1)
    return _cycle(np.arange(n))


def path(n_agents: int) -> Graph:
    """Agents in a row, each linked with the next."""
    n = _count("path", "n_agents", n_agents, 1)
    return _undirected(n, np.arange(n - 1), np.arange(1, n))


def star(n_agents: int) -> Graph:
    """Agent 0 linked with every other one."""
    n = _count("star", "n_agents", n_agents, 1)
    return _undirected(n, np.zeros(n - 1, dtype=np.int64), np.arange(1, n))


def complete(n_agents: int) -> Graph:
    """Every agent linked with every other one."""
    n = _count("complete", "n_agents", n_agents, 1)
    return _undirected(n, *_pairs(np.arange(n * (n - 1) // 2)))


def grid(rows: int, columns: int) -> Graph:
    """Agents on a rectangle, linked with those beside, above and below; agent r * columns + c."""
    r = _count("grid", "rows", rows, 1)
    c = _count("grid", "columns", columns, 1)
    if r * c > MOST_AGENTS:
        raise GraphError(
            f"grid needs at most {MOST_AGENTS} agents, but rows * columns = {r * c}. "
            "Pass fewer rows or columns."
        )
    at = np.arange(r * c).reshape(r, c)
    starts = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    ends = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    return _undirected(r * c, starts, ends)


def paper() -> Graph:
    """Five agents in a ring with the chord 0-2, for the paper's experiments.

    The drawing of the paper's five-agent graph is not in its source, so this one is ours.
    """
    return from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (0, 2)])


def exponential(n_agents: int, is_directed: bool = True) -> Graph:
    """Agent i sends to the agents i + 1, i + 2, i + 4, i + 8, … (modulo n_agents).

    All in- and out-degrees are equal, so that uniform weights are doubly stochastic although the
    arcs are one-way. ``is_directed=False`` adds the way back to every arc.
    """
    n = _count("exponential", "n_agents", n_agents, 1)
    hops = 2 ** np.arange((n - 1).bit_length())
    senders = np.repeat(np.arange(n), len(hops))
    receivers = (senders + np.tile(hops, n)) % n
    if is_directed:
        return _graph(n, senders, receivers, is_directed=True)
    low, high = np.divmod(np.unique(_link_keys(n, senders, receivers)), n)
    return _undirected(n, low, high)


def erdos_renyi(n_agents: int, p: float, seed: int = 0) -> Graph:
    """Every pair linked with probability p, independently; drawn again until connected."""
    n = _count("erdos_renyi", "n_agents", n_agents, 1)
    p = _probability("erdos_renyi", "p", p)
    rng = _generator("erdos_renyi", seed)

    def draw() -> Graph | None:
        low, high = _pairs(_successes(n * (n - 1) // 2, p, rng))
        degree = np.bincount(low, minlength=n) + np.bincount(high, minlength=n)
        # An isolated agent is what disconnects these graphs; it shows before the costly sort.
        return _undirected(n, low, high) if n == 1 or degree.all() else None

    return _first_connected(
        draw,
        f"erdos_renyi drew {ATTEMPTS} disconnected graphs of {n} agents with p = {p:.4g}. "
        f"Graphs connect above p = ln(n)/n = {math.log(n) / n:.4g}: pass a larger p.",
    )


def random_regular(n_agents: int, degree: int, seed: int = 0) -> Graph:
    """A random connected graph in which every agent has ``degree`` links.

    The links' ends are paired at random; a self loop or a repeated link then trades ends with a
    random link until none is left (McKay and Wormald's switchings; nearly uniform).
    """
    n = _count("random_regular", "n_agents", n_agents, 1)
    degree = _count("random_regular", "degree", degree, 0, most=n - 1)
    rng = _generator("random_regular", seed)
    if n * degree % 2:
        raise GraphError(
            f"random_regular needs n_agents * degree to be even, since a link has two ends, but it "
            f"is {n} * {degree}. Pass an even n_agents or an even degree."
        )
    if degree < 2 and n > degree + 1:
        raise GraphError(
            f"random_regular needs degree >= 2 to connect {n} agents, but degree = {degree}. "
            "Pass degree=2 or more."
        )
    if degree == 2:  # connected means one cycle, which pairing would hardly ever give
        return _cycle(rng.permutation(n))

    def draw() -> Graph | None:
        # Beyond half of all pairs it is easier to draw the links that are not there.
        if 2 * degree < n:
            ends = _pairing(n, degree, rng)
            return None if ends is None else _undirected(n, ends[0], ends[1])
        gaps = _pairing(n, n - 1 - degree, rng)
        if gaps is None:
            return None
        everything = _link_keys(n, *_pairs(np.arange(n * (n - 1) // 2)))
        low, high = np.divmod(np.setdiff1d(everything, _link_keys(n, gaps[0], gaps[1])), n)
        return _undirected(n, low, high)

    return _first_connected(
        draw,
        f"random_regular found no connected graph of {n} agents with degree {degree} in {ATTEMPTS} "
        "draws. Pass another seed or a larger degree.",
    )


def small_world(n_agents: int, degree: int, p: float, seed: int = 0) -> Graph:
    """A ring of agents linked with their ``degree`` nearest, rewired (Watts and Strogatz).

    Each link (i, i + t) is moved with probability p: it then leads from i to a random agent that i
    is not linked with, if there is one. Drawn again until connected.
    """
    n = _count("small_world", "n_agents", n_agents, 3)
    degree = _count("small_world", "degree", degree, 2, most=n - 1)
    p = _probability("small_world", "p", p)
    rng = _generator("small_world", seed)
    if degree % 2:
        raise GraphError(
            f"small_world needs an even degree, half of it to either side, but degree = {degree}. "
            f"Pass degree={degree - 1}."
        )
    if degree == n - 1:
        return complete(n)  # nowhere to rewire to
    starts = np.tile(np.arange(n), degree // 2)
    ends = (starts + np.repeat(np.arange(1, degree // 2 + 1), n)) % n

    def draw() -> Graph:
        laid = _link_keys(n, starts, ends)
        waiting = np.flatnonzero(rng.random(len(starts)) < p)
        for _ in range(ROUNDS):
            if not waiting.size:
                break
            others = (starts[waiting] + rng.integers(1, n, size=waiting.size)) % n
            tried = _link_keys(n, starts[waiting], others)
            is_free = np.zeros(waiting.size, dtype=bool)
            is_free[np.unique(tried, return_index=True)[1]] = True
            is_free &= ~_are_in(tried, np.sort(laid))
            laid[waiting[is_free]] = tried[is_free]
            waiting = waiting[~is_free]
        low, high = np.divmod(laid, n)
        return _undirected(n, low, high)

    return _first_connected(
        draw,
        f"small_world found no connected graph of {n} agents with degree {degree} and p = {p:.4g} "
        f"in {ATTEMPTS} draws. Pass a larger degree or a smaller p.",
    )


def random_directed(n_agents: int, degree: int, seed: int = 0) -> Graph:
    """Each agent i sends to i + 1 (modulo n_agents) and to ``degree`` others drawn at random.

    The ring makes the graph strongly connected; out-degrees are ``degree + 1``, in-degrees vary.
    """
    n = _count("random_directed", "n_agents", n_agents, 2)
    degree = _count("random_directed", "degree", degree, 0, most=n - 2)
    rng = _generator("random_directed", seed)
    if 2 * degree > n:
        hops = rng.permuted(np.tile(np.arange(2, n), (n, 1)), axis=1)[:, :degree]
    else:
        hops = rng.integers(2, n, size=(n, degree)) if degree else np.empty((n, 0), dtype=np.int64)
        while True:
            hops.sort(axis=1)
            repeated = np.zeros(hops.shape, dtype=bool)
            repeated[:, 1:] = hops[:, 1:] == hops[:, :-1]
            if not repeated.any():
                break
            hops[repeated] = rng.integers(2, n, size=np.count_nonzero(repeated))
    senders = np.repeat(np.arange(n), degree + 1)
    hops = np.concatenate([np.ones((n, 1), dtype=np.int64), hops], axis=1)
    return _graph(n, senders, (senders + hops.ravel()) % n, is_directed=True)


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

    return _checked(pairs, n_agents, is_directed, place)


def from_networkx(graph: Any) -> Graph:
    """A graph from a networkx Graph or DiGraph; its edge u -> v means that u sends to v.

    The nodes become the agents 0, 1, … in the graph's order of iteration, and ``names`` keeps what
    they were called, unless that was just these numbers. Self loops are refused, like parallel
    edges, since an agent's weight for itself is the business of the mixing rule. Edge attributes
    are ignored.
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
    return _checked(pairs, len(nodes), graph.is_directed(), place, names)


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
        return _checked(pairs, None, is_directed, place)
    if len(rows) > 1 and all(re.fullmatch(r"-?\d+", cell) for row in rows[1:] for cell in row):
        raise GraphError(
            f"{place(0)} is neither a header nor numbers like all other lines. A header is "
            f"{' or '.join(','.join(header) for header in HEADERS)}."
        )
    names = tuple(dict.fromkeys(cell for row in rows for cell in row))
    number = {name: i for i, name in enumerate(names)}
    pairs = np.array([(number[a], number[b]) for a, b in rows], dtype=np.int64)
    return _checked(pairs, len(names), is_directed, place, names)


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


def _checked(
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
    n = _count("a graph", "n_agents", needed if n_agents is None else n_agents, 1)
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
    keys = receivers * n + senders if is_directed else _link_keys(n, senders, receivers)
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
        return _graph(n, senders, receivers, is_directed=True, names=names)
    return _undirected(n, senders, receivers, names)


def _graph(
    n_agents: int,
    senders: Ints,
    receivers: Ints,
    is_directed: bool,
    names: tuple[str, ...] | None = None,
) -> Graph:
    """The graph of these arcs, which are distinct but in any order."""
    keys = receivers * n_agents + senders
    keys.sort()
    receivers, senders = np.divmod(keys, n_agents)
    receivers.flags.writeable = senders.flags.writeable = False
    return Graph(n_agents, senders, receivers, is_directed, names)


def _undirected(
    n_agents: int, starts: Ints, ends: Ints, names: tuple[str, ...] | None = None
) -> Graph:
    """The undirected graph of these links, each given once."""
    both = np.concatenate([starts, ends]), np.concatenate([ends, starts])
    return _graph(n_agents, *both, is_directed=False, names=names)


def _cycle(agents: Ints) -> Graph:
    n = len(agents)
    n_links = n if n > 2 else n - 1
    return _undirected(n, agents[:n_links], np.roll(agents, -1)[:n_links])


def _link_keys(n_agents: int, starts: Ints, ends: Ints) -> Ints:
    """One integer per link that is the same in both directions: low * n_agents + high."""
    return np.minimum(starts, ends) * n_agents + np.maximum(starts, ends)


def _pairs(index: Ints) -> tuple[Ints, Ints]:
    """The pairs low < high at these places of the list (0, 1), (0, 2), (1, 2), (0, 3), …"""
    high = ((1 + np.sqrt(1 + 8.0 * index)) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > index  # the square root may round up to the next row,
    high += high * (high + 1) // 2 <= index  # or down to the one before
    return index - high * (high - 1) // 2, high


def _successes(n_trials: int, p: float, rng: np.random.Generator) -> Ints:
    """Which of n_trials coins of probability p fall on heads, in time and memory of the heads."""
    if p == 0 or n_trials == 0:
        return np.empty(0, dtype=np.int64)
    last = -1
    found: list[Ints] = []
    while last < n_trials:
        size = int((n_trials - last) * p * 1.01) + 100
        gaps = np.minimum(rng.geometric(p, size=size), n_trials + 1)
        found.append(last + np.cumsum(gaps))
        last = int(found[-1][-1])
    heads = np.concatenate(found)
    return heads[heads < n_trials]


def _pairing(n_agents: int, degree: int, rng: np.random.Generator) -> Ints | None:
    """(2, n_links) ends of the links of a simple regular graph, or None if the repair got stuck.

    A bad link (a, b) and a random link (c, d) become (a, d) and (c, b) if these two are new. With
    2 * degree < n_agents there is always such a link, and the number of bad ones never grows.
    """
    ends = rng.permutation(np.repeat(np.arange(n_agents), degree)).reshape(2, -1)
    n_links = ends.shape[1]
    for _ in range(ROUNDS):
        keys = _link_keys(n_agents, ends[0], ends[1])
        order = np.argsort(keys)
        keys = keys[order]
        is_bad = ends[0] == ends[1]
        is_bad[order[1:][keys[1:] == keys[:-1]]] = True
        bad = np.flatnonzero(is_bad)
        if not bad.size:
            return ends
        mate = rng.integers(n_links, size=bad.size)
        side = rng.integers(2, size=bad.size)
        (a, b), c, d = ends[:, bad], ends[side, mate], ends[1 - side, mate]
        new = np.stack([_link_keys(n_agents, a, d), _link_keys(n_agents, c, b)])
        is_possible = (a != d) & (c != b) & ~is_bad[mate] & _are_single(mate)
        is_possible &= (_are_single(new) & ~_are_in(new, keys)).all(axis=0)
        bad, mate = bad[is_possible], mate[is_possible]
        ends[0, bad], ends[1, bad] = a[is_possible], d[is_possible]
        ends[0, mate], ends[1, mate] = c[is_possible], b[is_possible]
    return None


def _are_single(values: Ints) -> NDArray[np.bool_]:
    """Where a value occurs only once."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts == 1)[inverse].reshape(values.shape)


def _are_in(values: Ints, ordered: Ints) -> NDArray[np.bool_]:
    """Where a value occurs in a sorted array; for few values far faster than np.isin."""
    return np.searchsorted(ordered, values) < np.searchsorted(ordered, values, side="right")


def _first_connected(draw: Callable[[], Graph | None], failure: str) -> Graph:
    for _ in range(ATTEMPTS):
        graph = draw()
        if graph is not None and graph.is_connected:
            return graph
    raise GraphError(failure)


def _count(builder: str, name: str, value: Any, least: int, most: int = MOST_AGENTS) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool) or not least <= count <= most:
        raise GraphError(
            f"{builder} needs a whole number {name} from {least} to {most}, but {name} = {value!r}."
            f" Pass for example {name}={max(least, min(5, most))}."
        )
    return count


def _probability(builder: str, name: str, value: Any) -> float:
    try:
        p = float(value)
    except (TypeError, ValueError):
        p = math.nan
    if not 0 <= p <= 1:
        raise GraphError(
            f"{builder} needs a probability {name} from 0 to 1, but {name} = {value!r}. "
            f"Pass for example {name}=0.1."
        )
    return p


def _generator(builder: str, seed: Any) -> np.random.Generator:
    return np.random.default_rng(_count(builder, "seed", seed, 0, most=2**63 - 1))
