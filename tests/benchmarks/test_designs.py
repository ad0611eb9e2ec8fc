"""The study behind the recommended design counts what it says it counts."""

from types import SimpleNamespace

import numpy as np
import pytest

import hushgrad as hg
from benchmarks import designs


def test_iterations_are_counted_to_where_the_error_stays_small():
    run = SimpleNamespace(
        solution=np.array([0.0, 2.0]),
        iterations=np.array([0, 5, 10, 15]),
        error=np.array([
            [1.0, 1e-7, 1e-7, 1e-7],
            [1.0, 1e-7, 1e-3, 1e-7],  # small once, then not: counts from the end
            [1.0, 1.0, 1.0, 2.1e-6],
            [1.0, 1e-7, np.nan, np.nan],
        ]),
    )  # fmt: skip
    assert designs.to_1e_6(run).tolist() == [5.0, 15.0, np.inf, np.inf]


def test_an_attacker_is_off_by_the_share_of_the_honest_partner():
    problem = hg.problems.rendezvous([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
    sizes = hg.masks.zero_sum(quadratic=0.1).sizes(2, lam=0.05, eta=None)
    u = np.random.default_rng(4).uniform(size=sizes.count)
    c, Q = sizes.parts(sizes.share(u))
    gradient, hessian, guess = designs.one_partner(problem, sizes, 0, 0, np.random.default_rng(4))
    assert gradient == pytest.approx(np.linalg.norm(c + Q @ [1, 1]) / np.linalg.norm([2, 2]))
    assert hessian == pytest.approx(np.linalg.norm(Q) / np.linalg.norm(2 * np.eye(2)))
    assert guess == pytest.approx(0, abs=1e-8)
