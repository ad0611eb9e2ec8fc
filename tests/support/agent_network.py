"""Deployed agents in one event loop, with their keys and configurations, for network tests."""

import asyncio
import socket
from dataclasses import replace
from hashlib import sha256

import numpy as np

from hushgrad.agent.links import link_numbers
from hushgrad.exchange import Links
from hushgrad.network.config.model import AgentConfig, Neighbour, Partner, RunConfig
from hushgrad.network.deployed import Agent
from hushgrad.network.keys.identity import mint
from hushgrad.network.objective.objectives import ObjectiveSpec
from hushgrad.network.transport.in_memory import InMemoryTransport
from hushgrad.theory import WEAKNESSES

UNUSED = ObjectiveSpec(kind="rendezvous", n_agents=1, position=(0.0,))  # gradients are passed in


def name(j):
    return f"agent-{j}"


def run_id(directory):
    """An id for every directory: agents refuse an id that their keys have used before."""
    return f"test-{sha256(str(directory).encode()).hexdigest()[:12]}"


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def configs(directory, algorithm, network, *, dim, iterations, x0=None, tls=True, keys=None, **run):
    """One AgentConfig for each agent of a network; options go to the agents and to the run."""
    graph, m = network.graph, network.n_agents
    options = {k: run.pop(k) for k in list(run) if k in AgentConfig.__dataclass_fields__}
    keys = directory / "keys" if keys is None else keys
    if tls:
        for j in range(m):
            if not (keys / f"{name(j)}.key").exists():
                mint(keys, name(j))
    ports = free_ports(m) if tls else range(1, m + 1)
    pairs = list(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))
    arcs = set(pairs)
    numbers = {}
    if not network.is_directed:
        every = link_numbers(graph).tolist()
        numbers = dict(zip(pairs, every, strict=True))
    masking = getattr(algorithm, "masking", None)
    far = set()
    if algorithm.links is Links.TWO_HOP:
        two = graph.two_hop()
        far = set(zip(two.senders.tolist(), two.receivers.tolist(), strict=True)) - arcs
    given = RunConfig(
        id=run.pop("id", run_id(directory)),
        algorithm=algorithm,
        iterations=iterations,
        dim=dim,
        n_agents=m,
        mixing=run.pop("mixing", "uniform" if network.is_directed else "metropolis"),
        n_links=graph.n_links if not algorithm.needs else None,
        **run,
    )

    def neighbour(j, i):
        direction = "both"
        if (j, i) not in far:
            direction = {(True, True): "both", (True, False): "out", (False, True): "in"}[
                (j, i) in arcs, (i, j) in arcs
            ]
        return Neighbour(
            name=name(i),
            number=i,
            certificate=keys / f"{name(i)}.crt",
            address=("127.0.0.1", ports[i]),
            direction=direction,
            two_hop=(j, i) in far,
            link=numbers.get((j, i)) if not algorithm.needs else None,
        )

    return [
        AgentConfig(
            **{
                "name": name(j),
                "number": j,
                "key": keys / f"{name(j)}.key",
                "certificate": keys / f"{name(j)}.crt",
                "state": directory / "state" / name(j),
                "result": directory / "results" / name(j),
                "run": replace(given, x0=None if x0 is None else tuple(np.asarray(x0)[j].tolist())),
                "neighbours": tuple(
                    neighbour(j, i)
                    for i in range(m)
                    if i != j and ({(j, i), (i, j)} & (arcs | far))
                ),
                "partners": tuple(
                    Partner(name=name(i), number=i, certificate=keys / f"{name(i)}.crt")
                    for i in (masking.partners(j, m) if masking and tls else ())
                ),
                "objective": UNUSED,
                "listen": ("127.0.0.1", ports[j]),
                "durability": "process",
                "max_wait": 20.0,
                "heartbeat": 1.0,
                "max_jumps": 0,  # no neighbour of an honest run jumps
                "accept_exposure": frozenset(WEAKNESSES),
                **options,
            }
        )
        for j in range(m)
    ]


def agents(configs, gradients, *, hessians=None, tls=True):
    """Agents with these gradients; if they have Hessians, their objectives are quadratic."""
    everyone = {}
    return [
        Agent(
            c, gradient=g, hessian=H, quadratic=H is not None,
            transport=None if tls else InMemoryTransport(c.name, everyone),
        )
        for c, g, H in zip(configs, gradients, hessians or [None] * len(configs), strict=True)
    ]  # fmt: skip


async def ends(agents, timeout=60):
    """Run agents to their end; returns their results."""
    async with asyncio.timeout(timeout):
        return await asyncio.gather(*(agent.run() for agent in agents))


async def leave(agents, k, timeout=60):
    """Run agents up to iteration k, where each of them stops."""

    async def follow(agent):
        async for n, _ in agent:
            if n >= k:
                agent.stop()

    async with asyncio.timeout(timeout):
        await asyncio.gather(*map(follow, agents))


async def together(agents, timeout=60):
    """Run agents to their end; returns the estimates (K, agents, d)."""
    kept = [[] for _ in agents]

    async def follow(agent, own):
        async for _, x in agent:
            own.append(x)

    async with asyncio.timeout(timeout), asyncio.TaskGroup() as group:
        for agent, own in zip(agents, kept, strict=True):
            group.create_task(follow(agent, own))
    return np.array(kept).swapaxes(0, 1)
