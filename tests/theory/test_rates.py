"""Tight rates against dense recursions, which know nothing of eigenvalues."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.theory import linear, mean_square, rates
from hushgrad.theory.curvature import local_curvature
from support.long_runs import NATS, ErrorRun, log_sizes, quadratic, slope
from support.quadratics import DIRECTED, METHODS, errors, hessians, measured_rate, random_graph
from support.tables import some

ANY = hg.stepsizes.constant(0.1)


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
    """The predicted iterations per digit are those of a run, to 2 %: log ρ, whatever its roots."""
    rng, network, H, step = a_case(name, case)
    lam = rates.stable_range(step).largest * 10 ** rng.uniform(-1.5, -0.02)
    predicted = np.log(rates.spectral_radius(step, lam).value)
    got = slope(*log_sizes(name, network, H, lam, int(NATS / -predicted) + 50, seed=case))
    assert abs(got / predicted - 1) < 0.02, (name, case, predicted, got)


def check_threshold(name, case):
    """Runs shrink at 98 % of the largest stable stepsize and grow at 102 %; 5 % off, tenfold."""
    _, network, H, step = a_case(name, case)
    largest = rates.stable_range(step).largest
    for ratio in (0.95, 0.98, 1.02, 1.05):
        predicted = np.log(rates.spectral_radius(step, ratio * largest).value)
        K = int(40 / abs(predicted)) + 100
        ks, logs = log_sizes(name, network, H, ratio * largest, K, seed=case)
        assert np.sign(slope(ks, logs)) == np.sign(ratio - 1), (name, case, ratio)
        if ratio in (0.95, 1.05):
            assert (logs[-1] - logs[0]) * np.sign(ratio - 1) > np.log(10), (name, case, ratio)


@pytest.mark.parametrize("name", METHODS)
def test_predicted_rates_are_the_measured_ones(name):
    for case in range(2):
        check_rate(name, case)


@pytest.mark.parametrize("name", some(METHODS, 2))
def test_two_percent_decide_between_convergence_and_divergence(name):
    check_threshold(name, 3)


@pytest.mark.parametrize("name", METHODS)
def test_long_runs_have_the_iterates_of_the_dense_recursions(name):
    """θ* = 0, so an iterate is its own error; `errors` runs support.dense."""
    _, network, H, _ = a_case(name, 1)
    x0, c = np.random.default_rng(5).normal(size=(2, *H.shape[:2]))
    c -= c.mean(0)
    run = ErrorRun(name, network, quadratic(H), 0.1)
    state = run.begin(x0[:, :, None], c[:, :, None])
    got = [] if run.is_tracker else [state[0]]
    for _ in range(30 - len(got)):
        state = run.step(*state)
        got.append(state[0] / state[2] if name == "ADDOPT" else state[0])
    want = errors(name, network, H, 0.1, 30, start=(x0, c))
    assert np.linalg.norm(np.array(got)[..., 0], axis=2).max(1) == pytest.approx(want, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_sixty_predicted_rates_are_the_measured_ones(name):
    for case in range(60):
        check_rate(name, case)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_two_percent_decide_in_fifty_problems(name):
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


@pytest.mark.parametrize("seed", [0, 9])
def test_the_mean_square_radius_is_the_growth_of_moments_where_roots_nearly_coincide(seed):
    """Arnoldi's method alone says 1.02 to 1.03 here."""
    rng, network, m, d = np.random.default_rng(seed), hg.Network(hg.graphs.star(9)), 9, 2
    curved = rng.choice([0.0, 0.3, 1.0], size=(m, d))
    curved[:, 0] = 1
    Q = np.linalg.qr(rng.normal(size=(m, d, d)))[0]
    H = np.exp(rng.uniform(0, 4, size=(m, 1, 1))) * np.einsum("iab,ib,icb->iac", Q, curved, Q)
    step = linear.linear_step(hg.PDGNDS(), H, network)
    lam, half = 1.0 / rates.largest_curvature(H), m * d
    A, support = step.dense(lam), network.matrix() > 0
    difference = np.hstack([np.eye(half), -np.eye(half)])
    moments, logs = np.eye(2 * half), []
    for _ in range(800):
        moved = difference @ moments @ difference.T
        moments = A @ moments @ A.T
        for j, block in enumerate(lam * H):
            here, n = support[:, j], support[:, j].sum()
            spread = np.diag(here * 1.0) - np.outer(here, here) / n
            cov = mean_square.share_variance(n) * n / (n - 1) * spread
            at = slice(j * d, (j + 1) * d)
            moments[:half, :half] += np.kron(cov, block @ moved[at, at] @ block)
        logs.append(np.log(np.trace(moments)))
        moments = (moments + moments.T) / (2 * np.trace(moments))
    got = mean_square.mean_square_radius(hg.PDGNDS(), step, network, lam)
    assert got == pytest.approx(np.exp(np.mean(logs[400:]) / 2), abs=0.003)


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


def a_logistic_problem(name, seed):
    """Data of a logistic regression on a random graph, and its solution."""
    rng = np.random.default_rng([seed, 3])
    d = int(rng.integers(1, 4))
    graph = random_graph(rng, int(rng.integers(4, 10)), directed=name in DIRECTED and seed % 2 == 1)
    m = graph.n_agents
    X, truth = rng.normal(size=(m, 15, d)), rng.normal(size=d)
    y = np.where(X @ truth + rng.logistic(size=(m, 15)) > 0, 1.0, -1.0)
    problem = hg.problems.logistic(list(X), list(y), regularisation=0.1)
    return rng, hg.Network(graph), problem, X, y


def logistic_curve(problem, X, y):
    """∇f_i(θ* + e_i) − ∇f_i(θ*) to full relative precision, however small e (m, d, q) is."""
    at = y * (X @ problem.solution())
    penalty = problem.local_curvature(0, None)(problem.solution(), problem.solution())
    penalty = penalty - (X[0].T * (1 / (2 + 2 * np.cosh(at[0])))) @ X[0]  # its share of the penalty

    def curve(e):
        move = y[:, :, None] * (X @ e)  # of the margins
        doubt = (
            -np.expm1(-move) / (1 + np.exp(at))[:, :, None] / (1 + np.exp(-at[:, :, None] - move))
        )
        return X.swapaxes(1, 2) @ (y[:, :, None] * doubt) + penalty @ e

    return curve


def check_logistic(name, seed):
    rng, network, problem, X, y = a_logistic_problem(name, seed)
    step = linear.linear_step(METHODS[name](ANY), local_curvature(problem).hessians, network)
    lam = rates.stable_range(step).largest * 10 ** rng.uniform(-1.2, -0.2)
    certificate = hg.certify(METHODS[name](hg.stepsizes.constant(lam)), problem, network)
    assert any("linearisation" in line.text for line in certificate.lines)
    run = ErrorRun(name, network, logistic_curve(problem, X, y), lam)
    x, w = 0.01 * rng.normal(size=(2, network.n_agents, problem.dim, 4))
    state = run.repair(x, w, np.ones((network.n_agents, 1, 1)))
    K = int(NATS / 2 / -np.log(certificate.radius)) + 50
    sizes, _ = run.run(state, K)
    got = slope(np.arange(1, K + 1), np.log(sizes).mean(1))
    assert got == pytest.approx(np.log(certificate.radius), rel=0.05), (name, seed)


def test_the_curve_of_the_logistic_runs_is_that_of_the_problem():
    rng, network, problem, X, y = a_logistic_problem("EXTRA", 0)
    e = rng.normal(size=(network.n_agents, problem.dim, 1))
    got = logistic_curve(problem, X, y)(e)[..., 0]
    theta = np.array(problem.solution())
    for i, f in enumerate(map(problem.local_gradient, range(network.n_agents))):
        assert got[i] == pytest.approx(f(theta + e[i, :, 0]) - f(theta), rel=1e-9)


@pytest.mark.parametrize("name", ["PDGNDS", "PushPull"])
def test_logistic_regression_near_the_optimum_has_the_rate_of_its_linearisation(name):
    check_logistic(name, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_fifty_logistic_regressions_have_the_rates_of_their_linearisations(name):
    for seed in range(50):
        check_logistic(name, seed)
