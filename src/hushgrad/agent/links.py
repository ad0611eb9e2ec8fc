"""Numbers of links and weights over two hops, from a whole network.

All drivers that know the whole network use them: simulators, and networks of local processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.errors import optional
from hushgrad.graphs import Graph
from hushgrad.mixing import Kind, Network


def link_numbers(graph: Graph) -> NDArray[np.int64]:
    """(arcs,) the number of each arc's undirected link in `graph.links`."""
    ends = graph.senders, graph.receivers
    return graph.link_numbers(np.minimum(*ends), np.maximum(*ends))


def two_hop_weights(
    network: Network, two_hop: Graph, kind: Kind
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The weights of A and of A² on the two-hop arcs, and the diagonal of A²."""
    sparse = optional("scipy.sparse", "sim")
    graph, m = network.graph, network.n_agents
    weights = network.weights(kind)
    one = sparse.csr_array((weights.links, (graph.receivers, graph.senders)), shape=(m, m))
    one = one + sparse.diags_array(weights.own)
    square = (one @ one).tocsr()

    def on_arcs(matrix: Any) -> NDArray[np.float64]:
        if not two_hop.n_arcs:
            return np.zeros(0)
        return np.asarray(matrix[two_hop.receivers, two_hop.senders]).ravel()

    return on_arcs(one.tocsr()), on_arcs(square), square.diagonal()
