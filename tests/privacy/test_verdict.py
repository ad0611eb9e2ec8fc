"""An estimate counts if it is near the truth and clearly nearer than a guess without messages."""

from dataclasses import dataclass

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious, Eavesdropper, Estimate, Knowledge, Truth
from hushgrad.privacy.attacks import Attack
from hushgrad.privacy.attacks.optimum import Optimum
from hushgrad.privacy.page import page
from hushgrad.privacy.prior import lucky_sine
from hushgrad.privacy.result import Audit
from hushgrad.privacy.tables import told as told_as
from hushgrad.privacy.verdict import ALIGNED, Evidence, Judge, advantage, best, verdict
from support import cases

N = 12
Q = cases.Quadratics(seed=4, by_hand=True)


@pytest.fixture(scope="module")
def run():
    return record(Q.problem, Q.x0)


def record(problem, x0=None, network=None, iterations=N, **options):
    return hg.run(
        hg.DGD(), problem, network or cases.undirected(), iterations=iterations, x0=x0,
        transcript=True, engine="agents", **options,
    )  # fmt: skip


def estimate(quantity, value, k=None, target=0):
    k = None if k is None else np.array(k)
    return Estimate(attack="mine", target=target, quantity=quantity, k=k, value=np.array(value))


def judged(run, estimate, adversary=None, **options):
    view = Knowledge.of(run, adversary or Eavesdropper())
    return {e.quantity: e for e in Judge(Truth(run), **options)(view, estimate)}


def at_optimum():
    return Q.g(np.tile(Q.solution, (cases.M, 1)))


def test_a_gradient_within_ten_percent_counts_and_one_beyond_does_not(run):
    g = at_optimum()[0]
    for off, counts in ((0.0, True), (0.09, True), (0.11, False), (1.0, False)):
        aside = off * np.linalg.norm(g) * np.eye(len(g))[1]
        found = judged(run, estimate("gradient at optimum", g + aside))["gradient at optimum"]
        assert found.error == pytest.approx(off, abs=1e-9)
        assert found.guess == pytest.approx(1.0)
        assert found.counts == counts


def test_gradients_of_many_iterations_are_judged_by_their_median_or_where_asked(run):
    g = np.array([Q.g(x) for x in run.trace[0, :-1]])[:, 0]
    wrong = g.copy()
    wrong[:5] *= 7.0
    found = judged(run, estimate("gradient", wrong, range(N)))["gradient"]
    assert found.error < 1e-12
    assert found.k == (0, N - 1)
    early = judged(run, estimate("gradient", wrong, range(N)), at=[1, 3])["gradient"]
    assert early.error == pytest.approx(6.0)
    assert early.k == (1, 3)
    mostly = judged(run, estimate("gradient", 7.0 * g, range(N)))["gradient"]
    assert mostly.error == pytest.approx(6.0)
    assert judged(run, estimate("gradient", wrong, range(N)), at=[N]) == {}


def test_a_scaled_gradient_is_one_times_the_stepsize_and_tells_the_direction(run):
    k = np.arange(N)
    h = np.array([Q.g(x)[0] for x in run.trace[0, :-1]]) / (k + 1.0)[:, None]  # λ = 1/k
    found = judged(run, estimate("scaled gradient", h, k))
    assert found["scaled gradient"].error < 1e-12
    assert found["direction"].counts
    assert verdict(found.values()) == "direction exposed"


def test_a_sign_that_is_open_is_not_counted_against_an_estimate(run):
    g = at_optimum()[2]
    up_to_sign = "gradient at optimum up to sign"
    assert judged(run, estimate(up_to_sign, -g, target=2))[up_to_sign].counts
    plain = judged(run, estimate("gradient at optimum", -g, target=2))["gradient at optimum"]
    assert plain.error == pytest.approx(2.0)


def test_directions_are_judged_as_lines_and_against_luck(run):
    g = at_optimum()[1]
    aside = np.linalg.svd(g[None])[2][1]  # orthogonal to g
    for sine, counts in ((0.0, True), (0.05, True), (0.32, False)):
        u = -np.sqrt(1 - sine**2) * g / np.linalg.norm(g) + sine * aside
        found = judged(run, estimate("direction", 3.0 * u, target=1))["direction"]
        assert found.error == pytest.approx(sine, abs=1e-9)
        assert found.counts == counts


@pytest.mark.parametrize("d", [2, 3, 5])
def test_luck_undercuts_the_lucky_angle_as_often_as_it_says(d):
    lines = np.random.default_rng(d).normal(size=(200_000, d))
    sine = np.linalg.norm(lines[:, 1:], axis=1) / np.linalg.norm(lines, axis=1)
    for chance in (0.3, 0.02):
        assert (sine < lucky_sine(d, chance)).mean() == pytest.approx(chance, rel=0.05)


def test_in_one_dimension_no_direction_counts():
    one = cases.Quadratics(d=1, by_hand=True)
    run = record(one.problem)
    g = one.g(np.tile(one.solution, (cases.M, 1)))[0]
    assert not judged(run, estimate("direction", g))["direction"].counts


def test_a_wildly_wrong_gradient_has_no_direction(run):
    """Its size says that it is wrong; where it points to is accident."""
    g = at_optimum()[0]
    assert "direction" not in judged(run, estimate("gradient at optimum", 30.0 * g))
    assert judged(run, estimate("gradient at optimum", 1.5 * g))["direction"].counts


def test_a_coalition_guesses_from_its_own_gradients(run):
    g = at_optimum()
    members = [1, 2, 4]
    guesses = [0 * g[0], g[members].mean(0), -g[members].sum(0) / (cases.M - 3)]
    best_guess = min(np.linalg.norm(v - g[0]) for v in guesses) / np.linalg.norm(g[0])
    found = judged(run, estimate("gradient at optimum", g[0]), Curious(members))
    assert found["gradient at optimum"].guess == pytest.approx(best_guess)
    assert best_guess < 0.95


def test_what_members_can_guess_is_not_counted_as_recovered():
    """All agents have nearly the same data: 4 % off is no better than one's own gradient."""
    rng = np.random.default_rng(0)
    positions = np.array([10.0, 0.0]) + 0.1 * rng.normal(size=(7, 2))
    problem = hg.problems.rendezvous(positions)
    run = record(problem)
    g = 2 * (run.trace[0, 0, 0] - positions[0])  # the first gradient
    value = (1.04 * g)[None]
    for adversary, counts in ((Eavesdropper(), True), (Curious({1}), False)):
        found = judged(run, estimate("gradient", value, [0]), adversary)["gradient"]
        assert found.error == pytest.approx(0.04)
        assert found.counts == counts


def test_nothing_counts_where_there_is_nothing_to_find():
    """Everybody stands at the same point: g_i(θ*) = 0, and 0 is a perfect guess."""
    run = record(hg.problems.rendezvous(np.tile([3.0, 1.0], (7, 1))))
    found = judged(run, estimate("gradient at optimum", [0.0, 0.0]))
    assert not any(e.counts for e in found.values())


def test_the_hessian_is_a_secret_of_its_own(run):
    H = 2 * (Q.A[0].T @ Q.A[0] + Q.sigma * np.eye(cases.D))
    q = -2 * Q.A[0].T @ Q.z[0]
    whole = judged(run, estimate("objective", np.column_stack([H, q])))
    assert whole["objective"].counts
    assert whole["curvature"].counts
    masked = judged(run, estimate("objective", np.column_stack([H, q + 5.0])))
    assert masked["curvature"].counts
    assert not masked["objective"].counts
    others = [2 * (A.T @ A + Q.sigma * np.eye(cases.D)) for A in Q.A[1:]]
    usual = np.linalg.norm(np.mean(others, axis=0) - H) / np.linalg.norm(H)
    assert masked["curvature"].guess == pytest.approx(min(usual, 1.0))


def test_a_hessian_that_all_agents_have_is_no_secret():
    problem = hg.problems.rendezvous(n_agents=7, seed=1)
    p = problem.agent_data(0)["p"]
    found = judged(record(problem), estimate("objective", np.column_stack([2 * np.eye(2), -2 * p])))
    assert not found["curvature"].counts
    assert found["gradient at optimum"].counts


def test_where_theta_has_its_origin_does_not_matter():
    """A rendezvous far from 0: |q| is large there, and 1 % of it is more than all differences."""
    near = hg.problems.rendezvous(n_agents=7, seed=1)
    p = near.data["p"]
    far = hg.problems.rendezvous(p + 1000.0)
    errors = []
    for problem, shift in ((near, 0.0), (far, 1000.0)):
        value = np.column_stack([2 * np.eye(2), -2 * (p[0] + shift) + 0.3])
        run = record(problem, x0=np.full((7, 2), shift))
        errors.append(judged(run, estimate("objective", value))["gradient at optimum"].error)
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)


def test_positions_are_told_but_expose_nobody(run):
    x = run.trace[0, :, 0]
    found = judged(run, estimate("position", x, range(N + 1)))
    assert found["position"].counts
    assert verdict(found.values()) == "not recovered"


def test_what_is_not_finite_is_infinitely_far_off(run):
    nothing = judged(run, estimate("gradient at optimum", np.full(cases.D, np.nan)))
    assert nothing["gradient at optimum"].error == np.inf


def evidence(quantity, error, k=None, guess=1.0):
    return Evidence(attack="mine", quantity=quantity, k=k, error=error, guess=guess)


def test_the_verdict_is_the_worst_that_counts():
    wrong = evidence("gradient", 0.5)
    line = evidence("direction", 0.01, guess=0.1)
    right = evidence("curvature", 0.02)
    assert verdict([]) == verdict([wrong]) == "not recovered"
    assert verdict([wrong, line]) == "direction exposed"
    assert verdict([wrong, line, right]) == "exposed"
    assert best([]) is None
    assert best([wrong, line]) is line
    assert best([wrong, line, right]) is right
    assert best([wrong, evidence("gradient", 7.0)]) is wrong
    assert not evidence("direction", ALIGNED * 1.01, guess=1.0).counts


def test_of_equally_exact_estimates_the_largest_is_shown():
    first, all_of_them = evidence("gradient", 1e-16, (0, 0)), evidence("gradient", 1e-12, (0, 9))
    assert best([first, all_of_them]) is all_of_them
    assert best([first, evidence("gradient", 1e-3, (0, 9))]) is first


def test_everyone_else_together_knows_the_gradient_without_a_message():
    run = record(Q.problem, iterations=40)
    everyone = Knowledge.of(run, Curious(range(1, cases.M)))
    theta = run.trace[0, -1, 1:].mean(axis=0)
    (found,) = Optimum()(everyone, 0)
    np.testing.assert_allclose(found.value, -Q.g(np.tile(theta, (cases.M, 1)))[1:].sum(axis=0))
    assert "2 honest agents" in Optimum().applies(Knowledge.of(run, Curious(range(2, cases.M))), 0)


ROWS = [np.random.default_rng(i).normal(size=(n, 2)) for i, n in enumerate((4, 8, 12, 4, 4, 8, 6))]


def test_the_curvature_of_a_loss_that_is_not_quadratic_is_judged_at_the_optimum():
    labels = [np.sign(x[:, 0] + 0.3 * x[:, 1] + 0.1) for x in ROWS]
    run = record(hg.problems.logistic(ROWS, labels))
    X, theta = ROWS[0], run.problem.solution()
    p = 1 / (1 + np.exp(-X @ theta))
    H = (X.T * (p * (1 - p))) @ X + np.eye(2) / len(ROWS)
    np.testing.assert_allclose(Truth(run).hessian(0), H, rtol=1e-7)
    q = Truth(run).at_optimum[0] - H @ theta
    found = judged(run, estimate("objective", np.column_stack([H, q])))
    assert found["curvature"].counts
    assert found["gradient at optimum"].counts
    assert "objective" not in found  # no quadratic is f
    assert not judged(run, estimate("curvature", 1.2 * H))["curvature"].counts


def test_a_curvature_where_the_loss_is_bent_is_not_judged_and_the_audit_says_so():
    bent = hg.Problem(
        lambda theta, p: ((theta - p) ** 2).sum(), np.zeros((7, 2)), solution=np.zeros(2), dim=2,
        gradient=lambda theta, p: 2 * theta + np.maximum(theta - 1e-4, 0.0), smoothness=3.0,
    )  # fmt: skip
    run = record(bent)
    assert Truth(run).hessian(0) is None
    value = estimate("curvature", np.eye(2))
    assert judged(run, value) == {}
    assert Judge(Truth(run)).unjudged(value) == "curvature"
    told = hg.audit(run, "eavesdropper", agents=[0], attacks=[Telling(value=value)])
    assert told.findings[0].tried == ("mine",)
    assert told.findings[0].unjudged == {"mine": "curvature"}
    assert "not judged, as there is no truth to compare with:\n  mine: Hessian" in str(told)
    assert "curvature not judged" in page([told])
    assert Audit.from_json(told.to_json()) == told


@dataclass(frozen=True, kw_only=True)
class Telling(Attack):
    """Says what it is told to say."""

    value: Estimate

    name = title = "mine"

    def applies(self, view, target):
        return None

    def __call__(self, view, target):
        return (self.value,)


def test_a_number_of_rows_counts_within_ten_percent_and_against_what_others_have():
    run = record(hg.problems.ridge(ROWS, [x[:, 0] for x in ROWS]))
    for target, value, counts in ((2, 12.9, True), (2, 13.5, False), (0, 4.1, True)):
        found = judged(run, estimate("count", [value], target=target))["count"]
        n = len(ROWS[target])
        assert found.error == pytest.approx(abs(value - n) / n)
        assert found.counts == counts
    others = [len(x) for x in ROWS[1:]]
    best_guess = min(abs(np.mean(others) - 4), abs(np.median(others) - 4)) / 4
    assert judged(run, estimate("count", [4.0]))["count"].guess == pytest.approx(best_guess)
    alike = record(hg.problems.ridge([x[:4] for x in ROWS], [x[:4, 0] for x in ROWS]))
    assert not judged(alike, estimate("count", [4.0]))["count"].counts
    assert Judge(Truth(run)).unjudged(estimate("count", [4.0])) is None
    places = record(hg.problems.rendezvous(n_agents=7))
    assert Judge(Truth(places)).unjudged(estimate("count", [4.0])) == "count"


def test_membership_counts_from_an_advantage_of_one_half_on(run):
    for mu, counts in ((1.34, False), (1.36, True), (np.inf, True)):
        ratio = mu**2 / 2
        found = judged(run, estimate("membership", [ratio, mu]))["membership"]
        assert found.error == pytest.approx(1 - advantage(mu))
        assert found.counts == counts
        assert verdict([found]) == ("exposed" if counts else "not recovered")
    far = judged(run, estimate("membership", [1.36**2 / 2 + 7.0, 1.36]))["membership"]
    assert far.error == 1.0  # no ratio of the truth is five deviations off
    sure = Evidence(attack="membership", quantity="membership", k=None, error=0.03, guess=1.0)
    assert told_as(sure) == "Membership: a row of its own, advantage 97 %"
    assert best([sure, evidence("gradient", 0.09)]).quantity == "gradient"
