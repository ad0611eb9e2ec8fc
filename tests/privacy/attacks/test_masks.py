"""Masks leave attackers with other gradients, unless all partners collude."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious
from hushgrad.privacy.attacks.drift import Drift
from hushgrad.privacy.attacks.flow import Flow
from hushgrad.privacy.attacks.objective_fit import ObjectiveFit
from hushgrad.privacy.attacks.span import Span
from hushgrad.privacy.attacks.spread import Spread
from hushgrad.privacy.attacks.whitening import Whitening
from support.pdg_runs import FIG3, eavesdropper, neighbours, recorded, views


def errors_of_all(run, adversaries):
    """{(attack, quantity): relative errors} of what these attacks say about g_i and H_i."""
    found = {}
    for view, truth, i in views(run, adversaries):
        for attack in (Flow(), Span(), ObjectiveFit(), Spread(), Whitening(), Drift()):
            for e in () if attack.applies(view, i) else attack(view, i):
                true = {
                    "gradient at optimum": truth.at_optimum[i],
                    "gradient": None if e.k is None else truth.gradients(i)[e.k],
                    "objective": truth.objective(i),
                }.get(e.quantity)
                if true is not None:
                    off = np.linalg.norm(e.value - true) / np.linalg.norm(true)
                    found.setdefault((attack.name, e.quantity), []).append(off)
    return {key: np.array(values) for key, values in found.items()}


@pytest.fixture(scope="module")
def masked():
    algorithm = hg.PDGNDS(design="recommended", stepsize=FIG3)
    return recorded(algorithm, seed=0, n=1500, d=3)


def test_masks_leave_attackers_with_other_gradients_and_hessians(masked):
    found = errors_of_all(masked, lambda run, i: [*eavesdropper(run, i), *neighbours(run, i)])
    assert {"flow", "span", "objective-fit"} == {attack for attack, _ in found}
    for key, errors in found.items():
        assert errors.min() > 1, key


def test_masks_fall_when_all_partners_of_an_agent_collude(masked):
    everyone_else = errors_of_all(masked, lambda run, i: [Curious(set(range(5)) - {i})])
    assert everyone_else["flow", "gradient at optimum"].max() < 1e-4
    assert everyone_else["objective-fit", "objective"].max() < 1e-3


def test_one_honest_partner_keeps_the_mask(masked):
    neighbours_of_1 = {0, 2}
    for honest in (3, 4):
        members = set(range(5)) - {1, honest}
        assert neighbours_of_1 < members
        found = errors_of_all(masked, lambda run, i, c=members: [Curious(c)] if i == 1 else [])
        assert found["flow", "gradient at optimum"].min() > 1
        assert found["objective-fit", "objective"].min() > 0.5
