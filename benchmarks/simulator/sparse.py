"""One trial of DGD on a large sparse network, against a plain loop with SciPy's CSR matrices.

    python -m benchmarks.simulator.sparse
    XLA_FLAGS=--xla_cpu_max_isa=AVX2 python -m benchmarks.simulator.sparse

Both run by turns on one core; the ratio is that of their processor times. Both must end at the same
iterate.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from benchmarks.simulator.worker import pin

STEPSIZE = 0.01
CHECKED = 20  # iterations after which both must agree …
TOLERANCE = 1e-12  # … to this
SECONDS = 0.3  # of a round
ROUNDS = 9


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator.sparse")
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--d", type=int, default=10)
    options = parser.parse_args(arguments)
    pin(1)  # before the import of JAX, which counts the cores
    import numpy as np

    import hushgrad as hg
    from benchmarks.simulator.runners import Clocked, Engine, interleave

    m, d = options.agents, options.d
    problem = hg.problems.estimation(m, 3, d)
    rows = max(n for n in range(1, int(m**0.5) + 1) if m % n == 0)
    graphs = {
        "torus": hg.graphs.torus(rows, m // rows),
        "random regular of degree 6": hg.graphs.random_regular(m, 6),
    }
    for name, graph in graphs.items():
        network = hg.Network(graph)
        dgd = hg.DGD(stepsize=hg.stepsizes.constant(STEPSIZE))
        ours = Clocked(Engine(dgd, problem, network, np.zeros((m, d))))
        theirs = Clocked(_Loop(problem, network))
        for each in (ours, theirs):
            each.run(CHECKED)
        apart = float(np.abs(ours.runner.x - theirs.runner.x).max())
        if apart > TOLERANCE:
            print(f"error: {name}: the iterates are {apart:.3g} apart", file=sys.stderr)
            return 1
        for each in (ours, theirs):
            each.calibrate(SECONDS)
        interleave([ours, theirs], ROUNDS)
        ratios = [a / b for a, b in zip(ours.cpu, theirs.cpu, strict=True)]
        print(
            f"{name}: hushgrad {1e3 * statistics.median(ours.cpu):.1f} ms, SciPy "
            f"{1e3 * statistics.median(theirs.cpu):.1f} ms, ratio {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} … {max(ratios):.2f})"
        )
    return 0


class _Loop:
    """DGD as a user would write it with NumPy and SciPy."""

    def __init__(self, problem: Any, network: Any):
        import numpy as np
        import scipy.sparse as sp

        weights = network.weights("doubly")
        links = network.graph.to_scipy(weights.links)
        self._W = (links + sp.diags_array(weights.own)).tocsr()
        self._data, self._x = problem.data, np.zeros((problem.n_agents, problem.dim))

    def advance(self, k: int, n: int) -> None:
        import numpy as np

        del k
        M, z, sigma, x = self._data["M"], self._data["z"], self._data["sigma"][:, None], self._x
        for _ in range(n):
            residual = np.einsum("isd,id->is", M, x) - z
            gradient = 2 * (np.einsum("isd,is->id", M, residual) + sigma * x)
            x = self._W @ x - STEPSIZE * gradient
        self._x = x

    @property
    def x(self) -> Any:
        return self._x[None]


if __name__ == "__main__":
    sys.exit(main())
