"""The compiled loop of a simulation, lowered for CUDA on a machine without a GPU."""

import re

import jax
import numpy as np

EXCHANGES = ("collective_permute", "all_to_all")


def lowered(simulation, x0):
    """What XLA would compile for CUDA: the start, the first iteration and a block of samples."""
    program, args = simulation.program, simulation.args
    with jax.enable_x64(True):
        stacked = simulation._stacked(x0)
        state, prepared = jax.eval_shape(program.start._call, args, stacked)
        whole = [
            (program.start, (args, stacked)),
            (program.block, (args, prepared, state, np.int64(0), np.int64(1), np.int64(1))),
        ]
        if simulation.algorithm.first_differs:
            whole.append((program.first, (args, state)))
        return "\n".join(
            each._call.trace(*given).lower(lowering_platforms=("cuda",)).as_text()
            for each, given in whole
        )


def told(text):
    """What a claim about a lowered program asks for."""
    return {
        "is_float64": "xf64>" in text and "f32" not in text,
        "native": re.findall(r"custom_call @\w+", text),
        "exchanges": [name for name in EXCHANGES if f"stablehlo.{name}" in text],
    }
