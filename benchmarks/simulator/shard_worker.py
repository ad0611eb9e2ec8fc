"""One process of a run over several, driven from outside; shards.py starts it.

    python -m benchmarks.simulator.shard_worker '{"case": "torus", "agents": 100000, …}'

A line n on stdin advances the run by n iterations; the answer is a line of JSON with the seconds.
The line "memory" asks for the peak of the process's memory, "permute n" for the seconds of an
exchange of n bytes with the next process.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings
from typing import Any


def main(settings: dict[str, Any]) -> None:
    if "core" in settings:  # before the import of JAX, which counts the cores
        os.sched_setaffinity(0, [settings["core"]])
    if settings["processes"] == 1:
        _serve(settings)
        return
    from hushgrad.simulate.stacked.shards.job import joined

    with joined(settings["coordinator"], settings["processes"], settings["process"]):
        _serve(settings)


def _serve(settings: dict[str, Any]) -> None:
    """Answer every line of stdin."""
    import jax

    warnings.simplefilter("ignore")
    with jax.enable_x64(True):
        run = None if settings["case"] == "none" else _Run(settings)
        print(json.dumps({"ready": True} | ({} if run is None else run.told)), flush=True)
        for line in sys.stdin:
            print(json.dumps(_answer(line.split(), run)), flush=True)


def _answer(words: list[str], run: Any) -> dict[str, float]:
    if words[0] == "memory":
        return {"mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if words[0] == "permute":
        return {"seconds": _permute(int(words[1]))}
    return {"seconds": run.advance(int(words[0]))}


def network_of(case: str, agents: int) -> Any:
    import hushgrad as hg

    side = int(agents**0.5)
    if case == "torus":
        return hg.Network(hg.graphs.torus(side, agents // side))
    if case == "regular":
        return hg.Network(hg.graphs.random_regular(agents, 6))
    if case == "regular addressed":
        return hg.Network(hg.graphs.random_regular(agents, 6, addressed=True))
    return hg.Network(hg.graphs.geometric(agents, (20 / (3.1416 * agents)) ** 0.5))


class _Run:
    """The simulation of `hg.run`, advanced when asked."""

    def __init__(self, settings: dict[str, Any]):
        import jax
        import numpy as np

        import hushgrad as hg
        from hushgrad.simulate.stacked.program import Simulation
        from hushgrad.simulate.stacked.shards.mesh import Shards
        from hushgrad.simulate.stacked.shards.simulation import ShardedSimulation

        begun = time.perf_counter()
        network = network_of(settings["case"], settings["agents"])
        m, d = network.n_agents, settings["d"]
        # no step needs θ*, and every process would look for it
        found = hg.problems.estimation(m, 3, d, addressed=True)
        problem = hg.Problem(
            found.loss, hg.problems.AgentRows(m, found.rows, "rows"), dim=d,
            gradient=found.differentiated[0], solution=np.zeros(d), smoothness=1.0,
        )  # fmt: skip
        algorithm = hg.PDGDS(stepsize=hg.stepsizes.diminishing(scale=0.01))
        shards = Shards.of("auto")
        options: Any = {"seed": 1, "trials": np.arange(1)}
        if shards is None:
            self._simulation = Simulation(algorithm, problem, network, **options)
        else:
            self._simulation = ShardedSimulation(shards, algorithm, problem, network, **options)
        self._state = self._simulation.start(np.broadcast_to(0.0, (1, m, d)))
        self._k = 0
        jax.block_until_ready(self._state)
        self.told = {"set_up": time.perf_counter() - begun}
        if shards is not None:
            halo = self._simulation.plan.crossings[0][1].halo
            self.told |= {"rows": halo.n_rows, "exchanges": len(halo.rounds)}

    def advance(self, n: int) -> float:
        import jax

        begun = time.perf_counter()
        self._state, _, _ = self._simulation.advance(self._state, self._k, n, 1)
        jax.block_until_ready(self._state)
        self._k += n
        return time.perf_counter() - begun


def _permute(n_bytes: int, times: int = 100) -> float:
    """The seconds of one exchange inside a compiled loop."""
    import jax
    import numpy as np
    from jax import lax
    from jax.sharding import NamedSharding, PartitionSpec

    n = jax.device_count()
    mesh = jax.make_mesh((n,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    ring = [(p, (p + 1) % n) for p in range(n)]
    spec = PartitionSpec("a")

    def loop(x: Any) -> Any:
        return lax.fori_loop(0, times, lambda _, y: lax.ppermute(y, "a", ring) + 1.0, x)

    call = jax.jit(jax.shard_map(loop, mesh=mesh, in_specs=spec, out_specs=spec))
    shape = (n * max(1, n_bytes // 8),)
    x = jax.make_array_from_callback(shape, NamedSharding(mesh, spec), lambda i: np.zeros(shape)[i])
    jax.block_until_ready(call(x))
    found: list[float] = []
    for _ in range(5):
        begun = time.perf_counter()
        jax.block_until_ready(call(x))
        found.append((time.perf_counter() - begun) / times)
    return sorted(found)[2]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
