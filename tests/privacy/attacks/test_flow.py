"""Flow recovers what its derivation says, and fails where that ends.

Quick tests see a few random problems; the studies, marked slow, see many graphs, problems and
seeds, and say how many. The same holds for the other files of this folder.
"""

import numpy as np
import pytest

from hushgrad.privacy import Curious, Eavesdropper, Knowledge, Truth
from hushgrad.privacy.attacks import flow
from hushgrad.privacy.attacks.flow import Flow
from hushgrad.privacy.attacks.pdg import net_inflow
from support.pdg_runs import (
    FAMILY,
    eavesdropper,
    estimates,
    long_run,
    neighbours,
    network,
    recorded,
    recorded_trials,
    relative,
    views,
)


@pytest.mark.parametrize("name", FAMILY)
def test_net_inflow_is_what_the_agent_keeps_to_itself(name):
    run = recorded(FAMILY[name], seed=1)
    view, truth = Knowledge.of(run, Eavesdropper()), Truth(run)
    for i in range(run.network.n_agents):
        x, h, F = truth.x[:, i], truth.h(i), net_inflow(view, i)
        if name == "PDG-DS":
            np.testing.assert_allclose(x[1:], x[:-1] - h + F, atol=1e-13)
        else:
            np.testing.assert_allclose(np.cumsum(F, 0), h + x[1:] - x[:-1], atol=1e-12)


def test_summed_by_parts_net_inflow_and_positions_are_steps():
    run = recorded(FAMILY["PDG-DS"], seed=1)
    view, truth = Knowledge.of(run, Eavesdropper()), Truth(run)
    n = np.arange(run.iterations[-1])
    s = np.stack([np.interp(n, edges, [0, 1, 0]) for edges in ([0, 9, 50], [20, 90, 209])])
    for i in range(run.network.n_agents):
        steps = flow.summed_by_parts(s, net_inflow(view, i), truth.x[:-1, i])
        np.testing.assert_allclose(steps, s @ truth.h(i), atol=1e-12)


def flow_errors(run, adversaries=eavesdropper):
    return np.array(
        [
            relative(estimates(Flow(), view, i)["gradient at optimum"].value, truth.at_optimum[i])
            for view, truth, i in views(run, adversaries)
        ]
    )


@pytest.mark.slow  # long runs; Fig. 2 has a quick test, and docs/privacy.md shows Fig. 3
def test_flow_gives_six_digits_of_the_gradient_at_the_optimum_in_figure_3():
    for run in (long_run("lazy"), recorded(FAMILY["square"], n=1500)):
        assert flow_errors(run).max() < 1e-6


def test_flow_gives_the_gradient_at_the_optimum_in_figure_2():
    errors = flow_errors(long_run("PDG-DS"))
    assert np.median(errors) < 1e-3
    assert errors.max() < 5e-3


def test_flow_is_open_to_all_neighbours_together_and_closed_to_all_but_one():
    run = recorded(FAMILY["lazy"], seed=0, n=800)
    assert flow_errors(run, neighbours).max() < 1e-4
    for i in range(5):
        (adversary,) = neighbours(run, i)
        for absent in adversary.members:
            if others := adversary.members - {absent}:
                reason = Flow().applies(Knowledge.of(run, Curious(others)), i)
                assert reason is not None
                assert f"links of agent {i}" in reason


def test_flow_needs_every_single_link():
    run = recorded(FAMILY["lazy"], seed=0, n=800)
    for missing in [link for link in run.transcript.links if 3 in link]:
        view = Knowledge.of(run, Eavesdropper(run.transcript.links - {missing}))
        assert Flow().applies(view, 3) == "hears 3 of the 4 links of agent 3"


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_flow_study(name):
    """48 random problems and seeds on 9 graphs, every agent."""
    n = 20_000 if name == "PDG-DS" else 4000
    errors = np.concatenate(
        [flow_errors(recorded_trials(FAMILY[name], network(s), n, 4, seed=s)) for s in range(12)]
    )
    print(f"flow, {name}: median {np.median(errors):.1e}, worst {errors.max():.1e}, {errors.size}")
    if name == "PDG-DS":
        assert np.median(errors) < 0.01
        assert (errors < 0.1).mean() > 0.95
    else:
        assert errors.max() < 1e-6
