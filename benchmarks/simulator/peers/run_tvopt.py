"""DGD by tvopt (GPL-3.0), through its public interface: `distributed_solvers.dpgm` without g."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
from common import Given, report
from tvopt import costs, networks
from tvopt.distributed_solvers import dpgm


def run(given: Given, iterations: int) -> np.ndarray:
    parts = [costs.Quadratic(A, b[:, None]) for A, b in given.quadratics()]
    problem = {
        "f": costs.SeparableCost(parts),
        "network": networks.Network(given.adjacency, given.W),
    }
    return dpgm(problem, given.stepsize, num_iter=iterations)[:, 0].T


if __name__ == "__main__":
    report(run, version("tvopt"))
