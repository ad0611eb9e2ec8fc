"""The compiled loop is ready for GPUs: it lowers for CUDA on a machine without one.

The program of several devices is lowered where its devices are (test_shards.py).
"""

import jax
import numpy as np

from hushgrad.simulate.stacked.program import Simulation
from support import cases, conformance, cuda


def test_every_algorithm_lowers_for_cuda_in_float64_without_a_native_call():
    x0 = np.broadcast_to(conformance.Q.x0, (2, *conformance.Q.x0.shape[-2:]))
    for name, row in conformance.ROWS.items():
        network = cases.directed() if row.directed else cases.undirected()
        with jax.enable_x64(True):
            simulation = Simulation(
                row.algorithm, conformance.Q.problem, network, seed=1, trials=np.arange(2)
            )
        expected = {"is_float64": True, "native": [], "exchanges": []}
        assert cuda.told(cuda.lowered(simulation, x0)) == expected, name
