"""Attacks fail where theory says they must, and the audit then says that nothing was recovered.

Quick tests see short runs on two random networks and problems, the studies, marked slow, thirty
more.
"""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import Curious, Eavesdropper, Knowledge, Truth
from hushgrad.privacy.attacks.objective_fit import ObjectiveFit
from hushgrad.privacy.attacks.pdg import net_inflow
from hushgrad.privacy.attacks.span import Span
from hushgrad.privacy.attacks.spread import Spread
from hushgrad.privacy.attacks.whitening import Whitening
from support.tables import some

S = hg.stepsizes
PAPER = {
    "PDG-DS": hg.PDGDS(stepsize=S.diminishing(0.3)),
    "PDG-NDS": hg.PDGNDS(stepsize=S.constant(0.03)),
}
ONCE = S.geometric(0.5, drawn="once")
FEW = range(2)
SEEDS = pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(FEW, id="few"),
        pytest.param(range(2, 32), id="many", marks=pytest.mark.slow),
    ],
)


def random_network(seed):
    """A random tree of 4 to 8 agents and some more links: degrees from 1 on."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(4, 9))
    tree = {(int(rng.integers(i)), i) for i in range(1, m)}
    more = {tuple(sorted(rng.choice(m, 2, replace=False).tolist())) for _ in range(m // 2)}
    return hg.Network(hg.graphs.from_edges(sorted(tree | more), n_agents=m))


def recorded(algorithm, seed, d, n=300, problem=None):
    network = random_network(seed)
    m = network.n_agents
    problem = problem or hg.problems.estimation(n_agents=m, s=d + 1, d=d, seed=seed)
    return hg.run(
        algorithm, problem, network, iterations=n, seed=seed, transcript=True, engine="agents"
    )


def findings(run, adversary, agents, **options):
    return hg.audit(run, adversary, agents=agents, coalitions=False, **options).findings


@SEEDS
@pytest.mark.parametrize("name", PAPER)
def test_without_any_one_link_of_an_agent_nothing_is_recovered_in_one_dimension(name, seeds):
    """Every agent, every one of its links; with d = 1 flow is all that there is."""
    for seed in seeds:
        run = recorded(PAPER[name], seed, d=1, n=100 if seeds is FEW else 300)
        for i in range(run.network.n_agents):
            own = {link for link in run.transcript.links if i in link}
            for missing in own:
                (found,) = findings(run, Eavesdropper(run.transcript.links - {missing}), [i])
                assert found.verdict == "no attack applies"
                heard = f"hears {len(own) - 1} of the {len(own)} links of agent {i}"
                assert found.refused["flow"] == heard


@SEEDS
@pytest.mark.parametrize("name", some(PAPER))
def test_without_any_one_link_of_an_agent_at_most_a_direction_is_recovered(name, seeds):
    for seed in seeds:
        run = recorded(PAPER[name], seed, d=3, n=60 if seeds is FEW else 150)
        for i in range(run.network.n_agents):
            for missing in [link for link in run.transcript.links if i in link]:
                (found,) = findings(run, Eavesdropper(run.transcript.links - {missing}), [i])
                assert found.exposure in ("not recovered", "direction exposed")
                assert set(found.tried) <= {"first-message", "span"}


@SEEDS
def test_the_flow_on_all_links_but_one_is_no_gradient(seeds):
    """What the refusal protects from: the sum over the other links is no estimate."""
    ratios = []
    for seed in seeds:
        run = recorded(PAPER["PDG-NDS"], seed, d=2, n=600 if seeds is FEW else 1000)
        view, truth, lam = Knowledge.of(run, Eavesdropper()), Truth(run), 0.03
        for i in range(run.network.n_agents):
            whole, true = net_inflow(view, i).sum(axis=0), truth.at_optimum[i]
            assert np.linalg.norm(whole / lam - true) < 0.01 * np.linalg.norm(true)
            for j in view.in_links(i):
                without = (whole - view.sent(j, i).sum(axis=0)) / lam
                ratios.append(np.linalg.norm(without - true) / np.linalg.norm(true))
    assert min(ratios) > 1  # worse than the guess 0


@SEEDS
@pytest.mark.parametrize("name", PAPER)
def test_span_and_objective_fit_get_nothing_in_one_dimension_or_from_one_message(name, seeds):
    leaves = 0
    for seed in seeds:
        for d, said in ((1, "needs d ≥ 2"), (3, "hears 1 of the messages")):
            run = recorded(PAPER[name], seed, d=d, n=30)
            degree = run.network.graph.in_degree
            agents = np.flatnonzero(degree >= 1 if d == 1 else degree == 1).tolist()
            leaves += len(agents) * (d == 3)
            attacks = [Span(), ObjectiveFit()]
            for found in findings(run, "eavesdropper", agents, attacks=attacks) if agents else ():
                assert found.verdict == "no attack applies"
                assert all(reason.startswith(said) for reason in found.refused.values())
    assert leaves >= len(seeds)


@SEEDS
@pytest.mark.parametrize("name", PAPER)
def test_losses_of_rank_one_leak_their_feature_and_neither_position_nor_objective(name, seeds):
    for seed in seeds:
        rng, m = np.random.default_rng(seed), random_network(seed).n_agents
        features = rng.normal(size=(m, 1, 3)) / 2
        problem = hg.problems.estimation_from(features, rng.normal(size=(m, 1)), sigma=0)
        run = recorded(PAPER[name], seed, d=3, n=150, problem=problem)
        view = Knowledge.of(run, Eavesdropper())
        for i in np.flatnonzero(run.network.graph.in_degree >= 2).tolist():
            (found,) = Span()(view, i)
            assert found.quantity == "direction"
            value, feature = np.atleast_2d(found.value), features[i, 0]
            cosines = np.abs(value @ feature) / np.linalg.norm(feature)
            assert np.median(1 - cosines) < 1e-9
            assert ObjectiveFit()(view, i) == ()


@SEEDS
@pytest.mark.parametrize(
    "split", [hg.splits.private_constant(), hg.splits.isotropic()], ids=["constant", "isotropic"]
)
def test_one_neighbour_has_nothing_to_try_where_nothing_fluctuates(split, seeds):
    """Constant or isotropic splits and a deviation drawn once answer Spread and Whitening."""
    algorithm = hg.PDGNDS(stepsize=S.constant(0.03, ONCE), split=split)
    for seed in seeds:
        run = recorded(algorithm, seed, d=2, n=60 if seeds is FEW else 500)
        agents = np.flatnonzero(run.network.graph.in_degree >= 2).tolist()
        for found in findings(run, "neighbour", agents, attacks=[Spread(), Whitening()]):
            assert found.verdict == "no attack applies"
            assert found.refused["spread"] == "the splits do not fluctuate along the gradients"


@SEEDS
def test_isotropic_splits_leave_span_directions_at_chance(seeds):
    """Pooled over networks and agents, cos² to the gradient has the mean of a random line's."""
    algorithm, d = hg.PDGDS(stepsize=S.diminishing(0.2), split=hg.splits.isotropic()), 3
    squares = []
    for seed in seeds:
        run = recorded(algorithm, seed, d=d, n=100 if seeds is FEW else 200)
        truth, graph = Truth(run), run.network.graph
        for i in np.flatnonzero(graph.in_degree >= 3).tolist():
            two = graph.senders[graph.receivers == i][:2].tolist()
            (found,) = Span()(Knowledge.of(run, Curious(two)), i)
            g = truth.gradients(i)[found.k]
            cosines = (found.value * g).sum(axis=1) / np.linalg.norm(g, axis=1)
            squares.append(cosines**2)
    squares = np.concatenate(squares)
    spread = np.sqrt(2 * (d - 1) / d**2 / (d + 2) / len(squares))
    assert len(squares) >= 100 * len(seeds)
    assert abs(squares.mean() - 1 / d) < 4 * spread
