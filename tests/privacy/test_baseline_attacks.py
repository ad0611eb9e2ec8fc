"""Every baseline gives its gradients away: to rounding, on random graphs, problems and seeds."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious, Eavesdropper, Knowledge
from hushgrad.privacy.attacks.dgd_inversion import DGDInversion
from hushgrad.privacy.attacks.extra_inversion import EXTRAInversion
from hushgrad.privacy.attacks.first_tracker import FirstTracker
from hushgrad.privacy.attacks.in_clear import EstimatesInClear
from hushgrad.privacy.attacks.telescoped_trackers import TelescopedTrackers
from support import cases
from support.tables import some

# random graphs, problems and seeds for each method and kind of network
SEEDS = pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(3), id="few"),
        pytest.param(range(3, 30), id="many", marks=pytest.mark.slow),
    ],
)
STEP = hg.stepsizes.constant(0.1)
BASELINES = {
    hg.DGD(stepsize=hg.stepsizes.diminishing(0.3)): DGDInversion(),
    hg.EXTRA(stepsize=STEP): EXTRAInversion(),
    hg.DIGing(stepsize=STEP): TelescopedTrackers(),
    hg.AugDGM(stepsize=STEP): TelescopedTrackers(),
    hg.AsynDGM(stepsize=STEP): TelescopedTrackers(),
    hg.AB(stepsize=STEP): TelescopedTrackers(),
    hg.PushPull(stepsize=STEP): TelescopedTrackers(),
    hg.ADDOPT(stepsize=STEP): TelescopedTrackers(),
}
BY_NAME = {a.title: (a, attack) for a, attack in BASELINES.items()}
TRACKERS = [name for name in BY_NAME if name not in ("DGD", "EXTRA")]
ONE_WAY = ["AB", "Push-Pull", "ADD-OPT"]  # on graphs whose weights are not doubly stochastic


def undirected(rng):
    """A random tree and some more links."""
    m = int(rng.integers(4, 9))
    tree = {(int(rng.integers(i)), i) for i in range(1, m)}
    more = {tuple(sorted(rng.choice(m, 2, replace=False).tolist())) for _ in range(m // 2)}
    return hg.Network(hg.graphs.from_edges(sorted(tree | more), n_agents=m))


def directed(rng):
    """A directed cycle through all agents in random order, and some more arcs."""
    m = int(rng.integers(4, 9))
    order = rng.permutation(m).tolist()
    cycle = {(order[i], order[(i + 1) % m]) for i in range(m)}
    more = {tuple(rng.choice(m, 2, replace=False).tolist()) for _ in range(m // 2)}
    return hg.Network(hg.graphs.from_edges(sorted(cycle | more), is_directed=True, n_agents=m))


def circulant(rng):
    """A directed graph with a doubly stochastic W that is not symmetric."""
    m = int(rng.integers(4, 9))
    w = rng.dirichlet(np.ones(3))
    P = np.roll(np.eye(m), 1, axis=0)
    arcs = [(j, (j + s) % m) for j in range(m) for s in (1, 2)]
    graph = hg.graphs.from_edges(arcs, is_directed=True, n_agents=m)
    return hg.Network(graph, mixing=w[0] * np.eye(m) + w[1] * P + w[2] * P @ P)


def draw(seed, build):
    rng = np.random.default_rng(seed)
    network = build(rng)
    m, d = network.n_agents, int(rng.integers(1, 5))
    return network, cases.Quadratics(m, s=2, d=d, seed=seed, by_hand=True), int(rng.integers(m))


def record(algorithm, network, Q, iterations=30, seed=0, x0=None):
    return hg.run(
        algorithm, Q.problem, network, iterations=iterations, seed=seed, transcript=True,
        engine="agents", x0=Q.x0 if x0 is None else x0,
    )  # fmt: skip


def true_gradients(run, Q):
    """(n, m, d), from the formula of the test's own problem."""
    return np.array([Q.g(x) for x in run.trace[0, :-1]])


def off(estimate, true):
    """The largest error over the largest gradient."""
    assert estimate.shape == true.shape
    return np.abs(estimate - true).max() / np.abs(true).max()


def gradients(attack, view, target):
    assert attack.applies(view, target) is None
    return next(e for e in attack(view, target) if e.quantity == "gradient")


KINDS = [
    *((name, undirected) for name in BY_NAME),
    *((name, circulant) for name in ("DGD", "DIGing", "Aug-DGM", *ONE_WAY)),
    *((name, directed) for name in ONE_WAY),
]


@SEEDS
@pytest.mark.parametrize(("name", "build"), some(KINDS, 2), ids=lambda v: getattr(v, "__name__", v))
def test_an_eavesdropper_recovers_every_gradient(name, build, seeds):
    algorithm, attack = BY_NAME[name]
    for seed in seeds:
        network, Q, target = draw(seed, build)
        run = record(algorithm, network, Q, seed=seed)
        true = true_gradients(run, Q)[:, target]
        found = gradients(attack, Knowledge.of(run, Eavesdropper()), target)
        assert off(found.value, true[found.k]) < 1e-10
        if name != "AsynDGM":  # whose agents may sleep at first
            assert len(found.k) >= 29


@SEEDS
@pytest.mark.parametrize("name", [n for n in TRACKERS if n != "AsynDGM"])
def test_one_link_gives_the_first_gradient(name, seeds):
    algorithm, _ = BY_NAME[name]
    for seed in seeds:
        network, Q, target = draw(seed, directed if name in ONE_WAY else undirected)
        run = record(algorithm, network, Q, iterations=3, seed=seed)
        receiver = Knowledge.of(run, Eavesdropper()).out_links(target)[0]
        view = Knowledge.of(run, Eavesdropper([(target, receiver)]))
        found = gradients(FirstTracker(), view, target)
        assert found.k.tolist() == [1 if name in ("AB", "Aug-DGM") else 0]
        assert off(found.value, true_gradients(run, Q)[found.k, target]) < 1e-12


@pytest.mark.parametrize("name", BY_NAME)
def test_a_sole_neighbour_recovers_every_gradient(name):
    """Agent 6 of the test graph has only the neighbour 1."""
    algorithm, attack = BY_NAME[name]
    for seed in range(3):
        Q = cases.Quadratics(seed=seed, by_hand=True)
        run = record(algorithm, cases.undirected(), Q, seed=seed)
        found = gradients(attack, Knowledge.of(run, Curious({1})), 6)
        assert off(found.value, true_gradients(run, Q)[found.k, 6]) < 1e-10


@pytest.mark.parametrize("name", some(TRACKERS))
def test_telescoped_trackers_end_at_the_gradient_at_the_optimum(name):
    """By messages alone: no weight and no stepsize enters the sum."""
    algorithm, attack = BY_NAME[name]
    network = cases.directed() if name in ONE_WAY else cases.undirected()
    Q = cases.Quadratics(seed=1, by_hand=True, sigma=1.0)
    run = record(algorithm, network, Q, iterations=1200 if name == "AsynDGM" else 400)
    at_optimum = Q.g(np.tile(Q.solution, (cases.M, 1)))
    view = Knowledge.of(run, Eavesdropper())
    for target in range(cases.M):
        found = {e.quantity: e.value for e in attack(view, target)}
        error = np.linalg.norm(found["gradient at optimum"] - at_optimum[target])
        assert error < 1e-4 * np.linalg.norm(at_optimum[target])
    if name in ("AB", "Push-Pull", "ADD-OPT"):
        place = {"AB": {"round": 1}, "Push-Pull": {"exchange": 1}, "ADD-OPT": {"exchange": 2}}[name]
        sent = sum(view.sent(0, j, **place).sum(0) for j in view.out_links(0))
        told = sum(view.sent(j, 0, **place).sum(0) for j in view.in_links(0))
        np.testing.assert_allclose(sent - told, at_optimum[0], atol=1e-6)


def test_extra_ends_at_the_gradient_at_the_optimum():
    Q = cases.Quadratics(seed=2, by_hand=True, sigma=0.5)
    run = record(hg.EXTRA(stepsize=STEP), cases.undirected(), Q, iterations=700)
    found = {e.quantity: e for e in EXTRAInversion()(Knowledge.of(run, Eavesdropper()), 0)}
    at_optimum = Q.g(np.tile(Q.solution, (cases.M, 1)))[0]
    np.testing.assert_allclose(found["gradient at optimum"].value, at_optimum, atol=1e-6)


@SEEDS
@pytest.mark.parametrize("name", ["DGD", "EXTRA", "DIGing", "AB", "Push-Pull", "ADD-OPT"])
def test_one_link_gives_every_estimate(name, seeds):
    algorithm, _ = BY_NAME[name]
    for seed in seeds:
        network, Q, target = draw(seed, directed if name in ONE_WAY else undirected)
        run = record(algorithm, network, Q, iterations=10, seed=seed)
        receiver = Knowledge.of(run, Eavesdropper()).out_links(target)[-1]
        view = Knowledge.of(run, Eavesdropper([(target, receiver)]))
        assert EstimatesInClear().applies(view, target) is None
        (found,) = EstimatesInClear()(view, target)
        assert found.quantity == "position"
        assert found.k.tolist() == list(range(10))
        np.testing.assert_allclose(found.value, run.trace[0, :-1, target], atol=1e-12)


def test_a_secret_deviation_of_the_stepsize_hides_next_to_nothing():
    """λ = (1 − ϱ/k²) λ̄ is within 1 % of its mean after eight iterations."""
    step = hg.stepsizes.constant(0.05, deviation=hg.stepsizes.harmonic())
    Q = cases.Quadratics(seed=3, by_hand=True)
    run = record(hg.EXTRA(stepsize=step), cases.undirected(), Q, iterations=60)
    found = gradients(EXTRAInversion(), Knowledge.of(run, Eavesdropper()), 2)
    late = found.k > 8
    assert 1e-6 < off(found.value[late], true_gradients(run, Q)[found.k, 2][late]) < 0.01


def test_pdg_ds_without_a_split_is_inverted_like_dgd():
    """The wire carries w x; ϱ/k² hides less than 1 % after eight iterations."""
    Q = cases.Quadratics(seed=4, by_hand=True)
    algorithm = hg.PDGDS(stepsize=hg.stepsizes.diminishing(0.3), split=hg.splits.identity())
    run = record(algorithm, cases.undirected(), Q)
    found = gradients(DGDInversion(), Knowledge.of(run, Eavesdropper()), 3)
    late = found.k > 8
    assert off(found.value[late], true_gradients(run, Q)[found.k, 3][late]) < 0.01


def test_in_a_complete_graph_one_curious_agent_inverts_dgd_on_all():
    """It hears of everyone what everyone else hears: the vector is the same on all links."""
    network, Q = hg.Network(hg.graphs.complete(5)), cases.Quadratics(5, by_hand=True)
    run = record(hg.DGD(), network, Q)
    view = Knowledge.of(run, Curious({0}))
    for target in range(1, 5):
        found = gradients(DGDInversion(), view, target)
        assert off(found.value, true_gradients(run, Q)[found.k, target]) < 1e-10


@pytest.mark.parametrize("name", BY_NAME)
def test_all_links_of_an_agent_are_enough_and_all_but_one_are_not(name):
    algorithm, attack = BY_NAME[name]
    network = cases.directed() if name in ONE_WAY else cases.undirected()
    target = 3 if name in ONE_WAY else 0
    Q = cases.Quadratics(by_hand=True)
    run = record(algorithm, network, Q)
    whole = Knowledge.of(run, Eavesdropper())
    links = {link for link in whole.links if target in link}
    found = gradients(attack, Knowledge.of(run, Eavesdropper(links)), target)
    assert off(found.value, true_gradients(run, Q)[found.k, target]) < 1e-10
    for sender in whole.in_links(target):
        view = Knowledge.of(run, Eavesdropper(links - {(sender, target)}))
        reason = attack.applies(view, target)
        if name == "AsynDGM":
            assert reason == f"hears {len(links) - 1} of the {len(links)} links of agent {target}"
        else:
            assert reason == f"hears nothing of agent {sender}, whom agent {target} listens to"


@pytest.mark.parametrize("name", some(TRACKERS, 2))
def test_without_one_link_the_telescoped_sum_is_off(name):
    """What the refusal protects from: the sum over the other links is no estimate."""
    algorithm, attack = BY_NAME[name]
    network = cases.directed() if name in ONE_WAY else cases.undirected()
    Q = cases.Quadratics(seed=1, by_hand=True)
    run = record(algorithm, network, Q, iterations=200)
    view = Knowledge.of(run, Eavesdropper())
    target = 3 if name in ONE_WAY else 0
    whole = next(e.value for e in attack(view, target) if e.quantity == "gradient at optimum")
    place = {
        "AB": {"round": 1}, "Aug-DGM": {"round": 1}, "AsynDGM": {"round": 1},
        "ADD-OPT": {"exchange": 2},
    }.get(name, {"exchange": 1})  # fmt: skip
    for sender in view.in_links(target):
        weight = network.matrix()[target, sender] if name in ("DIGing", "Aug-DGM") else 1.0
        missing = weight * np.nansum(view.sent(sender, target, **place), axis=0)
        assert np.linalg.norm(missing) > 0.1 * np.linalg.norm(whole)


@pytest.mark.parametrize("attack", {type(a): a for a in BASELINES.values()}.values())
def test_attacks_say_why_they_do_not_apply(attack):
    Q = cases.Quadratics(by_hand=True)
    pdg = Knowledge.of(record(hg.PDGDS(), cases.undirected(), Q), Eavesdropper())
    assert "PDG-DS" in attack.applies(pdg, 0)
    algorithm = next(a for a, other in BASELINES.items() if type(other) is type(attack))
    run = record(algorithm, cases.undirected(), Q)
    assert "belongs to the adversary" in attack.applies(Knowledge.of(run, Curious({0})), 0)
    deaf = Knowledge.of(run, Eavesdropper([(2, 3)]))
    assert "hears none of the 4 links out of agent 0" in attack.applies(deaf, 0)


def test_every_baseline_of_the_library_is_attacked():
    private = {hg.PDGDS, hg.PDGNDS, hg.Consensus}  # test_consensus.py attacks the last
    assert {type(a) for a in BASELINES} == set(hg.algorithms.ALL) - private
