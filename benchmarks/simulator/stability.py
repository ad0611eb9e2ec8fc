"""`python -m benchmarks.simulator.stability`: how many draws of quadratic masks are unstable.

The iteration of lazy PDG-NDS on quadratic f_i + masks is linear. With a constant split B and
G_i = λ (H_i + Q_i) it reads, beside constants,

    x^{k+1} = M x^k − w^k − B G x^k,      w^k = w^{k−1} + (I − M) x^k,      1ᵀw = 0

and it converges if and only if all its eigenvalues are below 1 in size. The eigenvalues are
computed for drawn masks, splits and Hessians, on networks with weakly linked agents above all: an
agent whose links weigh w_i in all holds a negative curvature up to about w_i, and 1 − η ≤ about
w_i. One line for each network: the unstable draws, for each ratio of the masks' size to the
default.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import hushgrad as hg
from hushgrad.agent.masking import seeded_masks

type Floats = NDArray[np.float64]

RATIOS = (0.8, 1.0, 1.2, 1.5, 2.0)  # of `quadratic` over its default
OF_GAP = (1e-3, 1.0, 2.0)  # λL over `quadratic`
OWN = 0.45  # of the recommended split
ROUNDING = 1e-9  # of an eigenvalue: a sum of Hessians that is nearly singular has one near 1
NUMBERS_AT_ONCE = 4_000_000


def lollipop(n_agents: int, n_path: int) -> hg.graphs.Graph:
    """A complete graph, and a path that hangs on one of its agents."""
    n = n_agents - n_path
    edges = [(i, j) for i in range(n) for j in range(i)]
    return hg.graphs.from_edges(edges + [(i, i - 1) for i in range(n, n_agents)], n_agents)


def networks() -> dict[str, hg.Network]:
    g = hg.graphs
    graphs = {
        "complete 3": g.complete(3), "complete 20": g.complete(20), "path 6": g.path(6),
        "path 20": g.path(20), "ring 6": g.ring(6), "ring 20": g.ring(20), "star 5": g.star(5),
        "star 10": g.star(10), "star 20": g.star(20), "star 30": g.star(30), "star 50": g.star(50),
        "random 20": g.erdos_renyi(20, 0.25, seed=1),
        "random 20, sparse": g.erdos_renyi(20, 0.2, seed=7),
        "4-regular 20": g.random_regular(20, 4, seed=1), "grid 5×5": g.grid(5, 5),
        "lollipop 15": lollipop(15, 2), "lollipop 30": lollipop(30, 2),
    }  # fmt: skip
    return {name: hg.Network(graph) for name, graph in graphs.items()}


def splits(W: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """B (draws, m, m) of the recommended design: an agent keeps between OWN/2 and OWN."""
    m = len(W)
    off = (W != 0) & ~np.eye(m, dtype=bool)
    shares = rng.uniform(size=(draws, m, m)) * off
    own = OWN * (1 + rng.uniform(size=(draws, m))) / 2
    B = shares / shares.sum(axis=1, keepdims=True) * (1 - own)[:, None, :]
    B[:, np.arange(m), np.arange(m)] = own
    return B


def hessians(draws: int, m: int, d: int, rng: np.random.Generator) -> Floats:
    """H (draws, m, d, d) with max_i ‖H_i‖ = 1, of one to 3d rows: some have no full rank."""
    held = np.arange(3 * d)[:, None] < rng.integers(1, 3 * d + 1, size=(draws, m, 1, 1))
    X = rng.normal(size=(draws, m, 3 * d, d)) * held
    H = np.swapaxes(X, -1, -2) @ X
    return H / np.linalg.norm(H, 2, axis=(-2, -1)).max(axis=1)[:, None, None, None]


def radii(W: Floats, B: Floats, G: Floats) -> Floats:
    """The largest eigenvalues in size, (draws,), of the iteration with B and G (draws, m, d, d)."""
    draws, m, d = G.shape[:3]
    n = m * d
    M = np.kron((np.eye(m) + W) / 2, np.eye(d))
    U = np.kron(np.linalg.svd(np.eye(m) - 1 / m)[0][:, : m - 1], np.eye(d))  # 1ᵀU = 0
    A = np.zeros((draws, 2 * n - d, 2 * n - d))
    A[:, :n, :n] = 2 * M - np.eye(n) - np.einsum("nij,njab->niajb", B, G).reshape(draws, n, n)
    A[:, :n, n:] = -U
    A[:, n:, :n] = U.T @ (np.eye(n) - M)
    A[:, n:, n:] = np.eye(n - d)
    return np.abs(np.linalg.eigvals(A)).max(axis=1)


def unstable(
    network: hg.Network,
    d: int,
    draws: int,
    *,
    ratios: Sequence[float] = (1.0,),
    of_gap: float = 1.0,
    seed: int = 0,
    n_partners: int = 4,
) -> list[int]:
    """How many draws are unstable, for each ratio of the masks' size to the default, ascending.

    A draw that is stable with large masks counts as stable with smaller ones.
    """
    rng, W = np.random.default_rng(seed), network.matrix("doubly")
    masks = hg.masks.zero_sum(n_partners=n_partners)
    part = masks.quadratic_part(network.eta)
    algorithm = hg.PDGNDS(design="recommended", masks=masks, stepsize=hg.stepsizes.constant(1.0))
    at_once = max(1, NUMBERS_AT_ONCE // (4 * network.n_agents**2 * d**2))
    counts = [0] * len(ratios)
    for first in range(0, draws, at_once):
        trials = range(first, min(first + at_once, draws))
        drawn = seeded_masks(algorithm, network, d, seed=seed, trials=trials)
        assert drawn is not None
        assert drawn[1] is not None
        H = hessians(len(trials), network.n_agents, d, rng)
        G = np.moveaxis(drawn[1], -1, 0) + of_gap * part * H
        B = splits(W, len(trials), rng)
        left = np.arange(len(trials))
        for place in reversed(range(len(ratios))):
            left = left[radii(W, B[left], ratios[place] * G[left]) > 1 + ROUNDING]
            counts[place] += len(left)
    return counts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulator.stability", description=__doc__
    )
    parser.add_argument("--draws", type=int, default=1000, help="of each kind, in d = 1")
    parser.add_argument("--dims", type=int, nargs="+", default=(1, 2, 10))
    parser.add_argument("--of-gap", type=float, nargs="+", default=OF_GAP)
    options = parser.parse_args(arguments)
    print("unstable draws; quadratic over its default =", *RATIOS)
    for name, network in networks().items():
        for d in options.dims:
            draws = max(10, options.draws // d**3)
            counts = np.sum(
                [
                    unstable(network, d, draws, ratios=RATIOS, of_gap=of_gap)
                    for of_gap in options.of_gap
                ],
                axis=0,
            )
            print(f"  {name:20s} d = {d:2d}, {draws * len(options.of_gap):5d} draws ", *counts,
                  flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
