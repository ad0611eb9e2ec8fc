"""A statistic is a sum of rounded rows: who holds a row changes no bit of the sum over agents."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.agent.masking import mask_grids, mask_sizes
from hushgrad.errors import AlgorithmError
from hushgrad.network.objective.objectives import ObjectiveSpec, load_objective
from hushgrad.problems import losses, rows
from hushgrad.problems.rows import Grids
from hushgrad.simulate.staged import statistics

LOSSES = {"ridge": losses.SQUARES, "logistic": losses.LOGISTIC, "huber": losses.HUBER}
DELTA = 1.35
kinds = pytest.mark.parametrize("kind", LOSSES)
seeds = st.integers(0, 2**32 - 1)


def data_of(X, y, penalty=0.0):
    n, d = X.shape
    return {"X": X, "y": y, "weight": np.ones(n), "penalty": np.full(d, penalty), "delta": DELTA}


def drawn(kind, rng, n, d):
    """Rows of very different sizes, and targets of the kind."""
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-6, 2, size=(n, 1))
    y = rng.normal(size=n) * 10.0 ** rng.integers(-3, 2, size=n)
    return X, np.where(y > 0, 1.0, -1.0) if kind == "logistic" else y


def points(rng, d, size):
    """θ and θ one stage before."""
    theta = rng.normal(size=d) * size
    before = theta + rng.normal(size=d) * size if rng.integers(2) else None
    return theta, before


@kinds
@pytest.mark.parametrize("is_fixed", [False, True])
@settings(max_examples=25)
@given(seed=seeds, n=st.tuples(st.integers(1, 9), st.integers(0, 9)), d=st.integers(1, 4),
       log_size=st.integers(-8, 4))  # fmt: skip
def test_a_row_that_moves_from_agent_to_agent_leaves_the_sum_of_statistics(
    kind, is_fixed, seed, n, d, log_size
):
    rng = np.random.default_rng(seed)
    theta, before = points(rng, d, 10.0**log_size)
    grids = Grids(*2.0 ** rng.integers(-28, -20, size=2))
    X, y = drawn(kind, rng, sum(n), d)
    here, there = np.arange(n[0]), np.arange(n[0], sum(n))
    moved = int(rng.integers(n[0]))

    def total(*agents):
        found = [
            LOSSES[kind].rows(theta, before, data_of(X[one], y[one], 0.3), grids, is_fixed)
            for one in agents
        ]
        return sum(H for H, _ in found), sum(q for _, q in found)

    place = int(rng.integers(len(there) + 1))
    one = total(here, there)
    other = total(np.delete(here, moved), np.insert(there, place, moved))
    for at_i, at_j in zip(one, other, strict=True):
        assert np.array_equal(at_i, at_j)


@kinds
def test_the_sum_of_whole_statistics_tells_who_holds_a_row(kind):
    """The leak that rounded rows close: an agent that rounds the sum of its rows."""
    rng, grid, differs = np.random.default_rng(0), 2.0**-40, 0
    for _ in range(20):
        X, y = rng.normal(size=(6, 2)), np.sign(rng.normal(size=6))
        theta = rng.normal(size=2)

        def whole(one, X=X, y=y, theta=theta):
            data = data_of(X[one], y[one])
            H = LOSSES[kind].curvature(theta, None, data)
            return np.rint(H / grid), np.rint(
                (LOSSES[kind].gradient(theta, data) - H @ theta) / grid
            )

        at_i = np.add(whole([0, 1, 2])[1], whole([3, 4, 5])[1])
        at_j = np.add(whole([0, 1])[1], whole([2, 3, 4, 5])[1])
        differs += not np.array_equal(at_i, at_j)
    assert differs


@kinds
@pytest.mark.parametrize("curvature", ["newton", "fixed"])
def test_a_row_that_moves_in_a_simulated_problem_leaves_the_sum(kind, curvature):
    network = hg.Network(hg.graphs.ring(3))
    algorithm = hg.PDGNDS(
        design="recommended", stepsize=hg.stepsizes.constant(0.01), curvature=curvature
    )
    rng = np.random.default_rng(3)
    X, y = drawn(kind, rng, 12, 3)
    build = getattr(hg.problems, kind)
    x = np.broadcast_to(rng.normal(size=(2, 1, 3)), (2, 3, 3))
    before = np.broadcast_to(rng.normal(size=(2, 1, 3)), (2, 3, 3))
    grids = mask_grids(algorithm, network, 3, np.array([64.0, 1024.0]))

    def total(*cuts):
        parts = np.split(np.arange(12), cuts)
        problem = build([X[p] for p in parts], [y[p] for p in parts])
        found = statistics(problem, algorithm, np.arange(2), x, before, grids=grids)
        sizes = mask_sizes(algorithm, network, 3, 1.0)
        q, H = sizes.on_grid(found.q[1] / 1024, found.H[1])
        assert np.array_equal(q * 1024, found.q[1])  # the grid of the mask: nothing rounds again
        assert np.array_equal(H, found.H[1])
        return found.H.sum(axis=1), found.q.sum(axis=1)

    for one, other in zip(total(4, 8), total(5, 8), strict=True):
        assert np.array_equal(one, other)


@kinds
def test_a_row_that_moves_between_the_files_of_two_agents_leaves_the_sum(kind, tmp_path):
    rng = np.random.default_rng(4)
    X, y = drawn(kind, rng, 12, 2)
    theta, before, grids = rng.normal(size=2), rng.normal(size=2), Grids(2.0**-30, 2.0**-30)

    def statistic(one):
        file = tmp_path / "rows.csv"
        table = np.column_stack([X[one], y[one]])
        np.savetxt(file, table, delimiter=",", header="a,b,y", comments="", fmt="%.17g")
        spec = ObjectiveSpec(kind=kind, n_agents=2, file=file, columns=("a", "b"), target="y",
                             intercept=True, regularisation=1.0)  # fmt: skip
        objective = load_objective(spec, 3)
        assert objective.rows is not None
        return objective.rows(np.append(theta, 0.1), np.append(before, 0.2), grids, False)

    at_i = [statistic(np.arange(7)), statistic(np.arange(7, 12))]
    at_j = [statistic(np.arange(6)), statistic(np.arange(6, 12))]
    for one, other in zip(zip(*at_i, strict=True), zip(*at_j, strict=True), strict=True):
        assert np.array_equal(sum(one), sum(other))


@kinds
def test_the_order_of_many_rows_changes_no_bit(kind, monkeypatch):
    monkeypatch.setattr(rows, "_AT_ONCE", 64)
    rng = np.random.default_rng(5)
    X, y = drawn(kind, rng, 150, 3)
    theta, before, grids = rng.normal(size=3), rng.normal(size=3), Grids(2.0**-30, 2.0**-30)
    order = rng.permutation(150)
    one = LOSSES[kind].rows(theta, before, data_of(X, y), grids, False)
    other = LOSSES[kind].rows(theta, before, data_of(X[order], y[order]), grids, False)
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a, b)


@kinds
@settings(max_examples=20)
@given(seed=seeds, log_size=st.integers(-4, 2))
def test_rounded_rows_add_up_to_the_statistic_of_the_loss(kind, seed, log_size):
    rng, loss, grid = np.random.default_rng(seed), LOSSES[kind], 2.0**-40
    X, y = rng.normal(size=(8, 3)), rng.normal(size=8)
    y = np.sign(y) if kind == "logistic" else y
    theta, before = points(rng, 3, 10.0**log_size)
    data = data_of(X, y, 0.3)
    H, q = loss.rows(theta, before, data, Grids(grid, grid), False)
    curved = loss.curvature(theta, before, data)
    close = {"rtol": 1e-9, "atol": 1e-10 * max(1.0, 10.0**log_size)}
    np.testing.assert_allclose(H, curved, **close)
    np.testing.assert_allclose(q, loss.gradient(theta, data) - curved @ theta, **close)
    H, q = loss.rows(theta, before, data, Grids(grid, grid), True)
    np.testing.assert_allclose(H, loss.majorised(theta, before, data), **close)
    about = loss.gradient(theta, data)
    np.testing.assert_allclose(q, about - H @ theta if kind == "ridge" else about, **close)


BOUNDS = {
    "ridge": lambda norm, target: hg.theory.ridge_row(norm, target),
    "logistic": lambda norm, target: hg.theory.logistic_row(norm),
    "huber": lambda norm, target: hg.theory.huber_row(norm, target, DELTA),
}


@kinds
@pytest.mark.parametrize("is_fixed", [False, True])
@settings(max_examples=60)
@given(
    x=st.lists(st.floats(-10, 10), min_size=1, max_size=3),
    y=st.floats(-100, 100),
    at=st.floats(-1e12, 1e12) | st.floats(-3, 3),
    step=st.none() | st.floats(-1e12, 1e12) | st.floats(-3, 3),
)
def test_the_part_of_a_row_is_within_its_public_bound_at_every_theta(
    kind, is_fixed, x, y, at, step
):
    """θ along the row, so that xᵀθ takes any value; and any last step, so every safeguard."""
    X = np.array([x])
    norm = float(np.linalg.norm(X))
    y = (1.0 if y >= 0 else -1.0) if kind == "logistic" else y
    direction = X[0] / norm if norm else X[0]
    theta = at * direction
    before = None if step is None else theta + step * direction
    grid = 2.0**-30
    H, q = LOSSES[kind].rows(theta, before, data_of(X, np.array([y])), Grids(grid, grid), is_fixed)
    bound = BOUNDS[kind](norm, abs(y))
    assert np.linalg.norm(q) <= bound.linear * (1 + 1e-12) + 2 * grid
    assert np.linalg.norm(np.triu(H)) <= bound.quadratic * (1 + 1e-12) + 3 * grid


def test_rows_that_are_far_larger_than_their_masks_are_refused():
    data = data_of(np.full((3, 2), 1e6), np.ones(3))
    with pytest.raises(AlgorithmError, match=r"3e\+12 in an entry of H"):
        rows.squares(np.zeros(2), None, data, Grids(1.0, 2.0**-20), False)
    with pytest.raises(AlgorithmError, match=r"3e\+06 in an entry of q"):
        rows.squares(np.zeros(2), None, data, Grids(2.0**-40, 1.0), False)
    with pytest.raises(AlgorithmError, match="in an entry of q"):
        rows.huber(np.full(2, np.nan), None, data, Grids(1.0, 1.0), False)


def test_the_exponential_is_exact_to_a_few_units_of_the_last_place():
    x = -np.concatenate([np.linspace(0, 40, 4001), np.geomspace(1e-12, 690, 1000), [1e5]])
    found = rows.exponential(x)
    assert np.abs(found[:-1] / np.exp(x[:-1]) - 1).max() < 1e-15
    assert 0 < found[-1] < 1e-300


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_nine_stages_solve_a_huber_fit_with_most_rows_beyond_delta(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 4))
    y = X @ rng.normal(size=4) + 0.5 * rng.standard_t(3, size=300)
    data = data_of(X, y, 1.0) | {"delta": 0.25}
    theta, before = np.zeros(4), None
    for _ in range(9):
        H, q = rows.huber(theta, before, data, Grids(0.0, 0.0), False)
        theta, before = np.linalg.solve(H, -q), theta
    slope = X.T @ np.clip(X @ theta - y, -0.25, 0.25) + theta
    assert np.mean(np.abs(X @ theta - y) > 0.25) > 0.5
    assert np.linalg.norm(slope) < 1e-9


def test_stages_of_huber_fits_end_at_the_optimum_whatever_the_outliers():
    """Newton steps on forty fits with outliers up to 100 away and deltas from 0.03 to 3."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, d, delta = (
            int(rng.integers(30, 300)),
            int(rng.integers(1, 7)),
            10 ** rng.uniform(-1.5, 0.5),
        )
        X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-0.5, 0.5, size=d)
        y = (
            X @ rng.normal(size=d)
            + 0.5 * rng.standard_t(2, size=n)
            + 100.0 * (rng.random(n) < 0.15)
        )
        data = data_of(X, y, 1.0) | {"delta": delta}
        theta, before = np.zeros(d), None
        for _ in range(25):
            H, q = rows.huber(theta, before, data, Grids(0.0, 0.0), False)
            theta, before = np.linalg.solve(H, -q), theta
        assert np.linalg.norm(X.T @ np.clip(X @ theta - y, -delta, delta) + theta) < 1e-7, seed
