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
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.machine import StepMachine
from hushgrad.agent.weights import Ends
from hushgrad.errors import (
    AgentError,
    DiameterError,
    DivergedError,
    MaskError,
    PeerLostError,
    ProblemError,
    ReplayError,
    StaleCopyError,
    StateError,
)
from hushgrad.network.config.file import load_config
from hushgrad.network.config.model import AgentConfig, RunConfig
from hushgrad.network.introduction import introduce, local_agent
from hushgrad.network.journaled import JournaledMachine
from hushgrad.network.keys.identity import Certificate, Identity, load_certificate, load_identity
from hushgrad.network.keys.masking import MASKS, begun_with, check_begun, mask_tokens_of, masked
from hushgrad.network.objective.objectives import Objective, load_objective
from hushgrad.network.ops.counters import Stats
from hushgrad.network.ops.result import AgentResult, Status
from hushgrad.network.pace import Pace
from hushgrad.network.protocol.hello import public_parts
from hushgrad.network.protocol.session import Peer, SelfDescription, Session
from hushgrad.network.protocol.stopping import Stopping
from hushgrad.network.rounds import Rounds
from hushgrad.network.state.journal import StateDirectory
from hushgrad.network.state.position import Position, read_position
from hushgrad.network.state.samples import SAMPLES, Samples
from hushgrad.network.transport.hub import Hub
from hushgrad.network.transport.tls import TLS, Transport

log = logging.getLogger("hushgrad.agent")

type Vector = NDArray[np.float64]

FAR = 1e100  # an iterate with a larger entry counts as diverged
# A file in the state directory: the agent has finished, but a neighbour did not within `max_wait`.
LEFT = "left"
AGAIN = 10.0  # seconds that an agent with such a file waits at most, when it is started again
GRACE = 2.0  # seconds, once all have finished, for the neighbours to learn that all have


class Agent:
    """One agent; `config` is its configuration, or the path of its file.

        async for k, x in agent: …      each iteration in turn: x = θ̂ after k iterations
        result = await agent.run()      or the whole run at once

    `gradient` replaces the objective of the configuration: θ (d,) → ∇f(θ) (d,). `listening` is a
    bound socket that replaces the address of the configuration. The state directory outlives the
    agent. A new agent with the same configuration continues the run from there.
    """

    def __init__(
        self,
        config: AgentConfig | str | Path,
        *,
        gradient: Callable[[Vector], Any] | None = None,
        transport: Transport | None = None,
        listening: socket.socket | None = None,
    ):
        self.config = config if isinstance(config, AgentConfig) else load_config(config)
        self.stats = Stats()
        self._given, self._transport, self._listening = gradient, transport, listening
        self._samples: Samples | None = None
        self._rounds: Rounds | None = None
        self._hub: Hub | None = None
        self._is_asked_to_stop = False
        self._incarnation = 0
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
            is_bad_input = isinstance(error, ProblemError) and self.stats.round < 0
            if not self._incarnation or is_bad_input:  # the run did not begin
                raise
            return self._result(self._status_of(error), str(error), started)
        rounds, tolerance = self._rounds, self.config.run.tolerance
        status = rounds.status if rounds is not None else None
        is_missed = status is Status.DONE and tolerance is not None
        detail = f"the tolerance of {tolerance:g} was not reached" if is_missed else ""
        return self._result(status or Status.STOPPED, detail, started)

    def _status_of(self, error: Exception) -> Status:
        if isinstance(error, PeerLostError):
            return Status.PEER_LOST
        if isinstance(error, (StaleCopyError, ReplayError, MaskError, DiameterError)):
            return Status.REFUSED
        # gradients at a distant iterate overflow before the iterate does
        is_lost = isinstance(error, ProblemError) and not np.abs(self.x).max() < FAR
        return Status.DIVERGED if is_lost or isinstance(error, DivergedError) else Status.FAILED

    def _result(self, status: Status, detail: str, started: float) -> AgentResult:
        if self.stats.round < 0:  # the agent ended before it had read its journal
            with suppress(StateError):
                self._note_position(read_position(self.config.state))
        return AgentResult(
            name=self.config.name,
            run=self.config.run.id,
            status=status,
            detail=detail,
            theta=self.x,
            iterations=self.stats.iteration,
            rounds=self.stats.round + 1,
            incarnation=self._incarnation,
            peers=tuple(n.name for n in self.config.neighbours),
            seconds=monotonic() - started,
        )

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
        objective = load_objective(self._given or config.objective, config.run.dim)
        objective = masked(config, objective)
        credentials = None if self._transport else self._credentials()
        state = StateDirectory(
            config.state, run=config.run.id, agent=config.name, durability=config.durability
        )
        self._incarnation = state.incarnation  # from here on, the run has begun
        every = config.record_every
        if every is not None:
            path = config.state / SAMPLES
            self._samples = Samples(path, every=every, iterations=config.run.iterations)
        try:
            session, stopping = self._session()
            self._hub = hub = self._connect(session, stopping, credentials)
            try:
                async with aclosing(
                    self._go(state, session, stopping, hub, objective)
                ) as iterations:
                    async for k in iterations:
                        yield k
            finally:
                await hub.close()
        finally:
            await asyncio.to_thread(self._pool.shutdown)
            if self._samples is not None:
                self._samples.close()
            state.close()

    def _session(self) -> tuple[Session, Stopping]:
        config, run = self.config, self.config.run
        linked = [n for n in config.neighbours if not n.two_hop]
        into = sum(n.direction != "out" for n in linked)
        ends = Ends(into, out=sum(n.direction != "in" for n in linked))
        me = SelfDescription(
            public_parts(run), config.number, self._incarnation, ends, heartbeat=config.heartbeat
        )
        peers = {
            n.number: Peer(n.number, n.name, n.direction, n.two_hop) for n in config.neighbours
        }
        stopping = Stopping(_diameter(run))
        return Session(me, peers, stopping.n_bytes), stopping

    def _credentials(self) -> tuple[Identity, dict[str, Certificate]]:
        """The identity of this agent, and the certificates of its neighbours by name."""
        config = self.config
        return load_identity(config.key, config.certificate, name=config.name), {
            n.name: load_certificate(n.certificate, name=n.name) for n in config.neighbours
        }

    def _connect(
        self,
        session: Session,
        stopping: Stopping,
        credentials: tuple[Identity, dict[str, Certificate]] | None,
    ) -> Hub:
        config = self.config
        if credentials is not None:
            addresses = {n.name: n.address for n in config.neighbours if n.address is not None}
            self._transport = TLS(*credentials, addresses, self._listening or config.listen)
        assert self._transport is not None
        has_left = (config.state / LEFT).exists()
        return Hub(
            session,
            self._transport,
            dialled=[n.number for n in config.neighbours if n.address is not None],
            heartbeat=config.heartbeat,
            max_wait=min(config.max_wait, AGAIN) if has_left else config.max_wait,
            dim=config.run.dim,
            n_agents=config.run.n_agents,
            diameter=_diameter(config.run),
            stop_bytes=stopping.n_bytes,
            stats=self.stats,
            mask_tokens=mask_tokens_of(config),
        )

    async def _go(
        self,
        state: StateDirectory,
        session: Session,
        stopping: Stopping,
        hub: Hub,
        objective: Objective,
    ) -> AsyncGenerator[int]:
        known = links = state.links
        if links is None:
            hub.start()
            links = await introduce(self.config, hub, lambda: self._is_asked_to_stop)
            if links is None:
                return
        local = local_agent(self.config, hub, links, objective.gradient, state.secret)
        if known is None:  # local_agent has accepted the links
            state.store_links(links)
        steps = JournaledMachine(self.config.run.algorithm, local, self._x0)
        self._rounds = rounds = Rounds(
            self.config.run, steps, stopping, state, session.peers, self.stats
        )
        machine = rounds.machine
        mask_tokens = hub.mask_tokens
        began = begun_with(self.config.state / MASKS, mask_tokens)
        await self._compute(rounds.begin)
        self._note(rounds)
        check_begun(began, mask_tokens)
        self._sample(machine)
        if rounds.is_settled:
            return
        hub.refuse_all(session.restore(rounds.frames, rounds.consumed, machine.outbox.sizes))
        if rounds.status is not None:
            session.finish()
        hub.start()
        hub.send_round()
        if not self._is_followed:
            hub.complete = lambda: self._advance_now(hub, rounds)
        while rounds.status is None and not self._is_asked_to_stop:
            if hub.failure is not None or not session.is_complete:
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
                    yield machine.k
        if rounds.status is not None:
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
        except Exception as error:  # the task of the agent raises the error
            hub.fail(error)
        if rounds.status is not None:
            hub.wake()

    def _send_next(self, hub: Hub, rounds: Rounds, has_ended: bool) -> None:
        """Send the round that is in the journal now, and keep a sample if an iteration ended."""
        if rounds.status is None:
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

    def _note_position(self, position: Position | None) -> None:
        if position is not None and position.round is not None:
            self.stats.iteration, self.stats.round = position.iteration, position.round

    def _sample(self, machine: StepMachine) -> None:
        if self._samples is not None:
            try:
                self._samples.keep(machine.k, machine.x)
            except OSError as error:
                raise StateError(
                    f"'{self.config.state / SAMPLES}' cannot be written: {error.strerror}. The "
                    "state is kept: make room, then start the agent again."
                ) from error

    async def _compute[T](self, work: Callable[..., T], *given: Any) -> T:
        """Call `work` in a thread, so that the event loop goes on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, work, *given)

    async def _settle(self, hub: Hub, session: Session, rounds: Rounds) -> None:
        """Serve the last message until every neighbour has finished too."""
        if rounds.is_settled:
            return
        hub.broadcast(session.finish())
        try:
            while not session.is_settled and not self._is_asked_to_stop:
                await hub.change()
        except PeerLostError as error:
            log.warning(
                "left before %s had finished; start this agent again if it needs the last message",
                error, extra={"event": "unsettled"},
            )  # fmt: skip
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


def _diameter(run: RunConfig) -> int | None:
    """The bound on the hops between agents that stop together: n − 1 holds in every network."""
    if run.tolerance is None:
        return None
    return run.n_agents - 1 if run.diameter is None else run.diameter
