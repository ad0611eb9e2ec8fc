"""One agent of a network: it computes with its own objective and talks to its neighbours."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from math import inf
from pathlib import Path
from time import monotonic, perf_counter
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

# After some rounds that took longer, the next are computed in a thread, so that heartbeats go on.
# Most rounds are so short that handing them over would cost more than they do.
QUICK = 0.1  # seconds
SLOW_ROUNDS = 3  # a busy machine may delay one or two
FORGIVEN = 1 / 16  # of a slow round, by a quick one: not every round has a gradient to evaluate
FAR = 1e100  # from where on an iterate counts as diverged
LEFT = "left"  # in the state directory: it has finished, and waited in vain for others to
AGAIN = 10.0  # seconds that it then waits for them when it is asked again
GRACE = 2.0  # seconds that an agent waits, all being finished, for its neighbours to know it


class Agent:
    """One agent, as `config` or the file of this name describes it.

        async for k, x in agent: …      x = θ̂ after k iterations, as the run goes on
        result = await agent.run()      or all at once

    `gradient` replaces the objective of the configuration: θ (d,) → ∇f(θ) (d,). Whatever ends an
    agent, its state directory stays; the same configuration continues the run where it stood.
    `listening` is a socket that is bound already, in place of the configuration's address.
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
        self._slow_rounds = 0.0
        self._is_followed = False  # iteration by iteration, by who iterates
        self._pool = ThreadPoolExecutor(1, "hushgrad-compute")

    # ---- what a user sees

    @property
    def x(self) -> Vector:
        """θ̂ now."""
        if self._rounds is not None and self._rounds.round >= 0:
            return self._rounds.machine.x.copy()
        return self._x0

    @property
    def _x0(self) -> Vector:
        run = self.config.run
        return np.zeros(run.dim) if run.x0 is None else np.array(run.x0, np.float64)

    def stop(self) -> None:
        """Leave after the present round; the run can be continued later."""
        self._is_asked_to_stop = True
        if self._hub is not None:
            self._hub.wake()

    async def run(self) -> AgentResult:
        """Run to the end, or to what prevents it; the status says which."""
        started = monotonic()
        try:
            async for _ in self._iterate():
                pass
        except (AgentError, DivergedError, ProblemError) as error:
            is_bad_input = isinstance(error, ProblemError) and self.stats.round < 0
            if not self._incarnation or is_bad_input:  # nothing was begun
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
        # far out, gradients overflow before the iterates do
        is_lost = isinstance(error, ProblemError) and not np.abs(self.x).max() < FAR
        return Status.DIVERGED if is_lost or isinstance(error, DivergedError) else Status.FAILED

    def _result(self, status: Status, detail: str, started: float) -> AgentResult:
        if self.stats.round < 0:  # it ended before it stood where its journal ends
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
            raise AgentError("an Agent runs once. Make a new one, which continues where it stood.")
        config = self.config
        objective = load_objective(self._given or config.objective, config.run.dim)
        objective = masked(config, objective)
        credentials = None if self._transport else self._credentials()  # before anything is begun
        state = StateDirectory(
            config.state, run=config.run.id, agent=config.name, durability=config.durability
        )
        self._incarnation = state.incarnation
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
        near = [n for n in config.neighbours if not n.two_hop]
        ends = Ends(sum(n.direction != "out" for n in near), sum(n.direction != "in" for n in near))
        me = SelfDescription(
            public_parts(run), config.number, self._incarnation, ends, heartbeat=config.heartbeat
        )
        peers = {
            n.number: Peer(n.number, n.name, n.direction, n.two_hop) for n in config.neighbours
        }
        stopping = Stopping(_diameter(run))
        return Session(me, peers, stopping.n_bytes), stopping

    def _credentials(self) -> tuple[Identity, dict[str, Certificate]]:
        """This agent's, and its neighbours'."""
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
        if known is None:  # kept once they are found to do
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
            elif self._slow_rounds < SLOW_ROUNDS:
                if self._advanced(hub, rounds, self._timed(rounds.advance, session.take())):
                    yield machine.k
            elif self._advanced(
                hub, rounds, await self._compute(self._timed, rounds.advance, session.take())
            ):
                yield machine.k
        if rounds.status is not None:
            await self._settle(hub, session, rounds)

    def _advance_now(self, hub: Hub, rounds: Rounds) -> None:
        """Where nobody follows the iterations: compute a round when its last message comes."""
        session = hub.session
        try:
            while session.is_complete:
                if (
                    hub.failure is not None
                    or self._slow_rounds >= SLOW_ROUNDS
                    or self._is_asked_to_stop
                ):
                    hub.wake()
                    return
                self._advanced(hub, rounds, self._timed(rounds.advance, session.take()))
        except Exception as error:  # the agent's task raises it
            hub.fail(error)
        if rounds.status is not None:
            hub.wake()

    def _advanced(self, hub: Hub, rounds: Rounds, has_ended: bool) -> bool:
        """Send the round that is durable now; whether an iteration ended with the one before."""
        if rounds.status is None:
            hub.commit(rounds.round, rounds.frames[rounds.round], rounds.machine.outbox.sizes)
        self._note(rounds)
        if has_ended and self._samples is not None:
            self._sample(rounds.machine)
        return has_ended

    def _note(self, rounds: Rounds) -> None:
        """Where this agent stands, for who looks on."""
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
        """In a thread, so that the loop goes on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, work, *given)

    def _timed[T](self, work: Callable[..., T], *given: Any) -> T:
        started = perf_counter()
        done = work(*given)
        self._judge(perf_counter() - started)
        return done

    def _judge(self, seconds: float) -> None:
        """Whether rounds are slow, after one more."""
        if seconds > self.config.heartbeat:
            self._slow_rounds = inf
        elif seconds > QUICK:
            self._slow_rounds += 1
        elif self._slow_rounds:
            self._slow_rounds = max(0.0, self._slow_rounds - FORGIVEN)

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
            log.debug("left without the last farewell")


def _diameter(run: RunConfig) -> int | None:
    """How far the bits go by which agents stop together; n − 1 bounds the hops in any network."""
    if run.tolerance is None:
        return None
    return run.n_agents - 1 if run.diameter is None else run.diameter
