"""The study behind the recommended design counts iterations and errors correctly."""

from types import SimpleNamespace

import numpy as np
import pytest

import hushgrad as hg
from benchmarks.simulator import designs


def test_iterations_are_counted_until_the_error_stays_small():
    run = SimpleNamespace(
        solution=np.array([0.0, 2.0]),
        iterations=np.array([0, 5, 10, 15]),
        error=np.array([
            [1.0, 1e-7, 1e-7, 1e-7],
            [1.0, 1e-7, 1e-3, 1e-7],  # a small error that grows again does not count
            [1.0, 1.0, 1.0, 2.1e-6],
            [1.0, 1e-7, np.nan, np.nan],
        ]),
    )  # fmt: skip
    assert designs.to_1e_6(run).tolist() == [5.0, 15.0, np.inf, np.inf]


def test_an_attacker_is_off_by_the_share_of_the_honest_partner():
    problem = hg.problems.rendezvous([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
    sizes = hg.masks.zero_sum(quadratic=0.1).sizes(2, lam=0.05, eta=None)
    words = np.random.default_rng(4).integers(2**64, size=sizes.n_words, dtype=np.uint64)
    c, Q = sizes.parts(sizes.share(words))
    gradient, hessian, guess = designs.one_partner(problem, sizes, 0, 0, np.random.default_rng(4))
    assert gradient == pytest.approx(np.linalg.norm(c + Q @ [1, 1]) / np.linalg.norm([2, 2]))
    assert hessian == pytest.approx(np.linalg.norm(Q) / np.linalg.norm(2 * np.eye(2)))
    assert guess == pytest.approx(0, abs=1e-8)


def test_stretched_problems_have_condition_numbers_near_100():
    problem = designs.stretched(5, trials=4)
    for trial in range(4):
        theta = problem.solution()[trial]
        every = [problem.local_gradient(i, trial) for i in range(5)]
        assert np.abs(sum(g(theta) for g in every)).max() < 1e-12
        values = np.linalg.eigvalsh(sum(designs.hessian(g, theta) for g in every))
        assert 30 < values[1] / values[0] < 300
        largest = max(np.linalg.eigvalsh(designs.hessian(g, theta))[-1] for g in every)
        assert largest <= 1.000001 * problem.smoothness()


def test_runs_go_on_until_they_are_exact():
    problem, network = hg.problems.rendezvous(), hg.Network(hg.graphs.paper())
    algorithm = designs.DESIGNS["recommended"](hg.stepsizes.constant(0.01))
    reached, last = designs.iterations(algorithm, problem, network, trials=2, start=1.0, n=300)
    assert (reached > 300).all()
    assert (last <= 1e-10).all()
