"""The engine "stacked": all trials of a request, in blocks on all cores, sampled on the way.

`hushgrad.run` calls `simulate`. A trial that diverges is found, and a block whose trials have all
diverged ends early.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from hushgrad.exchange import Links
from hushgrad.simulate.checkpoint import Clock, Stopped
from hushgrad.simulate.recording import AWAKE, TRACE, Recording
from hushgrad.simulate.request import Outcome, RunRequest, apply_metric, is_lost, measure
from hushgrad.simulate.result import Traffic
from hushgrad.simulate.stacked.numbers import Numbers, stacked_numbers
from hushgrad.simulate.stacked.program import CHUNK, SAMPLES, Simulation
from hushgrad.simulate.stacked.shards.mesh import Shards
from hushgrad.simulate.stacked.shards.simulation import ShardedSimulation
from hushgrad.simulate.transcript import Channel, recorded_channel

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]

BLOCK = 128  # trials advanced together: the vector units are full, the caches hold
HALVES = 2  # of fewer trials than two blocks have
_CHUNK_BYTES = 2**27  # of messages at most that one call records
_FIRST = 256  # iterations of the first call at most, before it is known how long they take
_CALL_SECONDS = 0.25  # aimed at per call of compiled code, so that bars move and Ctrl-C is heard


def simulate(request: RunRequest) -> Outcome:
    """Run all trials. Their division into blocks depends on their number alone, so that the results
    do not depend on the machine.
    """
    n = len(request.trials)
    size = min(BLOCK, -(-n // HALVES)) if n >= 16 else n
    # the last block repeats a trial where they do not divide
    parts = [np.minimum(np.arange(s, s + size), n - 1) for s in range(0, n, size)]
    # in threads even where there is one block: the calling thread stays free to hear Ctrl-C
    shards = Shards.of(request.mesh)
    request.checkpoint.is_writer = shards is None or shards.is_first
    # blocks on several devices take turns: their exchanges would wait for each other
    pool = ThreadPoolExecutor(1 if shards else min(len(parts), _cores()))
    numbers = stacked_numbers(request.variants or [request.algorithm])
    try:
        futures = [
            pool.submit(_run_block, request, shards, numbers, b, part)
            for b, part in enumerate(parts)
        ]
        outcomes = [future.result() for future in futures]
    except BaseException:
        request.checkpoint.stop.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    request.checkpoint.clear()
    outcome = _join(outcomes, n)
    if request.recording is None:
        return outcome
    return replace(
        outcome,
        channels=_channels(request, request.recording),
        trace=request.recording.read(TRACE, beyond=1),
    )


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _join(outcomes: list[Outcome], n: int) -> Outcome:
    """Blocks side by side; where one ended early because all its trials diverged, NaN follows."""
    samples = max(o.error.shape[1] for o in outcomes)

    def stack(values: list[Any]) -> Any:
        return values[0] if len(values) == 1 else np.concatenate(values)[:n]

    def pad(values: Floats) -> Floats:
        missing = samples - values.shape[1]
        return np.pad(values, ((0, 0), (0, missing)), constant_values=np.nan)

    return Outcome(
        error=stack([pad(o.error) for o in outcomes]),
        consensus=stack([pad(o.consensus) for o in outcomes]),
        x=stack([o.x for o in outcomes]),
        metrics={
            name: stack([pad(o.metrics[name]) for o in outcomes]) for name in outcomes[0].metrics
        },
        diverged=stack([o.diverged for o in outcomes]),
        traffic=outcomes[0].traffic,
    )


def _run_block(
    request: RunRequest, shards: Shards | None, numbers: Sequence[Numbers], number: int, part: Ints
) -> Outcome:
    variants = request.variants
    make = Simulation if shards is None else partial(ShardedSimulation, shards)
    with jax.enable_x64(True):
        simulation = make(
            request.algorithm,
            request.problem,
            request.network,
            seed=request.seed,
            trials=request.trials[part],
            stage=request.stage,
            variants=None if variants is None else [variants[t] for t in part.tolist()],
            numbers=[each.of(part) for each in numbers],
        )
        x0 = request.x0
        alike = np.broadcast_to(x0[0], (len(part), *x0.shape[1:]))
        x0 = x0[part] if x0.strides[0] else alike  # the same in all trials: not copied
        if request.recording is None:
            return _SampledBlock(request, simulation, x0, number).run()
        return _RecordedBlock(request, simulation, x0, number, part, request.recording).run()


class _SampledBlock:
    """One block of trials, advanced from sample to sample."""

    def __init__(self, request: RunRequest, simulation: Simulation, x0: Floats, number: int):
        self.request, self.simulation, self.number = request, simulation, number
        self.state = simulation.start(x0)
        self.k = 0
        self.awake = np.zeros(len(x0))
        self.diverged = np.full(len(x0), -1)
        self.error: list[Floats] = []
        self.consensus: list[Floats] = []
        self.metrics: dict[str, list[Any]] = {name: [] for name in request.metrics}
        self._note(*_measure(simulation, x0))
        self._measure_users(x0)

    def run(self) -> Outcome:
        if not self._resume():
            self._begin()
        targets = self.request.samples[1:]
        done, per_call, most = len(self.error) - 1, 1, _FIRST
        clock = Clock(self.request.checkpoint.every)
        while done < len(targets) and not (self.diverged >= 0).all():
            stride, n = int(targets[done]) - self.k, 1
            is_sample = stride <= most  # else a part of the way, so that a call stays short
            stride = min(stride, most)
            while (
                is_sample
                and n < min(per_call, SAMPLES, len(targets) - done)
                and targets[done + n] - targets[done + n - 1] == stride
            ):
                n += 1
            started = time.perf_counter()
            self._advance(stride, n, is_sample=is_sample)
            took = time.perf_counter() - started
            done += n * is_sample
            if is_sample and not self.request.metrics:
                per_call = max(1, min(2 * per_call, int(n * _CALL_SECONDS / max(took, 1e-9))))
            fitting = stride * n * _CALL_SECONDS / max(took, 1e-9)
            most = max(1, int(min(2 * max(most, stride * n), max(fitting, most / 2))))
            is_stopped, is_due = self.request.checkpoint.stop.is_set(), clock.is_due()
            per_call, most, is_stopped, is_due = self.simulation.agree(
                per_call, most, is_stopped, is_due
            )
            if (is_stopped or is_due) and self.request.checkpoint.directory is not None:
                self._leave()
            if is_stopped:
                raise Stopped
        return self._outcome()

    def _leave(self) -> None:
        """Save everything that `_resume` needs."""
        arrays: dict[str, Any] = {
            "k": self.k,
            "awake": self.awake,
            "diverged": self.diverged,
            "error": self.error,
            "consensus": self.consensus,
        }
        arrays |= {f"metric_{name}": values for name, values in self.metrics.items()}
        checkpoint = self.request.checkpoint
        unloaded = self.simulation.unload(self.state, is_kept=checkpoint.is_writer)
        states = ((f"state{n}", leaf) for n, leaf in enumerate(unloaded))
        checkpoint.save(self.number, itertools.chain(arrays.items(), states))

    def _resume(self) -> bool:
        """Continue from the state that this block left; False where it left none."""
        arrays = self.request.checkpoint.load(self.number)
        self.simulation.check_kept(-1 if arrays is None else int(arrays["k"]))
        if arrays is None:
            return False
        count = len(jax.tree.leaves(self.state))
        self.state = self.simulation.load(self.state, [arrays[f"state{n}"] for n in range(count)])
        self.k = int(arrays["k"])
        self.awake, self.diverged = arrays["awake"], arrays["diverged"]
        self.error, self.consensus = list(arrays["error"]), list(arrays["consensus"])
        self.metrics = {name: list(arrays[f"metric_{name}"]) for name in self.metrics}
        self.request.tick(self.k * len(self.diverged))
        return True

    def _begin(self) -> None:
        if self.request.algorithm.first_differs:
            self.state, awake = self.simulation.first(self.state)
            self.awake += awake
            self.k = 1
            self.request.tick(len(self.diverged))

    def _advance(self, stride: int, n: int, *, is_sample: bool) -> None:
        """N times `stride` iterations, each up to a sample, or once a part of the way to one."""
        before, k = self.state, self.k
        self.state, awake, block = self.simulation.advance(before, k, stride, n)
        self.awake += awake
        self.k += stride * n
        at = 0  # the sample from which `before` goes on
        for s in range(n):
            lost = is_lost(block.error[s]) & (self.diverged < 0)
            if lost.any():
                if s > at:
                    before, _, _ = self.simulation.advance(before, k, stride, s - at)
                    k, at = k + stride * (s - at), s
                self._locate(before, k, stride, lost)
            if is_sample:
                self._note(block.error[s], block.consensus[s])
        if is_sample and self.request.metrics:
            self._measure_users(self.simulation.estimates(self.state))
        self.request.tick(stride * n * len(self.diverged))

    def _locate(self, state: Any, k: int, stride: int, lost: NDArray[np.bool_]) -> None:
        """Run the stretch before a sample again, iteration by iteration, to name the first bad
        one.
        """
        end = k + stride
        while k < end and (self.diverged[lost] < 0).any():
            n = min(SAMPLES, end - k)
            state, _, block = self.simulation.advance(state, k, 1, n)
            bad = is_lost(block.error)
            for t in np.flatnonzero(lost & bad.any(0) & (self.diverged < 0)):
                self.diverged[t] = k + 1 + int(np.argmax(bad[:, t]))
            k += n
        self.diverged[lost & (self.diverged < 0)] = end

    def _note(self, error: Floats, consensus: Floats) -> None:
        self.error.append(error)
        self.consensus.append(consensus)

    def _measure_users(self, x: Floats) -> None:
        for name, metric in self.request.metrics.items():
            self.metrics[name].append(apply_metric(name, metric, x, self.request.problem))

    def _outcome(self) -> Outcome:
        return Outcome(
            error=np.array(self.error).T,
            consensus=np.array(self.consensus).T,
            x=self.simulation.estimates(self.state, is_kept=self.request.checkpoint.is_writer),
            metrics={name: np.array(values).T for name, values in self.metrics.items()},
            diverged=self.diverged,
            traffic=_count(self.simulation, self.awake, self.k),
        )


class _RecordedBlock(_SampledBlock):
    """One block of trials that keeps every message. It gets the metrics of every iteration, and
    picks the samples from them.
    """

    def __init__(
        self,
        request: RunRequest,
        simulation: Simulation,
        x0: Floats,
        number: int,
        part: Ints,
        recording: Recording,
    ):
        super().__init__(request, simulation, x0, number)
        self.part, self.recording = part, recording
        self.targets = set(request.samples.tolist())

    def run(self) -> Outcome:
        program, args = self.simulation.program, self.simulation.args
        last, chunk = int(self.request.samples[-1]), _chunk(self.simulation)
        self.recording.write(TRACE, self.part, 0, self.simulation.estimates(self.state)[:, None])
        if self.request.algorithm.first_differs:
            self.state, out = program.record_first(args, self.state)
            self._keep("first", jax.tree.map(lambda leaf: np.asarray(leaf)[None], out))
        while self.k < last and not (self.diverged >= 0).all():
            n = min(chunk, last - self.k)
            if self.request.metrics:  # users' metrics need the iterates at every sample
                n = min(n, int(self.request.samples[len(self.error)]) - self.k)
            prepared = self.simulation.prepared
            self.state, out = program.record(args, prepared, self.state, np.int64(self.k), n=n)
            self._keep("step", jax.tree.map(np.asarray, out))
            if self.request.checkpoint.stop.is_set():
                raise Stopped
        self.recording.ended[self.part] = self.k
        return self._outcome()

    def _keep(self, which: str, kept: Any) -> None:
        wire, masks, error, consensus, x = kept
        x = x[:, self.simulation.position]
        self.recording.write(TRACE, self.part, self.k + 1, np.moveaxis(x, -1, 0))
        self._write(which, wire, masks)
        self.awake += sum((mask.sum((0, 1, 2)) for mask in masks), np.zeros(len(self.diverged)))
        for off, apart in zip(error, consensus, strict=True):
            self.k += 1
            self.diverged[is_lost(off) & (self.diverged < 0)] = self.k
            if self.k in self.targets:
                self._note(off, apart)
        if self.k in self.targets:
            self._measure_users(self.simulation.estimates(self.state))
        self.request.tick(len(error) * len(self.diverged))

    def _write(self, which: str, sent: Any, masks: Any) -> None:
        """Record messages (n, slots or agents, numbers, trials), by arc or by sender."""
        wires = self.simulation.program.traffic[f"recorded {which}"].wires
        length = 1 if which == "first" else None
        masks = iter(masks)
        for wire, values in zip(wires, sent, strict=True):
            layout = self.simulation.layouts[wire.links]
            rows = values[:, layout.flat if wire.pushed else layout.position]
            kept: list[tuple[Any, Any]] = [((which, wire), rows)]
            if wire.masked:
                kept.append(((which, wire, AWAKE), next(masks)[:, layout.flat, 0] > 0))
            for name, array in kept:
                self.recording.write(
                    name, self.part, self.k, np.moveaxis(array, -1, 0), length=length
                )


def _chunk(simulation: Simulation) -> int:
    """Iterations to record per call, so that a network of any size fits in memory."""
    slots = max(layout.n_out for layout in simulation.layouts.values())
    each = 8 * max(1, slots) * simulation.plan.dim * simulation.plan.n_trials
    return max(1, min(CHUNK, _CHUNK_BYTES // each))


def _channels(request: RunRequest, recording: Recording) -> tuple[Channel, ...]:
    graph = request.network.graph
    graphs = {Links.GRAPH: graph}
    if request.algorithm.links is Links.TWO_HOP:
        graphs[Links.TWO_HOP] = graph.two_hop()
    spans = {"first": slice(0, 1), "step": slice(int(request.algorithm.first_differs), None)}
    return tuple(
        recorded_channel(
            recording,
            (which, wire),
            (wire.round, wire.exchange, "push" if wire.pushed else "pull"),
            graphs[wire.links],
            by_sender=not wire.pushed,
            span=spans[which],
        )
        for which, wire in recording.exchanges()
    )


def _measure(simulation: Simulation, x0: Floats) -> tuple[Floats, Floats]:
    solution = np.asarray(simulation.args["solution"])[0].T[:, None, :]  # (trials or 1, 1, d)
    return measure(x0 if x0.strides[1] else x0[:, :1], solution)  # all agents may start alike


def _count(simulation: Simulation, awake: Floats, iterations: int) -> Traffic:
    """The traffic of an iteration, counted from the exchanges that a step really made."""
    named, dim = simulation.program.traffic, simulation.plan.dim
    # a first iteration that differs is not what later ones cost, unless it is the only one
    which = "first" if simulation.algorithm.first_differs and iterations == 1 else "step"
    seen = named[which] if which in named else named[f"recorded {which}"]
    arcs = simulation.arcs
    steady = [use for use in seen.uses if use.always]
    vectors = float(sum(arcs[use.links] for use in steady if not use.scalar))
    numbers = float(sum(arcs[use.links] * use.numbers for use in steady))
    if len(steady) < len(seen.uses):
        woken = float(awake.mean()) / iterations
        vectors += woken
        numbers += woken * dim
    used = max((arcs[use.links] for use in seen.uses), default=0)
    return Traffic(
        rounds_per_iteration=seen.rounds,
        links=used,
        extra_links=max(0, used - arcs[Links.GRAPH]),
        messages_per_link=vectors / used if used else 0.0,
        numbers_per_link=numbers / used if used else 0.0,
        bytes_per_iteration=8.0 * numbers,
        gradients_per_iteration=float(seen.gradients),
    )
