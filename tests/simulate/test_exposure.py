"""A simulated run counts what its sums reveal, refuses too much, and warns of other weaknesses."""

import warnings

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import PrivacyError, RiskWarning, StudyError
from hushgrad.studies import parse_study

RING = hg.Network(hg.graphs.ring(6))
SIZES = (40, 25, 60, 31, 50, 45)  # rows of the agents: the two smallest have 56 together


def logistic(sizes=SIZES, d=2, noise=1.0):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, d)) for n in sizes]
    y = [np.sign(x.sum(axis=1) + noise * rng.normal(size=len(x))) for x in X]
    # rows of one length, and so short that the penalty keeps all of them near the boundary
    X = [0.1 * x / np.linalg.norm(x, axis=1, keepdims=True) for x in X]
    return hg.problems.logistic(X, y)


def recommended(problem, network=RING, *, over=1.0, **chosen):
    gap = hg.masks.zero_sum().sizes(1, lam=1.0, eta=network.eta).curvature
    step = hg.stepsizes.constant(over * gap / problem.smoothness())
    return hg.PDGNDS(stepsize=step, **{"design": "recommended"} | chosen)


def told(algorithm, problem, network=RING, iterations=40, **options):
    """The warnings of a run, and the run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RiskWarning)
        run = hg.run(algorithm, problem, network, iterations=iterations, engine="agents", **options)
    return [str(w.message) for w in caught], run


# ---- sums


def test_a_staged_run_past_a_tenth_of_the_honest_rows_is_refused_and_accepted_by_name():
    problem = logistic()
    algorithm = recommended(problem, stages=3)
    with pytest.raises(PrivacyError) as refused:
        told(algorithm, problem, iterations=60)
    said = str(refused.value)
    assert "3 stages reveal 15 numbers about 56 effective honest rows of 2 entries, 13.4 %" in said
    assert "Have 75 effective rows or more" in said
    assert 'accept_exposure=["sums"]' in said
    said, run = told(algorithm, problem, iterations=60, accept_exposure=["sums"])
    assert said == []
    assert run.revealed["share"] == pytest.approx(15 / 112)


def test_an_admitted_run_keeps_its_count_and_a_saved_run_too(tmp_path):
    problem = logistic()
    said, run = told(recommended(problem, stages=2), problem)  # 10 numbers of 112 entries
    assert said == []
    assert (run.revealed["numbers"], run.revealed["rows"]) == (10, pytest.approx(56))
    assert hg.load_run(run.save(tmp_path / "run.npz")).revealed == run.revealed
    plain = hg.run(hg.PDGNDS(), problem, RING, iterations=2, engine="agents")
    assert plain.revealed is None


def test_the_stages_that_count_are_those_that_run():
    problem = logistic()
    algorithm = recommended(problem, stages=8)  # of which 25 iterations have room for two
    _, run = told(algorithm, problem, iterations=25)
    assert len(run.config["stages"]) == 2
    assert run.revealed["numbers"] == 10


@pytest.mark.parametrize(("honest", "rows"), [(1, 25), (2, 56), (3, 96), (6, 251), (9, 251)])
def test_the_smallest_honest_component_has_the_rows_of_the_smallest_agents(honest, rows):
    problem = logistic()
    algorithm = recommended(problem, stages=2, masks=hg.masks.zero_sum(honest=honest))
    _, run = told(algorithm, problem, accept_exposure=["sums"])
    assert run.revealed["rows"] == pytest.approx(rows)


def test_fewer_rows_are_needed_with_a_fixed_curvature():
    problem = logistic()
    algorithm = recommended(problem, stages=4, curvature="fixed")  # 3 + 4 · 2 numbers
    said, run = told(algorithm, problem, iterations=100)
    assert said == []
    assert run.revealed["numbers"] == 11


def test_a_quadratic_run_is_counted_and_refused_only_for_a_single_row():
    X = [np.eye(2)[:1]] + [np.zeros((0, 2))] + [np.ones((5, 2))] * 4
    problem = hg.problems.ridge(X, [np.ones(len(x)) for x in X])
    with pytest.raises(PrivacyError, match="One row dominates the sum"):
        told(recommended(problem), problem)
    problem = hg.problems.ridge([np.ones((5, 2))] * 6, [np.ones(5)] * 6)
    said, run = told(recommended(problem), problem)
    assert said == []
    assert (run.revealed["numbers"], run.revealed["rows"]) == (5, pytest.approx(10))


def test_rows_that_a_problem_does_not_tell_are_no_reason_to_refuse_but_to_warn():
    problem = hg.Problem(
        lambda theta, p: (theta - p) @ (theta - p) ** 3,
        np.ones((6, 2)),
        gradient=lambda theta, p: 4 * (theta - p) ** 3,
        hessian=lambda theta, p: 12 * np.diag((theta - p) ** 2) + np.eye(2),
        solution=np.ones(2),
        smoothness=20.0,
    )
    grows = "curvature"  # f_i has no bound, and the first stage leads far off
    (said,), run = told(recommended(problem), problem, accept_exposure=[grows])
    assert "whose number is not known" in said
    assert (run.revealed["rows"], run.revealed["share"]) == (None, None)
    assert told(recommended(problem), problem, accept_exposure=["sums", grows])[0] == []
    (said,) = told(recommended(problem), problem, accept_exposure=["sums"])[0]
    assert "at stage 2 λ‖H_i‖ = " in said


def test_a_row_much_longer_than_the_others_is_refused():
    """3 % of Σ ‖x‖²: 33 effective rows of each agent with 250."""
    X = np.tile([[1.0, 0.0], [0.0, 1.0]], (125, 1))
    y = np.tile([1.0, 1.0, -1.0, -1.0, 1.0], 50)
    problem = hg.problems.logistic([0.1 * X] * 6, [y] * 6)
    algorithm = recommended(problem, stages=3)
    assert told(algorithm, problem, iterations=60)[0] == []
    long = X.copy()
    long[7] *= np.sqrt(0.03 * 249 / 0.97)
    problem = hg.problems.logistic([0.1 * long, *[0.1 * X] * 5], [y] * 6)
    alone = recommended(problem, stages=3, masks=hg.masks.zero_sum(honest=1))
    with pytest.raises(PrivacyError, match=r"15 numbers about 33\.33 effective honest rows"):
        told(alone, problem, iterations=60)


def test_a_start_at_which_single_rows_have_weight_ends_the_run_by_name():
    problem = logistic([80] * 6, noise=0.0)
    algorithm = recommended(problem, stages=2)  # 10 numbers, 50 effective rows

    def tamper(k, sender, receiver, payload):
        return tuple(part + 3e3 for part in payload) if (k, sender) == (12, 1) else payload

    assert told(algorithm, problem)[0] == []
    with pytest.raises(PrivacyError) as refused:
        told(algorithm, problem, tamper=tamper)
    said = str(refused.value)
    assert "With stage 2 of 2 the sums would tell too much about a single honest row" in said
    assert "at most 75 % of it, but would determine " in said
    assert 'accept_exposure = ["sums"]' in said
    assert told(algorithm, problem, tamper=tamper, accept_exposure=["sums"])[0] == []


# ---- the other weaknesses


def test_a_stepsize_above_the_condition_gives_a_warning_that_its_name_silences():
    problem = hg.problems.ridge(*rows())
    assert told(recommended(problem), problem)[0] == []
    (said,), _ = told(recommended(problem, over=1.01), problem)
    assert "λ‖H_i‖ = " in said
    assert "To accept this" in said
    assert told(recommended(problem, over=1.01), problem, accept_exposure=["curvature"])[0] == []


def rows():
    rng = np.random.default_rng(1)
    X = [rng.normal(size=(9, 2)) for _ in range(6)]
    return X, [x.sum(axis=1) for x in X]


def test_a_gradient_larger_than_masks_without_stages_gives_a_warning():
    X, y = rows()
    problem = hg.problems.ridge(X, [1e6 * v for v in y])
    direct = recommended(problem, design="paper", masks=hg.masks.zero_sum())
    (said,), _ = told(direct, problem)
    assert "the largest entry of λ g_i(x⁰)" in said
    assert told(direct, problem, accept_exposure=["gradient"])[0] == []
    assert told(recommended(problem), problem)[0] == []  # stages have a unit that covers it


def test_masks_with_neighbours_only_and_leaves_without_stages_give_warnings():
    problem = logistic()
    few = hg.masks.zero_sum(n_partners=2)
    offset = few.offsets(6)[0]
    circle = hg.Network(hg.graphs.from_edges([(i, (i + offset) % 6) for i in range(6)]))
    (said,), _ = told(recommended(problem, circle, masks=few, stages=2), problem, circle)
    assert "partners of agent 0 are neighbours" in said
    star = hg.Network(hg.graphs.star(6))
    direct = recommended(problem, star, design="paper", masks=hg.masks.zero_sum())
    design, degree = told(direct, problem, star)[0]
    assert "row attack" in design
    assert "agent 1 has one" in degree
    assert told(direct, problem, star, accept_exposure=["design", "degree"])[0] == []
    assert told(recommended(problem, star, stages=2), problem, star)[0] == []


def test_a_run_without_masks_promises_nothing_and_a_seed_is_no_secret_of_a_simulation():
    star = hg.Network(hg.graphs.star(6))
    for algorithm in (hg.EXTRA(), hg.PDGNDS(), hg.PDGNDS(stages=2)):
        assert told(algorithm, logistic(), star, seed=3)[0] == []


def test_an_unknown_name_is_refused_with_the_list():
    with pytest.raises(PrivacyError, match=r"out of design, seed, eta.*but got 'sum'"):
        hg.run(hg.EXTRA(), logistic(), RING, iterations=1, accept_exposure=["sum"])


# ---- studies

STUDY = {
    "network": {"graph": "ring", "n_agents": 3},
    "problem": {
        "kind": "logistic",
        "X": [[[1.0], [2.0], [-1.0]]] * 3,
        "y": [[0, 1, 1]] * 3,
    },
    "algorithm": [
        {
            "name": "PDGNDS",
            "design": "recommended",
            "stepsize": {"kind": "constant", "value": 0.05},
        }
    ],
    "run": {"iterations": 20, "engine": "agents"},
}


def test_a_study_accepts_by_name_and_its_mistakes_name_the_key():
    with pytest.raises(StudyError, match="may reveal at most 10 %"):
        parse_study(STUDY).run(progress=False)
    accepting = STUDY | {"run": STUDY["run"] | {"accept_exposure": ["sums"]}}
    (run,) = parse_study(accepting).run(progress=False)
    assert run.revealed["rows"] == 3  # two agents with 1² + 2² + 1² over 2² each
    for wrong in ("sums", ["sum"]):
        broken = STUDY | {"run": STUDY["run"] | {"accept_exposure": wrong}}
        with pytest.raises(StudyError, match="accept_exposure"):
            parse_study(broken).run(progress=False)
