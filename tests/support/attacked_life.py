"""Connections to an agent that somebody attacks while a small run goes on."""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import replace

import hushgrad as hg
from hushgrad.network.ops.result import Status
from support import agent_network, attackers

K = 40  # iterations: an attack comes before the first
VICTIM, ACTOR = 1, 2  # the attacked agent, and the agent whose place an attacker takes first


def assert_goes_on(life, results, calm):
    assert {r.status for r in results} == {Status.DONE}, results
    assert life.iterates == calm


def client(**limits):
    """A TLS client that trusts every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for name, value in limits.items():
        setattr(context, name, value)
    return context


def showing(identity, context=None):
    context = context or client()
    context.load_cert_chain(identity.certificate_path, identity.key_path)
    return context


async def knock(address, context=None, content=b""):
    """Connect as soon as the agent listens, send `content`, and wait for the end."""
    for _ in range(2000):
        try:
            reader, writer = await asyncio.open_connection(
                *address, ssl=context, server_hostname="agent-1" if context else None
            )
            break
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
        except (ssl.SSLError, OSError):
            return
    writer.write(content)
    with suppress(ssl.SSLError, OSError):
        await reader.read()
    writer.transport.abort()


def rogue(life):
    return attackers.Rogue(life.configs[ACTOR], life.configs[VICTIM])


def alone(tmp_path, keys, dim, **options):
    """An agent whose only neighbour dials it, and that neighbour's configuration."""
    pair = hg.Network(hg.graphs.path(2))
    victim, actor = agent_network.configs(
        tmp_path, hg.DGD(), pair, dim=dim, iterations=10**5, keys=keys, **options
    )
    neighbours = tuple(replace(n, address=None) for n in victim.neighbours)
    return replace(victim, neighbours=neighbours), actor
