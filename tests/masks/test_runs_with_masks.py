"""Zero-sum masks cancel and change no optimum, and both engines add the same masks."""

import functools
import math
import time
import warnings
from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest

import hushgrad as hg
from hushgrad import draws
from hushgrad.agent.masking import agent_masks, seeded_masks
from hushgrad.draws import Stream
from hushgrad.errors import AlgorithmError, RiskWarning
from hushgrad.masks import MOST_QUADRATIC
from support import cases, dense
from support.gaussians import cumulative_table
from support.tables import some

K, SEED, LAM = 60, 5, 0.05
Q = cases.Quadratics(by_hand=True)
MASKS = hg.masks.zero_sum(linear=0.3, quadratic=0.02)
CONSTANT = hg.stepsizes.constant(LAM)


def words(*values):
    return tuple(np.array([v], np.uint32) for v in values)


def words_of_pair(seed, trial, low, high, n):
    """The contract of hushgrad/draws.py, step by step, in Python's integers."""
    trial_key = draws.threefry(words(seed & 0xFFFF_FFFF, seed >> 32), words(trial, draws.TRIAL))
    of_low = draws.threefry(trial_key, words(low, Stream.MASK))
    key = draws.threefry(of_low, words(high, Stream.MASK))
    every = (draws.threefry(key, words(draws.ONCE, slot)) for slot in range(n))
    return [int(first[0]) << 32 | int(second[0]) for first, second in every]


@functools.cache
def table():
    return cumulative_table(13)


def gaussian_numbers(four_words, sigmas, exponents):
    """The contract of hushgrad/masks/gaussian.py, number by number: floats on grids 2^exponent."""
    first, cumulative = table()
    for levels, sigma, exponent in zip(zip(*four_words, strict=True), sigmas, exponents,
                                       strict=True):  # fmt: skip
        y = [bisect_right(cumulative, word) + first for word in levels]
        step = Fraction(sigma) / Fraction(2) ** exponent / 2**13
        step = math.ceil(step) if sigma == sigmas[0] else math.floor(step)
        yield float((y[0] + 2**12 * y[1] + 2**23 * y[2] + step * y[3]) * Fraction(2) ** exponent)


def masks_by_hand(masks, m, d, *, seed, trial, lam, unit=None):
    """c (m, d) and Q (m, d, d), pair by pair."""
    c, curvature = np.zeros((m, d)), np.zeros((m, d, d))
    n, room = d + d * (d + 1) // 2 + 1, masks.quadratic / lam
    white, identity = room * math.sqrt((1 - 0.7**2) / d), 0.7 * room
    sigmas = (
        [masks.linear * (1 / lam if unit is None else unit)] * d
        + [white] * (n - d - 1)
        + [identity]
    )
    exponents = [math.floor(math.log2(s)) - 46 for s in (sigmas[0], max(white, identity))]
    for i in range(m):
        for j in masks.partners(i, m):
            if i < j:
                drawn = np.array(words_of_pair(seed, trial, i, j, 4 * n), object).reshape(4, n)
                share = [*gaussian_numbers(drawn, sigmas, [exponents[0]] * d
                                           + [exponents[1]] * (n - d))]  # fmt: skip
                c[i], c[j] = c[i] + share[:d], c[j] - share[:d]
                triangle, at = share[-1] * np.eye(d), d
                for a in range(d):
                    for b in range(a, d):
                        triangle[a, b] += share[at]
                        triangle[b, a] = triangle[a, b]
                        at += 1
                curvature[i], curvature[j] = curvature[i] + triangle, curvature[j] - triangle
    return c, curvature


def masked(trial, lam, unit=None):
    c, curvature = masks_by_hand(
        MASKS, cases.M, cases.D, seed=SEED, trial=trial, lam=lam, unit=unit
    )
    return lambda x: Q.g(x) + c + np.einsum("iab,ib->ia", curvature, x)


def ds(network, trial):
    coins, W = dense.Coins(SEED, trial, cases.M), network.matrix("doubly")
    return dense.pdg_ds(
        W, masked(trial, 1.0), Q.x0, K,
        lambda k: (1 - coins.rho(k) / (k + 1) ** 2) / (k + 1),
        lambda k: coins.B(k, W > 0),
    )  # fmt: skip


def nds(form):
    recursion = dense.pdg_nds_lazy if form == "lazy" else dense.pdg_nds_square

    def reference(network, trial):
        coins, W = dense.Coins(SEED, trial, cases.M), network.matrix("doubly")
        support = W > 0 if form == "lazy" else W @ W > 0
        return recursion(
            W, masked(trial, LAM), Q.x0, K,
            lambda k: LAM * (1 - coins.rho(k) / (k + 1) ** 2),
            lambda k: coins.B(k, support),
        )  # fmt: skip

    return reference


def recommended(network, trial):
    """One ϱ, halved in each iteration; own shares in (0.225, 0.45]; masks."""
    coins, W = dense.Coins(SEED, trial, cases.M), network.matrix("doubly")
    once = draws.ONCE
    B = coins.B(once, W > 0, Stream.SPLIT_CONSTANT)
    slot = [int(np.count_nonzero(W[:j, j] > 0)) for j in range(cases.M)]
    u = coins.u(Stream.SPLIT_CONSTANT, np.arange(cases.M), once, np.array(slot))
    own = 0.45 * (1 + u) / 2
    B = B * ~np.eye(cases.M, dtype=bool)
    B = B / B.sum(0) * (1 - own) + np.diag(own)
    q = Q.g(np.zeros_like(Q.x0))
    largest = max(np.abs(q).max(), np.abs(Q.g(Q.x0)).max(), 1 / LAM)
    unit = 2.0 ** math.ceil(math.log2(largest))
    return dense.pdg_nds_lazy(
        W, masked(trial, LAM, unit), Q.x0, K,
        lambda k: LAM * (1 - coins.rho(once) * 0.5 ** (k + 1)),
        lambda k: B,
    )  # fmt: skip


ROWS = {
    "PDGDS": (hg.PDGDS(masks=MASKS), ds),
    "PDGNDS lazy": (hg.PDGNDS(stepsize=CONSTANT, masks=MASKS), nds("lazy")),
    "PDGNDS square": (hg.PDGNDS(stepsize=CONSTANT, form="square", masks=MASKS), nds("square")),
    "PDGNDS recommended": (
        hg.PDGNDS(stepsize=CONSTANT, design="recommended", masks=MASKS), recommended,
    ),
}  # fmt: skip


@functools.cache
def reference(name, trial):
    return ROWS[name][1](cases.undirected(), trial)


@pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")
@pytest.mark.parametrize(
    ("name", "engine", "trials"),
    [
        *((name, "agents", [3]) for name in ROWS),
        *some([(name, "stacked", [3, 0]) for name in reversed(ROWS)], 4),
    ],
)
def test_masked_runs_equal_the_dense_recursion_with_masked_gradients(name, engine, trials):
    got = cases.trajectory(
        ROWS[name][0], Q.problem, cases.undirected(), Q.x0, K, seed=SEED, trials=trials,
        engine=engine,
    )  # fmt: skip
    for t, trial in enumerate(trials):
        want = reference(name, trial)
        scale = np.maximum(1.0, np.abs(want).max(axis=(1, 2), keepdims=True))
        assert (np.abs(got[t, 1:] - want) / scale).max() < 1e-12


@pytest.mark.filterwarnings("ignore::hushgrad.errors.RiskWarning")
def test_masked_messages_of_recorder_and_agents_agree():
    algorithm, network = ROWS["PDGNDS recommended"][0], cases.undirected()
    stacked, alone = (
        hg.run(
            algorithm, Q.problem, network, iterations=6, x0=Q.x0, seed=SEED, transcript=True,
            engine=engine,
        ).transcript
        for engine in ("stacked", "agents")
    )  # fmt: skip
    for k in range(6):
        for j, i in stacked.links:
            np.testing.assert_allclose(
                stacked.messages(k, j, i), alone.messages(k, j, i), rtol=0, atol=1e-12
            )


def test_an_agent_alone_makes_the_simulators_mask_bit_for_bit():
    algorithm, network, d = hg.PDGNDS(design="recommended"), cases.undirected(), 3
    ours = agent_masks(algorithm, network, d, seed=7, trial=2)

    def of(i):
        return lambda j: lambda n: np.array(words_of_pair(7, 2, min(i, j), max(i, j), n), np.uint64)

    for i in (0, 3, 6):
        theirs = algorithm.masking.mask(
            i, algorithm.mask_sizes(d, network.eta), n_agents=cases.M, pair_words=of(i)
        )
        assert theirs.c.tobytes() == ours[i].c.tobytes()
        assert theirs.Q.tobytes() == np.ascontiguousarray(ours[i].Q).tobytes()


def test_masks_by_hand_are_the_simulators_bit_for_bit():
    algorithm, network = hg.PDGNDS(stepsize=CONSTANT, masks=MASKS), cases.undirected()
    c, curvature = seeded_masks(algorithm, network, 3, seed=SEED, trials=[4])
    by_hand = masks_by_hand(MASKS, cases.M, 3, seed=SEED, trial=4, lam=LAM)
    np.testing.assert_array_equal(c[..., 0], by_hand[0])
    np.testing.assert_array_equal(curvature[..., 0], by_hand[1])


def test_every_trial_and_seed_has_its_own_reproducible_masks():
    algorithm, network = hg.PDGNDS(design="recommended"), cases.undirected()
    c, curvature = seeded_masks(algorithm, network, 4, seed=1, trials=[0, 5, 2])
    again = seeded_masks(algorithm, network, 4, seed=1, trials=[2])
    other = seeded_masks(algorithm, network, 4, seed=2, trials=[2])
    assert (c[..., 2] == again[0][..., 0]).all()
    assert (curvature[..., 2] == again[1][..., 0]).all()
    for different in (c[..., 0], c[..., 1], other[0][..., 0]):
        assert (different != c[..., 2]).all()


@pytest.mark.parametrize("m", [3, 12])
def test_the_masks_of_some_agents_are_theirs_among_all_bit_for_bit(m):
    """Every shard draws the shares of its own agents' pairs."""
    algorithm, network = hg.PDGNDS(design="recommended"), hg.Network(hg.graphs.ring(m))
    every = seeded_masks(algorithm, network, 4, seed=1, trials=[2, 0], stage=1)
    for agents in ([0], [m - 1], list(range(m // 2)), list(range(0, m, 2)), []):
        own = np.array(agents, np.int64)
        found = seeded_masks(algorithm, network, 4, seed=1, trials=[2, 0], stage=1, agents=own)
        for part in (0, 1):
            assert found[part].tobytes() == every[part][own].tobytes()


def test_every_stage_has_its_own_masks_and_the_first_stage_is_the_run_without_stages():
    algorithm, network = hg.PDGNDS(design="recommended"), cases.undirected()
    bare, first, second, third = (
        seeded_masks(algorithm, network, 4, seed=1, trials=[2], **given)
        for given in ({}, {"stage": 0}, {"stage": 1}, {"stage": 2})
    )
    for part in (0, 1):
        assert (bare[part] == first[part]).all()
        assert (first[part] != second[part]).all()
        assert (second[part] != third[part]).all()


def test_masks_do_not_move_the_optimum():
    network, problem = cases.undirected(), Q.problem
    every = agent_masks(hg.PDGNDS(design="recommended"), network, cases.D, seed=0, trial=0)
    theta = problem.solution()
    largest = max(np.abs(mask.gradient(theta)).max() for mask in every)
    assert largest > 1
    total = sum(mask.over(problem.local_gradient(i))(theta) for i, mask in enumerate(every))
    assert np.abs(total).max() < 1e-12 * largest
    assert not sum(mask.c for mask in every).any()
    assert not sum(mask.Q for mask in every).any()


# ---- partners


@pytest.mark.parametrize("n_partners", [2, 4, 8])
def test_partners_are_mutual_distinct_and_of_the_requested_number(n_partners):
    masks = hg.masks.zero_sum(n_partners=n_partners)
    for m in range(1, 70):
        every = [masks.partners(i, m) for i in range(m)]
        for i, partners in enumerate(every):
            assert list(partners) == sorted(set(partners) - {i})
            assert len(partners) == min(n_partners, m - 1)
            assert all(i in every[j] for j in partners)
        np.testing.assert_array_equal(masks.partner_table(m).T, every)


def test_partners_are_not_the_neighbours_of_a_ring():
    masks = hg.masks.zero_sum()
    for m in range(7, 400):
        assert not {1, m - 1} & set(masks.partners(0, m))


def test_a_million_agents_know_their_partners_in_seconds():
    started = time.process_time()
    table = hg.masks.zero_sum().partner_table(10**6)
    assert time.process_time() - started < 5
    assert table.shape == (4, 10**6)
    some = np.arange(0, 10**6, 99_991)
    for i in some:
        for j in table[:, i]:
            assert i in table[:, j]


# ---- no masks, mistakes, risks


def test_masks_of_size_zero_and_no_masks_are_the_same_program():
    from hushgrad.simulate.stacked.program import Simulation

    network = cases.undirected()
    plain, zero = (
        Simulation(
            hg.PDGNDS(stepsize=CONSTANT, masks=masks), Q.problem, network, seed=0,
            trials=np.arange(1),
        )
        for masks in (None, hg.masks.zero_sum(linear=0, quadratic=0))
    )  # fmt: skip
    assert plain.args.keys() == zero.args.keys()
    assert "mask" not in plain.args


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: hg.masks.zero_sum(linear=-1), "linear = -1.*linear=0 for none"),
        (lambda: hg.masks.zero_sum(linear=np.nan), "linear = nan"),
        (lambda: hg.masks.zero_sum(quadratic="big"), "quadratic = 'big'"),
        (lambda: hg.masks.zero_sum(n_partners=0), "n_partners = 0"),
        (lambda: hg.masks.zero_sum(n_partners=5), "n_partners = 5. Use 6"),
        (lambda: hg.PDGNDS(masks="zero_sum"), r"Write hg.masks.zero_sum\(\)"),
        (
            lambda: hg.masks.zero_sum(quadratic=0.1).sizes(1025, lam=1.0, eta=0.5),
            r"d = 1025. Use hg.masks.zero_sum\(quadratic=0\)",
        ),
    ],
)
def test_bad_masks_are_refused_with_the_way_out(make, said):
    with pytest.raises(AlgorithmError, match=said):
        make()


def flat(d, m=4):
    """f_i = ½ ‖θ − p_i‖² in many dimensions."""
    return hg.Problem(
        lambda theta, p: 0.5 * ((theta - p) ** 2).sum(),
        np.zeros((m, d)),
        dim=d,
        gradient=lambda theta, p: theta - p,
        solution=np.zeros(d),
        smoothness=1.0,
        quadratic=True,
    )


def risks(algorithm, problem, network, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RiskWarning)
        hg.run(algorithm, problem, network, iterations=1, engine="agents", **options)
    return [str(w.message) for w in caught]


def test_beyond_1024_dimensions_the_default_masks_gradients_only_and_says_so():
    problem, network = flat(MOST_QUADRATIC + 1), hg.Network(hg.graphs.ring(4))
    algorithm = hg.PDGNDS(design="recommended")
    (said,) = risks(algorithm, problem, network)
    assert "messages tell H_i" in said
    c, curvature = seeded_masks(algorithm, network, problem.dim, seed=0, trials=[0])
    assert c.all()
    assert curvature is None
    assert not risks(algorithm, problem, network, accept_exposure=["dimension"])


def test_masks_that_are_too_large_for_the_network_give_a_warning():
    ring = hg.Network(hg.graphs.ring(4))
    steps = hg.stepsizes.constant
    assert not risks(hg.PDGNDS(design="recommended", stepsize=steps(0.05)), flat(2), ring)
    large = hg.PDGNDS(stepsize=steps(0.1), masks=hg.masks.zero_sum(quadratic=0.4))
    (said,) = risks(large, flat(2), ring)
    assert "may make the iterates diverge" in said


def test_pdg_ds_warns_that_masks_cost_accuracy():
    (said,) = risks(
        hg.PDGDS(design="recommended", stepsize=hg.stepsizes.diminishing(0.05)),
        flat(2), hg.Network(hg.graphs.ring(4)),
    )  # fmt: skip
    assert "PDGNDS with the same masks does not" in said
