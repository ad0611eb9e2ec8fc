"""Graphs of agents: the links over which they send, builders, and doors to networkx and files.

An arc j -> i lets agent j send to agent i and corresponds to the entry ``W[i, j]``: the first index
receives. Agents are numbered from 0. Builders of random graphs return connected ones; graphs that
come from outside (`from_edges`, `from_networkx`, `from_file`) may be disconnected, and `Network`
refuses them.
"""

from hushgrad.graphs.by_rule import RuleGraph
from hushgrad.graphs.drawn import (
    erdos_renyi,
    geometric,
    random_directed,
    random_regular,
    small_world,
)
from hushgrad.graphs.fixed import complete, exponential, grid, paper, path, ring, star, torus
from hushgrad.graphs.graph import Graph
from hushgrad.graphs.outside import from_edges, from_file, from_networkx

__all__ = [
    "Graph",
    "RuleGraph",
    "complete",
    "erdos_renyi",
    "exponential",
    "from_edges",
    "from_file",
    "from_networkx",
    "geometric",
    "grid",
    "paper",
    "path",
    "random_directed",
    "random_regular",
    "ring",
    "small_world",
    "star",
    "torus",
]
