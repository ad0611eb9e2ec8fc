"""Every algorithm over TLS between processes of their own gives the simulator's trajectory.

A quick form of local/test_processes.py, which runs whole networks and, marked slow, directed
graphs: processes are forked, not started.
"""

from pathlib import Path

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.agent.stages import n_stages
from hushgrad.network.local.setup import make_network, write_configs
from hushgrad.schema.algorithms import build_algorithm
from hushgrad.schema.places import Source
from hushgrad.simulate.run import driver_of
from hushgrad.simulate.staged import simulate_stages
from support import process_network
from support.algorithm_tables import TABLES, estimation

M, K = 3, 20
PATH = hg.Network(hg.graphs.path(M))  # W² has a link more


@pytest.mark.filterwarnings("ignore:Consensus gives the average")  # all have the same f_i
@pytest.mark.parametrize("name", TABLES)
def test_every_algorithm_by_processes_gives_the_simulators_trajectory(tmp_path, name):
    algorithm = build_algorithm(Source("test", Path()), TABLES[name], ("algorithm",))
    network, kept = process_network.ProcessNetwork(tmp_path, M), []

    def both(order):
        make_network(tmp_path, order)
        addresses = [("127.0.0.1", port) for port in process_network.ports(M)]
        write_configs(tmp_path, order, TABLES[name], addresses)
        try:
            network.start()
            assert network.end() == [0] * M, [network.log(j) for j in range(M)]
        finally:
            network.close()
        stages = n_stages(order.algorithm, is_quadratic=order.problem.is_quadratic)
        agents = driver_of("agents")
        return simulate_stages(order, agents, stages) if stages else agents(order)

    hg.run(
        algorithm, estimation(M), PATH, iterations=K, record_every=1, seed=7,
        driver=both, metrics={"keep": lambda x, _: kept.append(x[0].copy()) or 0.0},
    )  # fmt: skip
    for j, tape in enumerate(network.tapes()):
        for k in range(1, K + 1):
            (bits,) = tape.iterates[k]
            got = np.frombuffer(bytes.fromhex(bits))
            assert np.abs(got - kept[k][j]).max() <= 1e-12 * np.abs(kept[k]).max()
