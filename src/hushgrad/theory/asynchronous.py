"""AsynDGM: rates of random pairings, sampled from the linear step.

One link {i, j} wakes up in an iteration. The step is x⁺ = W^k(x − D^k λy), y⁺ = W^k(y + H(x⁺ − x))
with W^k and D^k of that link, so it changes two agents only. A run of the linear step shows the
rate, for many stepsizes at once.

auto.py and tight.py ask for its rate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushgrad.mixing import Network

type Floats = NDArray[np.float64]

WAKES = 60  # iterations per agent of a sampled run
FEWEST = 3000
MOST = 40_000
GRID = 2.0 * 0.75 ** np.arange(18)  # λL


def pairing_rates(hessians: Floats, network: Network, lams: Floats, seed: int = 0) -> Floats:
    """The growth per iteration for each stepsize (n,), over the second half of a sampled run."""
    rng = np.random.default_rng(seed)
    m, d = hessians.shape[:2]
    links = network.graph.links
    steps = int(np.clip(WAKES * m, FEWEST, MOST))
    x = np.repeat(rng.normal(size=(m, d, 1)), len(lams), axis=2)
    y = hessians @ x
    logs = np.zeros(len(lams))
    block = 4 * m
    for k in range(steps):
        pair = links[rng.integers(len(links))]
        old = x[pair]
        x[pair] = (old - lams * y[pair]).mean(axis=0)
        y[pair] = (y[pair] + hessians[pair] @ (x[pair] - old)).mean(axis=0)
        if (k + 1) % block == 0:
            y += (hessians @ x - y).mean(axis=0)  # 1ᵀy = 1ᵀHx, which rounding would break
            size = np.sqrt((x * x).sum(axis=(0, 1)) + (y * y).sum(axis=(0, 1))) + 1e-300
            logs += np.log(size) * (k + 1 > steps // 2)
            x, y = x / size, y / size
    blocks = sum((k + 1) % block == 0 and k + 1 > steps // 2 for k in range(steps))
    return np.exp(logs / max(1, blocks * block))


def fastest_pairing(hessians: Floats, network: Network, L: float) -> tuple[float, float]:
    """(λ, rate) of the fastest stepsize of a grid."""
    rates = pairing_rates(hessians, network, np.asarray(GRID / L, np.float64))
    best = int(np.argmin(rates))
    return float(GRID[best] / L), float(rates[best])
