"""What one agent is told: `agent.toml`, checked whole before anything starts."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hushgrad.algorithms.base import Algorithm
from hushgrad.network.objective.objectives import ObjectiveSpec

type Address = tuple[str, int]  # host, port
type Direction = Literal["both", "in", "out"]
type Durability = Literal["process", "power"]

MAX_WAIT = 300.0  # seconds: a neighbour may reboot meanwhile
HEARTBEAT = 5.0  # seconds

_ADDRESS = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s:\[\]]+)):(?P<port>\d{1,5})"
)


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """An agent at the other end of a link."""

    name: str
    number: int
    certificate: Path
    address: Address | None = None  # where to dial it; None: it dials here
    direction: Direction = "both"  # "in": it sends here; "out": this agent sends to it
    two_hop: bool = False  # a link that only W² uses
    link: int | None = None  # number of the link in the network, where links take turns


@dataclass(frozen=True, kw_only=True)
class Partner:
    """An agent with which this one shares a mask, neighbour or not."""

    name: str
    number: int
    certificate: Path


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What all agents of a run agree on; the seed apart, which is for tests and studies."""

    id: str
    algorithm: Algorithm
    iterations: int
    dim: int
    n_agents: int
    tolerance: float | None = None  # stop together when all are as still as this
    diameter: int | None = None  # a bound on the hops between any two agents
    seed: int | None = None  # None: a secret key in the state directory
    mixing: str = "metropolis"
    max_degree: int | None = None  # of the whole network, for mixing = "max_degree"
    eta: float | None = None  # of the whole network, for quadratic masks
    x0: tuple[float, ...] | None = None  # (dim,) this agent's start; None: zeros
    n_links: int | None = None  # links of the whole network, where links take turns


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """One agent: who it is, whom it talks to, what it runs. `load_config` reads and checks one."""

    name: str
    number: int
    key: Path
    certificate: Path
    state: Path  # directory: journal, secret, lock
    result: Path  # without suffix: .json and .npz are written
    run: RunConfig
    neighbours: tuple[Neighbour, ...]
    objective: ObjectiveSpec
    listen: Address | None = None
    partners: tuple[Partner, ...] = ()
    durability: Durability = "power"
    max_wait: float = MAX_WAIT
    heartbeat: float = HEARTBEAT
    record_every: int | None = None  # iterations between estimates kept in state/samples
    metrics: Address | None = None
    log: LogConfig = field(default_factory=LogConfig)


def parse_address(text: str) -> Address:
    """`host:port`, with an IPv6 host in brackets; ValueError with the rule.

    >>> parse_address("[::1]:7440")
    ('::1', 7440)
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ValueError('is not an address "host:port", such as "10.0.0.7:7440" or "[::1]:7440"')
    return match["host"] or match["six"], int(match["port"])


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
