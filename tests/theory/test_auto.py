"""stepsize="auto": stable, and nearly as fast as the best stepsize that a search finds."""

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.stepsizes import AUTO
from hushgrad.theory import auto, linear, mean_square, rates
from support.long_runs import iterations_to_the_end
from support.quadratics import DIRECTED, METHODS, hessians, random_graph
from support.tables import some

RATIOS = np.append(1.0, 1.25 ** np.arange(-10.0, 11))  # of the search, around the chosen stepsize


def as_problem(H):
    """The quadratics of support.quadratics as a problem, θ* = 0."""
    d = H.shape[1]
    return hg.Problem(
        lambda theta, H: theta @ H @ theta / 2, H, dim=d,
        gradient=lambda theta, H: H @ theta, hessian=lambda theta, H: H, quadratic=True,
        solution=np.zeros(d), smoothness=float(np.linalg.eigvalsh(H).max()),
    )  # fmt: skip


def check_choice(name, case, most_agents, condition, draws=1):
    """Check that the choice takes at most 1.3 times the iterations of the best stepsize.

    draws    of fresh splits and starts, whose median counts; short runs need some
    """
    rng = np.random.default_rng([case, 2])
    m, directed = int(rng.integers(4, most_agents + 1)), name in DIRECTED and case % 2 == 1
    graph = random_graph(rng, m, directed=directed)
    H = hessians(rng, graph.n_agents, int(rng.integers(1, 4)), 10 ** rng.uniform(0.3, condition))
    network = hg.Network(graph)
    choice = auto.choose(METHODS[name](AUTO), as_problem(H), network)
    lams = choice.schedule.limit * RATIOS
    found = [iterations_to_the_end(name, network, H, lams, case + n) for n in range(draws)]
    mine, *others = np.median(found, axis=0)
    assert mine <= 1.3 * min(others) + 3, (name, case, mine, min(others))
    return mine, min(others)


@pytest.mark.parametrize("name", METHODS)
def test_auto_is_near_the_best_stepsize(name):
    for case in (0, 1):
        check_choice(name, case, 10, 1.5, draws=5)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(200))
def test_auto_on_200_random_problems(case):
    """Condition up to 10⁴, up to 100 agents, all families of graphs; the methods take turns."""
    names = list(METHODS)
    check_choice(names[case % len(names)], case, 100, 4)


@pytest.mark.parametrize("form", ["lazy", "square"])
def test_with_fresh_splits_no_smaller_stepsize_has_a_faster_mean_square(form):
    """The λ that is fastest for the mean alone is slower on some networks, in the square form."""
    gains = []
    for case in range(6):
        rng = np.random.default_rng([case, 8])
        network = hg.Network(random_graph(rng, int(rng.integers(4, 9)), directed=False))
        H = hessians(rng, network.n_agents, 2, 5.0)
        algorithm = hg.PDGNDS(stepsize=AUTO, form=form)
        lam = auto.choose(algorithm, as_problem(H), network).schedule.limit
        step = linear.linear_step(algorithm, H, network)

        def rate(at, algorithm=algorithm, step=step, network=network):
            return mean_square.mean_square_radius(algorithm, step, network, at)

        lams = lam * 0.93 ** np.arange(12)
        assert 1 - rate(lam) > max(1 - rate(at) for at in lams) / 1.02, (form, case)
        fastest = rates.stable_range(step, is_precise=False).fastest
        gains.append((1 - rate(lam)) / (1 - rate(fastest)))
    assert min(gains) > 0.96  # the search goes down by 12 % at a time
    assert form == "lazy" or max(gains) > 1.1


@pytest.mark.parametrize("form", ["lazy", "square"])
def test_without_strong_convexity_auto_keeps_the_stepsize_of_the_mean(form):
    """A column that no row has: the mean square is 1 for every λ, up to rounding."""
    for seed in range(20):
        rng = np.random.default_rng([seed, 12])
        network = hg.Network(random_graph(rng, 5, directed=False))
        v = rng.normal(size=(network.n_agents, 3)) * [1.0, 1.0, 0.0]
        H = v[:, :, None] * v[:, None]
        algorithm = hg.PDGNDS(stepsize=AUTO, form=form)
        choice = auto.choose(algorithm, as_problem(H), network)
        step = linear.linear_step(algorithm, H, network)
        assert choice.schedule.limit > 0.4 * rates.stable_range(step, is_precise=False).fastest


def built_in():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 12, 2))
    y = X @ [1.0, -2.0] + 0.1 * rng.normal(size=(6, 12))
    sign = np.where(y > 0, 1.0, -1.0)
    return {
        "estimation": hg.problems.estimation(6, seed=3),
        "rendezvous": hg.problems.rendezvous(n_agents=6),
        "average": hg.problems.average(rng.normal(size=(6, 2))),
        "ridge": hg.problems.ridge(list(X), list(y)),
        "logistic": hg.problems.logistic(list(X), list(sign)),
        "huber": hg.problems.huber(list(X), list(y)),
    }


EXACT = [a for a in hg.algorithms.ALL if a not in (hg.PDGDS, hg.DGD, hg.AsynDGM, hg.Consensus)]


def check_built_in(problem, kind, iterations):
    network = hg.Network(hg.graphs.ring(6))
    algorithm = kind(stepsize=AUTO)
    run = hg.run(algorithm, problem, network, iterations=iterations, engine="agents")
    assert run.status == ("converged",), (problem, kind, run.config["auto"], run.error[0, -1])
    assert run.algorithm.stepsize != AUTO


@pytest.mark.parametrize("name", some(["logistic", "huber", "estimation"]))
def test_auto_converges_on_built_in_problems(name):
    check_built_in(built_in()[name], hg.AugDGM, 1200)


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("name", built_in())
def test_auto_of_every_exact_method_converges_on_every_built_in_problem(name, kind):
    check_built_in(built_in()[name], kind, 12_000)


@pytest.mark.parametrize("kind", [hg.PDGDS, hg.DGD])
def test_diminishing_methods_start_at_one_over_l_and_satisfy_theorem_1(kind):
    problem, network = built_in()["estimation"], hg.Network(hg.graphs.ring(6))
    schedule = auto.choose(kind(stepsize=AUTO), problem, network).schedule
    assert schedule.theorem_1() == ()
    assert schedule.base(1.0) == pytest.approx(1 / problem.smoothness(), rel=1e-6)
    run = hg.run(kind(stepsize=AUTO), problem, network, iterations=500, engine="agents")
    plain = hg.run(
        kind(stepsize=hg.stepsizes.diminishing(scale=1 / problem.smoothness())),
        problem, network, iterations=500, engine="agents",
    )  # fmt: skip
    assert run.error[0, -1] < 0.5 * plain.error[0, -1]


def test_the_recommended_design_stays_within_the_condition_of_its_masks():
    problem, network = built_in()["ridge"], hg.Network(hg.graphs.ring(6))
    algorithm = hg.PDGNDS(stepsize=AUTO, design="recommended")
    choice = auto.choose(algorithm, problem, network)
    size = algorithm.masking.quadratic_part(network.eta)
    assert choice.schedule.limit * problem.smoothness() <= size
    assert choice.schedule.limit * problem.smoothness() > 0.99 * size
    assert choice.free > 3 * choice.schedule.limit
    assert "without masks" in choice.summary
    assert choice.free_rate < choice.rate


def test_auto_serves_trials_with_problems_of_their_own():
    problem = hg.problems.estimation(seed=0, trials=4)
    network = hg.Network(hg.graphs.paper())
    run = hg.run(
        hg.EXTRA(stepsize=AUTO), problem, network, iterations=600, trials=4, engine="agents"
    )
    assert set(run.status) == {"converged"}


def test_an_open_stepsize_is_refused_where_a_number_is_needed():
    with pytest.raises(hg.errors.StepsizeError, match=r"hg\.run chooses"):
        hg.PDGNDS(stepsize=AUTO).schedule  # noqa: B018  # reading raises
    with pytest.raises(hg.errors.StepsizeError, match='stepsize="auto"'):
        hg.PDGNDS(stepsize="fast")


def test_auto_refuses_a_method_that_it_does_not_know():
    class Mine(hg.DIGing):
        pass

    class Other(hg.algorithms.Tracker):
        title = "other"
        guarantee = "none"

        def step(self, agent, s):
            yield from ()

    network = hg.Network(hg.graphs.ring(6))
    assert auto.choose(Mine(stepsize=AUTO), built_in()["ridge"], network).rate < 1
    with pytest.raises(hg.errors.AlgorithmError, match="not those of Other"):
        auto.choose(Other(stepsize=AUTO), built_in()["ridge"], network)
