"""The configuration of one agent, as dataclasses.

file.py makes them from `agent.toml`; every other part of the network side reads them.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hushgrad.agent.stages import stage_lengths
from hushgrad.algorithms.base import Algorithm
from hushgrad.algorithms.consensus import Consensus
from hushgrad.network.objective.objectives import ObjectiveSpec

if TYPE_CHECKING:  # an agent without a fit saves the memory
    from hushgrad.fitting.plan import Declared
    from hushgrad.network.objective.fit_rows import FitSpec

type Address = tuple[str, int]  # host, port
type Direction = Literal["both", "in", "out"]
type Durability = Literal["process", "power"]

MAX_WAIT = 300.0  # seconds: long enough for a neighbour to reboot
HEARTBEAT = 5.0  # seconds
LARGEST = 1e30  # sums of raw data are smaller, and ten more orders of magnitude are no data
_REACH = 16.0  # standard deviations: no entry of a mask is larger
MOST_LINKED = 128  # agents, up to which "auto" compares stepsizes of the whole network: seconds

_ADDRESS = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s:\[\]]+)):(?P<port>\d{1,5})"
)


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """An agent at the other end of a link."""

    name: str
    number: int
    certificate: Path
    address: Address | None = None  # this agent dials it; None: the neighbour dials this agent
    proxy: Address | None = None  # an HTTP proxy through which this agent dials it
    direction: Direction = "both"  # "in": the neighbour sends here; "out": this agent sends there
    two_hop: bool = False  # only W² uses the link
    link: int | None = None  # number of the link in the network, if links take turns


@dataclass(frozen=True, kw_only=True)
class Partner:
    """An agent that shares a mask with this agent; it need not be a neighbour."""

    name: str
    number: int
    certificate: Path


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The run: all agents agree on every field but `x0`.

    A seed is for tests and studies only: any agent that knows the seed knows all draws.
    """

    id: str
    algorithm: Algorithm
    iterations: int
    dim: int
    n_agents: int
    tolerance: float | None = None  # agents stop together once every step is this small
    diameter: int | None = None  # a bound on the hops between any two agents
    seed: int | None = None  # None: draws come from a secret in the state directory
    mixing: str = "metropolis"
    max_degree: int | None = None  # of the whole network, for mixing = "max_degree"
    eta: float | None = None  # of the whole network, for quadratic masks
    x0: tuple[float, ...] | None = None  # (dim,) this agent's start; None: zeros
    n_links: int | None = None  # links of the whole network, if links take turns
    stages: int | None = None  # 0: none; None: the design and the objective of an agent decide
    is_auto: bool = False  # stepsize = "auto": agents agree on it before round 0
    smoothness: float | None = None  # a public bound of all L_i, for "auto"; None: agents tell
    scale: float | None = None  # of gradients, for linear masks of stages; None: agents agree
    honest_rows: int | None = None  # at least, of the smallest honest component; None: own rows
    row_norm: float | None = None  # a public bound of ‖x‖ of every row, for the guarantee
    row_target: float | None = None  # the same of |y|
    largest: float | None = None  # no number in a message is larger; None: `bound` knows
    model: Declared | None = None  # of a fit, whose stages are averages

    @property
    def bound(self) -> float:
        """The largest number that a message may hold.

        Where vectors of a declared scale are averaged, entries and masks of up to _REACH standard
        deviations bound every message: mixing lengthens no vector of all agents' entries.
        """
        if self.largest is not None:
            return self.largest
        if not isinstance(self.algorithm, Consensus) or self.scale is None:
            return LARGEST
        masks = self.algorithm.masking
        shares = 0.0 if masks is None else masks.linear * math.sqrt(masks.n_partners)
        return _REACH * math.sqrt(self.n_agents) * (1 + shares) * power_of_two(self.scale)

    @property
    def tells_links(self) -> bool:
        """Whether the agents tell who is linked with whom, for the stepsize "auto"."""
        return self.is_auto and self.n_agents <= MOST_LINKED

    @property
    def lengths(self) -> tuple[int, ...]:
        """The iterations of each stage; none if the agents compute with f_i itself."""
        if not self.stages:
            return ()
        if self.model is not None:  # as many averages at most; the fit may end after any
            return (self.iterations // self.stages,) * self.stages
        curvature = getattr(self.algorithm, "curvature", "newton")
        return stage_lengths(self.iterations, self.stages, curvature)


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """The configuration of one agent. `load_config` reads and checks one."""

    name: str
    number: int
    key: Path
    certificate: Path
    state: Path  # directory: journal, secret, lock
    result: Path  # without suffix: .json and .npz are written
    run: RunConfig
    neighbours: tuple[Neighbour, ...]
    objective: ObjectiveSpec | FitSpec
    listen: Address | None = None
    partners: tuple[Partner, ...] = ()
    durability: Durability = "power"
    max_wait: float = MAX_WAIT
    heartbeat: float = HEARTBEAT
    max_jumps: int | None = None  # of one neighbour, before the agent ends the run; None: any
    record_every: int | None = None  # iterations between two estimates in state/samples
    metrics: Address | None = None
    accept_exposure: frozenset[str] = frozenset()  # names of hushgrad.theory.WEAKNESSES
    policy: Path | None = None  # of the site, besides the system's
    log: LogConfig = field(default_factory=LogConfig)


def power_of_two(scale: float) -> float:
    """The power of two from `scale` on."""
    return 2.0 ** math.ceil(math.log2(scale))


def parse_address(text: str) -> Address:
    """The host and the port of `host:port`; ValueError names the rule.

    >>> parse_address("[::1]:7440")
    ('::1', 7440)
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ValueError('is not an address "host:port", such as "10.0.0.7:7440" or "[::1]:7440"')
    return match["host"] or match["six"], int(match["port"])


def parse_proxy(text: str) -> Address:
    """The host and the port of a proxy's `http://host:port`; ValueError names the rule.

    >>> parse_proxy("http://proxy.example.org:3128")
    ('proxy.example.org', 3128)
    """
    scheme, separator, rest = text.partition("://")
    try:
        if scheme.lower() == "http" and separator:
            return parse_address(rest.removesuffix("/"))
    except ValueError:
        pass
    raise ValueError('is not a proxy "http://host:port", such as "http://10.0.0.1:3128"')


def shown_address(address: Address) -> str:
    """`host:port` as text.

    >>> shown_address(("::1", 7440))
    '[::1]:7440'
    """
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
