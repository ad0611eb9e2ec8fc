"""DGD by decent-bench (AGPL-3.0), through its public interface: `DGD.run` on a `P2PNetwork`."""

from __future__ import annotations

from importlib.metadata import version

import networkx as nx
import numpy as np
from common import Given, report
from decent_array import interoperability as iop
from decent_bench.agents import Agent
from decent_bench.algorithms.p2p import DGD
from decent_bench.costs import QuadraticCost
from decent_bench.networks import P2PNetwork


def run(given: Given, iterations: int) -> np.ndarray:
    agents = [
        # one snapshot of the state, at the end, because hushgrad samples seldom
        Agent(QuadraticCost(iop.from_numpy(A), iop.from_numpy(b)), state_snapshot_period=iterations)
        for A, b in given.quadratics()
    ]
    network = P2PNetwork(nx.from_numpy_array(given.adjacency), agents)  # Metropolis weights
    DGD(step_size=given.stepsize).run(network, iterations)
    return np.stack([iop.to_numpy(agent.x) for agent in network.agents()])


if __name__ == "__main__":
    iop.set_backend("numpy", "cpu")
    report(run, version("decent-bench"))
