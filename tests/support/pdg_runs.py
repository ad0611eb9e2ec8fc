"""Runs of PDG-DS and PDG-NDS for attacks, the views of adversaries on them, and errors."""

from functools import lru_cache

import numpy as np

import hushgrad as hg
from hushgrad.privacy import Curious, Eavesdropper, Knowledge, Truth
from hushgrad.privacy.attacks.objective_fit import ObjectiveFit

PAPER = hg.Network(hg.graphs.paper())


FIG3 = hg.stepsizes.constant(0.02)  # with the paper's deviation ϱ/k²


BURSTS = hg.stepsizes.bursts(30, 20.0, within=150)  # up to 21 times the stepsize
FAMILY = {
    "PDG-DS": hg.PDGDS(),
    "lazy": hg.PDGNDS(stepsize=FIG3),
    "square": hg.PDGNDS(stepsize=FIG3, form="square"),
}


def network(seed):
    """The paper's graph, or a random one with agents of degree two or more."""
    if seed % 3 == 0:
        return PAPER
    for n in range(100):
        graph = hg.graphs.erdos_renyi(7, 0.5, seed=100 * seed + n)
        if graph.out_degree.min() >= 2:
            return hg.Network(graph)
    raise AssertionError("no such graph")


@lru_cache(maxsize=64)
def recorded(algorithm, seed=0, n=210, d=2, engine="agents", net=None):
    net = net or network(seed)
    problem = hg.problems.estimation(n_agents=net.n_agents, s=3, d=d, seed=seed)
    return hg.run(
        algorithm, problem, net, iterations=n, seed=seed, transcript=True, engine=engine,
        accept_exposure=["curvature"],
    )  # fmt: skip


@lru_cache(maxsize=16)
def recorded_trials(algorithm, net, n, trials, seed=0):
    problem = hg.problems.estimation(n_agents=net.n_agents, seed=seed, trials=trials)
    return hg.run(algorithm, problem, net, iterations=n, trials=trials, seed=seed, transcript=True)


def long_run(name):
    """One problem, from first steps to the fluctuations at the end: quick tests share it."""
    return recorded_trials(FAMILY[name], PAPER, 20_000, 1, seed=2)


def views(run, adversaries):
    """(view, truth, target) of every trial, of adversaries that depend on the target."""
    for trial in range(len(run.trials)):
        truth = Truth(run, trial=trial)
        for target in range(run.network.n_agents):
            for adversary in adversaries(run, target):
                yield Knowledge.of(run, adversary, trial=trial), truth, target


def beside(run):
    """(view, truth, target) of every single curious agent and each of its neighbours."""
    for trial in range(len(run.trials)):
        truth = Truth(run, trial=trial)
        for j in range(run.network.n_agents):
            view = Knowledge.of(run, Curious({j}), trial=trial)
            for target in view.in_links(j):
                yield view, truth, target


def eavesdropper(run, target):
    yield Eavesdropper()


def neighbours(run, target):
    graph = run.network.graph
    yield Curious(graph.senders[graph.receivers == target].tolist())


def estimates(attack, view, target):
    """{quantity: estimate} of an attack that applies."""
    assert attack.applies(view, target) is None
    return {e.quantity: e for e in attack(view, target)}


def relative(value, truth):
    """‖value − truth‖ / ‖truth‖, of each row."""
    return np.linalg.norm(value - truth, axis=-1) / np.linalg.norm(truth, axis=-1)


def cosine(one, other):
    """|cos| of each row."""
    size = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    return np.abs((one * other).sum(axis=-1)) / size


def objective_fits(run):
    """(1 − cosine, relative error of the size) of [H | q], every agent; NaN where none."""
    found = []
    for view, truth, i in views(run, eavesdropper):
        if ObjectiveFit().applies(view, i) is None:
            got, true = ObjectiveFit()(view, i), truth.objective(i)
            value = got[0].value if got else np.full_like(true, np.nan)
            size = np.linalg.norm(value) / np.linalg.norm(true)
            found.append((1 - (value * true).sum() / size / (true**2).sum(), size - 1))
    return np.array(found)
