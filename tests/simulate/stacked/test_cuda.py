"""The compiled loop is ready for GPUs: it lowers for CUDA on a machine without one."""

import re

import jax
import numpy as np

from hushgrad.simulate.stacked.program import Simulation
from support import cases, conformance


def test_every_algorithm_lowers_for_cuda_in_float64_without_a_native_call():
    x0 = np.broadcast_to(conformance.Q.x0, (2, *conformance.Q.x0.shape[-2:]))
    for name, row in conformance.ROWS.items():
        network = cases.directed() if row.directed else cases.undirected()
        with jax.enable_x64(True):
            simulation = Simulation(
                row.algorithm, conformance.Q.problem, network, seed=1, trials=np.arange(2)
            )
            program, args = simulation.program, simulation.args
            state, prepared = jax.eval_shape(program._start, args, simulation._stacked(x0))
            block = jax.jit(program._block).trace(
                args, prepared, state, np.int64(0), np.int64(1), np.int64(1)
            )
            text = block.lower(lowering_platforms=("cuda",)).as_text()
        assert "xf64>" in text, name
        assert "f32" not in text, name
        assert not re.findall(r"custom_call @\w+", text), name
