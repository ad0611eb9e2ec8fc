"""Effective rows: all of equal rows, one of a row that dominates."""

from itertools import combinations

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.errors import PrivacyError
from hushgrad.problems.effective import (
    copies,
    effective_in_columns,
    effective_in_directions,
    effective_lengths,
    least_effective,
    of_copies,
)


def data_of(X, y=None):
    X = np.asarray(X, np.float64)
    y = np.ones(len(X)) if y is None else np.asarray(y, np.float64)
    return {"X": X, "y": y, "weight": np.ones(len(X)), "penalty": np.ones(X.shape[1]), "delta": 2.0}


def count(X):
    return effective_lengths(data_of(X)).effective


def test_equal_rows_all_count_and_rows_of_padding_do_not():
    data = data_of(np.tile([0.3, -0.4], (7, 1)))
    assert effective_lengths(data).effective == pytest.approx(7.0)
    data["weight"][4:] = 0.0
    assert effective_lengths(data).effective == pytest.approx(4.0)


def test_a_row_that_dominates_counts_alone_and_a_long_one_by_its_part_of_the_sum():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X[8] *= 1e9
    assert count(X) == pytest.approx(1.0)
    X = np.tile([1.0, 0.0, 0.0], (97, 1))
    X = np.vstack([X, [[np.sqrt(3.0), 0.0, 0.0]]])  # 3 % of the sum of squares
    assert count(X) == pytest.approx(100 / 3)


def test_units_of_the_rows_change_nothing():
    X = np.random.default_rng(1).normal(size=(30, 3))
    for unit in (1e-150, 1e150):
        assert count(unit * X) == pytest.approx(count(X))


def test_data_that_are_no_rows_have_no_count():
    assert effective_lengths(np.ones((3, 2))) is None


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


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"), [(1, 0, 1), (1, 1, np.inf), (3, 0, np.inf), (0, 0, np.inf)]
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_row_that_has_a_direction_for_itself_is_found_in_an_agent_and_its_least_partner(
    mine, theirs, expected, nested
):
    """A rare category, standardised, or the difference of two common ones. A third agent that has
    many such rows need not be honest.
    """
    rng, every = np.random.default_rng(0), []
    for rare in (mine, theirs, 20):
        is_rare = np.arange(60) < rare
        common = rng.random(60) < 0.4
        columns = [is_rare | common, common & ~is_rare] if nested else [(is_rare - 0.1) / 0.3]
        numbers = rng.normal(size=60)
        numbers[:3] = 1.5 * (-1) ** len(every), 0, -1.5  # rows that share a category are far apart
        every.append(data_of(np.column_stack([numbers, *columns])))
    if not mine + theirs:
        every.pop()
    assert effective_in_directions(every, 2) == pytest.approx(expected)


@pytest.mark.parametrize(("distance", "expected"), [(0.0, 1.0), (0.19, 1.0), (0.5, np.inf)])
def test_two_rows_that_are_nearly_the_same_count_as_one(distance, expected):
    """Two visits of one patient, who has a rare disease: XᵀX has their mean."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(60, 3)), np.zeros(60)])
    X[0, 3] = 1.0
    X[1] = X[0] + [distance * np.linalg.norm(X[0]), 0, 0, 0]
    half = [data_of(part) for part in (X[::2], X[1::2])]
    assert effective_in_directions([data_of(X)]) == pytest.approx(expected, rel=1e-3)
    assert effective_in_directions(half, 2) == pytest.approx(expected, rel=1e-3)  # one of them each
    mean = (X.T @ X)[3] / (X.T @ X)[3, 3]
    assert (np.linalg.norm(mean - X[0]) < 0.1 * np.linalg.norm(X[0])) == (expected == 1)
    X[2:5] = X[0]  # five rows are a cell of a table
    assert effective_in_directions([data_of(X)]) == np.inf


@pytest.mark.parametrize("pairs", [1, 4])
@pytest.mark.parametrize("year", [0.0, 2020.0])
def test_a_column_of_large_numbers_makes_no_rows_alike(pairs, year):
    """Patients with two visits and a rare disease each come out, and different patients do not."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=(200, 4)), np.zeros((200, pairs)), np.zeros(200)])
    X[:, -1] = year + rng.integers(0, 10, size=200)
    for j in range(pairs):
        X[2 * j : 2 * j + 2, 4 + j] = 1.0
    assert effective_in_directions([data_of(X)]) == np.inf
    X[1 : 2 * pairs : 2] = X[: 2 * pairs : 2]
    assert effective_in_directions([data_of(X)]) == pytest.approx(1.0, rel=0.03)
    mean = (X.T @ X)[4] / (X.T @ X)[4, 4]
    assert mean == pytest.approx(X[0], abs=1e-12)


def test_rounding_of_a_constant_column_stands_out_of_nothing():
    X = np.column_stack([np.full(60, 0.1), np.random.default_rng(0).integers(0, 2, 60) + 1 / 3])
    assert effective_in_directions([data_of(X[:7]), data_of(X[7:])], 2) == np.inf
    assert effective_in_directions([data_of(np.full((60, 2), 0.7))]) == np.inf


def test_a_rare_outcome_of_a_table_of_categories_is_told():
    """Ten villages and one patient: Σxy is the patient's village."""
    village, outcome = np.arange(200) % 10, np.zeros(200)
    X = np.eye(10)[village][:, 1:]
    assert effective_in_directions([data_of(X, outcome)]) == np.inf
    outcome[4] = 1.0
    assert effective_in_directions([data_of(X, outcome)]) == 1.0
    assert effective_in_columns(X, outcome) == 1.0
    assert (X.T @ outcome == X[4]).all()
    measured = np.random.default_rng(0).normal(size=200)
    assert effective_in_directions([data_of(X, measured)]) == np.inf


def test_every_one_of_many_agents_is_judged():
    """Comparing all pairs of so many columns would take long."""
    rng, every = np.random.default_rng(0), []
    for _ in range(12):
        X = rng.normal(size=(420, 200))
        X[:, 0] = 0.0
        every.append(data_of(X))
    assert effective_in_directions(every, 2) == np.inf
    every[-1]["X"][0, 0] = 1.0
    assert effective_in_directions(every, 2) == pytest.approx(1.0)


@pytest.mark.parametrize(("value", "expected"), [(3.0, np.inf), (25.0, 1.0)])
def test_a_long_row_needs_less_of_a_direction(value, expected):
    """A column of large numbers makes all rows look alike, but X^T X has one that stands out."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=(40, 2)), np.full(40, 50.0)])
    X[0, 1] = value
    data = data_of(X)
    assert effective_lengths(data).effective > 30
    assert effective_in_directions([data]) == pytest.approx(expected, rel=0.01)
    told = (X.T @ X)[1] / np.sqrt((X.T @ X)[1, 1])
    assert (np.linalg.norm(told[:2] - X[0, :2]) < 0.1 * value) == (expected == 1)


@pytest.mark.parametrize(("n", "expected"), [(9, 1.0), (10, np.inf)])
def test_a_table_has_at_least_twice_as_many_rows_as_columns(n, expected):
    """Whoever knows all columns but one solves X^T X for that one, if rows are few."""
    X = np.random.default_rng(1).normal(size=(n, 4))
    assert effective_in_directions([data_of(X)], 1) == expected
    assert effective_in_directions([data_of(X[:4]), data_of(X[4:])], 2) == expected


def test_two_factors_of_whom_few_rows_have_a_combination_tell_rows():
    """Indicators of two factors: X^T X has the table of both."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(5, size=(2, 100))
    X = np.column_stack([np.eye(5)[a], np.eye(5)[b]])
    table = (X.T @ X)[:5, 5:]
    assert table.min() < 5
    assert effective_in_directions([data_of(X)]) == 1.0
    assert effective_in_directions([data_of(np.tile(X, (5, 1)))]) == np.inf
    mixed = np.column_stack([X, rng.normal(size=100)])  # the table is told, and not the rows
    assert effective_in_directions([data_of(mixed)]) == np.inf


def test_a_row_that_a_sum_of_squares_has_as_it_is_lets_no_ridge_run_start():
    """One patient of two honest agents has the rare disease: X^T X has the patient's row."""
    rng = np.random.default_rng(0)
    X = [np.column_stack([np.arange(60) < n, rng.normal(size=(60, 2))]) for n in (1, 0, 9)]
    problem = hg.problems.ridge(X, [x.sum(axis=1) for x in X], regularisation=0.3)
    network = hg.Network(hg.graphs.complete(3))
    algorithm = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(0.05 / problem.smoothness()), design="recommended"
    )
    rare, row = problem.agent_data(0)["X"][0], sum(x.T @ x for x in X[:2])[0]
    np.testing.assert_allclose(row, rare)
    with pytest.raises(PrivacyError, match="join rare categories"):
        hg.run(algorithm, problem, network, iterations=1, progress=False)


@pytest.mark.parametrize("g", [1, 2, 4])
def test_copies_of_a_row_have_the_eigenvalues_of_their_mean(g):
    """P of all rows, g of which have one derivative J, along the movements that these share."""
    rng = np.random.default_rng(g)
    J, others = rng.normal(size=(9, 3)), rng.normal(size=(9, 7))
    every = np.concatenate([np.tile(J, g), others], axis=1)
    P = every.T @ np.linalg.pinv(every @ every.T) @ every
    each = np.linalg.eigvalsh(P[:3, :3])
    shared = np.concatenate([np.tile(np.eye(3), (g, 1)) / np.sqrt(g), np.zeros((7, 3))])
    mean = np.linalg.eigvalsh(shared.T @ P @ shared)
    np.testing.assert_allclose(of_copies(each, np.float64(g)), mean, rtol=1e-10)
    assert of_copies(np.array([0.9]), np.array([2.0])) == 1.0


def test_copies_are_counted_up_to_a_cell():
    table = np.array([[0.0, 1], [2, 3], [-0.0, 1], [2, 4], *[[5.0, 5]] * 5])
    assert copies(table).tolist() == [2, 1, 2, 1, 1, 1, 1, 1, 1]
