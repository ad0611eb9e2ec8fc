"""`hg.Consensus`: averages by mixing, against dense powers and Chebyshev's polynomials."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.agent.masking import agent_masks
from hushgrad.errors import AlgorithmError, MixingError, RiskWarning
from hushgrad.simulate.in_memory import InMemoryNetwork
from support import cases

BARE = hg.masks.zero_sum(linear=0)
RING = hg.Network(hg.graphs.ring(8))
VALUES = np.random.default_rng(3).normal(size=(8, 3))
CHEBYSHEV = hg.Consensus(acceleration="chebyshev")


def grid(values):
    """The grid of the default masks for these values: σ = 10⁴ units, 2⁴⁶ < σ/grid ≤ 2⁴⁷."""
    unit = 2.0 ** np.ceil(np.log2(max(1.0, np.abs(values).max())))
    return 2.0**-33 * unit  # 10⁴ lies between 2¹³ and 2¹⁴


def masked(values, network, algorithm, seed=0):
    """a_i + c_i on the grid, (agents, d)."""
    unit = grid(values) * 2.0**33
    masks = agent_masks(
        algorithm, network, values.shape[1], seed=seed, trial=0, stage=0, scale=unit
    )
    c = np.array([mask.c for mask in masks])
    assert not c.sum(axis=0).any()  # exactly
    # an agent masks ∇f_i(0) = −a_i
    return np.rint(values / grid(values)) * grid(values) - c


def polynomial(k, t, eta):
    """T_k(t/η) / T_k(1/η) of numbers t in [−η, η]."""
    below = np.cos(k * np.arccos(np.clip(t / eta, -1.0, 1.0)))
    return below / np.cosh(k * np.arccosh(1 / eta))


@pytest.mark.parametrize("engine", ["stacked", "agents"])
def test_masked_messages_mix_the_rounded_vectors_and_their_masks(engine):
    algorithm, problem = hg.Consensus(), hg.problems.average(VALUES)
    x = cases.trajectory(algorithm, problem, RING, np.zeros((8, 3)), 12, seed=4, engine=engine)[0]
    start, W = masked(VALUES, RING, algorithm, seed=4), RING.matrix()
    assert np.abs(start - VALUES).max() > 1e3  # the masks are large
    for k in range(1, 13):
        expected = np.linalg.matrix_power(W, k) @ start
        assert np.abs(x[k] - expected).max() <= 1e-15 * 12 * np.abs(start).max()


def test_an_accelerated_iterate_is_the_chebyshev_polynomial_of_every_eigenvalue():
    problem = hg.problems.average(VALUES)
    x = cases.trajectory(CHEBYSHEV, problem, RING, np.zeros((8, 3)), 30, engine="agents")[0]
    start = masked(VALUES, RING, CHEBYSHEV, seed=5)
    t, V = np.linalg.eigh(RING.matrix())
    for k in (1, 2, 3, 10, 30):
        factors = np.append(polynomial(k, t[:-1], RING.eta), 1.0)  # the largest eigenvalue is 1
        expected = V @ (factors[:, None] * (V.T @ start))
        assert np.abs(x[k] - expected).max() <= 1e-13 * np.abs(start).max()


@pytest.mark.parametrize("acceleration", ["none", "chebyshev"])
@pytest.mark.parametrize("m", [2, 3, 5, 7, 10, 49])
def test_one_round_on_a_complete_graph_is_exact_with_the_same_bits_at_every_agent(m, acceleration):
    values = np.random.default_rng(m).normal(size=(m, 4))
    network, problem = hg.Network(hg.graphs.complete(m)), hg.problems.average(values)
    algorithm = hg.Consensus(acceleration=acceleration)
    assert algorithm.rounds(network.eta, 1e-15) == 1
    accepted = ["partners"] if m == 2 else []
    for k in (1, 2):
        run = hg.run(
            algorithm, problem, network, iterations=k, engine="agents", accept_exposure=accepted
        )
        assert len({x.tobytes() for x in run.x[0]}) == 1
        rounding = 1e-15 * np.abs(masked(values, network, algorithm)).max()
        assert np.abs(run.x[0] - values.mean(axis=0)).max() <= grid(values) / 2 + k * rounding
    assert grid(values) / 2 < 6e-11 * 2.0**33 * grid(values)  # as the docstring says


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(3, 9), st.sampled_from(["none", "chebyshev"]),
    st.floats(0.0, 1e6), st.sampled_from(["metropolis", "lazy_metropolis", "max_degree"]),
)  # fmt: skip
def test_the_mean_never_changes(seed, m, acceleration, linear, mixing):
    rng = np.random.default_rng(seed)
    network = hg.Network(hg.graphs.erdos_renyi(m, 0.5, seed=seed), mixing=mixing)
    values = rng.normal(size=(m, 2))
    algorithm = hg.Consensus(acceleration=acceleration, masks=BARE).on(network)
    started = values + linear * (values - values.mean(axis=0))
    team = InMemoryNetwork(
        algorithm, hg.problems.average(started), network, 0 * values, seed=0, trial=0
    )
    for _ in range(20):
        for _ in team.iterate():
            pass
        drift = np.abs(team.x.mean(axis=0) - started.mean(axis=0)).max()
        assert drift <= 1e-14 * 20 * np.abs(started).max()


@pytest.mark.parametrize("acceleration", ["none", "chebyshev"])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-9])
@pytest.mark.parametrize("graph", [hg.graphs.ring(12), hg.graphs.grid(3, 4), hg.graphs.star(6)])
def test_the_number_of_rounds_suffices_for_every_start_and_nine_tenths_do_not(
    graph, tolerance, acceleration
):
    network = hg.Network(graph)
    algorithm = hg.Consensus(acceleration=acceleration, masks=BARE).on(network)
    t, V = np.linalg.eigh(network.matrix())
    worst = V[:, np.argmax(np.abs(t) * (t < 1 - 1e-9))][:, None]  # orthogonal to the ones
    k = algorithm.rounds(network.eta, tolerance)
    x = cases.trajectory(
        algorithm, hg.problems.average(worst), network, 0 * worst, k, engine="agents"
    )[0]
    assert np.linalg.norm(x[k]) <= tolerance * (1 + 1e-6)
    assert np.linalg.norm(x[int(0.9 * k)]) > tolerance


def test_a_run_of_that_many_rounds_meets_its_tolerance_through_large_masks():
    problem = hg.problems.average(VALUES)
    for algorithm in (hg.Consensus(), CHEBYSHEV):
        k = algorithm.rounds(RING.eta, 1e-9 / algorithm.masking.linear)
        run = hg.run(algorithm, problem, RING, iterations=k)
        apart = np.linalg.norm(masked(VALUES, RING, algorithm) - VALUES.mean(axis=0))
        assert run.error[0, -1] <= 1e-13 * apart + 1e-9
        assert run.error[0, -1] < 4e-8
        assert run.config["stages"] == [k]
    assert hg.Consensus().rounds(0.5, 2.0**-7) == 7  # exactly, whatever logarithms round to
    assert hg.Consensus().rounds(1e-16, 1e-300) == CHEBYSHEV.rounds(0.0, 1e-300) == 1


def test_an_agent_evaluates_one_gradient_at_zero():
    asked = []

    def gradient(theta, data):
        asked.append(np.array(theta))
        return theta - data

    problem = hg.Problem(
        lambda theta, a: ((theta - a) ** 2).sum() / 2, VALUES, gradient=gradient, smoothness=1.0,
        solution=VALUES.mean(axis=0), quadratic=True,
    )  # fmt: skip
    asked.clear()
    run = hg.run(
        hg.Consensus(masks=BARE), problem, RING, iterations=5, engine="agents", x0=VALUES + 1
    )
    assert len(asked) == 8
    assert not np.array(asked).any()
    start = np.linalg.matrix_power(RING.matrix(), 5) @ VALUES  # x⁰ plays no part
    np.testing.assert_allclose(run.x[0], start, rtol=0, atol=1e-14)


def test_a_plain_average_takes_a_nonsymmetric_w_and_an_accelerated_one_refuses_it():
    network, values = cases.nonsymmetric(), np.eye(cases.M)
    run = hg.run(hg.Consensus(masks=BARE), hg.problems.average(values), network, iterations=3)
    W = network.matrix("doubly")
    np.testing.assert_allclose(run.x[0], W @ W @ W, rtol=0, atol=1e-14)
    with pytest.raises(MixingError, match="Consensus needs a symmetric"):
        hg.run(CHEBYSHEV, hg.problems.average(values), network, iterations=3)


def test_trials_may_have_vectors_of_their_own():
    values = np.stack([VALUES, 100 * VALUES])
    run = hg.run(hg.Consensus(), hg.problems.average(values), RING, iterations=200, trials=2)
    np.testing.assert_allclose(run.solution, values.mean(axis=1))
    assert run.mask_scale.tolist() == [4.0, 512.0]  # above 3.3 and 332
    assert (run.error[:, -1] < 1e-10 * 4 * run.mask_scale).all()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: hg.Consensus(acceleration="momentum"), '"none" and "chebyshev"'),
        (lambda: hg.Consensus(masks=hg.masks.zero_sum(quadratic=0.1)), "no curvature to mask"),
        (lambda: hg.Consensus(masks=1e4), r"Write hg.masks.zero_sum\(\)"),
        (lambda: hg.Consensus(scale=0.0), "scale of the data is a finite number > 0"),
        (lambda: hg.Consensus(eta=1.0), "from 0 to below 1"),
        (lambda: hg.Consensus().rounds(1.0, 0.1), "from 0 to below 1"),
        (lambda: hg.Consensus().rounds(0.5, 0.0), "tolerance is a finite number > 0"),
        (lambda: CHEBYSHEV.omega(1.0), "eta is missing"),
    ],
)
def test_what_makes_no_sense_is_refused(make, match):
    with pytest.raises(AlgorithmError, match=match):
        make()


def test_an_objective_that_is_no_average_is_named():
    with pytest.warns(RiskWarning, match=r"average of −∇f_i\(0\).*L = 2"):
        hg.run(hg.Consensus(), hg.problems.rendezvous(VALUES), RING, iterations=1)


def test_sums_of_rows_on_the_grid_pass_unchanged():
    """Whoever averages sums over rows rounds every row: the masks' grid is public."""
    algorithm, unit = hg.Consensus(scale=8.0), 8.0
    step = algorithm.mask_sizes(3, None, unit).linear_grid
    rows = np.rint(np.random.default_rng(0).normal(size=(8, 20, 3)) / 20 / step) * step
    values = rows.sum(axis=1)
    network = hg.Network(hg.graphs.complete(8))  # weights 1/8 round nothing
    run = hg.run(algorithm, hg.problems.average(values), network, iterations=1, engine="agents")
    assert run.mask_scale.tolist() == [unit]
    np.testing.assert_array_equal(run.x[0], np.broadcast_to(values.sum(axis=0) / 8, (8, 3)))
