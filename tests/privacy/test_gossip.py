"""Who is two or more links away is reached by averaging, and by DGD with small steps."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious, Eavesdropper, Knowledge
from hushgrad.privacy.attacks.gossip_reconstruction import (
    GossipReconstruction,
    knowledge,
    reconstruct,
)
from support import cases

CASES = 20  # random graphs, problems and starts
FEW, MANY = range(8), pytest.param(range(CASES), id="many", marks=pytest.mark.slow)


def network(seed, m=10):
    """A random tree and some more links: always somebody who is no neighbour."""
    rng = np.random.default_rng(seed)
    links = {(int(rng.integers(i)), i) for i in range(1, m)}
    links |= {tuple(sorted(rng.choice(m, 2, replace=False).tolist())) for _ in range(4)}
    return hg.Network(hg.graphs.from_edges(sorted(links), n_agents=m))


def heard_by(W, members):
    return sorted({int(j) for i in members for j in np.flatnonzero(W[i])})


def determined(W, observed):
    """(m,) which x_i^0 outputs of x⁺ = Wx at `observed` determine, from the eigenvectors of W = Wᵀ:
    those that vanish there are never seen.
    """
    values, vectors = np.linalg.eigh(W)
    unseen = []
    for value in np.unique(values.round(9)):
        space = vectors[:, np.abs(values - value) < 1e-7]
        _, sizes, combinations = np.linalg.svd(space[observed])
        rank = np.count_nonzero(sizes > 1e-9)
        unseen.append(space @ combinations[rank:].T)
    return np.abs(np.hstack(unseen)).max(1, initial=0) < 1e-6


def test_what_is_seen_is_the_knowledge_matrix_times_the_secrets():
    rng = np.random.default_rng(0)
    W, m, rounds, observed = network(0).matrix(), 10, 6, [2, 5, 9]
    x0, h = rng.normal(size=(m, 3)), rng.normal(size=(rounds - 1, m, 3))
    plain, stepped = [x0], [x0]
    for k in range(rounds - 1):
        plain.append(W @ plain[-1])
        stepped.append(W @ stepped[-1] - h[k])
    seen = np.concatenate([x[observed] for x in plain])
    np.testing.assert_allclose(knowledge(W, observed, rounds) @ x0, seen, atol=1e-14)
    secrets = np.concatenate([x0, *h])
    seen = np.concatenate([x[observed] for x in stepped])
    K = knowledge(W, observed, rounds, steps=True)
    np.testing.assert_allclose(K @ secrets, seen, atol=1e-14)


def test_averaging_tells_one_agent_the_starts_of_agents_it_never_hears():
    """In 20 random graphs, exactly those that the eigenvectors of W allow."""
    reached = missed = 0
    for seed in range(CASES):
        W = network(seed).matrix()
        observed = heard_by(W, {0})
        x0 = np.random.default_rng(seed).normal(size=(10, 2))
        seen, x = [], x0
        for _ in range(10):
            seen.append(x[observed])
            x = W @ x
        found, doubt = reconstruct(knowledge(W, observed, 10), np.concatenate(seen))
        for i in set(range(10)) - set(observed):
            if doubt[i] < 0.05:
                assert determined(W, observed)[i]
                assert np.abs(found[i] - x0[i]).max() < 1e-5
                reached += 1
            elif not determined(W, observed)[i]:
                missed += 1
    assert reached > 50
    assert missed > 10


def test_leaves_of_a_star_stay_apart_from_each_other_only():
    """A leaf sees the hub: of the m − 2 other leaves it learns the sum and no more."""
    m = 6
    W = hg.Network(hg.graphs.star(m)).matrix()
    x0 = np.arange(m, dtype=float)[:, None]
    seen, x = [], x0
    for _ in range(m):
        seen.append(x[[0, 1]])
        x = W @ x
    found, doubt = reconstruct(knowledge(W, [0, 1], m), np.concatenate(seen))
    np.testing.assert_allclose(doubt[:2], 0, atol=1e-6)
    np.testing.assert_allclose(doubt[2:], np.sqrt(1 - 1 / (m - 2)), rtol=1e-6)
    np.testing.assert_allclose(found[2:].sum(), x0[2:].sum(), rtol=1e-9)


def test_arbitrary_steps_hide_everyone_beyond_the_neighbours():
    """With unknowns x^0, h^0, h^1, … only h_j^k is determined whose sources are all heard."""
    for seed in range(5):
        W, m, rounds = network(seed).matrix(), 10, 6
        observed = heard_by(W, {0, 1})
        _, doubt = reconstruct(
            knowledge(W, observed, rounds, steps=True), np.zeros((rounds * len(observed), 1))
        )
        inside = [j for j in observed if set(np.flatnonzero(W[j])) <= set(observed)]
        known = {(0, j) for j in observed} | {(k, j) for k in range(1, rounds) for j in inside}
        assert {(n // m, n % m) for n in np.flatnonzero(doubt < 1e-3)} == known
        assert len(inside) < len(observed)


def average(net, x0, iterations=12):
    """Plain averaging: DGD in which nobody has an objective."""
    nothing = hg.Problem(
        lambda theta, _: 0.0 * theta.sum(), np.zeros((net.n_agents, 1)), dim=x0.shape[1],
        gradient=lambda theta, _: 0.0 * theta, solution=np.zeros(x0.shape[1]), smoothness=1.0,
    )  # fmt: skip
    return hg.run(
        hg.DGD(), nothing, net, iterations=iterations, x0=x0, transcript=True, engine="agents"
    )


def test_the_attack_reads_starts_from_the_messages_of_an_averaging_run():
    x0 = np.random.default_rng(7).normal(size=(10, 2))
    attack, claimed = GossipReconstruction(averaging=True), 0
    for seed in range(5):
        run = average(network(seed), x0)
        view = Knowledge.of(run, Curious({0, 4}))
        for target in set(range(10)) - {0, 4}:
            assert attack.applies(view, target) is None
            for estimate in attack(view, target):
                assert (estimate.quantity, estimate.k.tolist()) == ("position", [0])
                np.testing.assert_allclose(estimate.value[0], x0[target], atol=1e-5)
                claimed += not any(view.hears(target, j) for j in view.out_links(target))
    assert claimed > 10  # of agents that no member hears


def descend(seed, lam, x0=None):
    net, Q = network(seed), cases.Quadratics(10, s=3, d=2, seed=seed, by_hand=True)
    start = np.tile([1.0, -2.0], (10, 1)) if x0 is None else x0
    run = hg.run(
        hg.DGD(stepsize=hg.stepsizes.diminishing(lam, power=0.01)), Q.problem, net, iterations=25,
        x0=start, transcript=True, engine="agents",
    )  # fmt: skip
    return run, Q.g(start)


@pytest.mark.parametrize("seeds", [pytest.param(FEW, id="few"), MANY])
@pytest.mark.parametrize(("lam", "least"), [(1e-4, 2.5), (1e-2, 1.0)])
def test_small_steps_of_dgd_tell_the_first_gradients_of_agents_never_heard(lam, least, seeds):
    """Over random graphs and problems; claimed is only what is right to 10 % of a gradient."""
    attack, errors = GossipReconstruction(), []
    for seed in seeds:
        run, g0 = descend(seed, lam)
        size = np.sqrt((g0**2).sum(1).mean())
        view = Knowledge.of(run, Curious({0, 1}))
        far = [i for i in range(10) if not any(view.hears(i, j) for j in view.out_links(i))]
        for target in far:
            assert attack.applies(view, target) is None
            for estimate in attack(view, target):
                assert (estimate.quantity, estimate.k.tolist()) == ("gradient", [0])
                errors.append(np.linalg.norm(estimate.value[0] - g0[target]) / size)
    assert len(errors) >= least * len(seeds) * (1.0 if len(seeds) == CASES else 0.6)
    assert np.median(errors) < 0.05
    assert max(errors) < 0.1


@pytest.mark.parametrize("seeds", [pytest.param(FEW, id="few"), MANY])
def test_large_steps_hide_the_gradients_of_agents_never_heard(seeds):
    for seed in seeds:
        run, _ = descend(seed, 0.5)
        view = Knowledge.of(run, Curious({0}))
        far = [i for i in range(10) if not any(view.hears(i, j) for j in view.out_links(i))]
        assert far
        for target in far:
            assert GossipReconstruction()(view, target) == ()


def test_reconstruction_says_what_it_lacks():
    attack = GossipReconstruction()
    run, _ = descend(0, 1e-3)
    assert "curious agent" in attack.applies(Knowledge.of(run, Eavesdropper()), 5)
    assert "belongs to the adversary" in attack.applies(Knowledge.of(run, Curious({5})), 5)
    apart, _ = descend(0, 1e-3, x0=np.random.default_rng(0).normal(size=(10, 2)))
    assert "start at different points" in attack.applies(Knowledge.of(apart, Curious({0})), 5)
    Q = cases.Quadratics(by_hand=True)
    extra = hg.run(
        hg.EXTRA(), Q.problem, cases.undirected(), iterations=3, transcript=True, engine="agents"
    )
    assert "EXTRA" in attack.applies(Knowledge.of(extra, Curious({0})), 6)
