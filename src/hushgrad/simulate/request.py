"""The request that `run` makes of an engine and the outcome that it gets, alike for all engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.rounds import Payload
from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import InputError
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.simulate.checkpoint import Checkpoint
from hushgrad.simulate.recording import Recording
from hushgrad.simulate.result import Traffic
from hushgrad.simulate.transcript import Channel
from hushgrad.theory.revealed import Revealed

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
# iteration, sender, receiver and message → the message that is really sent
type Tamper = Callable[[int, int, int, Payload], Payload]
type Metric = Callable[[Floats, Any], Any]  # x (trials, agents, d), problem → (trials,)

LOST = 1e100  # beyond it an error is divergence; PDG-DS may return from 1e21


@dataclass(frozen=True)
class RunRequest:
    """An algorithm, a problem and a network, with the trials and samples that are wanted."""

    algorithm: Algorithm
    problem: Problem
    network: Network
    seed: int
    trials: Ints  # (trials,)
    x0: Floats  # (trials, agents, d)
    samples: Ints  # (samples,) ascending iterations, first 0
    metrics: Mapping[str, Metric]
    recording: Recording | None  # of messages and estimates, where a transcript is wanted
    tick: Callable[[int], None]  # told how many trial-iterations were done
    checkpoint: Checkpoint
    tamper: Tamper | None = None  # only agents alone can send other messages than their step's
    stage: int = 0  # every stage has draws of its own
    limited: Revealed | None = None  # the limit of sums that later stages keep; None: no limit
    accepted: frozenset[str] = frozenset()  # weaknesses by name
    # the algorithm of every trial, which differ in numbers alone; None: all run `algorithm`
    variants: tuple[Algorithm, ...] | None = None
    mesh: Any = None  # None, "auto" or a jax.sharding.Mesh: the devices of the stacked engine


@dataclass(frozen=True)
class Outcome:
    """The samples and the end of every trial, in the order of the request."""

    error: Floats  # (trials, samples)
    consensus: Floats  # (trials, samples)
    x: Floats  # (trials, agents, d)
    metrics: Mapping[str, Floats]  # (trials, samples)
    diverged: Ints  # (trials,) first iteration beyond all bounds, −1 where none
    traffic: Traffic
    channels: tuple[Channel, ...] = ()
    trace: Floats | None = None  # (trials, n + 1, agents, d) of the transcript's iterations
    mask_scale: Floats | None = None  # (trials,) the unit of linear masks, in a run with stages
    seconds: float | None = None  # for the agents alone; None: all the time that the run took


def apply_metric(name: str, metric: Metric, x: Floats, problem: Any) -> Floats:
    """A user's metric at one sample, (trials,)."""
    value = np.asarray(metric(x, problem), np.float64)
    if value.shape not in ((), (len(x),)):
        raise InputError(
            f"a metric gives one number per trial, but '{name}' gave shape {value.shape} for "
            f"x of shape {x.shape}. Reduce over agents and coordinates, not over trials."
        )
    return np.broadcast_to(value, (len(x),)).copy()


def measure(x: Floats, solution: Floats) -> tuple[Floats, Floats]:
    """max_i ‖x_i − θ*‖ and max_i ‖x_i − x̄‖ of x (trials, agents, d)."""
    off = np.linalg.norm(x - solution, axis=2).max(1)
    return off, np.linalg.norm(x - x.mean(1, keepdims=True), axis=2).max(1)


def is_lost(error: Floats) -> NDArray[np.bool_]:
    """Whether an error is beyond all bounds, or not a number."""
    return ~(error <= LOST)
