"""Effective rows: all of equal rows, one of a row that dominates, and finite at any θ."""

from itertools import combinations

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.problems import losses
from hushgrad.problems.effective import effective_lengths, effective_of, least_effective

LOSSES = {"ridge": losses.SQUARES, "logistic": losses.LOGISTIC, "huber": losses.HUBER}
kinds = pytest.mark.parametrize("kind", LOSSES)


def data_of(X, y=None):
    X = np.asarray(X, np.float64)
    y = np.ones(len(X)) if y is None else np.asarray(y, np.float64)
    return {"X": X, "y": y, "weight": np.ones(len(X)), "penalty": np.ones(X.shape[1]), "delta": 2.0}


def count(kind, theta, data):
    effective = effective_of(LOSSES[kind].rows)
    assert effective is not None
    return effective(np.asarray(theta, np.float64), data).effective


@kinds
def test_equal_rows_all_count_and_rows_of_padding_do_not(kind):
    data = data_of(np.tile([0.3, -0.4], (7, 1)))
    for theta in ([0.0, 0.0], [1.0, 2.0]):
        assert count(kind, theta, data) == pytest.approx(7.0)
    assert effective_lengths(data).effective == pytest.approx(7.0)
    data["weight"][4:] = 0.0
    assert count(kind, [1.0, 2.0], data) == effective_lengths(data).effective == pytest.approx(4.0)


@kinds
def test_a_row_that_dominates_counts_alone_and_a_long_one_by_its_part_of_the_sum(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X[8] *= 1e9
    assert count(kind, np.zeros(3), data_of(X)) == pytest.approx(1.0)
    X = np.tile([1.0, 0.0, 0.0], (97, 1))
    X = np.vstack([X, [[np.sqrt(3.0), 0.0, 0.0]]])  # 3 % of the sum of squares
    assert count(kind, np.zeros(3), data_of(X)) == pytest.approx(100 / 3)


@kinds
def test_units_of_the_rows_change_nothing(kind):
    rng = np.random.default_rng(1)
    X, y, theta = rng.normal(size=(30, 3)), rng.choice([-1.0, 1.0], 30), rng.normal(size=3)
    expected = count(kind, theta, data_of(X, y))
    for unit in (1e-150, 1e150):
        assert count(kind, theta / unit, data_of(unit * X, y)) == pytest.approx(expected)


def test_the_weights_are_second_derivatives_times_squared_lengths():
    rng = np.random.default_rng(2)
    X, y, theta, step = rng.normal(size=(20, 2)), rng.choice([-1.0, 1.0], 20), np.ones(2), 1e-4
    loss = {
        "ridge": lambda t: (t - y) ** 2 / 2,
        "logistic": lambda t: np.log1p(np.exp(-y * t)),
        "huber": lambda t: np.where(abs(t - y) <= 2, (t - y) ** 2 / 2, 2 * abs(t - y) - 2),
    }
    t = X @ theta
    assert 0 < (abs(t - y) > 2).sum() < 20
    for kind, value in loss.items():
        second = (value(t + step) - 2 * value(t) + value(t - step)) / step**2
        w = second * (X**2).sum(axis=1)
        assert count(kind, theta, data_of(X, y)) == pytest.approx(w.sum() / w.max(), rel=1e-4)


def test_logistic_rows_far_from_the_boundary_are_counted_without_underflow():
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(40), np.zeros(40)])
    for length in (1e3, 1e4, 1e100):
        assert count("logistic", [length, 0.0], data_of(X)) == 40.0  # all equally far
    X = rng.normal(size=(40, 2))
    assert 1.0 <= count("logistic", [1e4, 0.0], data_of(X)) < 2.0  # the nearest row alone
    assert count("logistic", [1e300, 1e300], data_of(1e10 * X)) == 0.0  # no finite margins


def test_huber_rows_beyond_delta_do_not_count():
    X, y = np.ones((6, 1)), np.array([0.0, 0.0, 0.0, 9.0, 9.0, 9.0])
    assert count("huber", [0.0], data_of(X, y)) == 3.0
    assert count("huber", [100.0], data_of(X, y)) == 0.0


def test_a_loss_that_is_not_built_in_has_no_count():
    assert effective_of(None) is None
    assert effective_of(lambda *given: given) is None
    assert effective_lengths(np.ones((3, 2))) is None
    assert hg.problems.rendezvous(n_agents=3).local_effective(0) is None


@pytest.mark.parametrize("honest", [1, 2, 3, 5])
def test_of_several_agents_the_rows_of_all_are_compared(honest):
    """Against every choice of agents, whose rows are put together."""
    rng = np.random.default_rng(honest)
    for _ in range(20):
        every = [
            data_of(rng.normal(size=(rng.integers(1, 8), 2)) * 10.0 ** rng.uniform(-1, 1))
            for _ in range(5)
        ]
        together = [
            effective_lengths(data_of(np.vstack([data["X"] for data in some]))).effective
            for some in combinations(every, honest)
        ]
        found = least_effective([effective_lengths(data) for data in every], honest)
        assert found == pytest.approx(min(together))


def test_agents_whose_rows_weigh_nothing_leave_no_effective_row():
    weights = effective_lengths(data_of(np.ones((4, 2))))
    nothing = effective_lengths(data_of(np.zeros((4, 2))))
    assert least_effective([weights, weights], 2) == pytest.approx(8.0)
    assert least_effective([weights, nothing], 2) == 0.0
