"""Runs in stages: their end, their masks, and the principle that makes them private."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.agent.stages import SHORTEST, STAGES, Statistic, n_stages, stage_lengths
from hushgrad.errors import AlgorithmError, InputError, ProblemError, RiskWarning
from hushgrad.simulate.run import driver_of
from hushgrad.simulate.staged import simulate_stages
from support.adaptive import Adaptive
from support.tables import combinations

NETWORK = hg.Network(hg.graphs.ring(5))
FEW_ROWS = ["sums", "curvature"]  # accepted: few rows and long steps make short tests
GAP = 0.2 * (1 - NETWORK.eta)


def rows(seed=0, m=5, n=12, d=3):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n, d)) for _ in range(m)]
    return X, [x @ np.ones(d) + rng.normal(size=n) for x in X]


def logistic(seed=0):
    X, y = rows(seed)
    return hg.problems.logistic(X, [np.sign(v) for v in y], regularisation=2.0)


def huber():
    X, y = rows()
    y[0][:3] += 20.0
    return hg.problems.huber(X, y, regularisation=2.0)


def custom():
    """Softplus of the rows, whose Hessian only autodiff knows."""
    import jax

    X, y = rows()
    data = [{"X": x, "y": np.sign(v)} for x, v in zip(X, y, strict=True)]
    return hg.Problem(
        lambda theta, rows: (
            jax.nn.softplus(-rows["y"] * (rows["X"] @ theta)).sum() + 0.2 * theta @ theta
        ),
        data,
        dim=3,
    )


def recommended(problem, **chosen):
    schedule = hg.stepsizes.constant(GAP / problem.smoothness())
    return hg.PDGNDS(stepsize=schedule, design="recommended", **chosen)


def run(problem, iterations=2500, engine="stacked", **options):
    algorithm = options.pop("algorithm", None) or recommended(problem)
    return hg.run(
        algorithm, problem, NETWORK, iterations=iterations, engine=engine, progress=False,
        **{"accept_exposure": FEW_ROWS} | options,
    )  # fmt: skip


# ---- the plan


@pytest.mark.parametrize("iterations", [1, 7, 50, 2000, 12345])
@pytest.mark.parametrize("stages", [1, 2, 8])
def test_stages_fill_the_run_and_double_in_length(iterations, stages):
    lengths = stage_lengths(iterations, stages)
    assert sum(lengths) == iterations
    assert len(lengths) == 1 or min(lengths) >= SHORTEST
    assert all(abs(b - 2 * a) <= 3 for a, b in pairwise(lengths))


def test_the_design_and_the_problem_decide_on_the_number_of_stages():
    quadratic = hg.problems.estimation()
    assert quadratic.is_quadratic
    assert not logistic().is_quadratic
    assert n_stages(hg.PDGNDS(), is_quadratic=False) == 0
    assert n_stages(hg.PDGNDS(design="recommended"), is_quadratic=True) == 1
    assert n_stages(hg.PDGNDS(design="recommended"), is_quadratic=False) == STAGES
    assert n_stages(hg.PDGNDS(stages=3), is_quadratic=True) == 3
    assert n_stages(hg.EXTRA(), is_quadratic=True) == 0


# ---- the end


@pytest.mark.parametrize("make", [logistic, huber, custom])
def test_a_staged_run_ends_at_the_optimum_of_the_objectives_themselves(make):
    problem = make()
    found = run(problem, iterations=6000)
    assert found.error[0, -1] < 1e-10
    assert sum(found.config["stages"]) == 6000


def test_agents_in_memory_and_the_stacked_engine_agree_in_every_stage():
    problem = logistic()
    stacked, agents = (run(problem, 400, engine) for engine in ("stacked", "agents"))
    assert np.abs(stacked.error - agents.error).max() < 1e-10 * np.abs(stacked.error).max()
    assert np.abs(stacked.x - agents.x).max() < 1e-9


@pytest.mark.optimised
def test_a_trial_is_the_same_alone_and_among_others():
    problem = logistic()
    every = run(problem, 200, trials=[0, 4, 9])
    alone = run(problem, 200, trials=[4])
    assert np.allclose(every.x[1], alone.x[0], rtol=0, atol=1e-12)
    assert not np.allclose(every.x[0], every.x[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("make", [hg.problems.estimation, logistic])
def test_without_masks_one_stage_of_a_quadratic_is_the_method_itself(make):
    """And a stage that is long enough is one Newton step."""
    problem = make()
    lam = GAP / problem.smoothness()
    plain = hg.PDGNDS(stepsize=hg.stepsizes.constant(lam, deviation=hg.stepsizes.none()))
    staged = hg.PDGNDS(stepsize=plain.stepsize, stages=1)
    found = run(problem, 3000, algorithm=staged, seed=5)
    if problem.is_quadratic:
        same = run(problem, 3000, algorithm=plain, seed=5)
        assert np.abs(found.x - same.x).max() < 1e-10
    else:
        g = problem.gradient_sum(np.zeros(3))
        H = sum(problem.local_curvature(i)(np.zeros(3), None) for i in range(5))
        assert np.abs(found.x[0] + np.linalg.solve(H, g)).max() < 1e-9


def test_a_fixed_curvature_converges_with_the_same_curvature_in_every_stage():
    problem = logistic()
    seen = []

    def driver(request):
        seen.append(np.asarray(request.problem.data["H"]))
        return driver_of("stacked")(request)

    algorithm = recommended(problem, stages=6, curvature="fixed")
    found = hg.run(
        algorithm, problem, NETWORK, iterations=3000, progress=False, accept_exposure=FEW_ROWS,
        driver=lambda request: simulate_stages(request, driver, 6),
    )  # fmt: skip
    assert len(seen) == 6
    assert all(np.array_equal(H, seen[0]) for H in seen)  # the mask of H_i too
    assert found.error[0, -1] < 0.2 * np.linalg.norm(problem.solution())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_stages_converge_from_zero_on_hard_problems(seed):
    """Nearly separable rows, heavy tails, few rows: where plain Newton steps diverge."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 6))
    X = [rng.standard_t(1.5, size=(int(rng.integers(4, 12)), d)) for _ in range(4)]
    y = [x @ (3 * rng.normal(size=d)) + rng.standard_t(1.3, size=len(x)) for x in X]
    if seed % 2:
        problem = hg.problems.logistic(X, [np.where(v > 0, 1.0, -1.0) for v in y])
    else:
        problem = hg.problems.huber(X, y)
    theta, before = np.zeros(d), None
    errors = []
    for _ in range(40):  # Newton steps on the exact sum: stages without their inner errors
        H = sum(problem.local_curvature(i)(theta, before) for i in range(4))
        theta, before = theta - np.linalg.solve(H, problem.gradient_sum(theta)), theta
        errors.append(np.linalg.norm(theta - problem.solution()))
    assert errors[-1] < 1e-6 * max(1.0, np.linalg.norm(problem.solution()))


# ---- the principle


def transcript_with(problem, masking, engine="stacked", tamper=None, **chosen):
    def driver(request):
        request = replace(request, tamper=tamper)
        return simulate_stages(request, driver_of(engine), chosen["stages"], masking=masking)

    algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.002), design="recommended", **chosen)
    return hg.run(
        algorithm, problem, NETWORK, iterations=120, transcript=True, progress=False, seed=3,
        driver=driver, accept_exposure=FEW_ROWS,
    )  # fmt: skip


def swapped(X, y, i, j):
    """The same rows, but the first three of agents i and j have changed places."""
    X, y = [x.copy() for x in X], [v.copy() for v in y]
    X[i][:3], X[j][:3] = X[j][:3].copy(), X[i][:3].copy()
    y[i][:3], y[j][:3] = y[j][:3].copy(), y[i][:3].copy()
    return X, y


NEIGHBOURS = {
    "passive": lambda: None,
    "probes": lambda: hg.Active({2}, size=1.0, at=[3, 30, 110]).tamper,
    "adaptive": partial(Adaptive, 0.1),
}


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("case", "kind"),
    combinations(
        [("stacked", "passive"), *[("agents", neighbour) for neighbour in NEIGHBOURS]],
        ["logistic", "huber", "ridge"],
    ),
)
def test_other_data_with_the_same_masked_statistics_send_the_same_bits(case, kind):
    engine, neighbour = case
    """Two worlds: rows have changed hands between agents 1 and 3, and masks make up for it.

    Agent 2, their neighbour, listens, or perturbs what it sends. A perturbed run begins its later
    stages elsewhere, in both worlds at the same point.
    """
    X, y = rows(7)
    if kind == "logistic":
        y = [np.where(v > 0, 1.0, -1.0) for v in y]
    build, stages = getattr(hg.problems, kind), 1 if kind == "ridge" else 3
    here, there = build(X, y), build(*swapped(X, y, 1, 3))
    sent: list[Statistic] = []
    own: list[Statistic] = []

    def masked_here(every, scale, stage):
        rng = np.random.default_rng(stage)
        c = scale[0] * rng.normal(size=every.q.shape)
        Q = rng.normal(size=every.H.shape)
        Q = (Q + np.swapaxes(Q, -1, -2)) / 2
        own.append(every)
        sent.append(
            Statistic(
                every.H + Q - Q.mean(axis=1, keepdims=True), every.q + c - c.mean(1, keepdims=True)
            )
        )
        return sent[-1]

    def masked_there(every, scale, stage):
        """The masks that explain the same statistics differ at agents 1 and 3, and cancel."""
        del scale
        for mine, theirs in zip(own[stage], every, strict=True):
            moved = theirs - mine
            size = np.abs(mine).max()
            assert np.abs(moved[:, [0, 2, 4]]).max() == 0
            assert np.abs(moved[:, 1]).max() > 1e-3 * size
            assert not moved.sum(axis=1).any()  # rows are rounded one by one
        return sent[stage]

    tamper = NEIGHBOURS[neighbour]
    first = transcript_with(here, masked_here, engine, tamper(), stages=stages)
    second = transcript_with(there, masked_there, engine, tamper(), stages=stages)
    for one, other in zip(first.transcript.channels, second.transcript.channels, strict=True):
        assert np.array_equal(one.values, other.values)
    assert np.array_equal(first.trace, second.trace)
    if neighbour != "passive":  # the perturbations arrived
        calm = transcript_with(here, lambda *given: sent[given[-1]], engine, stages=stages)
        assert not np.array_equal(calm.trace[:, 10], first.trace[:, 10])


def test_all_agents_make_their_models_at_one_point():
    problem = logistic()
    starts = []

    def driver(request):
        starts.append(request.x0)
        return driver_of("stacked")(request)

    hg.run(
        recommended(problem, stages=3), problem, NETWORK, iterations=100, progress=False,
        driver=lambda request: simulate_stages(request, driver, 3), accept_exposure=FEW_ROWS,
    )  # fmt: skip
    assert len(starts) == 3
    assert all((x0 == x0[:, :1]).all() for x0 in starts)
    with pytest.raises(InputError, match="one x⁰ for all agents"):
        run(problem, 100, x0=np.arange(15.0).reshape(5, 3))


def test_masks_of_two_stages_are_different():
    problem, masks = logistic(), []

    def driver(request):
        masks.append(request)
        return driver_of("stacked")(request)

    hg.run(
        recommended(problem, stages=2), problem, NETWORK, iterations=60, progress=False,
        driver=lambda request: simulate_stages(request, driver, 2), accept_exposure=FEW_ROWS,
    )  # fmt: skip
    first, second = (np.asarray(m.problem.data["q"])[0] for m in masks)
    assert np.abs(first - second).min(axis=1).max() > 0
    assert np.abs(first.sum(0) - second.sum(0)).max() < np.abs(first - second).max()


# ---- words


def test_masks_without_stages_warn_of_the_row_attack_where_f_is_not_quadratic():
    algorithm = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.001), masks=hg.masks.zero_sum())
    with pytest.warns(RiskWarning, match="row attack"):
        run(logistic(), 20, algorithm=algorithm)


def test_the_recommended_design_without_stages_is_refused_under_that_name():
    with pytest.raises(AlgorithmError, match=r"needs stages.*Leave stages out"):
        hg.PDGNDS(design="recommended", stages=0)


@pytest.mark.parametrize("stages", [-1, 1.5, True, "two"])
def test_a_number_of_stages_that_is_none_is_refused(stages):
    with pytest.raises(AlgorithmError, match="whole number of stages"):
        hg.PDGNDS(stages=stages)


def test_a_fixed_curvature_is_refused_where_no_bound_is_known():
    with pytest.raises(ProblemError, match="bounds the Hessian at every θ"):
        run(custom(), 20, algorithm=hg.PDGNDS(stages=2, curvature="fixed"))


def test_a_hessian_that_is_not_finite_where_a_stage_begins_is_refused_with_a_way_out():
    push = np.zeros((5, 2))
    push[:, 0] = -20.0

    def hessian(x, p):
        return np.full((2, 2), np.inf) if np.abs(x).max() > 0.5 else np.diag(12 * x**2 + 2)

    problem = hg.Problem(
        lambda x, p: (x**4).sum() + p @ x + x @ x,
        push,
        gradient=lambda x, p: 4 * x**3 + p + 2 * x,
        hessian=hessian,
        solution=np.zeros(2),
        smoothness=50.0,
    )
    algorithm = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(2e-3 * (1 - NETWORK.eta)), design="recommended", stages=2
    )
    with pytest.raises(AlgorithmError, match="Use a smaller stepsize"):
        hg.run(algorithm, problem, NETWORK, iterations=2000, accept_exposure=["sums"])


def test_a_hessian_of_another_shape_is_refused():
    with pytest.raises(ProblemError, match=r"hessian must have the shape \(2, 2\)"):
        hg.Problem(
            lambda theta, p: ((theta - p) ** 2).sum(),
            np.eye(3)[:, :2],
            hessian=lambda theta, p: theta - p,
        )


# ---- interruption


@pytest.mark.optimised
def test_an_interrupted_staged_run_continues_bit_for_bit(tmp_path):
    problem = logistic()
    whole = run(problem, 300)

    class EnoughError(Exception):
        pass

    def stop(done, total):
        if done > total // 2:
            raise EnoughError

    with pytest.raises(EnoughError):
        hg.run(
            recommended(problem), problem, NETWORK, iterations=300, progress=stop,
            checkpoint=tmp_path / "state", accept_exposure=FEW_ROWS,
        )  # fmt: skip
    assert any((tmp_path / "state").iterdir())
    again = run(problem, 300, checkpoint=tmp_path / "state")
    assert np.array_equal(again.error, whole.error)
    assert np.array_equal(again.x, whole.x)
    assert not (tmp_path / "state").exists()
