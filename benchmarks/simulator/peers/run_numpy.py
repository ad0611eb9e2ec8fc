"""DGD as a plain vectorised NumPy loop, as a user would write it without a library."""

from __future__ import annotations

import numpy as np
from common import Given, report


def run(given: Given, iterations: int) -> np.ndarray:
    M, z, sigma, W = given.M, given.z, given.sigma[:, None], given.W
    x = np.zeros((len(M), M.shape[2]))
    for _ in range(iterations):
        residual = (M @ x[:, :, None])[:, :, 0] - z
        gradient = 2 * ((residual[:, None, :] @ M)[:, 0] + sigma * x)
        x = W @ x - given.stepsize * gradient
    return x


if __name__ == "__main__":
    report(run, np.__version__)
