"""The wiring of a deployed agent: its session, credentials, hub and stages, from its configuration.

deployed.py calls these functions once at every start.
"""

from __future__ import annotations

import socket
from datetime import UTC, datetime

from hushgrad.agent.weights import Ends
from hushgrad.errors import IdentityError
from hushgrad.network.config.model import AgentConfig, RunConfig
from hushgrad.network.keys.identity import Certificate, Identity, load_certificate, load_identity
from hushgrad.network.keys.masking import announcements_of, confirmations_of, mask_tokens_of
from hushgrad.network.objective.objectives import Objective
from hushgrad.network.ops.counters import Stats
from hushgrad.network.protocol.hello import public_parts
from hushgrad.network.protocol.session import Peer, SelfDescription, Session
from hushgrad.network.protocol.stages import Starts
from hushgrad.network.protocol.stopping import Stopping
from hushgrad.network.staging import Stages
from hushgrad.network.transport.hub import Hub
from hushgrad.network.transport.tls import TLS, Transport

MOST_ROUNDS = 8  # in an iteration; no algorithm of the library has more than 2

type Credentials = tuple[Identity, dict[str, Certificate]]


def session_of(config: AgentConfig, incarnation: int) -> tuple[Session, Stopping]:
    linked = [n for n in config.neighbours if not n.two_hop]
    into = sum(n.direction != "out" for n in linked)
    ends = Ends(into, out=sum(n.direction != "in" for n in linked))
    public = public_parts(config.run)
    me = SelfDescription(public, config.number, incarnation, ends, heartbeat=config.heartbeat)
    peers = {n.number: Peer(n.number, n.name, n.direction, n.two_hop) for n in config.neighbours}
    stopping = Stopping(_diameter(config.run))
    session = Session(
        me, peers, stopping.n_bytes, n_agents=config.run.n_agents,
        most_rounds=MOST_ROUNDS * config.run.iterations, largest=config.run.bound,
    )  # fmt: skip
    return session, stopping


def stages_of(config: AgentConfig, objective: Objective) -> Stages:
    """The stages of an agent: of its fit, or of its objective."""
    if config.run.model is None:
        return Stages(config, objective)
    from hushgrad.network.programme import Programme  # an agent without a fit saves the memory

    return Programme(config, objective)


def credentials_of(config: AgentConfig) -> Credentials:
    """The identity of this agent, and the certificates of its neighbours by name."""
    own = load_identity(config.key, config.certificate, name=config.name)
    if (objection := own.certificate.objection()) is not None:
        raise IdentityError(
            f"no neighbour would accept this agent: its certificate '{config.certificate}' "
            f"{objection}, and this machine's clock says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. "
            "Set the clock, or make a new certificate (hushgrad key new) and exchange it."
        )
    return own, {n.name: load_certificate(n.certificate, name=n.name) for n in config.neighbours}


def tls_of(
    config: AgentConfig, credentials: Credentials, listening: socket.socket | None
) -> Transport:
    addresses = {n.name: n.address for n in config.neighbours if n.address is not None}
    proxies = {n.name: n.proxy for n in config.neighbours if n.proxy is not None}
    return TLS(*credentials, addresses, listening or config.listen, proxies)


def hub_of(
    config: AgentConfig,
    session: Session,
    stopping: Stopping,
    transport: Transport,
    *,
    max_wait: float,
    stats: Stats,
) -> Hub:
    run = config.run
    return Hub(
        session,
        transport,
        dialled=[n.number for n in config.neighbours if n.address is not None],
        heartbeat=config.heartbeat,
        max_wait=max_wait,
        dim=run.dim,
        n_agents=run.n_agents,
        diameter=_diameter(run),
        stop_bytes=stopping.n_bytes,
        stats=stats,
        mask_tokens=mask_tokens_of(config),
        announcements=announcements_of(config),
        starts=Starts(
            config.number,
            run.dim,
            len(run.lengths),
            are_told=run.model is None,
            largest=run.bound,
        ),
        confirmations=confirmations_of(config),
    )


def _diameter(run: RunConfig) -> int | None:
    """The bound on the hops between agents that stop together: n − 1 holds in every network."""
    if run.tolerance is None:
        return None
    return run.n_agents - 1 if run.diameter is None else run.diameter
