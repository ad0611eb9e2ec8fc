"""The guarantee against simulated attackers that share no code with it.

Two worlds: a row's part Δ lies in the statistic of agent i, or of agent j. The attacker knows all
other data and the coalition's shares, sees every masked statistic of the honest agents, and applies
the likelihood-ratio test, which no other test beats. It computes the test from the incidence matrix
of the honest pairs by a pseudo-inverse.
"""

import math

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.masks import Sizes
from hushgrad.theory import RowBound, advantage, tradeoff
from support.tables import some

DIM = 2
QUICK, LONG = 100_000, 600_000


class Worlds:
    """The honest agents of a network with zero-sum masks, entry by entry."""

    def __init__(self, m, n_partners=4, coalition=()):
        masks = hg.masks.zero_sum(n_partners=n_partners)
        self.honest = [i for i in range(m) if i not in coalition]
        pairs = [(i, j) for i in self.honest for j in masks.partners(i, m)
                 if i < j and j in self.honest]  # fmt: skip
        self.B = np.zeros((len(self.honest), len(pairs)))
        for n, (i, j) in enumerate(pairs):
            self.B[self.honest.index(i), n] = 1.0
            self.B[self.honest.index(j), n] = -1.0

    def place(self, i, j):
        """e_i − e_j."""
        shift = np.zeros(len(self.honest))
        shift[self.honest.index(i)] = 1.0
        shift[self.honest.index(j)] = -1.0
        return shift

    def seen(self, rng, n, sigma, shift=None, draw=None):
        """One entry of all masked statistics, (n, honest), around the world of agent j."""
        shares = draw(rng, (n, self.B.shape[1])) if draw else rng.normal(size=(n, self.B.shape[1]))
        seen = sigma * shares @ self.B.T
        return seen if shift is None else seen + shift

    def log_ratio(self, seen, sigma, shift):
        """log p(seen | row at i) − log p(seen | row at j) of one entry, (n,)."""
        inverse = np.linalg.pinv(sigma**2 * self.B @ self.B.T, rcond=1e-9)
        return (seen - shift / 2) @ inverse @ shift


def log_ratios(worlds, i, j, part, sigmas, n, rng):
    """The statistic of the best test, n times in each world, summed over the entries."""
    at_i, at_j = np.zeros(n), np.zeros(n)
    for size, sigma in zip(part, sigmas, strict=True):
        shift = size * worlds.place(i, j)
        at_i += worlds.log_ratio(worlds.seen(rng, n, sigma, shift), sigma, shift)
        at_j += worlds.log_ratio(worlds.seen(rng, n, sigma), sigma, shift)
    return at_i, at_j


def curve(at_i, at_j):
    """False alarms and misses of the threshold tests, at every hundredth."""
    thresholds = np.quantile(np.concatenate([at_i, at_j]), np.linspace(0.001, 0.999, 999))
    alarms = 1 - np.searchsorted(np.sort(at_j), thresholds) / len(at_j)
    misses = np.searchsorted(np.sort(at_i), thresholds) / len(at_i)
    return alarms, misses


def excess(at_i, at_j, mu):
    """By how much the tests beat the formula: alarms + misses below what is possible."""
    alarms, misses = curve(at_i, at_j)
    slack = error(len(at_i))
    return max(
        tradeoff(min(a + slack, 1.0), mu) - slack - b for a, b in zip(alarms, misses, strict=True)
    )


def error(n):
    """Dvoretzky–Kiefer–Wolfowitz: both empirical curves are as near, but once in a million."""
    return math.sqrt(math.log(4e6) / (2 * n))


def best_advantage(at_i, at_j):
    alarms, misses = curve(at_i, at_j)
    return (1 - alarms - misses).max()


CASES = {
    "two agents": {"m": 2},
    "complete": {"m": 5},
    "ring of pairs": {"m": 7, "n_partners": 2},
    "circulant": {"m": 12},
    "circulant without a coalition": {"m": 12, "coalition": (2, 5, 9)},
    "ring, cut": {"m": 9, "n_partners": 2, "coalition": (4,)},
}


def promised(case, *, mu, quadratic=0.5):
    """A guarantee whose worst pair has about this μ, the pair, and the exposure."""
    m, n_partners = case["m"], case.get("n_partners", 4)
    masks, bound = hg.masks.zero_sum(n_partners=n_partners), RowBound(linear=1.0, quadratic=0.5)

    def ask(scale):
        sizes = Sizes(DIM, scale, quadratic * scale)
        return hg.guarantee(masks, m, sizes=sizes, bound=bound, coalition=case.get("coalition", ()))

    return ask(ask(1.0).worst.mu / mu)


def worst_part(bound):
    """A part of a row that reaches the bound: Δq in some direction, ΔH along the first axis."""
    return np.array([0.6 * bound.linear, 0.8 * bound.linear, bound.quadratic, 0.0, 0.0])


def check_case(case, n, mu):
    promise = promised(case, mu=mu)
    rng = np.random.default_rng(len(case) + n)
    sigmas = [promise.linear] * DIM + [promise.quadratic] * 3
    worlds, exposure = Worlds(**case), promise.worst
    at_i, at_j = log_ratios(
        worlds, exposure.agent, exposure.other, worst_part(promise.bound), sigmas, n, rng
    )
    assert exposure.mu == pytest.approx(mu)
    assert excess(at_i, at_j, exposure.mu) <= 0
    assert best_advantage(at_i, at_j) == pytest.approx(advantage(exposure.mu), rel=0.1)
    assert excess(at_i, at_j, 0.85 * exposure.mu) > 0  # the check sees a promise that is too good


@pytest.mark.parametrize("case", some(CASES.values(), 2), ids=CASES)
def test_the_best_test_reaches_the_formula_and_never_beats_it(case):
    check_case(case, QUICK, mu=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_best_test_reaches_the_formula_and_never_beats_it_in_long_runs(case, mu):
    check_case(case, LONG, mu)


@pytest.mark.parametrize("chooses", some(["directions", "sizes", "all or nothing"]))
def test_an_attacker_who_steers_later_stages_does_not_beat_the_composition(chooses):
    """Four stages. The attacker chooses Δ_s, within the bound, after the earlier stages."""
    n, stages, sigma = QUICK, 4, 2.0
    worlds, rng = Worlds(12, coalition=(2, 5, 9)), np.random.default_rng(3)
    promise = hg.guarantee(
        hg.masks.zero_sum(), 12, sizes=Sizes(DIM, sigma, 0.0), bound=RowBound(linear=1.0),
        stages=stages, coalition={2, 5, 9},
    )  # fmt: skip
    exposure = promise.worst
    place = worlds.place(exposure.agent, exposure.other)
    totals = []
    for is_at_i in (True, False):
        total = np.zeros(n)
        turn = rng.uniform(0, 2 * np.pi, n)
        for stage in range(stages):
            length = np.ones(n)
            if chooses == "sizes" and stage:
                length = np.clip(np.abs(total), 0.0, 1.0)
            if chooses == "all or nothing":
                length = (np.abs(total) < 1.0) * 1.0  # stop when it is sure
            for entry in (np.cos(turn), np.sin(turn)):
                part = length * entry  # Δ of this entry, different in every repetition
                seen = worlds.seen(rng, n, sigma)
                if is_at_i:
                    seen += part[:, None] * place
                inverse = np.linalg.pinv(sigma**2 * worlds.B @ worlds.B.T, rcond=1e-9)
                total += part * (seen @ inverse @ place) - part**2 * (place @ inverse @ place) / 2
            turn = turn + total  # the next direction depends on all that was seen
        totals.append(total)
    assert excess(*totals, exposure.mu) <= 0
    if chooses == "directions":  # always the whole bound: the composition is reached
        assert best_advantage(*totals) == pytest.approx(advantage(exposure.mu), rel=0.1)
        assert excess(*totals, 0.85 * exposure.mu) > 0


TESTS = {
    "own statistic": lambda seen, i, j: seen[:, i],
    "difference": lambda seen, i, j: seen[:, i] - seen[:, j],
    "above the median": lambda seen, i, j: seen[:, i] - np.median(seen, axis=1),
    "rank": lambda seen, i, j: (seen[:, [i]] > seen).sum(axis=1).astype(float),
    "extremes": lambda seen, i, j: seen[:, i] - (seen.max(axis=1) + seen.min(axis=1)) / 2,
    "squares": lambda seen, i, j: seen[:, i] ** 2 - seen[:, j] ** 2,
}


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
@pytest.mark.parametrize("case", ["complete", "circulant without a coalition"])
def test_no_other_test_beats_the_formula(test, case):
    promise = promised(CASES[case], mu=1.0)
    worlds, exposure = Worlds(**CASES[case]), promise.worst
    rng, sigma = np.random.default_rng(1), promise.linear
    i, j = worlds.honest.index(exposure.agent), worlds.honest.index(exposure.other)
    shift = worlds.place(exposure.agent, exposure.other)
    noise = rng.uniform(0, 1e-6, (2, QUICK))  # breaks the ties of ranks
    at_i = test(worlds.seen(rng, QUICK, sigma, shift), i, j) + noise[0]
    at_j = test(worlds.seen(rng, QUICK, sigma), i, j) + noise[1]
    assert excess(at_i, at_j, exposure.mu) <= 0


def test_uniform_shares_of_the_same_size_break_the_formula():
    """The check has teeth: at few false alarms, the ends of a uniform share give it away."""
    worlds, rng, mu = Worlds(2), np.random.default_rng(0), 0.3
    shift = worlds.place(0, 1)

    def uniform(rng, shape):
        return rng.uniform(-math.sqrt(3), math.sqrt(3), shape)

    at_i = worlds.seen(rng, QUICK, 1 / mu, shift, uniform)[:, 0]
    at_j = worlds.seen(rng, QUICK, 1 / mu, None, uniform)[:, 0]
    assert excess(at_i, at_j, mu) > 0.01


# ---- limits that docs/guarantee.md states


def test_stages_that_start_at_different_points_tell_where_a_row_is():
    """The sum of a logistic row's parts depends on θ, so i and j must start from one θ."""
    from hushgrad.problems.losses import logistic_gradient

    data = {"X": np.array([[0.6, -0.8]]), "y": np.ones(1), "weight": np.ones(1),
            "penalty": np.zeros(2)}  # fmt: skip
    theta = np.array([0.5, 0.1])
    same = logistic_gradient(theta, data) - logistic_gradient(theta.copy(), data)
    apart = logistic_gradient(theta, data) - logistic_gradient(theta + 1e-6, data)
    assert not same.any()
    assert np.abs(apart).max() > 1e-9
