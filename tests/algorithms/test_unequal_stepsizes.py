"""Constant stepsizes that differ from agent to agent: recursions, limits, checks, warnings."""

import warnings

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import RiskWarning, StepsizeError
from hushgrad.stepsizes import ConstantEach
from hushgrad.studies import parse_study
from support import cases, dense
from support.conformance import SEED, Truth, assert_same
from support.tables import some

K = 40
Q = cases.Quadratics(by_hand=True)
VALUES = np.linspace(0.02, 0.08, cases.M)[[3, 0, 6, 2, 5, 1, 4]]  # in no order
EACH = VALUES[:, None]
STEPSIZE = hg.stepsizes.constant(VALUES.tolist())


def fading(t):
    """λ_i (1 − ϱ_i^k/k²)."""
    return lambda k: EACH * (1 - t.coins.rho(k) / (k + 1) ** 2)


# by name: the recursion of K iterations from its paper, and the network
UNDIRECTED, DIRECTED = cases.undirected(), cases.directed()
RECURSIONS = {
    "AugDGM": (lambda t, K: dense.aug_dgm(t.W, Q.g, Q.x0, K, EACH), UNDIRECTED),
    "AsynDGM": (
        lambda t, K: dense.asyn_dgm(t.network.graph.links, Q.g, Q.x0, K, VALUES, t.coins.coin),
        UNDIRECTED,
    ),
    "DIGing": (lambda t, K: dense.diging(t.W, Q.g, Q.x0, K, EACH), UNDIRECTED),
    "AB": (lambda t, K: dense.ab(t.R, t.C, Q.g, Q.x0, K, EACH), DIRECTED),
    "PushPull": (lambda t, K: dense.push_pull(t.R, t.C, Q.g, Q.x0, K, EACH), DIRECTED),
    "ADDOPT": (lambda t, K: dense.add_opt(t.C, Q.g, Q.x0, K, EACH), DIRECTED),
    "EXTRA": (lambda t, K: dense.extra(t.W, Q.g, Q.x0, K, EACH), UNDIRECTED),
    "PDGNDS": (lambda t, K: dense.pdg_nds_lazy(t.W, Q.g, Q.x0, K, fading(t), t.B), UNDIRECTED),
}
EXACT = {"AugDGM", "AsynDGM", "DIGing", "AB", "PushPull", "ADDOPT"}
CASES = [(name, "agents") for name in RECURSIONS] + [("AugDGM", "stacked"), ("PDGNDS", "stacked")]


@pytest.mark.parametrize(("name", "engine"), some(CASES, 2))
def test_every_agent_uses_its_own_stepsize_and_inexact_methods_warn(name, engine):
    reference, network = RECURSIONS[name]
    with warnings.catch_warnings(record=True) as risks:
        warnings.simplefilter("always", RiskWarning)
        got = cases.trajectory(
            getattr(hg, name)(stepsize=STEPSIZE), Q.problem, network, Q.x0, K, seed=SEED,
            trials=[3], engine=engine,
        )  # fmt: skip
    assert_same(got[0, 1:], reference(Truth(network, 3), K))
    told = [str(risk.message) for risk in risks if "minimises Σ λ_i f_i" in str(risk.message)]
    assert len(told) == (name not in EXACT)
    assert all(text.startswith(f"{name} with stepsizes from 0.02 to 0.08") for text in told)


def weighted_solution():
    """The minimum of Σ λ_i f_i, in closed form."""
    H = sum(lam * (A.T @ A + Q.sigma * np.eye(cases.D)) for lam, A in zip(VALUES, Q.A, strict=True))
    b = sum(lam * A.T @ z for lam, A, z in zip(VALUES, Q.A, Q.z, strict=True))
    return np.linalg.solve(H, b)


@pytest.mark.parametrize("name", some(RECURSIONS))
def test_the_limit_is_the_minimum_of_the_sum_or_of_the_weighted_sum(name):
    reference, network = RECURSIONS[name]
    end = reference(Truth(network, 3), {"AsynDGM": 5000, "PDGNDS": 1200}.get(name, 2500))[-1]
    expected = Q.solution if name in EXACT else weighted_solution()
    far = weighted_solution() if name in EXACT else Q.solution
    # PDGNDS: the paper's deviations fade like 1/k²
    np.testing.assert_allclose(end, np.tile(expected, (cases.M, 1)), rtol=0, atol=1e-5)
    assert np.abs(end - far).min(axis=0).max() > 1e-3


def test_equal_values_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RiskWarning)
        hg.run(
            hg.EXTRA(stepsize=hg.stepsizes.constant([0.05] * cases.M)), Q.problem, UNDIRECTED,
            iterations=3, engine="agents",
        )  # fmt: skip


def test_values_are_checked():
    assert hg.stepsizes.constant((0.1, 0.2)) == ConstantEach(values=(0.1, 0.2))
    assert hg.stepsizes.constant([0.1, 0.2]).of(1) == hg.stepsizes.constant(0.2)
    for bad in ([], [0.1, -0.2], [0.1, float("nan")], [0.1, "0.2"], "0.1"):
        with pytest.raises(StepsizeError, match="value"):
            hg.stepsizes.constant(bad)
    with pytest.raises(StepsizeError, match=r"for each of the 7.*but the number of values = 6"):
        hg.run(
            hg.AugDGM(stepsize=hg.stepsizes.constant([0.1] * 6)), Q.problem, cases.undirected(),
            iterations=3,
        )  # fmt: skip


def test_a_study_has_a_list_of_stepsizes():
    study = parse_study(
        """
        [network]
        graph = "ring"
        n_agents = 4
        [problem]
        kind = "estimation"
        [[algorithm]]
        name = "AugDGM"
        stepsize = { kind = "constant", value = [0.01, 0.02, 0.03, 0.04] }
        [run]
        iterations = 10
        """
    )
    built = next(iter(study.build().algorithms.values()))
    assert built.stepsize == hg.stepsizes.constant([0.01, 0.02, 0.03, 0.04])
