"""What messages of `hg.Consensus` tell: without masks every vector, with masks a masked one."""

import math
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.agent.masking import masked_statistics
from hushgrad.agent.stages import Statistic
from hushgrad.privacy.attacks.averaged_vectors import AveragedVectors
from hushgrad.privacy.knowledge import Knowledge
from hushgrad.privacy.promised import promises
from hushgrad.simulate.run import driver_of
from hushgrad.simulate.staged import simulate_stages
from support.adaptive import Adaptive

M = 6
VALUES = np.random.default_rng(0).normal(size=(M, 3))
RING = hg.Network(hg.graphs.ring(M))
BARE = hg.masks.zero_sum(linear=0)
ACCELERATIONS = ["none", "chebyshev"]


def recorded(network=RING, **chosen):
    algorithm = hg.Consensus(**chosen)
    return hg.run(
        algorithm, hg.problems.average(VALUES), network, iterations=30, engine="agents",
        transcript=True,
    )  # fmt: skip


@pytest.mark.parametrize("acceleration", ACCELERATIONS)
def test_without_masks_any_neighbour_has_the_vector(acceleration):
    run = recorded(acceleration=acceleration, masks=BARE)
    for adversary in (hg.Eavesdropper([(2, 1)]), hg.Curious({1})):
        view = Knowledge.of(run, adversary)
        (estimate,) = AveragedVectors()(view, 2)
        np.testing.assert_array_equal(-estimate.value[:, -1], VALUES[2])
    audit = hg.audit(run, hg.Curious({1}), agents=[2])
    assert audit.findings[0].verdict == "exposed"
    assert audit.findings[0].best.attack == "averaged-vectors"
    assert audit.coalition(2).members == (1,)


@pytest.mark.parametrize("acceleration", ACCELERATIONS)
def test_without_masks_one_end_of_a_path_computes_the_vectors_of_all(acceleration):
    run = recorded(hg.Network(hg.graphs.path(M)), acceleration=acceleration, masks=BARE)
    view = Knowledge.of(run, hg.Curious({0}))
    for target in range(1, M):
        (estimate,) = AveragedVectors()(view, target)
        np.testing.assert_allclose(-estimate.value[:, -1], VALUES[target], rtol=0, atol=1e-4)
    audit = hg.audit(run, hg.Curious({0}), coalitions=False)
    assert {finding.verdict for finding in audit.findings} == {"exposed"}


@pytest.mark.parametrize("acceleration", ACCELERATIONS)
def test_with_masks_nothing_short_of_all_partners_recovers_a_vector(acceleration):
    run = recorded(acceleration=acceleration)
    audit = hg.audit(run, [hg.Eavesdropper(), hg.Curious({1, 2})], coalitions=True)
    for finding in audit.findings:
        assert finding.verdict.startswith("not recovered")
        assert finding.best.quantity != "curvature"  # H_i = I is public
    for i in range(M):
        partners = run.algorithm.masking.partners(i, M)
        assert audit.coalition(i).members == partners
        (found,) = AveragedVectors()(Knowledge.of(run, hg.Curious(partners)), i)
        assert np.abs(-found.value[:, -1] - VALUES[i]).max() < 4 * 6e-11
        fewer = Knowledge.of(run, hg.Curious(partners[1:]))
        (found,) = AveragedVectors()(fewer, i)
        assert np.abs(-found.value[:, -1] - VALUES[i]).max() > 100.0


@pytest.mark.optimised
@pytest.mark.parametrize("acceleration", ACCELERATIONS)
@pytest.mark.parametrize(
    ("engine", "neighbour"), [("stacked", None), ("agents", None), ("agents", Adaptive)]
)
def test_other_vectors_with_the_same_masked_vectors_send_the_same_bits(
    engine, neighbour, acceleration
):
    """Two worlds: Δ has gone from agent 1 to agent 3, and their masks make up for it."""
    values = np.round(VALUES * 2**10) / 2**10
    moved = np.zeros_like(values)
    moved[3] = np.array([0.75, -0.125, 0.5])
    moved[1] = -moved[3]
    sent = []

    def transcript(values, masks_moved):
        def driver(request):
            def masking(every, scale, stage):
                masked = masked_statistics(
                    request.algorithm, RING, every, scale, seed=request.seed,
                    trials=request.trials, stage=stage,
                )  # fmt: skip
                sent.append(masked.q + masks_moved)
                return Statistic(masked.H, sent[-1])

            request = replace(request, tamper=neighbour and neighbour())
            return simulate_stages(request, driver_of(engine), 1, masking=masking)

        return hg.run(
            hg.Consensus(acceleration=acceleration), hg.problems.average(values), RING,
            iterations=20, transcript=True, driver=driver,
        ).transcript  # fmt: skip

    here, there = transcript(values, 0.0), transcript(values + moved, moved)
    np.testing.assert_array_equal(*sent)  # sums on the grid are exact
    for one, other in zip(here.channels, there.channels, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    apart = transcript(values + moved, 0.0)  # the same masks: the data show
    assert not np.array_equal(here.channels[0].values, apart.channels[0].values)


def test_the_guarantee_is_the_norm_of_a_vector_over_its_mask():
    run = recorded()
    norm, unit = np.linalg.norm(VALUES, axis=1).max(), float(run.mask_scale[0])
    everyone = hg.Curious(run.algorithm.masking.partners(0, M))
    told = promises(run, 0, [hg.Eavesdropper(), hg.Curious({1}), everyone], range(M))
    outsider, partner, all_partners = told.lines
    # six agents with four partners each form an octahedron of unit resistors
    assert outsider.mu == pytest.approx(norm / (1e4 * unit) * math.sqrt(1 / 2), rel=1e-9)
    assert outsider.mu < partner.mu < 1e-3
    assert all_partners.mu is None
    told = hg.guarantee(
        run.algorithm.masking, M, sizes=run.algorithm.mask_sizes(3, None, unit),
        bound=hg.theory.mean_row(norm), coalition=[],
    )  # fmt: skip
    assert max(e.mu for e in told.exposures) == pytest.approx(outsider.mu, rel=1e-12)


def test_a_run_with_masks_is_judged_without_a_stepsize():
    leaf = hg.Network(hg.graphs.star(M))  # leaves have one neighbour, and warnings are errors
    run = hg.run(hg.Consensus(), hg.problems.average(VALUES), leaf, iterations=2, engine="agents")
    assert run.config["revealed"] is None
    setting = hg.theory.Setting(
        algorithm=hg.Consensus(), n_agents=M, dim=5000, is_quadratic=True, stages=1,
        sizes=hg.Consensus().mask_sizes(5000, None),
    )  # fmt: skip
    own = hg.theory.OwnNumbers(number=0, neighbours=[1, 5])
    assert hg.theory.weaknesses(setting, own) == ()
    two = hg.Network(hg.graphs.path(2))
    with pytest.warns(hg.errors.RiskWarning, match="a mask needs at least 2 partners"):
        hg.run(hg.Consensus(), hg.problems.average(VALUES[:2]), two, iterations=1, engine="agents")
    weak = hg.Consensus(masks=hg.masks.zero_sum(linear=0.5))
    with pytest.warns(hg.errors.RiskWarning, match=r"as the unit .* 0.5 units"):
        hg.run(weak, hg.problems.average(VALUES), RING, iterations=1, engine="agents")
