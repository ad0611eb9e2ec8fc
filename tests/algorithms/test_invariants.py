"""The invariants of every iteration, over random graphs, dimensions and seeds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hushgrad as hg
from hushgrad.agent.single import SingleAgent
from hushgrad.agent.stepping import as_it_is
from hushgrad.exchange import Links, Push, Square
from hushgrad.simulate.in_memory import InMemoryNetwork, local_agents
from support import cases, dense
from support.tables import some

GRAPHS = st.one_of(
    st.builds(hg.graphs.erdos_renyi, st.integers(4, 12), st.just(0.5), seed=st.integers(0, 99)),
    st.builds(
        hg.graphs.small_world, st.integers(6, 12), st.just(4), st.just(0.3), seed=st.integers(0, 99)
    ),
    st.builds(hg.graphs.star, st.integers(2, 9)),
    st.builds(hg.graphs.path, st.integers(2, 9)),
    st.builds(hg.graphs.complete, st.integers(1, 6)),
)
DIRECTED = st.builds(
    hg.graphs.random_directed, st.integers(4, 9), st.just(2), seed=st.integers(0, 99)
)
SEEDS = st.integers(0, 2**64 - 1)
SPLITS = st.sampled_from(
    [
        hg.splits.fresh(),
        hg.splits.private_constant(),
        hg.splits.isotropic(2.0),
        hg.splits.identity(),
    ]
)


def column(agent, matrix, vector):
    """The shares of `vector` that one agent sends and keeps, by receiver."""

    def step():
        yield Push(matrix @ vector)

    opened = next(as_it_is(agent, step()))
    shares = {i: payload[0] for i, payload in opened.outbox.payloads.items()}
    return {agent.local.number: opened.own[0]} | shares


@given(
    GRAPHS,
    st.sampled_from(["lazy", "square"]),
    SEEDS,
    st.integers(0, 10**6),
    SPLITS,
    st.integers(1, 5),
)
def test_columns_of_b_sum_to_one_and_follow_the_links(graph, form, seed, k, split, d):
    network = hg.Network(graph)
    problem = hg.problems.rendezvous(n_agents=graph.n_agents, d=d, seed=0)
    algorithm = hg.PDGNDS(form=form, split=split)
    W = network.matrix()
    support = (W if form == "lazy" else W @ W) > 0
    B = dense.Coins(seed, 0, graph.n_agents).B(k, support)
    h = np.random.default_rng(k).normal(size=(1, d, 1))
    for local in local_agents(algorithm, problem, network, seed=seed, trial=0):
        j = local.number
        agent = SingleAgent(local, k)
        shares = column(agent, split(agent, algorithm.links), h)
        np.testing.assert_allclose(sum(shares.values()), h[0, :, 0], rtol=1e-12, atol=1e-13)
        assert set(shares) <= set(np.flatnonzero(support[:, j]))
        if split == hg.splits.fresh():  # against columns addressed and normalised independently
            assert set(shares) == set(np.flatnonzero(support[:, j]))
            for i, share in shares.items():
                np.testing.assert_allclose(share, B[i, j] * h[0, :, 0], rtol=1e-12, atol=1e-15)
        if split == hg.splits.identity():
            assert set(shares) == {j}


@settings(max_examples=40)
@given(GRAPHS, SEEDS, SPLITS, st.integers(1, 3))
def test_pdg_ds_moves_the_sum_by_minus_the_weighted_gradients(graph, seed, split, d):
    q = cases.Quadratics(m=graph.n_agents, d=d, seed=seed % 1000, by_hand=True)
    K = 12
    x = cases.trajectory(
        hg.PDGDS(split=split), q.problem, hg.Network(graph), q.x0, K, seed=seed, engine="agents"
    )[0]
    coins = dense.Coins(seed, 0, graph.n_agents)
    for k in range(K):
        lam = (1 - coins.rho(k) / (k + 1) ** 2) / (k + 1)
        moved = x[k + 1].sum(0) - x[k].sum(0)
        expected = -(lam * q.g(x[k])).sum(0)
        size = np.abs(x[k]).sum() + np.abs(x[k + 1]).sum() + np.abs(lam * q.g(x[k])).sum()
        assert np.abs(moved - expected).max() <= 1e-13 * size


@settings(max_examples=40)
@given(GRAPHS, SEEDS, SPLITS, st.sampled_from(["lazy", "square"]))
def test_pdg_nds_keeps_its_hidden_tracker_at_the_mean_of_weighted_gradients(
    graph, seed, split, form
):
    """ȳ^k = mean(λ_i g_i) with y^k = W x^k − x^{k+1}; for the lazy form M replaces W."""
    q = cases.Quadratics(m=graph.n_agents, d=2, seed=seed % 1000, by_hand=True)
    K = 12
    x = cases.trajectory(
        hg.PDGNDS(form=form, split=split, stepsize=hg.stepsizes.constant(0.05)), q.problem,
        hg.Network(graph), q.x0, K, seed=seed, engine="agents",
    )[0]  # fmt: skip
    coins = dense.Coins(seed, 0, graph.n_agents)
    for k in range(K):
        lam = 0.05 * (1 - coins.rho(k) / (k + 1) ** 2)
        y_mean = x[k].mean(0) - x[k + 1].mean(0)  # columns of W and M sum to one
        assert (
            np.abs(y_mean - (lam * q.g(x[k])).mean(0)).max()
            < 1e-13 * (k + 2) * np.abs(x).max() * 10
        )


@settings(max_examples=20)
@given(st.one_of(GRAPHS.filter(lambda g: g.n_agents > 1), DIRECTED), SEEDS)
def test_trackers_keep_their_sums(graph, seed):
    q = cases.Quadratics(m=graph.n_agents, d=2, seed=seed % 1000, by_hand=True)
    network = hg.Network(graph)
    kinds = [hg.AB, hg.PushPull, hg.ADDOPT]
    kinds += [] if graph.is_directed else [hg.DIGing, hg.AugDGM, hg.AsynDGM]
    for kind in kinds:
        joined = InMemoryNetwork(kind(), q.problem, network, q.x0, seed=seed, trial=0)
        for _ in range(5):
            for _ in joined.iterate():
                pass
            states = [agent.state for agent in joined.agents]
            tracked = sum(getattr(s, "w", None) if hasattr(s, "w") else s.y for s in states)
            gradients = sum(s.g for s in states)
            np.testing.assert_allclose(tracked, gradients, rtol=1e-12, atol=1e-12)
            if hasattr(states[0], "w"):  # ADD-OPT: push-sum weights keep their sum too
                assert sum(s.y[0, 0, 0] for s in states) == pytest.approx(len(states), rel=1e-13)


def test_square_sends_over_two_hops_with_the_column_of_w_squared():
    network = cases.undirected()
    W = network.matrix()
    algorithm = hg.PDGNDS(form="square")
    for local in local_agents(algorithm, cases.Quadratics().problem, network, seed=0, trial=0):
        agent = SingleAgent(local, 3)
        shares = column(agent, Square(agent.W), np.ones((1, 1, 1)))
        expected = (W @ W)[:, local.number]
        assert set(local.receivers[Links.TWO_HOP]) | {local.number} == set(np.flatnonzero(expected))
        for i, share in shares.items():
            assert share[0] == pytest.approx(expected[i], rel=1e-14)


@pytest.mark.parametrize(
    "split", [hg.splits.fresh(), hg.splits.isotropic(2.0)], ids=["fresh", "isotropic"]
)
def test_the_stacked_engine_keeps_sums_over_long_runs(split):
    """200 iterations of an irregular graph in the compiled loop: Σ_i x_i moves by −Σ λ_i g_i."""
    q = cases.Quadratics()
    x = cases.trajectory(hg.PDGDS(split=split), q.problem, cases.undirected(), q.x0, 200, seed=9)[0]
    coins = dense.Coins(9, 0, cases.M)
    for k in range(200):
        h = (1 - coins.rho(k) / (k + 1) ** 2) / (k + 1) * q.g(x[k])
        size = np.abs(x[k]).sum() + np.abs(x[k + 1]).sum() + np.abs(h).sum()
        assert np.abs(x[k + 1].sum(0) - x[k].sum(0) + h.sum(0)).max() <= 1e-13 * size


@pytest.mark.parametrize("split", some([hg.splits.private_constant(), hg.splits.isotropic(2.0)]))
def test_stacked_and_alone_agree_for_every_split(split):
    q = cases.Quadratics()
    both = [
        cases.trajectory(
            hg.PDGNDS(split=split, form="square"),
            q.problem,
            cases.undirected(),
            q.x0,
            50,
            engine=engine,
        )
        for engine in ("stacked", "agents")
    ]
    np.testing.assert_allclose(*both, rtol=0, atol=1e-12)
