"""Runs on several virtual devices, in a process of their own: devices are counted at its start.

    python -m support.shard_runs '["PDGDS", …]' '[2, 8]' 200 2 '["PDGDS"]'

prints, for every case and number of devices, how far a run over a mesh is from one without, for
rows of the conformance table how far from the dense recursion, and for the cases named last (here
PDGDS) what the program of several devices is when it is lowered for CUDA.
"""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

TESTS = Path(__file__).parents[1]


def distances(names, devices, iterations, *, trials=2, lowered=(), timeout=900):
    """{case: {devices: {"x": …, "error": …, "dense": …, "same": bits}}}."""
    done = subprocess.run(
        [sys.executable, "-m", "support.shard_runs", json.dumps(names), json.dumps(devices),
         str(iterations), str(trials), json.dumps(lowered)],
        cwd=TESTS, capture_output=True, text=True, timeout=timeout, check=False,
        env=os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={max(devices)}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def names():
    """The cases, by name."""
    return list(_cases())


def _cases():
    import numpy as np

    import hushgrad as hg
    from support import cases, conformance

    found = {}
    for name, row in conformance.ROWS.items():
        network = cases.directed() if row.directed else cases.undirected()
        found[name] = (row.algorithm, conformance.Q.problem, network, conformance.Q.x0)
    network, Q = cases.undirected(), conformance.Q
    constant = conformance.CONSTANT
    shares = {
        "isotropic": hg.PDGDS(split=hg.splits.isotropic()),
        "isotropic square": hg.PDGNDS(
            stepsize=constant, form="square", split=hg.splits.isotropic()
        ),
        "own": hg.PDGDS(split=hg.splits.private_constant(own=0.45)),
        "unequal": hg.DIGing(stepsize=hg.stepsizes.constant([0.01 * n for n in range(1, 8)])),
        "masks": hg.Consensus(),
    }
    for name, algorithm in shares.items():
        found[name] = (algorithm, Q.problem, network, Q.x0)
    rng = np.random.default_rng(3)
    listed = [{"A": rng.normal(size=(1 + i % 3, 4)), "z": rng.normal(size=1 + i % 3)}
              for i in range(7)]  # fmt: skip
    found["groups"] = (hg.PDGDS(), hg.Problem(Q.loss, listed, dim=4), network, Q.x0)
    own = {"A": rng.normal(size=(3, 7, 3, 4)), "z": rng.normal(size=(3, 7, 3))}
    every = hg.Problem(Q.loss, own, dim=4, per_trial=True)
    found["per trial"] = (hg.EXTRA(stepsize=constant), every, network, Q.x0)
    wide = hg.Network(hg.graphs.star(40))
    found["star"] = (hg.PDGDS(), cases.Quadratics(40).problem, wide, None)
    dense = hg.Network(hg.graphs.complete(40))
    found["complete"] = (hg.DIGing(stepsize=constant), cases.Quadratics(40).problem, dense, None)
    grid = hg.Network(hg.graphs.grid(5, 8))
    found["grid"] = (hg.PDGNDS(stepsize=constant), cases.Quadratics(40).problem, grid, None)
    slow = hg.stepsizes.constant(0.001)  # where `constant` diverges
    by_rule = {
        "torus": (hg.AsynDGM(stepsize=constant), hg.graphs.torus(8, 6)),
        "torus two hops": (
            hg.PDGNDS(stepsize=slow, form="square", split=hg.splits.isotropic()),
            hg.graphs.torus(8, 6),
        ),
        "geometric": (hg.PDGDS(), hg.graphs.geometric(60, 0.3, seed=1)),
        "regular": (hg.EXTRA(stepsize=constant), hg.graphs.random_regular(60, 5, addressed=True)),
        "pairs": (hg.AugDGM(stepsize=constant), hg.graphs.erdos_renyi(60, 0.2, addressed=True)),
    }
    for name, (algorithm, graph) in by_rule.items():
        late = hg.problems.estimation(graph.n_agents, 3, 2, addressed=True)
        found[name] = (algorithm, late, hg.Network(graph), None)
    recommended = hg.PDGNDS(design="recommended", stepsize=hg.stepsizes.constant(0.003))
    found["recommended"] = (recommended, Q.problem, network, None)
    small = hg.Problem(Q.loss, {"A": Q.A[:1], "z": Q.z[:1]}, dim=4)
    found["alone"] = (hg.DGD(), small, hg.Network(hg.graphs.ring(1)), None)
    return found


def _main(names, devices, iterations, trials, lowered):
    import jax
    import numpy as np
    from jax.sharding import Mesh

    import hushgrad as hg
    from support import conformance

    warnings.simplefilter("ignore")
    every, found = _cases(), {}
    for name in names or every:
        algorithm, problem, network, x0 = every[name]
        options = {
            "iterations": iterations, "trials": trials, "seed": conformance.SEED, "x0": x0,
            "accept_exposure": ["sums"],
        }  # fmt: skip
        base = hg.run(algorithm, problem, network, **options)
        found[name] = {}
        for n in devices:
            vars(network.graph).pop("arcs", None)  # of a graph by a rule
            mesh = Mesh(np.array(jax.devices()[:n]).reshape(1, n), ("a", "b"))
            run = hg.run(algorithm, problem, network, mesh=mesh, **options)
            told = {
                "x": float(np.abs(run.x - base.x).max()),
                "error": float(np.abs(run.error - base.error).max()),
                "consensus": float(np.abs(run.consensus - base.consensus).max()),
                "size": float(np.abs(base.x).max() + base.consensus.max()),
                "same": bool((run.x == base.x).all() and (run.error == base.error).all()),
                "traffic": run.traffic == base.traffic,
                "whole": n > 1 and "arcs" in vars(network.graph),
            }
            if name in conformance.ROWS and iterations <= conformance.K:
                row = conformance.ROWS[name]
                for t in range(trials):
                    ends = conformance.reference(row, network, t)[iterations - 1]
                    off = float(np.abs(run.x[t] - ends).max())
                    told["dense"] = max(off, told.get("dense", 0.0))
            if n > 1 and name in lowered:
                told["cuda"] = _for_cuda(mesh, algorithm, problem, network, trials)
            found[name][n] = told
    print(json.dumps(found))


def _for_cuda(mesh, algorithm, problem, network, trials):
    import jax
    import numpy as np

    from hushgrad.simulate.stacked.shards.mesh import Shards
    from hushgrad.simulate.stacked.shards.simulation import ShardedSimulation
    from support import cuda

    with jax.enable_x64(True):
        simulation = ShardedSimulation(
            Shards.of(mesh), algorithm, problem, network, seed=1, trials=np.arange(trials)
        )
    x0 = np.zeros((trials, network.n_agents, problem.dim))
    return cuda.told(cuda.lowered(simulation, x0))


if __name__ == "__main__":
    _main(*map(json.loads, sys.argv[1:]))
