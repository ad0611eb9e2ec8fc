"""Simulated runs whose messages are watched for jumps as a deployed agent watches them."""

import numpy as np

import hushgrad as hg
from hushgrad.agent.stages import n_stages, stage_lengths
from hushgrad.network.protocol.jumps import JumpWatch


class Watched:
    """Stands in for `tamper` of a run: one JumpWatch for each link, which changes no message.

    `inner` tampers first, as an active agent does.
    """

    def __init__(self, begins, inner=None):
        self.begins, self.inner = begins, inner
        self.watches = {}
        self.jumps = []  # (k, sender, receiver, Jump)

    def __call__(self, k, sender, receiver, payload):
        if self.inner is not None:
            payload = self.inner(k, sender, receiver, payload)
        watch = self.watches.setdefault((sender, receiver), JumpWatch())
        stage = int(np.searchsorted(self.begins, k, side="right"))
        found = watch.look({sender: payload}, stage=stage, k=k)
        self.jumps += [(k, sender, receiver, jump) for jump in found]
        return payload


def watched_run(algorithm, problem, network, *, iterations, inner=None, **options):
    """A run of agents alone, and what their watches saw."""
    stages = n_stages(algorithm, is_quadratic=problem.is_quadratic)
    lengths = stage_lengths(iterations, stages, algorithm.curvature) if stages > 1 else []
    watched = Watched(np.cumsum(lengths), inner)
    run = hg.run(
        algorithm, problem, network, iterations=iterations, engine="agents", progress=False,
        tamper=watched, accept_exposure=hg.theory.WEAKNESSES, **options,
    )  # fmt: skip
    return run, watched.jumps


def random_setting(seed):
    """A random algorithm, problem and network. Some runs with λ = 1/k grow by 1e30 at first."""
    rng = np.random.default_rng([77, seed])
    network = _network(rng)
    problem = _problem(rng, network.n_agents)
    return _algorithm(rng, problem, network), problem, network


def _network(rng):
    m = int(rng.integers(3, 9))
    kind = str(rng.choice(["ring", "path", "complete", "star", "random"]))
    if kind != "random":
        return hg.Network(getattr(hg.graphs, kind)(m))
    edges = {(i, int(rng.integers(0, i))) for i in range(1, m)}
    for _ in range(m):
        a, b = sorted(rng.choice(m, 2, replace=False).tolist())
        edges.add((b, a))
    return hg.Network(hg.graphs.from_edges(sorted(edges)))


def _problem(rng, m):
    d, n = int(rng.integers(1, 7)), int(rng.integers(3, 15))
    X = [rng.normal(size=(n, d)) * rng.choice([0.3, 1, 3]) for _ in range(m)]
    if rng.random() < 0.3:
        X = [x * 10.0 ** -np.arange(d) for x in X]
    theta = rng.normal(size=d) * rng.choice([0.1, 1, 10])
    y = [x @ theta + rng.normal(size=n) for x in X]
    match rng.integers(4):
        case 0:
            return hg.problems.ridge(X, y, regularisation=0.1)
        case 1:
            labels = [np.where(v >= 0, 1.0, -1.0) for v in y]
            return hg.problems.logistic(X, labels, regularisation=float(rng.choice([0.1, 2.0])))
        case 2:
            return hg.problems.huber(X, y, regularisation=0.5)
        case _:
            return hg.problems.rendezvous(positions=5 * rng.normal(size=(m, d)))


def _algorithm(rng, problem, network):
    L = problem.smoothness()
    stepsize = hg.stepsizes.constant(float(rng.choice([0.02, 0.05, 0.2])) / L)
    number, split_number = int(rng.integers(13)), int(rng.integers(3))
    split = [hg.splits.fresh, hg.splits.private_constant, hg.splits.isotropic][split_number]()
    methods = [
        lambda: hg.PDGDS(split=split),
        lambda: hg.PDGNDS(stepsize=stepsize, split=split),
        lambda: hg.PDGNDS(stepsize=stepsize, form="square", split=split),
        hg.DGD,
        *[
            lambda method=method: method(stepsize=stepsize)
            for method in (
                hg.EXTRA, hg.DIGing, hg.AugDGM, hg.AsynDGM, hg.AB, hg.PushPull, hg.ADDOPT,
            )
        ],
        *[
            lambda: hg.PDGNDS(
                stepsize=hg.stepsizes.constant(0.2 * (1 - network.eta) / L), design="recommended"
            )
        ] * 2,
    ]  # fmt: skip
    return methods[number]()
