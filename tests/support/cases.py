"""Networks and problems that tests share: irregular, small, asymmetric where it matters."""

import functools
import warnings

import numpy as np

import hushgrad as hg

# degrees 1 to 4 and a leaf
UNDIRECTED = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 2), (0, 3), (1, 6)]
# strongly connected, no arc pattern equal to its transpose, in- and out-degrees differ
DIRECTED = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 0), (0, 3), (3, 1), (2, 6), (5, 2)]

M, D = 7, 4


def undirected():
    return hg.Network(hg.graphs.from_edges(UNDIRECTED))


def directed():
    return hg.Network(hg.graphs.from_edges(DIRECTED, is_directed=True))


def circulating():
    """The undirected graph with more weight one way round its outer ring than the other: W is
    doubly stochastic, degrees are uneven, and a transposed W or W² shows.
    """
    W = undirected().matrix()
    for j in range(6):
        W[(j + 1) % 6, j] += 0.1
        W[j, (j + 1) % 6] -= 0.1
    return hg.Network(hg.graphs.from_edges(UNDIRECTED), mixing=W)


def nonsymmetric():
    """A ring whose W is doubly stochastic and not symmetric: a transposed W or W² shows."""
    P = np.roll(np.eye(M), 1, axis=0)
    return hg.Network(hg.graphs.ring(M), mixing=0.4 * np.eye(M) + 0.45 * P + 0.15 * P.T)


@functools.cache
class Quadratics:
    """f_i = ‖M_i θ − z_i‖² + σ‖θ‖², as a hushgrad problem and as plain NumPy.

    One object for the same arguments: runs on it share their compiled programs.
    """

    def __init__(self, m=M, s=3, d=D, seed=0, sigma=0.1, by_hand=False):
        rng = np.random.default_rng(seed)
        self.A = rng.normal(size=(m, s, d)) / np.sqrt(s * d)
        self.z = self.A @ rng.normal(size=d) + 0.1 * rng.normal(size=(m, s))
        self.sigma = sigma
        self.x0 = rng.normal(size=(m, d))
        H = 2 * (np.einsum("isd,ise->de", self.A, self.A) + m * sigma * np.eye(d))
        self.solution = np.linalg.solve(H, 2 * np.einsum("isd,is->d", self.A, self.z))
        self.problem = hg.Problem(
            self.loss, {"A": self.A, "z": self.z}, dim=d,
            gradient=self.gradient if by_hand else None,
            solution=self.solution if by_hand else None, smoothness=1.0 if by_hand else None,
            quadratic=True,
        )  # fmt: skip

    def loss(self, theta, data):
        r = data["A"] @ theta - data["z"]
        return (r * r).sum() + self.sigma * (theta * theta).sum()

    def gradient(self, theta, data):
        return 2 * (data["A"].T @ (data["A"] @ theta - data["z"]) + self.sigma * theta)

    def g(self, x):
        r = np.einsum("isd,id->is", self.A, x) - self.z
        return 2 * (np.einsum("isd,is->id", self.A, r) + self.sigma * x)


def trajectory(
    algorithm, problem, network, x0, K, *, seed=5, engine="stacked", trials=1, **options
):
    """x^0 … x^K as (trials, K + 1, m, d), through a metric that keeps the estimates."""
    kept = []
    with warnings.catch_warnings():  # the tables give every algorithm the same f_i
        warnings.filterwarnings("ignore", "Consensus gives the average", hg.errors.RiskWarning)
        hg.run(
            algorithm, problem, network, iterations=K, record_every=1, x0=x0, seed=seed,
            engine=engine, trials=trials, **options,
            metrics={"keep": lambda x, _: kept.append(x.copy()) or 0.0},
        )  # fmt: skip
    if engine == "agents":  # trial after trial
        return np.array(kept)[:, 0].reshape(len(kept) // (K + 1), K + 1, *np.shape(x0)[-2:])
    return np.array(kept).swapaxes(0, 1)
