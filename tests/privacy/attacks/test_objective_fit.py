"""Objective fit gives private quadratics, and nothing of other losses."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy.attacks.objective_fit import ObjectiveFit
from support.pdg_runs import (
    BURSTS,
    FAMILY,
    PAPER,
    eavesdropper,
    estimates,
    objective_fits,
    recorded,
    relative,
    views,
)


@pytest.mark.parametrize(("name", "d"), [("PDG-DS", 2), ("PDG-DS", 5), ("lazy", 3), ("square", 2)])
def test_objective_fit_gives_the_private_quadratic(name, d):
    fits = objective_fits(recorded(FAMILY[name], 1, d=d))
    assert fits[:, 0].max() < 1e-10
    assert np.abs(fits[:, 1]).max() < 1e-4  # late stepsizes give the scale


@pytest.mark.parametrize(
    "algorithm",
    [
        hg.PDGDS(stepsize=hg.stepsizes.diminishing(0.1, deviation=BURSTS)),
        hg.PDGNDS(stepsize=hg.stepsizes.constant(0.004, deviation=BURSTS)),
    ],
    ids=lambda a: a.title,
)
def test_bursts_do_not_help_against_the_objective_fit(algorithm):
    fits = objective_fits(recorded(algorithm, 1, d=3))
    assert fits[:, 0].max() < 1e-10
    assert np.abs(fits[:, 1]).max() < 1e-4


@pytest.mark.parametrize("name", FAMILY)
def test_objective_fit_finds_the_positions_that_rendezvous_keeps_private(name):
    problem = hg.problems.rendezvous(seed=3)
    run = hg.run(FAMILY[name], problem, PAPER, iterations=210, transcript=True, engine="agents")
    for view, _, i in views(run, eavesdropper):
        found = estimates(ObjectiveFit(), view, i)["data"].value
        assert relative(found, problem.agent_data(i)["p"]) < 1e-6


def test_objective_fit_claims_nothing_of_losses_that_are_no_quadratics():
    rng = np.random.default_rng(0)
    problem = hg.problems.logistic(
        [rng.normal(size=(9, 2)) for _ in range(5)],
        [rng.choice([-1.0, 1.0], size=9) for _ in range(5)],
    )
    run = hg.run(FAMILY["PDG-DS"], problem, PAPER, iterations=210, transcript=True, engine="agents")
    for view, _, i in views(run, eavesdropper):
        assert ObjectiveFit()(view, i) == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "d"), [("PDG-DS", 2), ("PDG-DS", 6), ("lazy", 2), ("lazy", 3), ("square", 2)]
)
def test_objective_fit_study(name, d):
    """20 random problems and seeds on 14 graphs, every agent."""
    fits = np.concatenate([objective_fits(recorded(FAMILY[name], s, d=d)) for s in range(20)])
    found = fits[np.isfinite(fits[:, 0])]
    print(
        f"objective fit, {name}, d = {d}: {len(found)} of {len(fits)} agents, 1 − cosine median "
        f"{np.median(found[:, 0]):.1e}, worst {found[:, 0].max():.1e}, size median "
        f"{np.median(np.abs(found[:, 1])):.1e}, worst {np.abs(found[:, 1]).max():.1e}"
    )
    assert len(found) >= 0.95 * len(fits)
    assert (found[:, 0] < 1e-10).mean() > (0.9 if (name, d) == ("lazy", 2) else 0.99)
