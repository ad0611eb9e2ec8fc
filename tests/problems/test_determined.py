"""How much of a row the sums of stages determine: against sums that are differentiated apart."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp

import hushgrad as hg
from hushgrad.errors import PrivacyError
from hushgrad.problems import rows as row_sums
from hushgrad.problems.determined import Chain, OwnRows, largest_share, reach, row_loss, rows_of
from hushgrad.theory.revealed import MOST_OF_ROW
from support.row_study import Case, honest_sums, newton_sums, staged_run
from support.tables import combinations

pytestmark = pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")

LOGISTIC, HUBER = row_loss(row_sums.logistic), row_loss(row_sums.huber)
NO_GRID = row_sums.Grids(0.0, 0.0)


def told(kind, X, y, starts, is_fixed):
    """Everything that stages tell of one row, from the statistic itself.

    A list of lists has the starts of several runs.
    """
    if isinstance(starts[0], list):
        return np.concatenate([told(kind, X, y, of_run, is_fixed) for of_run in starts])
    data = {"X": X[None], "y": np.array([y]), "weight": 1.0, "penalty": 0.0, "delta": 0.7}
    found, before = [], None
    for theta in starts:
        H, q = getattr(row_sums, kind)(theta, before, data, NO_GRID, is_fixed)
        if before is None or not is_fixed:
            found.append(H.ravel())
        found.append(q if is_fixed else q + H @ theta)
        before = theta
    return np.concatenate(found)


def expected(kind, X, y, starts, is_fixed, times=1.0):
    """The largest share by differences of `told` and a pseudoinverse, in units of the columns."""
    L = np.linalg.cholesky(np.cov(X.T, bias=True))
    every, step = [], 1e-6
    for x, target in zip(X, y, strict=True):
        columns = [
            (told(kind, x + step * a, target, starts, is_fixed)
             - told(kind, x - step * a, target, starts, is_fixed)) / (2 * step)
            for a in L.T
        ]  # fmt: skip
        if kind == "huber":
            e = step * y.std()
            columns.append(
                (told(kind, x, target + e, starts, is_fixed)
                 - told(kind, x, target - e, starts, is_fixed)) / (2 * step)
            )  # fmt: skip
        every.append(np.array(columns).T)
    whole = np.linalg.pinv(sum(J @ J.T for J in every), rcond=1e-13)
    away = ((X - X.mean(axis=0)) @ np.linalg.inv(L).T) ** 2
    largest = 0.0
    for J, length in zip(every, away.mean(axis=1), strict=True):
        p = np.clip(np.linalg.eigvalsh(J.T @ whole @ J), 0, 1)
        s = max(1.0, length)
        largest = max(largest, float(np.mean(p * s / (p * s + (1 - p) * times))))
    return largest


def draw(n=40, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)
    return X, rng


@pytest.mark.parametrize(
    ("kind", "is_fixed", "times"),
    combinations(["logistic", "huber"], [False, True], [3.0, 1.0]),
)
def test_the_share_is_what_differentiated_sums_tell(kind, is_fixed, times):
    for seed in range(3):
        X, rng = draw(seed=seed)
        y = X.sum(axis=1) + rng.normal(size=40)
        y = np.sign(y) if kind == "logistic" else y
        starts = [np.zeros(2), rng.normal(size=2), 0.3 * rng.normal(size=2)]
        loss = LOGISTIC if kind == "logistic" else HUBER
        found = largest_share(loss, [OwnRows(X, y, 0.7)], starts, is_fixed=is_fixed, times=times)
        assert 0 < found < 1
        assert found == pytest.approx(expected(kind, X, y, starts, is_fixed, times), rel=1e-4)


@pytest.mark.parametrize("kind", ["logistic", "huber"])
def test_sums_of_other_runs_on_the_same_rows_count_and_the_same_sums_again_tell_nothing(kind):
    X, rng = draw(n=60)
    y = X.sum(axis=1) + rng.normal(size=60)
    y = np.sign(y) if kind == "logistic" else y
    loss, own = LOGISTIC if kind == "logistic" else HUBER, [OwnRows(X, y, 0.7)]
    first, other = ([np.zeros(2), 0.4 * rng.normal(size=2)] for _ in range(2))
    alone = largest_share(loss, own, first)
    again = largest_share(loss, own, first, before=[Chain(first, is_fixed=False)])
    assert again == pytest.approx(alone, rel=1e-6)
    both = largest_share(loss, own, first, before=[Chain(other, is_fixed=False)])
    near = 1e-4 if kind == "logistic" else 0.03  # a row may be nearer to the kink than a step
    assert both == pytest.approx(expected(kind, X, y, [other, first], False), rel=near)
    assert both > 1.1 * alone
    # each run by itself may be admitted while all of them tell a row
    many = [Chain([np.zeros(2), 0.4 * rng.normal(size=2)], is_fixed=False) for _ in range(12)]
    assert largest_share(loss, own, first, before=many) > 0.99


def categories(n, levels=3, seed=4):
    """Rows of three columns with few values each."""
    X = np.random.default_rng(seed).integers(levels, size=(n, 3)) * np.sqrt([1.0, 2.0, 0.6])
    return (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.mark.slow
def test_an_integer_program_counts_the_rows_of_every_combination():
    """A whole number of rows for each of 27 combinations, from 18 numbers about 120 rows."""
    X, starts = categories(120), [np.zeros(3), np.array([0.3, -0.2, 0.5])]
    every, true = np.unique(X, axis=0, return_counts=True)
    assert len(every) == 27
    assert true.min() == 1
    A = np.array([told("logistic", row, 1.0, starts, False) for row in every]).T
    A /= np.abs(A).max(axis=1, keepdims=True)
    near = LinearConstraint(A, A @ true - 1e-6, A @ true + 1e-6)
    found = milp(np.zeros(27), constraints=near, integrality=1, bounds=(0, 120))
    np.testing.assert_array_equal(np.rint(found.x), true)
    # the judgement of rows as real numbers sees nothing of it
    y = np.ones(120)
    real = X + 1e-9 * np.random.default_rng(0).normal(size=X.shape)
    assert largest_share(LOGISTIC, [OwnRows(real, y, 0.0)], starts) < 0.5
    assert largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], starts) == 1.0


def test_categories_that_many_rows_have_or_that_have_many_combinations_hide_rows():
    starts, y = [np.zeros(3), np.array([0.3, -0.2, 0.5])], np.ones(120)
    own = OwnRows(categories(120), y, 0.0)
    assert largest_share(LOGISTIC, [own] * 5, starts) < 0.5
    assert largest_share(LOGISTIC, [own], starts, times=5.0) < 0.5
    assert largest_share(LOGISTIC, [own] * 5, starts, honest=2) == 1.0  # two rows in a cell
    many = OwnRows(categories(120, levels=6), y, 0.0)  # 216 combinations, 18 numbers
    assert largest_share(LOGISTIC, [many], starts) < 0.7


def test_neither_units_nor_a_mixture_of_the_columns_changes_a_share():
    X, rng = draw(n=60, d=3)
    y, starts = rng.choice([-1.0, 1.0], 60), [np.zeros(3), rng.normal(size=3)]
    share = largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], starts)
    A = rng.normal(size=(3, 3)) * [1.0, 1e3, 1e-4]
    moved = [np.linalg.solve(A, theta) for theta in starts]
    assert largest_share(LOGISTIC, [OwnRows(X @ A, y, 0.0)], moved) == pytest.approx(
        share, rel=1e-6
    )
    ones = np.column_stack([X, np.ones(60)])  # a constant column is no secret
    longer = [np.append(theta, 0.0) for theta in starts]
    assert largest_share(LOGISTIC, [OwnRows(ones, y, 0.0)], longer) < 1.5 * share


def test_stages_that_differ_by_one_row_determine_it_though_each_rests_on_many():
    """The run of a star of 18 agents, of whose 306 rows a fit of two sums met one."""
    case = Case(112, "star", "diabetes", 4, 18, 18, 2, "newton", 2.0)
    assert case.is_counted
    run = staged_run(case)
    problem, theta = run.problem, honest_sums(run, 0)[1].theta
    agents = [rows_of(problem.agent_data(i)) for i in range(1, 18)]
    each = [largest_share(problem.row_loss, agents, [at]) for at in (np.zeros(4), theta)]
    assert max(each) < MOST_OF_ROW
    assert largest_share(problem.row_loss, agents, [np.zeros(4), theta]) > 0.95
    with pytest.raises(PrivacyError, match="With stage 2 of 2 the sums would tell too much"):
        staged_run(case, accept_exposure=())


def test_data_that_separate_tell_rows_with_a_small_penalty_and_not_with_a_large_one():
    """Ten stages, and the 202 rows of an agent and its partner."""
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, size=202)
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    own = OwnRows(X, np.sign(X[:, 0]), 0.0)
    for penalty, tells in ((1e-3, True), (100.0, False)):
        stages = newton_sums(X * own.y[:, None], penalty, 10)
        share = largest_share(LOGISTIC, [own], [stage.theta for stage in stages])
        assert (share > MOST_OF_ROW) is tells


def test_a_row_that_crosses_delta_between_two_stages_is_determined():
    X, rng = draw(n=200)
    X, starts = X / 10, [np.zeros(2), np.array([1e-3, 0.0])]
    y = rng.uniform(-0.5, 0.5, size=200)
    quiet = largest_share(HUBER, [OwnRows(X, y, 0.7)], starts)
    assert quiet < MOST_OF_ROW
    y[17] = 0.7 + X[17, 0] * 5e-4  # beyond delta at one start, within at the other
    assert largest_share(HUBER, [OwnRows(X, y, 0.7)], starts) > 0.9


def test_a_start_at_which_one_row_has_weight_determines_the_row():
    X, _ = draw(n=300)
    y = np.sign(X @ [3.0, 4.0])  # on the right side, so that no step throws them off
    near = largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], [np.zeros(2), np.array([0.3, 0.4])])
    far = largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], [np.zeros(2), np.array([300.0, 400.0])])
    assert near < MOST_OF_ROW
    assert far > 0.95
    assert largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], [np.full(2, 1e308)]) == 1.0


def test_gradients_at_two_long_starts_between_which_one_row_changes_sides_determine_it():
    angle = np.pi * (np.arange(90) + 0.5) / 90
    X, y = np.column_stack([np.cos(angle), np.sin(angle)]), np.resize([1.0, -1.0, -1.0], 90)
    across = np.pi / 2 + np.pi * np.array([20.0, 20.2, 21.2]) / 90  # no row between the first two
    starts = [1e5 * np.array([np.cos(a), np.sin(a)]) for a in across]
    for is_fixed in (False, True):
        same = largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], starts[:2], is_fixed=is_fixed)
        other = largest_share(
            LOGISTIC, [OwnRows(X, y, 0.0)], [starts[0], starts[2]], is_fixed=is_fixed
        )
        assert same < MOST_OF_ROW < 0.99 < other


def test_the_same_start_again_and_rounding_tell_nothing_new():
    X, rng = draw(n=100)
    y, theta = rng.choice([-1.0, 1.0], 100), np.array([0.03, -0.02])
    once = largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], [np.zeros(2), theta])
    again = [np.zeros(2), theta, theta * (1 + 1e-15)]
    assert largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], again) == pytest.approx(once, rel=0.05)
    nearly = [np.zeros(2), theta, theta + 1e-6 * rng.normal(size=2)]
    assert largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], nearly) > 1.1 * once


def test_rows_of_more_honest_agents_hide_a_row_and_the_smallest_component_counts():
    X, rng = draw(n=120)
    y, starts = rng.choice([-1.0, 1.0], 120), [np.zeros(2), np.array([0.5, 0.5])]
    agents = [OwnRows(X[a:b], y[a:b], 0.0) for a, b in ((0, 50), (50, 65), (65, 100), (100, 120))]
    shares = [largest_share(LOGISTIC, agents, starts, honest=n) for n in (1, 2, 3, 4)]
    assert shares == sorted(shares, reverse=True)
    assert shares[3] == largest_share(LOGISTIC, agents, starts) < 0.6 * shares[0]
    many = [OwnRows(np.tile(own.X, (5, 1)), np.tile(own.y, 5), 0.0) for own in agents]
    assert largest_share(LOGISTIC, many, starts) < shares[3]


@pytest.mark.parametrize("are_alike", [True, False])
@pytest.mark.parametrize("are_apart", [False, True])
def test_a_start_at_which_copies_of_one_row_have_weight_determines_the_row(are_apart, are_alike):
    """A patient who came twice, to one agent or to two, perhaps with another outcome."""
    X, rng = draw(n=200, d=3)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)  # no row is long
    y = rng.choice([-1.0, 1.0], 200)
    across = np.cross(X[0], rng.normal(size=(9000, 3)))  # planes through the row, far from others
    gaps = np.abs(across / np.linalg.norm(across, axis=1, keepdims=True) @ X[1:].T).min(axis=1)
    far = 40 * across[np.argmax(gaps)] / np.linalg.norm(across[np.argmax(gaps)]) / gaps.max()
    starts = [np.zeros(3), far]
    alone = largest_share(LOGISTIC, [OwnRows(X, y, 0.0)], starts)
    places = np.array([0, 0, *range(1, 200)])
    labels = y[places]
    labels[1] *= 1 if are_alike else -1
    rows = OwnRows(X[places], labels, 0.0)
    agents = [rows]
    if are_apart:
        agents = [OwnRows(rows.X[n::2], rows.y[n::2], 0.0) for n in range(2)]
    assert alone > MOST_OF_ROW
    for some in (starts, starts[1:]):
        assert largest_share(LOGISTIC, agents, some, honest=len(agents)) > MOST_OF_ROW
    # at that start all of H is the row's
    H = sum(row_sums.logistic(far, None, {"X": a.X, "y": a.y, "weight": 1.0, "penalty": 0.0},
                              NO_GRID, False)[0] for a in agents)  # fmt: skip
    found = np.linalg.eigh(H)[1][:, -1]
    assert abs(found @ X[0]) == pytest.approx(1, abs=1e-3)


def test_a_loss_that_is_not_built_in_and_squares_have_no_shares():
    assert row_loss(None) is None
    assert row_loss(row_sums.squares) is None
    assert hg.problems.rendezvous(n_agents=3).row_loss is None


@pytest.mark.parametrize("is_fixed", [False, True])
@pytest.mark.parametrize(("kind", "loss"), [("logistic", LOGISTIC), ("huber", HUBER)])
def test_the_linear_part_reaches_its_bound_at_some_start_and_exceeds_it_at_none(
    kind, loss, is_fixed
):
    rng = np.random.default_rng(3)
    for n in (1, 20):
        X, y = rng.normal(size=(n, 3)), 50 * rng.normal(size=n)
        y = np.sign(y) if kind == "logistic" else y
        most = reach(loss, OwnRows(X, y, 0.7), is_fixed=is_fixed)
        data = {"X": X, "y": y, "weight": 1.0, "penalty": 0.0, "delta": 0.7}
        along = X[0] * y[0] / (X[0] @ X[0])
        starts = [along, -100 * along, *(size * rng.normal(size=3) for size in (0.0, 1.0, 30, 900))]
        largest = max(
            np.abs(getattr(row_sums, kind)(theta, before, data, NO_GRID, is_fixed)[1]).max()
            for theta in starts
            for before in (None, *starts)
        )
        assert largest <= most * (1 + 1e-12)
        assert n > 1 or largest == pytest.approx(most, rel=1e-6)
