"""Masks of the default size leave the iteration of lazy PDG-NDS stable, by its eigenvalues."""

import numpy as np
import pytest

import hushgrad as hg
from benchmarks.simulator import stability
from hushgrad.agent.masking import seeded_masks

NETWORKS = stability.networks()
WEAK = ["star 10", "star 20", "random 20, sparse", "lollipop 15"]  # agents whose links weigh little


@pytest.mark.parametrize("name", WEAK)
@pytest.mark.parametrize(("d", "draws"), [(1, 300), (3, 12)])
def test_no_draw_of_the_default_masks_is_unstable(name, d, draws):
    assert stability.unstable(NETWORKS[name], d, draws) == [0]


def test_masks_that_are_four_times_as_large_are_unstable_in_many_draws():
    assert stability.unstable(NETWORKS["star 20"], 1, 50, ratios=(4.0,))[0] > 10


def test_the_whole_mask_of_an_agent_is_as_large_with_few_partners_as_with_many():
    network = hg.Network(hg.graphs.ring(30))
    for n_partners in (2, 4, 16):
        masks = hg.masks.zero_sum(n_partners=n_partners)
        algorithm = hg.PDGNDS(
            design="recommended", masks=masks, stepsize=hg.stepsizes.constant(1.0)
        )
        _, Q = seeded_masks(algorithm, network, 1, seed=3, trials=range(300))
        size = np.sqrt((Q**2).mean())
        assert size == pytest.approx(0.2 * (1 - network.eta), rel=0.05)  # 9000 numbers: ±1 %


def test_an_eigenvalue_above_one_is_a_run_that_diverges():
    """The eigenvalues and the simulator agree on one draw that is far too large."""
    network, rng = NETWORKS["star 10"], np.random.default_rng(0)
    H = np.ones((1, 10, 1, 1)) * 1e-3
    H[0, 4] = -0.5  # one agent's mask
    H[0, 5] = 0.52
    W = network.matrix("doubly")
    B = stability.splits(W, 1, rng)
    radius = stability.radii(W, B, H)[0]
    x = before = rng.normal(size=10)
    h_before = 0 * x
    M = (np.eye(10) + W) / 2
    growth = []
    for _ in range(400):
        h = H[0, :, 0, 0] * x
        x, before, h_before = M @ (2 * x - before) - B[0] @ (h - h_before), x, h
        growth.append(np.linalg.norm(x))
    assert radius > 1.01
    assert (growth[399] / growth[199]) ** (1 / 200) == pytest.approx(radius, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("of_gap", stability.OF_GAP)
def test_no_draw_of_the_default_masks_is_unstable_on_many_networks(name, of_gap):
    for d, draws in ((1, 1000), (3, 40)):
        for n_partners in (2, 4, 8):
            found = stability.unstable(
                NETWORKS[name], d, draws, of_gap=of_gap, n_partners=n_partners, seed=n_partners
            )
            assert found == [0], (d, n_partners)
