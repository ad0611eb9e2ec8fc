"""Tight rates against dense recursions, which know nothing of eigenvalues."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.theory import linear, mean_square, rates
from support.quadratics import METHODS, errors, hessians, measured_rate, random_graph

ANY = hg.stepsizes.constant(0.1)
DIRECTED = ("AB", "PushPull", "ADDOPT")


def a_case(name, case):
    """A step with its network, its Hessians and its stable range."""
    rng = np.random.default_rng([case, 1])
    m, d = int(rng.integers(4, 13)), int(rng.integers(1, 4))
    graph = random_graph(rng, m, directed=name in DIRECTED and case % 2 == 1)
    H = hessians(rng, graph.n_agents, d, 10 ** rng.uniform(0.3, 2))
    network = hg.Network(graph)
    step = linear.linear_step(METHODS[name](ANY), H, network)
    return rng, network, H, step


def check_rate(name, case):
    """Whether the prediction was precise enough to be compared, and then that it fits."""
    rng, network, H, step = a_case(name, case)
    found = rates.stable_range(step)
    lam = found.largest * 10 ** rng.uniform(-1.5, -0.2)
    rho = rates.spectral_radius(step, lam).value
    values = np.linalg.eigvals(step.dense(lam))
    top = values[np.abs(values) > rho * (1 - 1e-6)]
    # a double root gives kρ^k, and a second eigenvalue of nearly the same size hides the first for
    # longer than float64 lasts: then no finite run shows ρ
    is_double = any(np.sum(np.abs(top - z) < 1e-5) > 1 for z in top)
    rest = np.abs(values)[np.abs(values) <= rho * (1 - 1e-6)].max(initial=0.0)
    if is_double or rest > rho**1.5 or not 0.85 < rho < 0.999:
        return False
    K = int(max(30, 24 / -np.log(rho)))
    got = measured_rate(*(errors(name, network, H, lam, K, seed=[case, s]) for s in range(5)))
    assert abs(np.log(got) / np.log(rho) - 1) < 0.02, (name, case, rho, got)
    return True


def check_threshold(name, case):
    _, network, H, step = a_case(name, case)
    largest = rates.stable_range(step).largest
    for ratio, diverges in ((1.05, True), (0.95, False)):
        rho = rates.spectral_radius(step, ratio * largest).value
        assert (rho > 1) == diverges
        K = int(min(40_000, max(100, 16 / abs(np.log(rho)))))
        error = errors(name, network, H, ratio * largest, K, seed=case)
        if diverges:
            assert not error[-1] < 10 * error[0], (name, case, rho)
        else:
            assert error[-1] < 0.1 * error[0], (name, case, rho)


@pytest.mark.parametrize("name", METHODS)
def test_predicted_rates_are_the_measured_ones(name):
    assert sum(check_rate(name, case) for case in range(16)) >= 2


@pytest.mark.parametrize("name", METHODS)
def test_five_percent_decide_between_convergence_and_divergence(name):
    for case in (0, 3):
        check_threshold(name, case)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_fifty_predicted_rates_are_the_measured_ones(name):
    done, case = 0, 0
    while done < 50:
        done += check_rate(name, case)
        case += 1
        assert case < 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_five_percent_decide_in_fifty_problems(name):
    for case in range(50):
        check_threshold(name, case)


@pytest.mark.parametrize("name", ["PDGNDS", "DIGing", "ADDOPT"])
def test_arnoldi_and_all_eigenvalues_agree(name):
    _, _, _, step = a_case(name, 7)
    for lam in (0.02, 0.1):
        every = rates._dense(step, lam).value
        assert rates._arnoldi(step, lam).value == pytest.approx(every, rel=1e-6)


def test_what_a_run_conserves_is_projected_away():
    rng, _, H, step = a_case("PDGNDS", 2)
    m, d = H.shape[:2]
    s = step.project(rng.normal(size=(2, m, d, 1)), 0.3)
    for _ in range(5):
        kept = (s[0] - s[1] + 0.3 * (H @ s[1])).sum(0)
        assert np.abs(kept).max() < 1e-12 * np.abs(s).max() * m
        s = step.step(s, 0.3)


def test_stepsizes_that_differ_between_agents_enter_the_trackers():
    rng, network, H, _ = a_case("AugDGM", 4)
    profile = rng.uniform(0.5, 1.5, size=len(H))
    profile /= profile.mean()
    step = linear.linear_step(hg.AugDGM(stepsize=ANY), H, network, profile)
    lam = 0.3 * rates.stable_range(step).largest
    rho = rates.spectral_radius(step, lam).value
    error = errors("AugDGM", network, H, lam * profile[:, None], int(24 / -np.log(rho)))
    assert np.log(measured_rate(error)) == pytest.approx(np.log(rho), rel=0.05)


# ---- fresh splits


def test_the_variance_of_a_share_is_the_sampled_one():
    for n in (2, 3, 6):
        u = np.random.default_rng(n).uniform(size=(n, 400_000))
        sampled = np.var(u[0] / u.sum(0))
        assert mean_square.share_variance(n) == pytest.approx(sampled, rel=0.02)


def test_the_mean_square_radius_is_that_of_the_mean_of_a_kronecker_square():
    network = hg.Network(hg.graphs.path(3))
    H = hessians(np.random.default_rng(0), 3, 1, 3)
    algorithm = hg.PDGNDS()
    step = linear.linear_step(algorithm, H, network)
    lam = 2.2 / rates.largest_curvature(H)
    receivers, senders = linear.split_links(network, algorithm.links)
    rng, total, count = np.random.default_rng(1), 0.0, 3000
    for _ in range(count):
        own, links = mean_square.draw_shares(algorithm.splitting, senders, 3, rng)
        B = linear.times(linear.split_matrix(own, links, receivers, senders))
        drawn = linear.TwoStep(H, step.profile, mix=step.mix, split=B)
        A = drawn.dense(lam)
        total = total + np.kron(A, A) / count
    want = np.sqrt(np.abs(np.linalg.eigvals(total)).max())
    got = mean_square.mean_square_radius(algorithm, step, network, lam)
    assert got == pytest.approx(want, rel=0.02)
    assert got > rates.spectral_radius(step, lam).value * 1.0001


def test_a_stable_mean_does_not_save_a_run_whose_mean_square_grows():
    network = hg.Network(hg.graphs.path(8))
    H = np.ones((8, 1, 1))
    H[::2] = 0.05
    algorithm = hg.PDGNDS()
    step = linear.linear_step(algorithm, H, network)
    mean = rates.largest_stable(lambda lam: rates.spectral_radius(step, lam).value <= 1, 1.0)
    square = rates.largest_stable(
        lambda lam: mean_square.mean_square_radius(algorithm, step, network, lam) <= 1, 1.0
    )
    assert square < 0.98 * mean
    calm = [errors("PDGNDS", network, H, 0.8 * square, 1500, splits="fresh", seed=s)[-1]
            for s in range(4)]  # fmt: skip
    wild = [errors("PDGNDS", network, H, 1.15 * mean, 1500, splits="fresh", seed=s)[-1]
            for s in range(4)]  # fmt: skip
    assert max(calm) < 1e-3
    assert not min(wild) < 1e3


def test_fresh_splits_at_small_steps_have_the_rate_of_the_mean():
    for case in (1, 5):
        _, network, H, step = a_case("PDGNDS", case)
        lam = 0.1 / rates.largest_curvature(H)
        rho = rates.spectral_radius(step, lam).value
        error = errors("PDGNDS", network, H, lam, int(24 / -np.log(rho)), splits="fresh")
        assert np.log(measured_rate(error)) == pytest.approx(np.log(rho), rel=0.05)


# ---- near θ* of a loss that is not quadratic


def check_logistic(algorithm, seed):
    rng = np.random.default_rng(seed)
    X, truth = rng.normal(size=(6, 25, 2)), rng.normal(size=2)
    y = np.where(X @ truth + rng.logistic(size=(6, 25)) > 0, 1.0, -1.0)
    problem = hg.problems.logistic(list(X), list(y), regularisation=0.1)
    network = hg.Network(hg.graphs.ring(6))
    certificate = hg.certify(algorithm, problem, network)
    run = hg.run(
        algorithm, problem, network, iterations=int(24 / -np.log(certificate.radius)),
        record_every=1, engine="agents",
    )  # fmt: skip
    assert any("linearisation" in line.text for line in certificate.lines)
    got = measured_rate(run.error[0, 1:])
    assert np.log(got) == pytest.approx(np.log(certificate.radius), rel=0.05)


def test_logistic_regression_near_the_optimum_has_the_rate_of_its_linearisation():
    check_logistic(hg.DIGing(stepsize=hg.stepsizes.constant(0.02)), 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [hg.DIGing, hg.EXTRA, hg.AugDGM, hg.PushPull, hg.ADDOPT])
def test_logistic_regression_of_every_method_near_the_optimum(kind, seed):
    check_logistic(kind(stepsize=hg.stepsizes.constant(0.02)), seed)
