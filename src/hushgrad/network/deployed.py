"""The deployed agent: it computes with its own objective and exchanges messages with neighbours.

Users run an `Agent` from Python, and `hushgrad agent` (ops/command.py) runs one as a process.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrad.agent.machine import StepMachine
from hushgrad.agent.stages import n_stages
from hushgrad.agent.vectors import Vector
from hushgrad.errors import (
    AgentError,
    DivergedError,
    InputError,
    PeerEndedError,
    PeerLostError,
    ProblemError,
    StageError,
    StateError,
)
from hushgrad.network.admission import Admission, admit
from hushgrad.network.agreement import prepare
from hushgrad.network.config.file import load_config
from hushgrad.network.config.model import AgentConfig
from hushgrad.network.endings import status_of
from hushgrad.network.journaled import JournaledMachine
from hushgrad.network.keys.masking import MASKS, begun_with, check_begun
from hushgrad.network.keys.pairing import Pairing
from hushgrad.network.objective.objectives import load_objective
from hushgrad.network.ops.counters import Stats
from hushgrad.network.ops.result import AgentResult, Status
from hushgrad.network.pace import Pace
from hushgrad.network.protocol.codes import Ending
from hushgrad.network.protocol.session import Session
from hushgrad.network.protocol.stopping import Stopping
from hushgrad.network.rounds import Rounds
from hushgrad.network.staging import Stages, check_stages, prepare_stages
from hushgrad.network.state.journal import StateDirectory
from hushgrad.network.state.position import Position, read_position
from hushgrad.network.state.samples import SAMPLES, Samples
from hushgrad.network.state.waiting import tell_waiting
from hushgrad.network.suspicion import JumpPolicy, check_jumped
from hushgrad.network.transport.hub import Hub
from hushgrad.network.transport.tls import Transport
from hushgrad.network.wiring import credentials_of, hub_of, session_of, stages_of, tls_of

if TYPE_CHECKING:
    from hushgrad.fitting.plan_result import Fitted

log = logging.getLogger("hushgrad.agent")

# A file in the state directory: the agent has finished, but a neighbour did not within `max_wait`.
LEFT = "left"
AGAIN = 10.0  # seconds that an agent with such a file waits at most, when it is started again
GRACE = 2.0  # seconds, once all have finished, for the neighbours to learn that all have


class Agent:
    """One agent; `config` is its configuration, or the path of its file.

        async for k, x in agent: …      each iteration in turn: x = θ̂ after k iterations
        result = await agent.run()      or the whole run at once

    `gradient` replaces the objective of the configuration: θ (d,) → ∇f(θ) (d,). A run in stages
    also needs its `hessian`, θ → (d, d), and the word whether f is `quadratic`. `listening` is a
    bound socket that replaces the address of the configuration. The state directory outlives the
    agent. A new agent with the same configuration continues the run from there.
    """

    def __init__(
        self,
        config: AgentConfig | str | Path,
        *,
        gradient: Callable[[Vector], Any] | None = None,
        hessian: Callable[[Vector], Any] | None = None,
        quadratic: bool = False,
        transport: Transport | None = None,
        listening: socket.socket | None = None,
    ):
        config = config if isinstance(config, AgentConfig) else load_config(config)
        run = config.run
        self._is_quadratic = config.objective.is_quadratic if gradient is None else quadratic
        if gradient is not None or run.stages is None:
            run = replace(run, stages=n_stages(run.algorithm, is_quadratic=self._is_quadratic))
        self.config = replace(config, run=run)
        self.stats = Stats(stages=len(run.lengths))
        self._given, self._hessian = gradient, hessian
        self._transport, self._listening = transport, listening
        self._samples: Samples | None = None
        self._rounds: Rounds | None = None
        self._stages: Stages | None = None
        self._hub: Hub | None = None
        self._is_asked_to_stop = False
        self._incarnation = 0
        self._admission: Admission | None = None
        self._pace = Pace(self.config.heartbeat)
        self._is_followed = False  # the user iterates over the agent
        self._pool = ThreadPoolExecutor(1, "hushgrad-compute")

    # ---- the interface for users

    @property
    def x(self) -> Vector:
        """The present estimate θ̂."""
        if self._rounds is not None and self._rounds.round >= 0:
            return self._rounds.machine.x.copy()
        return self._x0

    @property
    def fitted(self) -> Fitted | None:
        """The result of a fit, once it has one."""
        result = None if self._stages is None else self._stages.result
        return None if result is None else replace(result, rounds=self.stats.round + 1)

    @property
    def _x0(self) -> Vector:
        run = self.config.run
        return np.zeros(run.dim) if run.x0 is None else np.array(run.x0, np.float64)

    def stop(self) -> None:
        """End the agent after the present round; a new agent can continue the run."""
        self._is_asked_to_stop = True
        if self._hub is not None:
            self._hub.wake()

    async def run(self) -> AgentResult:
        """Run until the run ends or cannot go on; the status of the result says which."""
        started = monotonic()
        try:
            async for _ in self._iterate():
                pass
        except (AgentError, DivergedError, ProblemError) as error:
            if not self._incarnation or self._is_bad_input(error):  # the run did not begin
                raise
            return self._result(status_of(error, self.x), str(error), started)
        rounds, tolerance = self._rounds, self.config.run.tolerance
        status = rounds.status if rounds is not None else None
        is_missed = status is Status.NOT_CONVERGED
        detail = f"the tolerance of {tolerance:g} was not reached" if is_missed else ""
        if self._stages is not None and self._stages.error is not None:
            detail = str(self._stages.error)
        return self._result(status or Status.STOPPED, detail, started)

    def _is_bad_input(self, error: Exception) -> bool:
        return isinstance(error, InputError) and self.stats.round < 0

    def _fail(self, hub: Hub, error: Exception) -> None:
        """End by an error, and tell the neighbours how; bad input can be corrected meanwhile."""
        if not self._is_bad_input(error):
            is_diverged = status_of(error, self.x) is Status.DIVERGED
            hub.fail(error, Ending.DIVERGED if is_diverged else None)
            if hub.is_telling:  # an agent that has not yet met its neighbours
                hub.start()

    def _result(self, status: Status, detail: str, started: float) -> AgentResult:
        if self.stats.round < 0:  # the agent ended before it had read its journal
            with suppress(StateError):
                self._note_position(read_position(self.config.state))
        if self._admission is not None:
            self._admission.end(status)
        return AgentResult(
            name=self.config.name,
            run=self.config.run.id,
            status=status,
            detail=detail,
            theta=self._theta,
            iterations=self.stats.iteration,
            rounds=self.stats.round + 1,
            incarnation=self._incarnation,
            peers=tuple(n.name for n in self.config.neighbours),
            seconds=monotonic() - started,
            stage=self.stats.stage,
            stages=self.stats.stages,
            jumps=dict(self.stats.jumps),
            fit=None if self.fitted is None else self.fitted.to_json(),
        )

    @property
    def _theta(self) -> Vector:
        """θ̂, or the coefficients of a fit; a fit that has not ended has none."""
        if self.config.run.model is None:
            return self.x
        return np.zeros(0) if self.fitted is None else self.fitted.estimate

    async def __aiter__(self) -> AsyncGenerator[tuple[int, Vector]]:
        self._is_followed = True
        async with aclosing(self._iterate()) as iterations:
            async for k in iterations:
                yield k, self.x

    # ---- a run

    async def _iterate(self) -> AsyncGenerator[int]:
        if self._incarnation:
            raise AgentError("an Agent runs once. Make a new Agent: it continues the run.")
        config = self.config
        known: dict[str, Any] = {"hessian": self._hessian, "quadratic": self._is_quadratic}
        objective = load_objective(self._given or config.objective, config.run.dim, **known)
        check_stages(config.run, objective)
        admission = admit(
            config, objective, is_quadratic=self._is_quadratic, is_given=self._given is not None
        )
        pairing = prepare(config)
        credentials = None if self._transport else credentials_of(config)
        state = StateDirectory(
            config.state, run=config.run.id, agent=config.name, durability=config.durability
        )
        self._incarnation = state.incarnation  # from here on, the run has begun
        every = config.record_every
        if every is not None:
            path = config.state / SAMPLES
            self._samples = Samples(path, every=every, iterations=config.run.iterations)
        try:
            admission.begin(state)
            self._admission = admission
            check_jumped(config.state)
            session, stopping = session_of(config, self._incarnation)
            if credentials is not None:
                self._transport = tls_of(config, credentials, self._listening)
            assert self._transport is not None
            longest = min(config.max_wait, AGAIN) if (config.state / LEFT).exists() else None
            self._hub = hub = hub_of(
                config, session, stopping, self._transport,
                max_wait=longest or config.max_wait, stats=self.stats,
            )  # fmt: skip
            hub.watching.tell = partial(tell_waiting, config.state)
            self._stages = stages = stages_of(config, objective)
            try:
                async with aclosing(
                    self._go(state, session, stopping, hub, stages, pairing)
                ) as iterations:
                    async for k in iterations:
                        yield k
            except Exception as error:
                self._fail(hub, error)
                raise
            finally:
                await hub.close()
                stages.close()
                tell_waiting(config.state, (), "")
        finally:
            await asyncio.to_thread(self._pool.shutdown)
            if self._samples is not None:
                self._samples.close()
            state.close()

    async def _go(
        self,
        state: StateDirectory,
        session: Session,
        stopping: Stopping,
        hub: Hub,
        stages: Stages,
        pairing: Pairing | None,
    ) -> AsyncGenerator[int]:
        local_of = await prepare_stages(
            stages, state, hub, pairing, self._x0, lambda: self._is_asked_to_stop, self._compute
        )
        if local_of is None:
            return
        self.config = stages.config  # with the stepsize on which the agents agreed
        is_open = self.config.run.model is not None
        steps = JournaledMachine(
            stages.algorithm, local_of, self._x0, begins=stages.begins, is_open=is_open
        )
        names = {j: peer.name for j, peer in session.peers.items()}
        suspicion = JumpPolicy(
            names, self.stats, state=self.config.state, max_jumps=self.config.max_jumps
        )
        self._rounds = rounds = Rounds(
            self.config.run, steps, stopping, state, session.peers, self.stats, suspicion
        )
        mask_tokens = hub.mask_tokens
        began = begun_with(self.config.state / MASKS, mask_tokens)
        await self._compute(rounds.begin)
        self._note(rounds)
        if rounds.status is None:
            check_begun(began, mask_tokens)
        else:
            state.forget_mask_key()
        if rounds.machine.k > rounds.machine.since:  # at the start of a stage, the last x is gone
            self._sample(rounds.machine)
        if rounds.is_settled:
            return
        sizes = rounds.machine.outbox.sizes
        hub.refuse_all(session.restore(rounds.frames, rounds.consumed, sizes))
        if rounds.status is not None:
            session.finish()
        hub.start()
        hub.send_round()
        if not self._is_followed:
            hub.complete = partial(self._advance_now, hub, rounds)
        while rounds.status is None and not self._is_asked_to_stop:
            if rounds.due is not None:
                if await stages.enter(hub, rounds, self._compute):
                    self._send_next(hub, rounds, has_ended=False)
            elif hub.failure is not None or not session.is_complete:
                await hub.change()
            else:
                if self._pace.is_slow:
                    has_ended = await self._compute(
                        self._pace.timed, rounds.advance, session.take()
                    )
                else:
                    has_ended = self._pace.timed(rounds.advance, session.take())
                self._send_next(hub, rounds, has_ended)
                if has_ended:
                    yield rounds.machine.k
        if rounds.status is not None:
            state.forget_mask_key()
            await self._settle(hub, session, rounds)

    def _advance_now(self, hub: Hub, rounds: Rounds) -> None:
        """Compute a round as soon as its last message is here; only if nobody iterates."""
        session = hub.session
        try:
            while session.is_complete:
                if hub.failure is not None or self._pace.is_slow or self._is_asked_to_stop:
                    hub.wake()
                    return
                has_ended = self._pace.timed(rounds.advance, session.take())
                self._send_next(hub, rounds, has_ended)
                if rounds.due is not None:
                    hub.wake()
        except Exception as error:  # the task of the agent raises the error
            self._fail(hub, error)
        if rounds.status is not None:
            hub.wake()

    def _send_next(self, hub: Hub, rounds: Rounds, has_ended: bool) -> None:
        """Send the round that is in the journal now, and keep a sample if an iteration ended."""
        if rounds.status is None and rounds.due is None:
            hub.commit(rounds.round, rounds.frames[rounds.round], rounds.machine.outbox.sizes)
        self._note(rounds)
        if has_ended and self._samples is not None:
            self._sample(rounds.machine)

    def _note(self, rounds: Rounds) -> None:
        """Write the position of this agent into `stats`, for metrics and reports."""
        stats, now = self.stats, monotonic()
        if rounds.round > stats.round >= 0:
            stats.rounds += 1
            stats.round_seconds.add(now - stats.last_progress)
        stats.iteration, stats.round, stats.last_progress = rounds.machine.k, rounds.round, now
        if stats.stages and self._stages is not None:
            stats.stage, stats.part = rounds.stage + 1, self._stages.part

    def _note_position(self, position: Position | None) -> None:
        if position is not None and position.round is not None:
            self.stats.iteration, self.stats.round = position.iteration, position.round

    def _sample(self, machine: StepMachine) -> None:
        if self._samples is not None:
            self._samples.keep(machine.k, machine.x)

    async def _compute[T](self, work: Callable[..., T], *given: Any) -> T:
        """Call `work` in a thread, so that the event loop goes on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, work, *given)

    async def _settle(self, hub: Hub, session: Session, rounds: Rounds) -> None:
        """Serve the last message until every neighbour has finished too."""
        if rounds.is_settled:
            return
        hub.broadcast(session.finish())
        hub.watching.note_progress()
        try:
            while not session.is_settled and not self._is_asked_to_stop:
                await hub.change()
        except (PeerLostError, PeerEndedError, StageError) as error:
            if isinstance(error, StageError) and self.fitted is None:
                raise  # a table that all partners of this agent have confirmed stays
            text = "left before others had finished: %s; start again if one needs the last message"
            log.warning(text, error, extra={"event": "unsettled"})
            with suppress(OSError):
                (self.config.state / LEFT).touch()
            return
        if not session.is_settled:
            return
        rounds.settle()
        try:
            async with asyncio.timeout(GRACE):
                while not all(p.knows_finished for p in session.peers.values()):
                    await hub.change()
        except (TimeoutError, AgentError):
            log.debug("the agent ended before all neighbours knew that all have finished")
