"""Attacks on masked statistics, stage by stage: each gets the statistic of every stage.

Oracles are the simulator's own secrets: statistics, masks and rows, which no attack sees.
"""

from functools import cache

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.agent.stages import stage_lengths
from hushgrad.errors import PrivacyError
from hushgrad.privacy import Curious, Eavesdropper, Truth
from hushgrad.privacy.attacks.masked import ShareSizes, masked_objective
from hushgrad.privacy.attacks.membership import Membership
from hushgrad.privacy.attacks.pdg import known_mask
from hushgrad.privacy.attacks.structured_hessian import StructuredHessian
from hushgrad.privacy.lab import lab_of
from hushgrad.privacy.replay import masks
from support.private_runs import recorded

pytestmark = pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")

COMPLETE, STAR = hg.Network(hg.graphs.complete(4)), hg.Network(hg.graphs.star(4))


def clinics(d, *, without=0):
    rng = np.random.default_rng(3)
    X = [rng.normal(size=(n, d)) for n in (5, 6, 7, 8)]
    y = [np.where(x[:, 0] + rng.normal(size=len(x)) > 0, 1.0, -1.0) for x in X]
    kept = [slice(len(x) - without * (i == 0)) for i, x in enumerate(X)]
    return hg.problems.logistic(
        [x[k] for x, k in zip(X, kept, strict=True)],
        [v[k] for v, k in zip(y, kept, strict=True)],
        regularisation=4.0,
    )


@cache
def lab(d=2, network=COMPLETE, *, curvature="newton", without=0, seed=0, attacks=()):
    problem = clinics(d, without=without)
    algorithm = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(0.2 * (1 - network.eta) / clinics(d).smoothness()),
        design="recommended",
        stages=3,
        curvature=curvature,
    )
    run = recorded(algorithm, problem, network, iterations=420, seed=seed)
    return lab_of(run, trial=0, attacks=attacks, at=None)


@pytest.mark.parametrize("curvature", ["newton", "fixed"])
@pytest.mark.parametrize("who", [Eavesdropper(), Curious({1, 2})], ids=["all", "two"])
def test_every_stage_gives_its_masked_statistic_less_the_shares_of_members(who, curvature):
    links = who if isinstance(who, Eavesdropper) else Curious({1, 2, 3})
    for stage in lab(curvature=curvature).stages:
        view = stage.view(links)
        mask, truth = masks(stage.run, 0)[0], Truth(stage.run)
        true = truth.objective(0) + np.column_stack([mask.Q, mask.c]) - known_mask(view, 0)
        found = masked_objective(view, 0)
        assert np.linalg.norm(found - true) < 1e-6 * np.linalg.norm(true)
        if view.members:  # all partners: nothing of the mask is left
            assert np.linalg.norm(found - truth.objective(0)) < 1e-6 * np.linalg.norm(true)


@pytest.mark.parametrize(("d", "network"), [(1, COMPLETE), (2, STAR)], ids=["d = 1", "leaf"])
def test_the_trajectory_is_a_source_where_directions_tell_nothing(d, network):
    stage = lab(d, network).stages[-1]
    mask = masks(stage.run, 0)[1]
    true = Truth(stage.run).objective(1) + np.column_stack([mask.Q, mask.c])
    found = masked_objective(stage.view(Eavesdropper()), 1)
    assert np.linalg.norm(found - true) < 1e-6 * np.linalg.norm(true)


def test_membership_adds_up_over_stages_and_a_fixed_curvature_counts_once():
    test = Membership()
    for curvature in ("newton", "fixed"):
        stages = lab(curvature=curvature).stages
        views = [stage.view(Eavesdropper()) for stage in stages]
        assert test.refusal(views, 0) is None
        ((ratio, mu),) = [e.value for e in test.over(views, 0)]
        rows = np.array([view.suspects[0].rows for view in views])  # (stages, rows, d, d + 1)
        if curvature == "fixed":  # the linear part is the gradient at the start of a stage
            for view, parts in zip(views, rows, strict=True):
                parts[..., -1] += parts[..., :-1] @ view.start
            rows[1:, :, :, :-1] = 0.0
        sizes = ShareSizes.of(views[0])
        squares = [sum(sizes.inner(r, r) for r in rows[:, n]) for n in range(rows.shape[1])]
        resistance = 1 / 2  # of one side of a complete graph of four
        assert mu == pytest.approx(np.sqrt(resistance * max(squares)), rel=1e-9)
        assert abs(ratio - mu**2 / 2) < 5 * mu


def test_rows_of_a_stage_add_up_to_its_statistic():
    for stage in lab().stages:
        for i, one in stage.suspects.items():
            whole = Truth(stage.run).objective(i)
            penalty = whole - one.rows.sum(axis=0)
            np.testing.assert_allclose(penalty[:, :-1], np.eye(2), atol=1e-9)
            assert Truth(stage.run).n_rows(i) == len(one.rows)


def test_sizes_of_masks_follow_the_scale_on_which_agents_agreed():
    run = lab().run
    sizes = ShareSizes.of(lab().stages[0].view(Eavesdropper()))
    assert sizes.linear == pytest.approx(float(run.mask_scale[0]) * run.algorithm.masking.linear)


def test_an_audit_of_stages_judges_membership_once_and_hessians_in_every_stage():
    attacks = (Membership(), StructuredHessian())
    found = lab(attacks=attacks).outcome(Curious({1, 2, 3}), 0)
    assert not found.failed
    (bit,) = [e for e in found.evidence if e.quantity == "membership"]
    assert (bit.error, bit.stage) == (0.0, None)  # all partners: nothing is hidden
    assert {e.stage for e in found.evidence if e.quantity == "curvature"} == {0, 1, 2}


def test_runs_in_stages_with_the_same_masks_show_the_row_that_left():
    runs = [lab().run, lab(without=1).run, lab(without=1, seed=5).run]
    (found,) = hg.audit_repeated(runs[:2], "eavesdropper", agents=[0]).findings
    assert not found.failed
    first = [e for e in found.evidence if e.quantity == "row" and e.stage == 0]
    assert first[0].error < 1e-6
    assert found.verdict == "exposed"
    (other,) = hg.audit_repeated(runs[::2], "eavesdropper", agents=[0]).findings
    assert not any(e.counts for e in other.evidence if e.quantity in ("row", "change"))


# ---- an active neighbour of agent 0


def many_rows():
    """240 rows of one length: enough for three stages, unless a few of them dominate."""
    rng = np.random.default_rng(3)
    X = [rng.normal(size=(60, 2)) for _ in range(4)]
    X = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in X]
    y = [np.where(x[:, 0] + rng.normal(size=len(x)) > 0, 1.0, -1.0) for x in X]
    return hg.problems.logistic(X, y, regularisation=40.0), np.vstack(X), np.concatenate(y)


def test_one_message_at_the_end_of_a_stage_moves_the_next_and_long_steps_isolate_a_row():
    """At two long θ_s, a little apart, gradients differ by the rows that changed sides.

    A run that does not accept the exposure of sums ends before a row comes out.
    """
    (problem, X, y), length = many_rows(), 1e5
    rows = X * y[:, None]
    across = np.sort((np.arctan2(rows[:, 1], rows[:, 0]) + np.pi / 2) % np.pi)  # where zᵀθ = 0
    gaps, between = np.diff(across), (across[1:] + across[:-1]) / 2
    at = int(np.argmax(np.minimum(gaps[1:], gaps[:-1])))
    two = [length * np.array([np.cos(a), np.sin(a)]) for a in between[at : at + 2]]
    ends = np.cumsum(stage_lengths(420, 3))
    wanted = dict(zip((ends[:2] - 1).tolist(), two, strict=True))
    weight = COMPLETE.matrix("doubly")[0, 1] / 2

    def tamper(k, sender, receiver, payload):
        if (sender, receiver) != (1, 0) or k not in wanted:
            return payload
        return tuple(part + wanted[k] - part / weight for part in payload)

    algorithm = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(0.2 / problem.smoothness()), design="recommended", stages=3
    )
    honest = recorded(algorithm, problem, COMPLETE, iterations=420, accept_exposure=())
    assert honest.revealed["rows"] == pytest.approx(120)
    with pytest.raises(PrivacyError, match=r"With stage [23] of 3 the sums would tell too much"):
        recorded(algorithm, problem, COMPLETE, iterations=420, tamper=tamper, accept_exposure=())
    run = recorded(algorithm, problem, COMPLETE, iterations=420, tamper=tamper)
    starts = [run.trace[0, end, 0] for end in ends[:2]]
    sums = [
        sum(problem.local_gradient(i)(theta) for i in range(4)) - 40.0 * theta for theta in starts
    ]
    found = sums[1] - sums[0]
    distance = [np.linalg.norm(sign * found - rows, axis=1).min() for sign in (-1, 1)]
    assert min(distance) < 1e-6  # one row, to rounding
