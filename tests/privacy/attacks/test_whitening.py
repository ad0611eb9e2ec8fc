"""Whitening reads directions under constant splits, and no sizes."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious, Knowledge
from hushgrad.privacy.attacks.whitening import Whitening
from support.pdg_runs import (
    FIG3,
    PAPER,
    beside,
    cosine,
    estimates,
    network,
    recorded,
    recorded_trials,
)
from support.tables import some


def whitening_cosines(run):
    return np.array(
        [
            cosine(estimates(Whitening(), view, i)["direction"].value, truth.at_optimum[i])
            for view, truth, i in beside(run)
        ]
    )


CONSTANT = {
    "PDG-DS": hg.PDGDS(split=hg.splits.private_constant()),
    "lazy": hg.PDGNDS(stepsize=FIG3, split=hg.splits.private_constant()),
    "square": hg.PDGNDS(stepsize=FIG3, split=hg.splits.private_constant(), form="square"),
}


@pytest.mark.parametrize("name", some(["lazy", "PDG-DS"]))
@pytest.mark.slow  # long runs
def test_whitening_reads_directions_under_constant_splits_and_no_sizes(name):
    run = recorded_trials(CONSTANT[name], PAPER, 4000, 2)
    cosines = whitening_cosines(run)
    assert np.median(cosines) > 0.96
    assert (cosines > 0.96).mean() > 0.6
    got = Whitening()(Knowledge.of(run, Curious({1})), 0)
    assert {e.quantity for e in got} == {"direction"}


def test_whitening_starves_on_a_deviation_drawn_once():
    once = hg.stepsizes.harmonic(drawn="once")
    quiet = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(0.02, once), split=hg.splits.private_constant()
    )
    view = Knowledge.of(recorded(quiet, n=50), Curious({1}))
    assert "do not keep fluctuating" in Whitening().applies(view, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSTANT)
def test_whitening_study(name):
    """24 random problems and seeds on 5 graphs; every agent, from each single neighbour."""
    cosines = np.concatenate(
        [
            whitening_cosines(recorded_trials(CONSTANT[name], network(s), 20_000, 4, s))
            for s in range(6)
        ]
    )
    print(
        f"whitening, {name}: {len(cosines)} pairs, median {np.median(cosines):.4f}, above 0.96 "
        f"{(cosines > 0.96).mean():.3f}"
    )
    assert (cosines > 0.96).mean() > 0.7
