"""Bad input gets a clear error at once: the rule, the place, the value, the way out."""

import networkx as nx
import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import (
    AlgorithmError,
    GraphError,
    HushgradError,
    InputError,
    MixingError,
    ProblemError,
    RiskWarning,
    StepsizeError,
)
from support import cases

Q = cases.Quadratics()
NETWORK = cases.undirected()


def run(algorithm=None, problem=Q.problem, network=NETWORK, **options):
    return hg.run(algorithm or hg.PDGDS(), problem, network, **({"iterations": 3} | options))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"iterations": 0}, InputError, "iterations is a whole number ≥ 1, but iterations = 0"),
        ({"iterations": -5}, InputError, "iterations = -5"),
        ({"iterations": 2.5}, InputError, "iterations = 2.5"),
        ({"trials": 0}, InputError, "trials is a whole number ≥ 1, but trials = 0"),
        ({"trials": [1, 1]}, InputError, "different numbers"),
        ({"trials": [-1]}, InputError, "a trial's number is a whole number ≥ 0"),
        ({"trials": []}, InputError, "at least one"),
        ({"record_every": 0}, InputError, "record_every = 0"),
        ({"seed": -1}, InputError, "seed is a whole number ≥ 0, but seed = -1"),
        ({"seed": 2**64}, InputError, "64 bits"),
        ({"seed": 1.5}, InputError, r"seed = 1\.5"),
        ({"tolerance": -1.0}, InputError, r"tolerance = -1\.0"),
        ({"metrics": {"error": lambda x, p: 0.0}}, InputError, "has the metric 'error' already"),
        ({"x0": np.zeros((3, 4))}, InputError, r"x0 has shape \(3, 4\)"),
        ({"x0": np.full((7, 4), np.nan)}, InputError, r"x0 is finite, but x0\[0, 0\] = nan"),
        ({"engine": "gpu"}, InputError, "engine = 'gpu'"),
        ({"algorithm": hg.PDGDS}, InputError, "an instance, not the class"),
        ({"algorithm": "PDGDS"}, InputError, r"Write hg\.PDGDS\(\)"),
        ({"problem": 3}, InputError, "problem is a Problem, but got 3"),
        ({"network": [[0, 1]]}, InputError, r"Write hg\.Network\("),
        ({"network": hg.Network(hg.graphs.ring(5))}, ProblemError, "has 7 and the network 5"),
        ({"metrics": {"bad": lambda x, p: x}}, InputError, "one number per trial, but 'bad' gave"),
    ],
)  # fmt: skip
def test_bad_arguments_of_run(options, error, text):
    with pytest.raises(error, match=text):
        run(**options)


def test_zero_one_or_too_many_trials_of_a_per_trial_problem():
    problem = hg.problems.estimation(n_agents=7, trials=3)
    with pytest.raises(InputError, match="has 3 trials, but trial 3 is asked for"):
        run(problem=problem, trials=4)


@pytest.mark.parametrize(
    ("algorithm", "network", "error", "text"),
    [
        (hg.PDGDS(), cases.directed(), AlgorithmError, "PDGDS needs an undirected graph.*PushPull"),
        (hg.PDGNDS(), cases.directed(), AlgorithmError, "PDGNDS needs an undirected graph"),
        (hg.AsynDGM(), cases.directed(), AlgorithmError, "AsynDGM needs an undirected graph"),
        (hg.DGD(), cases.directed(), MixingError,
         r"DGD needs a doubly stochastic W, but (row|column) \d sums to .*metropolis.*PushPull"),
        (hg.EXTRA(), cases.directed(), MixingError, "EXTRA needs a symmetric doubly stochastic W"),
        (hg.PDGDS(), hg.Network(cases.UNDIRECTED, mixing="uniform_row"), MixingError,
         r"PDGDS needs a doubly stochastic W, but column \d sums to 1\.283"),
        (hg.AB(), hg.Network(cases.UNDIRECTED, mixing="uniform_row"), MixingError,
         "AB needs a column-stochastic C, but column"),
    ],
)  # fmt: skip
def test_an_algorithm_refuses_a_network_that_it_cannot_use_with_the_way_out(
    algorithm, network, error, text
):
    with pytest.raises(error, match=text):
        run(algorithm, network=network)


def test_lazy_needs_symmetry_of_the_very_matrix_that_it_uses():
    """A network has a skew doubly stochastic and a symmetric matrix; W is the symmetric matrix."""
    skew = cases.nonsymmetric().matrix()
    network = hg.Network(hg.graphs.ring(7), mixing={"row": skew, "column": "metropolis"})
    result = run(hg.PDGNDS(), network=network, iterations=2000)
    assert result.error[0, -1] < 1e-3
    symmetric = hg.Network(hg.graphs.ring(7))
    np.testing.assert_array_equal(result.x, run(hg.PDGNDS(), network=symmetric, iterations=2000).x)


def test_the_error_names_the_square_form_only_if_it_is_a_way_out():
    with pytest.raises(MixingError, match=r'form="square"'):
        run(hg.PDGNDS(), network=cases.nonsymmetric())
    with pytest.raises(MixingError) as refused:
        run(hg.PDGNDS(), network=hg.Network(cases.UNDIRECTED, mixing="uniform_row"))
    assert "square" not in str(refused.value)


def test_a_disconnected_graph_is_refused():
    with pytest.raises(HushgradError, match=r"connected"):
        hg.Network([[0, 1], [2, 3]])
    with pytest.raises(HushgradError, match=r"connected"):
        hg.Network(nx.DiGraph([(0, 1), (1, 2)]))


def test_a_matrix_that_is_not_stochastic_is_refused_by_place_and_value():
    W = hg.Network(hg.graphs.ring(4)).matrix()
    W[1, 2] *= 0.5
    with pytest.raises(MixingError, match=r"column 2|row 1"):
        hg.Network(hg.graphs.ring(4), mixing=W)


def test_nan_data_and_negative_stepsizes_are_refused_at_construction():
    data = {"p": np.zeros((3, 2))}
    data["p"][1, 1] = np.nan
    with pytest.raises(ProblemError, match="agent 1"):
        hg.Problem(lambda t, d: ((t - d["p"]) ** 2).sum(), data)
    with pytest.raises(StepsizeError, match=r"value = -0\.1"):
        hg.stepsizes.constant(-0.1)
    with pytest.raises(GraphError, match="n_agents"):
        hg.graphs.ring(0)


def test_one_agent_minimises_its_own_objective_but_asyn_dgm_refuses_it():
    alone = cases.Quadratics(m=1, by_hand=True)
    network = hg.Network(hg.graphs.complete(1))
    for kind in (hg.DGD, hg.EXTRA, hg.DIGing, hg.AB, hg.PushPull, hg.ADDOPT, hg.AugDGM):
        algorithm = kind(stepsize=hg.stepsizes.constant(0.3))
        options = {"iterations": 500, "engine": "agents"}
        if kind is hg.DGD:
            with pytest.warns(RiskWarning):
                result = hg.run(algorithm, alone.problem, network, **options)
        else:
            result = hg.run(algorithm, alone.problem, network, **options)
        np.testing.assert_allclose(result.x[0, 0], alone.solution, atol=1e-10)
    with pytest.raises(AlgorithmError, match="one link per iteration"):
        hg.run(hg.AsynDGM(), alone.problem, network, iterations=5)


@pytest.mark.parametrize(
    ("algorithm", "text"),
    [
        (hg.PDGDS(stepsize=hg.stepsizes.diminishing(scale=1e3)), r"λL = \d+.*2\^\d+.*scale="),
        (hg.PDGDS(stepsize=hg.stepsizes.constant(0.1)), "Theorem 1: Σ λ² = ∞"),
        (hg.PDGNDS(stepsize=hg.stepsizes.constant(10.0)), r"λL = \d+.* may diverge"),
        (hg.PDGNDS(stepsize=hg.stepsizes.diminishing()), "gives up its speed"),
        (hg.DGD(stepsize=hg.stepsizes.constant(0.1)), "order λ"),
    ],
)
def test_risky_settings_warn_with_the_number_behind_the_warning(algorithm, text):
    with pytest.warns(RiskWarning, match=text):
        run(algorithm, engine="agents")


def test_square_warns_of_an_eigenvalue_near_minus_one_and_lazy_does_not(recwarn):
    bipartite = np.array([[0.05, 0, 0.475, 0.475], [0, 0.05, 0.475, 0.475]])
    W = np.vstack([bipartite, np.roll(bipartite, 2, axis=1)])
    network = hg.Network([[0, 2], [0, 3], [1, 2], [1, 3]], mixing=W)
    q = cases.Quadratics(m=4)
    smallest = np.linalg.eigvalsh(W)[0]
    with pytest.warns(RiskWarning, match=rf"eigenvalue {smallest:.4f} of W near −1"):
        hg.run(hg.PDGNDS(form="square"), q.problem, network, iterations=2, engine="agents")
    recwarn.clear()
    hg.run(hg.PDGNDS(), q.problem, network, iterations=2, engine="agents")
    assert not recwarn.list


def test_the_papers_defaults_do_not_warn(recwarn):
    problem = hg.problems.estimation()
    network = hg.Network(hg.graphs.paper())
    for algorithm in (hg.PDGDS(), hg.PDGNDS(), hg.PDGNDS(form="square"), hg.DGD(), hg.DIGing()):
        hg.run(algorithm, problem, network, iterations=2, engine="agents")
    assert not recwarn.list
