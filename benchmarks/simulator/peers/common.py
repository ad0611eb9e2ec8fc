"""The common part of the peers' scripts: reading the problem, timing, reporting.

A script is a program for any interpreter that has the peer: `python run_NAME.py FILE.npz ITERATIONS
REPEATS CORE`. The result is one JSON document on stdout.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Given:
    """Estimation, f_i(θ) = ‖z_i − M_i θ‖² + σ_i ‖θ‖², for DGD with a constant stepsize from 0."""

    M: np.ndarray  # (m, s, d)
    z: np.ndarray  # (m, s)
    sigma: np.ndarray  # (m,)
    W: np.ndarray  # (m, m) Metropolis weights
    edges: np.ndarray  # (n, 2)
    stepsize: float

    @staticmethod
    def load(path: Path) -> Given:
        arrays = np.load(path)
        return Given(**{**arrays, "stepsize": float(arrays["stepsize"])})

    @property
    def adjacency(self) -> np.ndarray:
        found = np.zeros(self.W.shape)
        found[self.edges[:, 0], self.edges[:, 1]] = found[self.edges[:, 1], self.edges[:, 0]] = 1
        return found

    def quadratics(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """A and b of every f_i, written as ½ θᵀAθ + bᵀθ + c."""
        for M, z, sigma in zip(self.M, self.z, self.sigma, strict=True):
            yield 2 * (M.T @ M + sigma * np.eye(M.shape[1])), -2 * M.T @ z


def report(run: Callable[[Given, int], Any], version: str) -> None:
    file, iterations, repeats, core = sys.argv[1], *map(int, sys.argv[2:])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    given = Given.load(Path(file))
    run(given, 2)
    times: list[float] = []
    x: Any = None
    for _ in range(repeats):
        started = time.perf_counter()
        x = run(given, iterations)
        times.append((time.perf_counter() - started) / iterations)
    print(
        json.dumps(
            {
                "version": version,
                "seconds_per_iteration": statistics.median(times),
                "x": np.asarray(x).tolist(),
            }
        )
    )
