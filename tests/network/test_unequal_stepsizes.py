"""Deployed agents with a list of stepsizes: each takes its own value."""

import asyncio
import logging

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import ConfigError
from hushgrad.network.config.file import parse_config
from support import agent_network, cases, dense

VALUES = np.linspace(0.02, 0.08, cases.M)[::-1]
Q = cases.Quadratics(by_hand=True)


@pytest.mark.parametrize(
    ("method", "recursion", "warns"),
    [(hg.AugDGM, dense.aug_dgm, False), (hg.EXTRA, dense.extra, True)],
    ids=["AugDGM", "EXTRA"],
)
def test_every_agent_takes_its_own_value(tmp_path, caplog, method, recursion, warns):
    network = cases.undirected()
    made = agent_network.configs(
        tmp_path, method(stepsize=hg.stepsizes.constant(VALUES)), network, dim=cases.D,
        iterations=20, x0=Q.x0, tls=False, seed=1,
    )  # fmt: skip
    gradients = [Q.problem.local_gradient(i) for i in range(cases.M)]
    with caplog.at_level(logging.WARNING, "hushgrad.agent"):
        results = asyncio.run(agent_network.ends(agent_network.agents(made, gradients, tls=False)))
    got = np.array([result.theta for result in results])
    expected = recursion(network.matrix(), Q.g, Q.x0, 20, VALUES[:, None])[-1]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
    assert any("minimises Σ λ_i f_i" in record.getMessage() for record in caplog.records) == warns


def test_a_file_with_too_few_values_is_refused():
    tables = {
        "agent": {"name": "a", "number": 0, "listen": "127.0.0.1:7440"},
        "run": {"id": "r", "n_agents": 2, "dim": 2, "iterations": 5},
        "objective": {"kind": "rendezvous", "position": [0.0, 1.0]},
        "neighbour": [{"name": "b", "number": 1}],
        "algorithm": {"name": "AugDGM", "stepsize": {"kind": "constant", "value": [0.1]}},
    }
    with pytest.raises(ConfigError, match=r"algorithm\.stepsize.*one for each of the 2"):
        parse_config(tables)
