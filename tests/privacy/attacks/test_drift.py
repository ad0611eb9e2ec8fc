"""Drift reads gradients in disagreement, with public means and diminishing stepsizes."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious, Knowledge
from hushgrad.privacy.attacks.drift import Drift
from support.pdg_runs import (
    FAMILY,
    beside,
    estimates,
    long_run,
    recorded,
    recorded_trials,
    relative,
)


def drift_errors(run):
    return np.array(
        [
            relative(estimates(Drift(), view, i)["gradient at optimum"].value, truth.at_optimum[i])
            for view, truth, i in beside(run)
        ]
    )


@pytest.mark.parametrize(
    ("split", "most"), [(hg.splits.fresh(), 0.05), (hg.splits.isotropic(), 0.3)], ids=repr
)
@pytest.mark.slow  # long runs
def test_an_agent_linked_to_all_reads_gradients_in_the_drift_whatever_the_split(split, most):
    network = hg.Network(hg.graphs.complete(4))
    errors = drift_errors(recorded_trials(hg.PDGDS(split=split), network, 20_000, 1))
    assert len(errors) == 12
    assert np.median(errors) < most / 3
    assert errors.max() < most


def test_drift_needs_public_means_diminishing_stepsizes_and_enough_equations():
    private = recorded(hg.PDGDS(split=hg.splits.private_constant()), n=20)
    assert "private" in Drift().applies(Knowledge.of(private, Curious({0})), 1)
    assert "PDG-NDS" in Drift().applies(
        Knowledge.of(recorded(FAMILY["lazy"], n=20), Curious({0})), 1
    )
    short = recorded(FAMILY["PDG-DS"], n=20)
    assert "2000 iterations" in Drift().applies(Knowledge.of(short, Curious({0, 3})), 1)
    run = long_run("PDG-DS")
    assert "too few" in Drift().applies(Knowledge.of(run, Curious({3})), 0)
    assert Drift().applies(Knowledge.of(run, Curious({0, 3})), 1) is None
