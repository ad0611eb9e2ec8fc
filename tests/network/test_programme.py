"""Deployed agents fit: the bits of the programme in one process, also after kills."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.fitting.averages import longest_vector
from hushgrad.network.ops.result import Status
from support import fit_network, fits

COLUMNS = {"columns": ("age", "stage"), "factors": {"stage": fits.LEVELS}}
LOGISTIC = fits.model("logistic", **COLUMNS)
THREE = fits.synthetic((25, 40, 60))
FOUR = fits.synthetic((25, 40, 60, 35))
NETWORKS = {3: hg.Network(hg.graphs.complete(3)), 4: hg.Network(hg.graphs.ring(4))}


def ended(setting):
    agents, results, deaths = fit_network.run(setting)
    assert {r.status for r in results} == {Status.DONE}, [r.summary for r in results]
    return [agent.fitted for agent in agents], results, deaths


@pytest.mark.parametrize("sites", [THREE, FOUR], ids=["three linked", "a ring of four"])
def test_agents_end_with_the_bits_of_plain_sums(tmp_path, sites):
    setting = fit_network.configs(tmp_path, LOGISTIC, sites, NETWORKS[len(sites)], seed=3)
    found, results, _ = ended(setting)
    plain = fits.fit(LOGISTIC, sites)
    assert {fit_network.bits(result) for result in found} == {fit_network.bits(plain)}
    each = setting[0].run.lengths[0]
    assert {r.rounds for r in results} == {each * plain.n_averages}
    assert each == 1 or len(sites) == 4
    X, columns = fits.design(LOGISTIC, sites), fits.pooled_columns(sites)
    b, _, _ = fits.reweighted("logistic", X, columns["death"])
    assert np.abs(results[0].theta / b - 1).max() < 1e-9
