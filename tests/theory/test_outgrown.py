"""A statistic of a function may outgrow masks that were made for the start of the run."""

import warnings

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import RiskWarning
from hushgrad.theory.exposure import Setting
from hushgrad.theory.outgrown import outgrown


def setting(lam=0.01):
    algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(lam), design="recommended", stages=3)
    return Setting(
        algorithm=algorithm,
        n_agents=5,
        dim=2,
        is_quadratic=False,
        stages=3,
        sizes=algorithm.mask_sizes(2, 0.5),
    )


@pytest.mark.parametrize(
    ("q", "H", "names"),
    [
        (99, 4.9, []),
        (101, 4.9, ["gradient"]),
        (99, 5.1, ["curvature"]),
        (101, 5.1, ["gradient", "curvature"]),
    ],
)
def test_a_statistic_outgrows_its_masks_exactly_above_their_sizes(q, H, names):
    found = list(outgrown(setting(), H * np.eye(2), np.array([0.0, -q]), 100.0, 1))
    assert [weakness.name for weakness in found] == names
    assert all("at stage 2" in weakness.text for weakness in found)


def cubes(target):
    """f_i(θ) = Σ (θ_c⁴ + θ_c²) − target θ_1: an entry of q_i is −8 θ³, and less at θ = 0."""
    push = np.zeros((6, 2))
    push[:, 0] = -target
    return hg.Problem(
        lambda theta, p: (theta**4).sum() + p @ theta + theta @ theta,
        push,
        gradient=lambda theta, p: 4 * theta**3 + p + 2 * theta,
        hessian=lambda theta, p: np.diag(12 * theta**2) + 2 * np.eye(2),
        solution=np.zeros(2),
        smoothness=50.0,
    )


@pytest.mark.parametrize(("target", "grows"), [(1.0, False), (20.0, True)])
def test_the_simulator_warns_of_a_linear_part_beyond_its_mask(target, grows):
    network = hg.Network(hg.graphs.complete(6))
    algorithm = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(2e-3 * (1 - network.eta)), design="recommended", stages=2
    )

    def said(**options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RiskWarning)
            hg.run(algorithm, cubes(target), network, iterations=3000, progress=False, **options)
        return [str(w.message) for w in caught if "at stage 2" in str(w.message)]

    found = said()
    assert any("an entry of q_i is" in text for text in found) == grows
    assert said(accept_exposure=["gradient", "curvature"]) == []
