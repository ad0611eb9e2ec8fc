"""The conditions beyond the paper: their proofs' inequalities, worst splits, and both sides."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.stepsizes import Harmonic
from hushgrad.theory import lazy, theorem3
from hushgrad.theory.assumptions import loss_facts, mixing_facts
from hushgrad.theory.curvature import local_curvature
from hushgrad.theory.proven import proofs
from support.quadratics import errors

NETWORK = hg.Network(hg.graphs.paper())
PROBLEM = hg.problems.estimation(seed=0)
IDENTITY = hg.splits.identity()

powers = st.floats(0.05, 3.0)


@settings(max_examples=40)
@given(st.lists(st.floats(0.01, 0.95), min_size=1, max_size=4), st.floats(0.02, 0.98))
def test_gains_are_the_largest_of_the_circle(mus, place):
    mu = np.array(mus)
    rho = np.sqrt(mu.max()) + place * (1 - np.sqrt(mu.max()))
    z = rho * np.exp(1j * np.linspace(0, np.pi, 20_001))
    below = np.abs(z**2 - 2 * mu[:, None] * z + mu[:, None])
    first, second = lazy.gains(mu, rho)
    for got, sampled in ((first, np.abs(z) / below), (second, np.abs(z - 1) / below)):
        assert got >= sampled.max() * (1 - 1e-9)
        assert got == pytest.approx(sampled.max(), rel=0.05)


def random_quadratics(seed, m=5, d=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 4, d)) * np.exp(rng.normal(size=(m, 1, 1)))
    return np.swapaxes(X, 1, 2) @ X + 0.1 * np.eye(d), rng


def two_step(W, H, lam, B):
    """The step of the lazy form on (x^k, x^{k−1}), a dense matrix, from its equation."""
    m, d = H.shape[:2]
    M, eye = np.kron((np.eye(m) + W) / 2, np.eye(d)), np.eye(m * d)
    curve = np.zeros((m, d, m, d))
    curve[np.arange(m), :, np.arange(m), :] = lam * H
    moved = np.kron(B, np.eye(d)) @ curve.reshape(m * d, m * d)
    return np.block([[2 * M - moved, moved - M], [eye, 0 * eye]])


def worst_growth(W, H, lam, rng, tries):
    """The largest growth per iteration of periodic sequences of extreme splits that is found.

    In an extreme split every agent gives all of its step to one agent; all splits lie between them.
    """
    m, d = H.shape[:2]
    ones = np.kron(np.ones((1, m)), np.eye(d))
    kept = np.hstack([ones, lam * H.transpose(1, 0, 2).reshape(d, m * d) - ones])
    reached = np.linalg.svd(kept)[2][d:].T  # a basis of the states that runs reach

    def step():
        B = np.zeros((m, m))
        B[[rng.choice(np.flatnonzero(column)) for column in W.T], np.arange(m)] = 1
        return reached.T @ two_step(W, H, lam, B) @ reached

    def growth(period):
        around = np.linalg.multi_dot([*period, np.eye(len(period[0]))])
        return np.abs(np.linalg.eigvals(around)).max() ** (1 / len(period))

    found = 0.0
    for _ in range(tries):
        period = [step() for _ in range(rng.integers(1, 6))]
        best = growth(period)
        for _ in range(10):
            other = [step() if rng.uniform() < 0.4 else one for one in period]
            if growth(other) > best:
                period, best = other, growth(other)
        found = max(found, best)
    return found


def check_condition_s(seed, tries):
    rng = np.random.default_rng(seed)
    m, d = int(rng.integers(2, 6)), int(rng.integers(1, 3))
    graph = hg.graphs.erdos_renyi(m, 0.7, seed=seed) if m > 2 else hg.graphs.path(2)
    W, (H, _) = hg.Network(graph).matrix(), random_quadratics(seed, m, d)
    mu = (1 + np.linalg.eigvalsh(W)[:-1]) / 2
    strong, L = np.linalg.eigvalsh(H.mean(0))[0], np.linalg.eigvalsh(H).max()
    lam = 0.999 * lazy.largest_by_gain(L=L, strong=strong, mu=mu, m=m)
    assert lam > 0
    assert worst_growth(W, H, lam, rng, tries) <= 1 - lam * strong / 2
    # the search is able to find divergence
    assert worst_growth(W, H, 120 * lam, rng, tries) > 1


@pytest.mark.parametrize("seed", [0, 3])
def test_condition_s_holds_only_where_no_sequence_of_splits_is_slower_than_it_says(seed):
    check_condition_s(seed, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_condition_s_in_forty_problems(seed):
    check_condition_s(seed, 60)


@pytest.mark.slow
def test_condition_s_with_deviations_ends_at_the_optimum():
    """Extreme splits at random, and deviations of every agent that fall as 1/√k."""
    H, rng = random_quadratics(2)
    W, c = NETWORK.matrix(), rng.normal(size=(5, 2))
    solution = np.linalg.solve(H.sum(0), -c.sum(0))
    mu = (1 + np.linalg.eigvalsh(W)[:-1]) / 2
    L, strong = np.linalg.eigvalsh(H).max(), np.linalg.eigvalsh(H.mean(0))[0]
    lam = 0.99 * lazy.largest_by_gain(L=L, strong=strong, mu=mu, m=5)
    M, x = (np.eye(5) + W) / 2, rng.normal(size=(5, 2))
    neighbours = [np.flatnonzero(column) for column in W.T]
    old, h_old, seen = x, np.zeros_like(x), []
    for k in range(1, 8001):
        own = lam * (1 - rng.uniform(size=(5, 1)) / np.sqrt(k))
        h = own * (np.einsum("iab,ib->ia", H, x) + c)
        B = np.zeros((5, 5))
        B[[rng.choice(n) for n in neighbours], np.arange(5)] = 1
        old, x, h_old = x, M @ (2 * x - old) - B @ (h - h_old), h
        seen.append(np.abs(x - solution).max())
    assert max(seen[-100:]) < 0.1 * max(seen[200:300])  # like 1/√k: a factor of 5.5 at least


def pieces(rng, m, d):
    """Gradients of Huber's losses, whose curvature jumps between 0 and L_i, and the L_i."""
    X = rng.normal(size=(m, 3, d)) * np.exp(rng.normal(size=(m, 1, 1)))
    y = rng.normal(size=(m, 3))

    def gradient(x):
        return np.einsum("ija,ij->ia", X, np.clip(np.einsum("ija,ia->ij", X, x) - y, -0.3, 0.3))

    return gradient, np.linalg.eigvalsh(np.swapaxes(X, 1, 2) @ X)[:, -1]


@pytest.mark.parametrize("seed", range(2))
def test_the_function_in_the_proof_of_condition_e_falls_in_every_step(seed):
    """At 99.9 % of the bound 2λ diag(L_i) ≺ I + 3M; the minimiser is where the run ends."""
    rng = np.random.default_rng(seed)
    W = hg.Network(hg.graphs.erdos_renyi(6, 0.6, seed=seed)).matrix()
    gradient, L = pieces(rng, 6, 2)
    M = (np.eye(6) + W) / 2
    root = np.sqrt(L)[:, None]
    lam = 0.999 / np.linalg.eigvalsh(2 * root * np.linalg.inv(np.eye(6) + 3 * M) * root.T)[-1]
    assert lam >= 0.999 * lazy.extra_bound(L.max(), np.linalg.eigvalsh(M)[0])
    path = [rng.normal(size=(6, 2))]
    path.append(M @ path[0] - lam * gradient(path[0]))
    for _ in range(4000):
        x, old = path[-1], path[-2]
        path.append(M @ (2 * x - old) - lam * (gradient(x) - gradient(old)))
    end = path[-1]
    assert np.abs(end - end.mean(0)).max() < 1e-7
    assert np.abs(gradient(end).sum(0)).max() < 1e-6
    values, vectors = np.linalg.eigh(np.eye(6) - M)
    U = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    q = np.cumsum([np.zeros((6, 2)), *(U @ x for x in path[1:])], axis=0)
    fixed = -lam * np.linalg.pinv(U, rcond=1e-6) @ gradient(end)
    V = [np.sum((x - end) * ((np.eye(6) + M) / 2 @ (x - end))) + np.sum((a - fixed) ** 2)
         for x, a in zip(path, q, strict=True)]  # fmt: skip
    assert (np.diff(V) <= 1e-7 * V[0]).all()
    assert V[-1] < 1e-6 * V[0]


@pytest.mark.parametrize("seed", range(4))
def test_condition_e_is_sufficient_for_quadratics_and_attained_by_one(seed):
    H, _ = random_quadratics(seed)
    smallest = (1 + np.linalg.eigvalsh(NETWORK.matrix())[0]) / 2
    L = np.linalg.eigvalsh(H).max()
    bound = lazy.extra_bound(L, smallest)
    assert errors("EXTRA", NETWORK, H, 0.98 * bound, 3000)[-1] < 1e-3
    same = np.repeat(np.eye(2)[None] * L, 5, axis=0)  # H_i = L I: the bound is tight
    assert errors("EXTRA", NETWORK, same, 0.97 * bound, 3000)[-1] < 1e-3
    assert not errors("EXTRA", NETWORK, same, 1.03 * bound, 3000)[-1] < 1e3


def test_conditions_of_the_lazy_form_prove_small_steps_and_no_large_ones():
    L = PROBLEM.smoothness()
    smallest = (1 + NETWORK.smallest_eigenvalue) / 2
    for ratio, proven in ((0.99, True), (1.01, False)):
        lam = ratio * lazy.extra_bound(L, smallest)
        plain = hg.EXTRA(stepsize=hg.stepsizes.constant(lam))
        assert hg.certify(plain, PROBLEM, NETWORK).is_proven == proven
        deviating = hg.stepsizes.constant(lam, hg.stepsizes.geometric(0.9))
        whole = hg.PDGNDS(stepsize=deviating, split=IDENTITY)
        assert hg.certify(whole, PROBLEM, NETWORK).is_proven == proven
    slow = hg.stepsizes.constant(0.01 * lam, hg.stepsizes.harmonic(1.0))  # Σ 1/k = ∞
    assert not hg.certify(hg.PDGNDS(stepsize=slow, split=IDENTITY), PROBLEM, NETWORK).is_proven


MIXING = mixing_facts(NETWORK)
LOSSES = loss_facts(PROBLEM, local_curvature(PROBLEM))
W, L = NETWORK.matrix(), LOSSES.L
MU = (1 + np.linalg.eigvalsh(W)[:-1]) / 2
LARGEST = {
    "whole": (1 + 3 * MU[0]) / (2 * L),
    "split": lazy.largest_by_gain(L=L, strong=LOSSES.strong, mu=MU, m=5),
    "square": theorem3.largest_stepsize(
        L=L, m=5, eta=NETWORK.eta, r=np.linalg.norm(W - np.eye(5), 2)
    ),
}
deviations = st.one_of(
    st.builds(hg.stepsizes.harmonic, powers, drawn=st.sampled_from(["each", "once"])),
    st.builds(hg.stepsizes.geometric, st.floats(0.1, 0.99)),
    st.builds(hg.stepsizes.bursts, st.integers(1, 5), st.floats(0.1, 5)),
    st.just(hg.stepsizes.none()),
)
ratios = st.one_of(st.floats(0.01, 0.999), st.floats(1.001, 50))


@settings(max_examples=60)
@given(ratios, deviations, st.sampled_from(["whole", "split", "square"]), st.floats(0.05, 3))
def test_a_constant_stepsize_is_proven_exactly_within_its_condition(ratio, deviation, kind, power):
    """The bounds are those of dense matrices, the series those of 1/k^q."""
    options = {"split": IDENTITY} if kind == "whole" else {}
    form = "square" if kind == "square" else "lazy"
    made = hg.PDGNDS(
        stepsize=hg.stepsizes.constant(ratio * LARGEST[kind], deviation), form=form, **options
    )
    found = any(p.is_proven for p in proofs(made, NETWORK, MIXING, LOSSES))
    q = deviation.power if isinstance(deviation, Harmonic) else np.inf
    vanishes = {"whole": q > 1, "split": True, "square": 2 * q > 1}[kind]
    assert found == (ratio < 1 and vanishes)
    fading = hg.stepsizes.diminishing(scale=LARGEST[kind] / 9, power=power)
    tends_to_0 = replace(made, stepsize=fading)
    assert not any(p.is_proven for p in proofs(tends_to_0, NETWORK, MIXING, LOSSES))
