"""Random quadratic problems on random networks, and runs of every method by dense recursions.

f_i(θ) = ½θᵀH_iθ + c_iᵀθ with Σ c_i = 0, so θ* = 0. The recursions are those of `support.dense`,
which share nothing with `hushgrad.theory`.
"""

import numpy as np

import hushgrad as hg
from support import dense


def hessians(rng, m, d, condition):
    """(m, d, d) with eigenvalues between 1/condition and 1, times a common scale."""
    H = np.empty((m, d, d))
    for i in range(m):
        Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
        H[i] = Q * np.exp(rng.uniform(-np.log(condition), 0, size=d)) @ Q.T
    return H * np.exp(rng.normal())


def random_graph(rng, m, *, directed=False):
    """A connected graph of one of the library's families with about m agents."""
    g = hg.graphs
    seed = int(rng.integers(10**6))
    if directed:
        return g.random_directed(m, 2, seed=seed)
    kinds = (
        lambda: g.ring(m),
        lambda: g.path(m),
        lambda: g.star(m),
        lambda: g.complete(m),
        lambda: g.grid(max(2, int(np.sqrt(m))), max(2, m // max(2, int(np.sqrt(m))))),
        lambda: g.erdos_renyi(m, min(1.0, 2.5 * np.log(m) / m), seed=seed),
        lambda: g.random_regular(m + m % 2, min(4, m - 1), seed=seed),
        lambda: g.small_world(max(m, 7), 4, 0.2, seed=seed),
        lambda: g.exponential(m, is_directed=False),
    )
    return kinds[int(rng.integers(len(kinds)))]()


METHODS = {
    "PDGNDS": lambda a: hg.PDGNDS(stepsize=a),
    "PDGNDS identity": lambda a: hg.PDGNDS(stepsize=a, split=hg.splits.identity()),
    "PDGNDS square": lambda a: hg.PDGNDS(stepsize=a, form="square"),
    "EXTRA": lambda a: hg.EXTRA(stepsize=a),
    "DIGing": lambda a: hg.DIGing(stepsize=a),
    "AugDGM": lambda a: hg.AugDGM(stepsize=a),
    "AB": lambda a: hg.AB(stepsize=a),
    "PushPull": lambda a: hg.PushPull(stepsize=a),
    "ADDOPT": lambda a: hg.ADDOPT(stepsize=a),
}


DIRECTED = ("AB", "PushPull", "ADDOPT")  # methods for directed graphs too


def mean_split(support):
    return support / support.sum(0)


def fresh_splits(support, seed):
    """B(k) with fresh weights u / Σu on the support."""
    rng = np.random.default_rng(seed)

    def draw(k):
        u = rng.uniform(size=support.shape) * support
        return u / u.sum(0)

    return draw


def errors(name, network, H, lam, K, *, splits="mean", seed=0, lams=None, start=None):
    """max_i ‖x_i − θ*‖ after 1 … K iterations; start: (x0, c), else random."""
    m, d = H.shape[:2]
    rng = np.random.default_rng(seed)
    c = rng.normal(size=(m, d))
    c -= c.mean(0)
    x0 = rng.normal(size=(m, d))
    if start is not None:
        x0, c = start

    def g(x):
        return np.einsum("iab,ib->ia", H, x) + c

    eye = np.eye(m)

    def step(k):
        return np.full((m, 1), lam) if lams is None else lams(k)

    with np.errstate(over="ignore", invalid="ignore"):
        if name.startswith("PDGNDS"):
            W = network.matrix("doubly")
            square = name == "PDGNDS square"
            support = (W @ W if square else W) > 0
            B = mean_split(support)
            if name == "PDGNDS identity":
                draw = lambda k: eye  # noqa: E731  # one line, used here
            else:
                draw = fresh_splits(support, seed) if splits == "fresh" else (lambda k: B)
            run = dense.pdg_nds_square if square else dense.pdg_nds_lazy
            x = run(W, g, x0, K, step, draw)
        elif name in ("EXTRA", "DIGing", "AugDGM"):
            run = {"EXTRA": dense.extra, "DIGing": dense.diging, "AugDGM": dense.aug_dgm}[name]
            x = run(network.matrix("doubly"), g, x0, K, lam)
        elif name == "ADDOPT":
            x = dense.add_opt(network.matrix("column"), g, x0, K, lam)
        else:
            run = dense.ab if name == "AB" else dense.push_pull
            x = run(network.matrix("row"), network.matrix("column"), g, x0, K, lam)
        return np.linalg.norm(x, axis=2).max(1)


def measured_rate(*runs):
    """The factor per iteration in the long run, from the second half of some runs.

    Complex eigenvalues make errors swing; runs from different starts swing at different times.
    """
    logs = np.mean([np.log(error[len(error) // 2 :]) for error in runs], axis=0)
    return float(np.exp(np.polyfit(np.arange(len(logs)), logs, 1)[0]))
