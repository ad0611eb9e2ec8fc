"""The compiled loop over iterations, which driver.py calls sample by sample.

A run compiles three small programs, whatever its length: the first iteration where it differs, a
block of samples (each a dynamic number of iterations, then the metrics), and, for transcripts, a
chunk that keeps every message. Trip counts are arguments, so chunk lengths change neither the
program nor a bit of the result.

The numbers of algorithms, their stepsizes, splits and masks are arguments, too (numbers.py):
another number needs no other program, and every trial may have its own. A step that looks at a
number has a program for each of them.

Everything is float64 within `jax.enable_x64`, in the calling thread only; no global flag is
flipped.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from hushgrad.agent.links import link_numbers, two_hop_weights
from hushgrad.agent.masking import seeded_masks
from hushgrad.algorithms.base import Algorithm
from hushgrad.draws import trial_keys
from hushgrad.exchange import Array, Links, drive
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.simulate.stacked.agents import StackedAgents
from hushgrad.simulate.stacked.compiled import Compiled, repeated
from hushgrad.simulate.stacked.constants import (
    LoopConstants,
    Plan,
    Prepared,
    SeenTraffic,
    StepNeeds,
)
from hushgrad.simulate.stacked.layout import Layout
from hushgrad.simulate.stacked.numbers import (
    NumbersSeenError,
    pattern_of,
    stacked_numbers,
    with_numbers,
)
from hushgrad.simulate.stacked.recorder import Recorder

SAMPLES = 128  # metrics kept per call of the compiled block
CHUNK = 256  # iterations per call that keeps a transcript


@dataclass(frozen=True)
class TrialBlock:
    """The metrics of a block of samples, as NumPy."""

    error: NDArray[np.float64]  # (samples, trials)
    consensus: NDArray[np.float64]  # (samples, trials)


class Program:
    """The compiled functions of an algorithm on a plan, and the traffic seen while tracing them.

    The algorithm's numbers are among the arguments, unless `is_fixed`. Over several devices the
    same functions run on every shard (shards/program.py).
    """

    agents: type[StackedAgents] = StackedAgents

    def __init__(self, algorithm: Algorithm, plan: Plan, *, is_fixed: bool = False):
        self._pattern, self.plan, self.is_fixed = algorithm, plan, is_fixed
        self.is_refused = False  # by a step that looks at its numbers
        # of a step, and of a first one that differs; recorders note their wires in it, too
        self.traffic: dict[str, SeenTraffic] = {}
        self._needs: dict[str, StepNeeds] = {}  # of a step, and of a first one
        self.start, self.first, self.block = self._compile()
        self.record_first = Compiled(self._record_first)
        self.record = Compiled(self._record, static_argnames="n")

    def _compile(self) -> tuple[Compiled, Compiled, Compiled]:
        return Compiled(self._start), Compiled(self._first), Compiled(self._block)

    def _start(self, args: Any, x0: Array) -> tuple[Any, Prepared]:
        """The state before iteration 0, and the arrays that the steps will ask for."""
        agent = self.agents(LoopConstants(self.plan, args), jnp.zeros((), int))
        algorithm = self._algorithm(args)
        state = algorithm.init(agent, x0)
        if algorithm.first_differs:  # it may look at a number, too, and shows it before it runs
            self._note_needs(args, state, algorithm.first)
        return state, self._constants(args, state, algorithm.step).prepared

    def _algorithm(self, args: Any) -> Algorithm:
        return self._pattern if self.is_fixed else with_numbers(self._pattern, args["numbers"])

    def _first(self, args: Any, state: Any) -> tuple[Any, Any]:
        first = self._algorithm(args).first
        agent = self.agents(self._constants(args, state, first), jnp.zeros((), int))
        state = drive(first(agent, state), agent.answer)
        self.traffic["first"] = agent.traffic
        return state, agent.awake + jnp.zeros(self.plan.n_trials)

    def _constants(
        self, args: Any, state: Any, step: Any, prepared: Prepared | None = None
    ) -> LoopConstants:
        """The arrays that the step will ask for, noted in a dry run and made before the loop."""
        return LoopConstants(self.plan, args, self._note_needs(args, state, step), prepared)

    def _note_needs(self, args: Any, state: Any, step: Any) -> StepNeeds:
        kind = step.__name__

        def dry(state: Any) -> Any:
            agent = self.agents(LoopConstants(self.plan, args), jnp.zeros((), int))
            state = drive(step(agent, state), agent.answer)
            self._needs[kind] = agent.constants.noted
            return state

        if kind not in self._needs:
            jax.eval_shape(dry, state)
        return self._needs[kind]

    def _step(self, step: Any, agent: StackedAgents, state: Any) -> Any:
        state = drive(step(agent, state), agent.answer)
        self.traffic["recorded step" if isinstance(agent, Recorder) else "step"] = agent.traffic
        return state

    def _metrics(self, args: Any, state: Any) -> tuple[Array, Array]:
        x = self._algorithm(args).estimate(state)
        off = jnp.sqrt(((x - args["solution"]) ** 2).sum(1)).max(0)
        apart = jnp.sqrt(((x - x.mean(0, keepdims=True)) ** 2).sum(1)).max(0)
        return off, apart

    def _block(
        self, args: Any, prepared: Prepared, state: Any, k: Any, stride: Any, n: Any
    ) -> tuple[Any, Any, Any, Any]:
        """N samples from iteration k on, each after `stride` iterations."""
        step, trials = self._algorithm(args).step, self.plan.n_trials
        constants = self._constants(args, state, step, prepared)

        def iterate(k: Any, carry: Any) -> Any:
            agent = self.agents(constants, k)
            state = self._step(step, agent, carry[0])
            return state, carry[1] + agent.awake

        def sample(s: Any, carry: Any) -> Any:
            inner = repeated(
                iterate, k + s * stride, stride, carry[:2], in_pairs=self.plan.is_large
            )
            off, apart = self._metrics(args, inner[0])
            return (*inner, carry[2].at[s].set(off), carry[3].at[s].set(apart))

        room = jnp.zeros((SAMPLES, trials))
        return lax.fori_loop(0, n, sample, (state, jnp.zeros(trials), room, room))

    def _kept(self, args: Any, agent: Recorder, state: Any) -> tuple[Any, ...]:
        """The record of an iteration: messages, the links awake, metrics, the iterates."""
        return (
            agent.wire,
            agent.masks,
            *self._metrics(args, state),
            self._algorithm(args).estimate(state),
        )

    def _record_first(self, args: Any, state: Any) -> Any:
        first = self._algorithm(args).first
        agent = Recorder(self._constants(args, state, first), jnp.zeros((), int))
        state = drive(first(agent, state), agent.answer)
        self.traffic["recorded first"] = agent.traffic
        return state, self._kept(args, agent, state)

    def _record(self, args: Any, prepared: Prepared, state: Any, k: Any, n: int) -> Any:
        step = self._algorithm(args).step
        constants = self._constants(args, state, step, prepared)

        def iterate(state: Any, k: Any) -> Any:
            agent = Recorder(constants, k)
            state = self._step(step, agent, state)
            return state, self._kept(args, agent, state)

        return lax.scan(iterate, state, k + jnp.arange(n))


@functools.lru_cache(maxsize=64)
def _cached_program(kind: type[Program], pattern: Algorithm, plan: Plan, is_fixed: bool) -> Program:
    return kind(pattern, plan, is_fixed=is_fixed)


_lock = threading.Lock()


def program_of(
    algorithm: Algorithm, plan: Plan, kind: type[Program] = Program, *, is_fixed: bool = False
) -> Program:
    """Runs that differ only in numbers share their compiled code, unless `is_fixed`."""
    pattern = algorithm if is_fixed else pattern_of(algorithm)
    try:
        with _lock:
            return _cached_program(kind, pattern, plan, is_fixed)
    except TypeError:  # parameters that cannot be hashed
        return kind(pattern, plan, is_fixed=is_fixed)


class Simulation:
    """An algorithm on a problem and a network, for some trials of a study.

    variants    the algorithm of every trial, which differ in numbers alone; None: one for all
    numbers     theirs, in these trials
    """

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        network: Network,
        *,
        seed: int,
        trials: NDArray[np.int64],
        stage: int = 0,
        variants: Sequence[Algorithm] | None = None,
        numbers: Sequence[NDArray[np.float64]] | None = None,
    ):
        self.algorithm, self.network, self.trials = algorithm, network, trials
        self._variants = variants
        if numbers is None:
            numbers = [n.values for n in stacked_numbers([algorithm])]
        graph = network.graph
        one_hop = Layout.of(graph.senders, graph.receivers, graph.n_agents)
        self.order, self.position = one_hop.into.order, one_hop.position
        self.layouts = {Links.GRAPH: one_hop}
        two_hop = None
        if algorithm.links is Links.TWO_HOP:
            two_hop = graph.two_hop()
            self.layouts[Links.TWO_HOP] = Layout.of(
                two_hop.senders, two_hop.receivers, graph.n_agents, self.order
            )
        self.plan = Plan(
            sides=tuple(
                (links, a.into.buckets, a.out.buckets) for links, a in self.layouts.items()
            ),
            n_agents=graph.n_agents,
            n_links=graph.n_links,
            n_trials=len(trials),
            dim=problem.dim,
            gradient=problem.gradient_function,
            groups=problem.n_groups,
            per_trial=problem.n_trials is not None,
            varied=tuple(n for n, number in enumerate(numbers) if number.ndim > 1),
        )
        self.arcs = {links: len(layout.senders) for links, layout in self.layouts.items()}
        self.program = program_of(algorithm, self.plan)
        self.prepared: Prepared  # from `start` on
        with jax.enable_x64(True):
            self.args = self._arrays(problem, seed, stage, two_hop)
            self.args["numbers"] = jax.device_put(list(numbers))

    def _arrays(self, problem: Problem, seed: int, stage: int, two_hop: Any) -> dict[str, Any]:
        network, graph = self.network, self.network.graph
        own: dict[str, Any] = {}
        receiving: dict[Any, Any] = {}
        sending: dict[Any, Any] = {}
        for letter, kind in self.algorithm.needs.items():
            weights = network.weights(kind)
            own[letter] = weights.own[self.order]
            on_arcs = {Links.GRAPH: {letter: weights.links}}
            if two_hop is not None:
                direct, square, own_square = two_hop_weights(network, two_hop, kind)
                on_arcs[Links.TWO_HOP] = {letter: direct, letter + "2": square}
                own[letter + "2"] = own_square[self.order]
            for links, named in on_arcs.items():
                for name, values in named.items():
                    receiving[links, name] = self.layouts[links].receiving(values)
                    sending[links, name] = self.layouts[links].sending(values)
        theta = problem.solution()
        theta = (
            theta[problem.places(self.trials)].T[None]
            if self.plan.per_trial
            else theta[None, :, None]
        )
        groups = [self._group(problem, group) for group in problem.groups]
        where = [self.position[group.agents] for group in problem.groups]
        ungroup = np.empty(graph.n_agents, np.int32)
        ungroup[np.concatenate(where)] = np.arange(graph.n_agents)
        arrays = {
            "agents": self.order.astype(np.uint32),
            "trial_key": trial_keys(seed, self.trials, stage),
            "tables": {links: layout.tables for links, layout in self.layouts.items()},
            "own": own,
            "receiving": receiving,
            "sending": sending,
            "solution": theta,  # (1, d, trials or 1)
            "data": groups,
            "group_index": [index.astype(np.int32) for index in where],
            "ungroup": ungroup,
        }
        if self.algorithm.wakes_links:
            arrays["link_number"] = self.layouts[Links.GRAPH].sending(link_numbers(graph) + 1) - 1
        masks = self._masks(problem.dim, seed)
        if masks is not None:
            arrays["mask"] = jax.tree.map(lambda part: part[self.order], masks)
        return jax.device_put(arrays)

    def _masks(self, dim: int, seed: int, agents: NDArray[np.int64] | None = None) -> Any:
        """The masks of these trials, of `agents` or all; sizes may hang on numbers that differ."""
        of = functools.partial(
            seeded_masks, network=self.network, dim=dim, seed=seed, agents=agents
        )
        if self._variants is None:
            return of(self.algorithm, trials=self.trials)
        own = [list(group) for _, group in itertools.groupby(range(len(self.trials)), self._which)]
        parts = [of(self._variants[places[0]], trials=self.trials[places]) for places in own]
        return jax.tree.map(lambda *each: np.concatenate(each, axis=-1), *parts)

    def _which(self, place: int) -> int:
        assert self._variants is not None
        return id(self._variants[place])

    def _group(self, problem: Problem, group: Any) -> Any:
        order = self.order if len(problem.groups) == 1 else np.arange(len(group.agents))
        if not self.plan.per_trial and np.array_equal(order, np.arange(len(order))):
            return group.data  # not copied: it may be most of the memory
        if self.plan.per_trial:  # (trials, agents, …) → (agents, …, trials)
            return jax.tree.map(
                lambda leaf: np.moveaxis(leaf[problem.places(self.trials)][:, order], 0, -1),
                group.data,
            )
        return jax.tree.map(lambda leaf: leaf[order], group.data)

    # ---- driving, each call within jax.enable_x64

    def start(self, x0: NDArray[np.float64]) -> Any:
        """The state before iteration 0 from x0 (trials, agents, d)."""
        stacked = self._stacked(x0)
        if not self.program.is_refused:
            try:
                state, self.prepared = self.program.start(self.args, stacked)
                return state
            except Exception:  # a step may look at a number; a mistake of its own comes again
                self.program.is_refused = True
        if self.plan.varied:
            raise NumbersSeenError
        self.program = program_of(self.algorithm, self.plan, type(self.program), is_fixed=True)
        state, self.prepared = self.program.start(self.args, stacked)
        return state

    def estimates(self, state: Any, *, is_kept: bool = True) -> NDArray[np.float64]:
        """θ̂ (trials, agents, d) in the agents' own order."""
        algorithm = self.algorithm
        if self._variants is not None:
            algorithm = with_numbers(pattern_of(algorithm), self.args["numbers"])
        x = self.rows(algorithm.estimate(state), is_kept=is_kept)
        return np.ascontiguousarray(x.transpose(2, 0, 1))

    def _stacked(self, x0: NDArray[np.float64]) -> Array:
        return jax.device_put(np.ascontiguousarray(x0[:, self.order].transpose(1, 2, 0)))

    def rows(self, array: Array, *, is_kept: bool = True) -> NDArray[Any]:
        """(agents, …) an array of the program in the order of the agents' numbers."""
        del is_kept
        return np.asarray(array)[self.position]

    def unload(self, state: Any, *, is_kept: bool = True) -> Iterator[NDArray[Any]]:
        """The arrays (agents, …) of a state by the agents' numbers; empty if not kept."""
        return (self.rows(leaf, is_kept=is_kept) for leaf in jax.tree.leaves(state))

    def load(self, state: Any, arrays: Sequence[NDArray[Any]]) -> Any:
        """The state with the arrays that `unload` gave, of this run on any number of devices."""
        shape = jax.tree.structure(state)
        return jax.tree.unflatten(shape, jax.device_put([a[self.order] for a in arrays]))

    def first(self, state: Any) -> tuple[Any, NDArray[np.float64]]:
        state, awake = self.program.first(self.args, state)
        return state, np.asarray(awake)

    def advance(
        self, state: Any, k: int, stride: int, n: int
    ) -> tuple[Any, NDArray[np.float64], TrialBlock]:
        """N ≤ SAMPLES samples; also the messages on links that only sometimes wake, (trials,)."""
        state, awake, off, apart = self.program.block(
            self.args, self.prepared, state, np.int64(k), np.int64(stride), np.int64(n)
        )
        return state, np.asarray(awake), TrialBlock(np.asarray(off)[:n], np.asarray(apart)[:n])

    # ---- where several processes run the simulation they do the same

    def agree(
        self, per_call: int, most: int, is_stopped: bool, is_due: bool
    ) -> tuple[int, int, bool, bool]:
        """The samples and iterations of the next call; whether to stop and to keep the state."""
        return per_call, most, is_stopped, is_due

    def check_kept(self, k: int) -> None:
        """Refuse a state that not all processes see; −1: there is none."""
