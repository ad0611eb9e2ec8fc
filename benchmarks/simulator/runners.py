"""Runners, which advance by n iterations, and their clocks; the workers of measure.py use them."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

import hushgrad as hg
from benchmarks.simulator.workloads import SEED
from hushgrad.algorithms.base import Algorithm
from hushgrad.simulate.stacked.driver import BLOCK
from hushgrad.simulate.stacked.program import Simulation

type Floats = NDArray[np.float64]


class Runner(Protocol):
    def advance(self, k: int, n: int) -> None: ...

    @property
    def x(self) -> Floats: ...  # (trials, agents, d)


class Engine:
    """The simulator as `hg.run` drives it, with blocks of trials in turn or on threads."""

    def __init__(
        self,
        algorithm: Algorithm,
        problem: hg.Problem,
        network: hg.Network,
        x0: Floats,  # (agents, d)
        *,
        trials: int = 1,
        threads: int = 1,
    ):
        size = min(trials, BLOCK)
        self._pool = ThreadPoolExecutor(threads) if threads > 1 and trials > size else None
        self._trials, self._first_differs = trials, algorithm.first_differs
        self._x0 = np.broadcast_to(x0, (size, *x0.shape))
        with jax.enable_x64(True):
            self._simulations = [
                Simulation(
                    algorithm, problem, network, seed=SEED,
                    trials=np.minimum(np.arange(start, start + size), trials - 1),
                )
                for start in range(0, trials, size)
            ]  # fmt: skip
        self.restart()

    def restart(self) -> None:
        """Go back to iteration 0."""
        with jax.enable_x64(True):
            self._states = [simulation.start(self._x0) for simulation in self._simulations]

    def advance(self, k: int, n: int) -> None:
        every = range(len(self._simulations))
        if self._pool is None:
            for block in every:
                self._advance(block, k, n)
        else:
            list(self._pool.map(lambda block: self._advance(block, k, n), every))

    def _advance(self, block: int, k: int, n: int) -> None:
        simulation, state = self._simulations[block], self._states[block]
        with jax.enable_x64(True):  # every thread has its own setting
            if k == 0 and self._first_differs:
                state, _ = simulation.first(state)
                k, n = k + 1, n - 1
            if n:
                state, _, _ = simulation.advance(state, k, n, 1)
            self._states[block] = jax.block_until_ready(state)

    @property
    def x(self) -> Floats:
        with jax.enable_x64(True):
            parts = [
                simulation.estimates(state)
                for simulation, state in zip(self._simulations, self._states, strict=True)
            ]
        return np.concatenate(parts)[: self._trials]


@dataclass
class Clocked:
    """A runner and its times. Every call goes on where the last call ended."""

    runner: Runner
    k: int = 0
    n: int = 1  # iterations of a round
    wall: list[float] = field(default_factory=list[float])  # seconds per iteration, by round
    cpu: list[float] = field(default_factory=list[float])

    def run(self, n: int) -> tuple[float, float]:
        """Run n iterations; return their wall time and their processor time in seconds."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.runner.advance(self.k, n)
        self.k += n
        return time.perf_counter() - wall, time.process_time() - cpu

    def calibrate(self, seconds: float) -> None:
        """Choose n so that a round takes about `seconds`."""
        self.run(1)  # may compile
        took, _ = self.run(1)
        while took < seconds / 4:
            self.n *= 4
            took, _ = self.run(self.n)
        self.n = max(1, round(self.n * seconds / took))

    def round(self) -> None:
        wall, cpu = self.run(self.n)
        self.wall.append(wall / self.n)
        self.cpu.append(cpu / self.n)

    def summary(self) -> dict[str, Any]:
        return {
            "seconds_per_iteration": statistics.median(self.wall),
            "iterations_per_second": 1 / statistics.median(self.wall),
            "iterations_per_round": self.n,
            "wall": self.wall,
            "cpu": self.cpu,
        }


def interleave(clocked: list[Clocked], rounds: int) -> None:
    """Run all runners by turns, so that a disturbance of the machine disturbs all alike.

    Every other round goes backwards, so that no runner always follows the same one.
    """
    for r in range(rounds):
        for each in reversed(clocked) if r % 2 else clocked:
            each.round()
