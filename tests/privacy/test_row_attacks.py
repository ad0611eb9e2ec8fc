"""Constant splits give away an agent's path, and off quadratics the path gives away its rows.

Oracles are the simulator's own secrets: x_i^k, h_i^k, masks and rows, which no attack sees.
"""

from functools import lru_cache

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious, Eavesdropper, Knowledge, Truth
from hushgrad.privacy.attacks.pdg import known_mask
from hushgrad.privacy.attacks.probes import Probes
from hushgrad.privacy.attacks.row_fit import RowFit
from hushgrad.privacy.attacks.row_model import Huber, RowModel, fitted
from hushgrad.privacy.attacks.sum_fit import SumFit, component, stage_sums
from hushgrad.privacy.attacks.sum_model import fit_sums
from hushgrad.privacy.attacks.trajectory import Paths, Trajectory, _recursion
from hushgrad.privacy.replay import masks
from hushgrad.privacy.row_matching import guessed, matched
from hushgrad.privacy.stages import stage_runs
from hushgrad.privacy.verdict import Judge
from hushgrad.problems.datasets import dataset
from support.private_runs import recorded
from support.row_study import newton_sums

pytestmark = pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")

ONCE = hg.stepsizes.geometric(0.5, drawn="once")
RING = hg.Network(hg.graphs.ring(4))
STAR = hg.Network(hg.graphs.star(4))


def direct(problem, network):
    """Masks, constant splits, a deviation drawn once, and no stages."""
    step = 0.2 * (1 - network.eta) / problem.smoothness()
    return hg.PDGNDS(
        stepsize=hg.stepsizes.constant(step, deviation=ONCE),
        split=hg.splits.private_constant(own=0.45),
        masks=hg.masks.zero_sum(),
    )


def patients(m, n, d, seed=0):
    data = dataset("breast_cancer", n_agents=m, seed=seed)
    return [x[:n, :d] for x in data.X], [y[:n] for y in data.y]


@lru_cache(maxsize=4)
def clinics(network, n, d, iterations=200, regularisation=1.0):
    X, y = patients(network.n_agents, n, d)
    problem = hg.problems.logistic(X, y, regularisation=regularisation)
    return run_agents(direct(problem, network), problem, network, iterations)


def run_agents(algorithm, problem, network, iterations, **options):
    return recorded(algorithm, problem, network, iterations=iterations, seed=1, **options)


@pytest.mark.parametrize("n", [1, 2, 40])
@pytest.mark.parametrize("two_step", [True, False])
@pytest.mark.parametrize("a", [-3.0, -1.2, -0.2, 0.0, 0.6])
def test_the_recursion_holds_from_its_start_or_to_its_end(a, two_step, n):
    """x^{k+1} = a u^k + forcing^k: u^k = 2x^k − x^{k−1} with x^{−1} = x^0, or u^k = x^k."""
    forcing, (start, end) = np.split(np.random.default_rng(n).normal(size=(n + 2, 3)), [n])
    x = _recursion(a, forcing, two_step, start, end)
    from_start = a > (-1 / 3 if two_step else -1)
    assert from_start == (x[0] == start).all()
    after = x[1:] if from_start else np.vstack([x[1:], end])
    earlier = np.vstack([x[:1], x[:-1]])
    u = 2 * x - earlier if two_step else x
    expected = (a * u + forcing)[: len(after)]
    np.testing.assert_allclose(after, expected, rtol=1e-12, atol=1e-12)


def near(network, i):
    graph = network.graph
    return Curious(graph.senders[graph.receivers == i].tolist())


def judged(attack, run, adversary, target):
    """The evidence on rows of an attack that applies, None where it found none."""
    view = Knowledge.of(run, adversary)
    assert attack.applies(view, target) is None
    judge = Judge(Truth(run))
    found = [e for estimate in attack(view, target) for e in judge(view, estimate)]
    return next((e for e in found if e.quantity == "rows"), None)


# ---- trajectory


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("network", [RING, STAR], ids=["ring", "leaf"])
def test_constant_splits_give_away_path_and_masked_statistic(d, network):
    problem = hg.problems.estimation(n_agents=4, s=4, d=d, seed=2)
    run = run_agents(direct(problem, network), problem, network, 250)
    view, truth = Knowledge.of(run, near(network, 1)), Truth(run)
    found = {e.quantity: e for e in Trajectory()(view, 1)}
    k = found["position"].k
    assert np.abs(found["position"].value - truth.x[k, 1]).max() < 1e-11
    h = truth.h(1)[k]
    assert np.abs(found["scaled gradient"].value - h).max() < 1e-11 * np.abs(h).max()
    mask = masks(run, 0)[1]
    true = truth.objective(1) + np.column_stack([mask.Q, mask.c]) - known_mask(view, 1)
    assert np.linalg.norm(found["objective"].value - true) < 1e-8 * np.linalg.norm(true)


def test_path_of_pdg_ds_with_constant_splits():
    problem = hg.problems.estimation(n_agents=4, s=4, d=1, seed=2)
    step = hg.stepsizes.diminishing(1 / problem.smoothness(), deviation=ONCE)
    algorithm = hg.PDGDS(stepsize=step, split=hg.splits.private_constant())
    run = run_agents(algorithm, problem, RING, 100)
    found = {e.quantity: e for e in Trajectory()(Knowledge.of(run, near(RING, 1)), 1)}
    truth = Truth(run)
    assert np.abs(found["position"].value - truth.x[:100, 1]).max() < 1e-12
    true = truth.objective(1)  # no masks: f_1 itself
    assert np.linalg.norm(found["objective"].value - true) < 1e-6 * np.linalg.norm(true)


def test_two_of_four_neighbours_know_the_path():
    network = hg.Network(hg.graphs.complete(5))
    problem = hg.problems.estimation(n_agents=5, s=4, d=2, seed=2)
    run = run_agents(direct(problem, network), problem, network, 100)
    found = Trajectory()(Knowledge.of(run, Curious({3, 4})), 0)
    assert [e.quantity for e in found] == ["position"]
    assert np.abs(found[0].value - Truth(run).x[:100, 0]).max() < 1e-11


def test_two_neighbours_know_no_path_that_starts_elsewhere():
    network = hg.Network(hg.graphs.complete(5))
    problem = hg.problems.estimation(n_agents=5, s=4, d=2, seed=2)
    x0 = np.random.default_rng(0).normal(size=(5, 2))
    run = run_agents(direct(problem, network), problem, network, 100, x0=x0)
    assert Trajectory()(Knowledge.of(run, Curious({3, 4})), 0) == ()


@pytest.mark.parametrize(
    ("split", "reason"),
    [(hg.splits.fresh(), "not constant"), (hg.splits.isotropic(), "not constant")],
)
def test_other_splits_are_refused(split, reason):
    problem = hg.problems.estimation(n_agents=4, s=4, d=2, seed=2)
    run = run_agents(hg.PDGNDS(split=split), problem, RING, 5)
    for attack in (Trajectory(), RowFit(loss="logistic")):
        assert reason in attack.applies(Knowledge.of(run, Eavesdropper()), 0)


def test_one_of_two_neighbours_hears_too_little():
    view = Knowledge.of(clinics(RING, 3, 3), Curious({0}))
    assert "hears 2 of the 4 links" in Trajectory().applies(view, 1)


# ---- rows


def test_neighbours_of_a_ring_recover_every_row():
    run = clinics(RING, 3, 3)
    e = judged(RowFit(), run, near(RING, 1), 1)
    assert e.rows == (3, 3)
    assert e.counts
    assert e.error < 1e-6


def test_the_neighbour_of_a_leaf_recovers_every_row_alone():
    run = clinics(STAR, 3, 3)
    e = judged(RowFit(), run, Curious({0}), 2)
    assert e.rows == (3, 3)
    assert e.error < 1e-6


def test_a_quadratic_has_no_rows_to_show():
    X, y = patients(4, 5, 3)
    problem = hg.problems.ridge(X, y)
    run = run_agents(direct(problem, RING), problem, RING, 200)
    view = Knowledge.of(run, near(RING, 1))
    assert "'ridge'" in RowFit().applies(view, 1)
    assert RowFit(loss="logistic")(view, 1) == ()


def test_an_audit_of_the_direct_design_says_exposed():
    run = clinics(RING, 3, 3)
    audit = hg.audit(run, "neighbours", agents=[1], attacks=[RowFit()], coalitions=False)
    assert audit.findings[0].exposure == "exposed"
    assert "3 of 3 rows" in audit.table()
    assert hg.Audit.from_json(audit.to_json()) == audit


def test_clipped_residuals_show_the_rows_that_they_bend():
    rng = np.random.default_rng(3)
    rows, offsets = rng.normal(size=(2, 3)), rng.normal(size=2)
    x = 3 * rng.normal(size=(80, 3))
    clipped = (x @ rows.T - offsets).clip(-1.35, 1.35)
    g = clipped @ rows + x @ np.diag([1.0, 2.0, 3.0]) + 5.0
    path = Paths("nothing", np.empty(0), lambda _: (x, g))
    model = RowModel(path, np.ones(80), None, np.arange(80), phi=Huber())
    assert fitted(model).residual > 1e-3
    fit = RowFit().fit(model)
    assert matched(fit.rows[:, :3], rows).max() < 1e-6


@pytest.mark.slow
def test_six_clinics_of_ten_patients_lose_them_all():
    network = hg.Network(hg.graphs.ring(6))
    run = clinics(network, 10, 10, 300)
    found = [judged(RowFit(), run, near(network, i), i) for i in range(6)]
    assert [e.rows for e in found] == [(10, 10)] * 6
    assert np.median([e.error for e in found]) < 1e-8


@pytest.mark.slow
def test_leaves_of_a_star_lose_all_patients_to_one_neighbour():
    network = hg.Network(hg.graphs.star(6))
    run = clinics(network, 10, 6, 400)
    found = [judged(RowFit(), run, Curious({0}), i) for i in (1, 2, 3)]
    assert all(e.rows[0] >= 8 for e in found)


# ---- what counts


def test_rows_are_matched_once_and_up_to_signs():
    true = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    assert matched(np.array([[-1.0, 0.0], [-1.0, 0.0]]), true)[0] == 0
    errors = matched(np.array([[0.0, -1.05], [2.0, 2.2]]), true)
    assert errors[0] == np.inf
    assert errors[1:] == pytest.approx([0.05, 0.2 / 8**0.5])


def test_a_row_that_others_have_too_is_a_good_guess():
    true = np.array([[1.0, 0.0], [0.0, 4.0]])
    assert guessed([np.array([[-1.0, 0.0], [9.0, 9.0]])], true) == pytest.approx([0.0, 1.0])


# ---- an active neighbour


PROBED = hg.Network(hg.graphs.complete(4))
ACTIVE = hg.Active({2}, size=2.0, at=range(300, 300 + 16 * 150, 150))


def probed_problem():
    X, y = patients(4, 3, 3)
    return hg.problems.logistic(X, y, regularisation=20.0)


@lru_cache(maxsize=1)
def probed():
    problem = probed_problem()
    return run_agents(direct(problem, PROBED), problem, PROBED, 3000, tamper=ACTIVE.tamper)


def test_one_active_neighbour_recovers_rows_and_all_agents_end_at_the_optimum():
    run = probed()
    assert run.error[0, -1] < 1e-12
    x, _ = (model := Probes().model(Knowledge.of(run, ACTIVE), 2, 0)).path(model.numbers)
    there = run.trace[0, np.array(ACTIVE.at) + 1, 0]
    assert np.abs(x[:-1] - there).max() < 1e-5  # nobody else has reacted yet
    e = judged(Probes(), run, ACTIVE, 0)
    assert e.rows == (3, 3)
    passive = Knowledge.of(run, Curious({2}))
    assert "perturbs" in Probes().applies(passive, 0)
    assert RowFit().applies(passive, 0) is not None


def test_probes_cancel():
    run = probed()
    k = ACTIVE.at[0]
    moved = np.linalg.norm(run.trace[0, k + 1, 0] - run.trace[0, k, 0])
    assert moved == pytest.approx(2.0, rel=1e-3)
    sums = sum(
        ACTIVE.tamper(at, 2, 0, (np.zeros(3),))[0]
        for at in range(run.transcript.channels[0].values.shape[1])
    )
    assert np.abs(sums).max() < 1e-12


def test_an_audit_runs_the_run_again_with_the_perturbation():
    problem = probed_problem()
    run = hg.run(direct(problem, PROBED), problem, PROBED, iterations=20, transcript=True)
    adversary = hg.Active({2}, at=[10])
    audit = hg.audit(run, adversary, agents=[0], attacks=[Probes()], coalitions=False)
    assert audit.findings[0].adversary == "active agent 2"
    assert "probes, has 1" in audit.findings[0].refused["probes"]


@pytest.mark.slow
def test_an_audit_finds_rows_by_an_active_neighbour():
    problem = probed_problem()
    run = hg.run(direct(problem, PROBED), problem, PROBED, iterations=3000, seed=1, transcript=True)
    audit = hg.audit(run, ACTIVE, agents=[0], attacks=[Probes()], coalitions=False)
    assert audit.findings[0].adversary == "active agent 2"
    assert audit.findings[0].exposure == "exposed"


def test_the_stacked_engine_sends_what_steps_say():
    problem = probed_problem()
    with pytest.raises(hg.errors.InputError, match='needs engine="agents"'):
        hg.run(direct(problem, PROBED), problem, PROBED, iterations=5, tamper=ACTIVE.tamper)


@pytest.mark.parametrize("options", [{"at": ()}, {"at": (5, 6)}, {"at": (5,), "size": 0.0}])
def test_perturbations_that_do_not_cancel_are_refused(options):
    with pytest.raises(hg.errors.InputError, match="perturbation"):
        hg.Active({1}, **options)


# ---- sums over honest agents


def rows_of_agent(n, d, seed=0):
    X, y = patients(6, n, d, seed)
    return np.where(y[0] > 0, 1.0, -1.0)[:, None] * X[0]


def test_a_few_rows_come_out_of_their_sums_signs_included():
    rows = np.random.default_rng(5).normal(size=(3, 3))
    found = fit_sums(newton_sums(rows, 0.5, 4), n_rows=3)
    assert found.residual < 1e-18
    assert matched(found.rows, rows).max() < 1e-6
    distance = np.linalg.norm(found.rows[:, None] - rows, axis=2)
    assert distance.min(axis=0).max() < 1e-6


def test_more_unknowns_than_numbers_tell_nothing():
    rows = np.random.default_rng(5).normal(size=(40, 3))
    found = fit_sums(newton_sums(rows, 0.5, 2), starts=1)
    assert (matched(found.rows, rows) < 1e-3).sum() == 0


@lru_cache(maxsize=1)
def staged():
    """Three agents with three patients each, in four stages."""
    X, y = patients(3, 3, 3)
    problem = hg.problems.logistic(X, y, regularisation=3.0)
    network = hg.Network(hg.graphs.complete(3))
    step = hg.stepsizes.constant(0.2 * (1 - network.eta) / problem.smoothness())
    algorithm = hg.PDGNDS(stepsize=step, design="recommended", stages=4)
    return run_agents(algorithm, problem, network, 600)


def test_stages_tell_the_sums_of_honest_statistics_and_single_rows_to_nobody():
    run = staged()
    rows = np.concatenate([Truth(run).rows(i) for i in range(3)])
    views = [Knowledge.of(stage, Eavesdropper()) for stage in stage_runs(run, 0)]
    found = [stage_sums(view, 0) for view in views]
    for s in (s for s in found if s is not None):
        doubt = 1 / (1 + np.exp(rows @ s.theta))
        g = 3.0 * s.theta - rows.T @ doubt
        assert np.linalg.norm(s.H @ s.theta + s.q - g) < 1e-8 * np.linalg.norm(rows)
    assert sum(s is not None for s in found) >= 3
    for view in views:
        assert RowFit(most=4, effort=5e8)(view, 0) == ()


def test_an_audit_of_stages_tries_the_sums():
    run = staged()
    fit = SumFit(starts=8)
    audit = hg.audit(run, Eavesdropper(), agents=[0], attacks=[fit, RowFit()], coalitions=False)
    finding = audit.findings[0]
    assert "sum-fit" in finding.tried
    assert not finding.failed
    assert all(e.attack == "sum-fit" for e in finding.evidence if e.quantity == "rows")


def test_members_take_their_shares_off_the_sums():
    X, y = patients(4, 3, 2)
    problem = hg.problems.logistic(X, y, regularisation=4.0)
    step = hg.stepsizes.constant(0.2 * (1 - RING.eta) / problem.smoothness())
    algorithm = hg.PDGNDS(stepsize=step, design="recommended", stages=2)
    stage = stage_runs(run_agents(algorithm, problem, RING, 450), 0)[-1]
    truth = Truth(stage)
    view = Knowledge.of(stage, Curious({1, 3}))  # neighbours of 0 and 2, and partners of both
    assert component(view, 0) == {0, 2}
    found, true = stage_sums(view, 0), truth.objective(0) + truth.objective(2)
    assert np.linalg.norm(np.column_stack([found.H, found.q]) - true) < 1e-6 * np.linalg.norm(true)
    alone = Knowledge.of(stage, Curious({3}))  # does not hear what 1 says to 0
    assert component(alone, 0) == {0, 1, 2}
    assert stage_sums(alone, 0) is None
    assert "hears" in SumFit().refusal([alone, alone], 0)


@pytest.mark.slow
def test_seven_stages_of_ten_patients_show_some():
    met = [
        (matched(fit_sums(newton_sums(rows, 1.0, 7), n_rows=10).rows, rows) <= 0.1).sum()
        for rows in (rows_of_agent(10, 4, seed) for seed in range(3))
    ]
    assert sum(met) >= 8
