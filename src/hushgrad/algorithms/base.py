"""The base classes of the algorithms: parameters, an equation, the needs of a network.

Every file of this package derives its class from here. Drivers run an algorithm through `init`,
`step` and `estimate`.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

from hushgrad.errors import AlgorithmError, MixingError, StepsizeError
from hushgrad.exchange import Array, Links, Matrix, Step
from hushgrad.masks import Sizes, ZeroSum, check_masks, zero_sum
from hushgrad.mixing import Kind, Network
from hushgrad.splits import IdentitySplit, Split, check_split, fresh, private_constant
from hushgrad.stepsizes import (
    Auto,
    ConstantEach,
    Deviation,
    Schedule,
    check_schedule,
    constant,
    geometric,
    harmonic,
)

PAPER = "wang2023decentralized"


class Algorithm(abc.ABC):
    """A frozen dataclass of parameters with `init`, `step` and the paper's name.

    `agent` is the view of the agents here, bound to the iteration `agent.k`. A step is a
    generator: each `yield` of a Push or Pull is one communication round and returns the sum that
    the receiver forms.
    """

    title: ClassVar[str]  # the name as papers print it
    needs: ClassVar[Mapping[str, Kind]] = {}  # the kind of each matrix W, R, C that the steps use
    undirected: ClassVar[bool] = False  # whether steps need both directions of every link
    wakes_links: ClassVar[bool] = False  # whether steps ask which links a common coin wakes
    cites: ClassVar[tuple[str, ...]] = ()  # keys of hushgrad/references.bib
    guarantee: ClassVar[str]  # the proved result in one line
    links: Links = Links.GRAPH  # the links that messages use
    alternative: ClassVar[str] = ""  # one more way out, for the error about an asymmetric W

    @property
    def label(self) -> str:
        """The title and the parameters that differ from the paper's."""
        return self.title

    @abc.abstractmethod
    def init(self, agent: Any, x0: Array) -> Any:
        """The state before iteration 0, without communication."""

    @abc.abstractmethod
    def step(self, agent: Any, s: Any) -> Step[Any]:
        """Iteration `agent.k`: the next state."""

    def first(self, agent: Any, s: Any) -> Step[Any]:
        """Iteration 0, for an algorithm whose iteration 0 is not a `step`."""
        return self.step(agent, s)

    @property
    def first_differs(self) -> bool:
        """Whether iteration 0 differs from a step."""
        return type(self).first is not Algorithm.first

    def estimate(self, s: Any) -> Array:
        """θ̂ of every agent here."""
        return s.x

    def on(self, network: Network) -> Algorithm:
        """The algorithm with the numbers that follow from the network, such as its η."""
        del network
        return self

    def check(self, network: Network) -> None:
        """Refuse a network that the method cannot use. The message names a way out."""
        name = type(self).__name__
        if self.undirected and network.is_directed:
            raise AlgorithmError(
                f"{name} needs an undirected graph, where every agent hears the agents that it "
                "sends to, but this graph is directed. Use AB, PushPull or ADDOPT on a directed "
                "graph, or add the missing directions."
            )
        for letter, kind in self.needs.items():
            shortfall = network.shortfall(kind)
            if shortfall:
                # only asymmetry is in the way, so a method for a nonsymmetric W helps
                nearly = kind is Kind.SYMMETRIC and network.shortfall(Kind.DOUBLY) is None
                raise MixingError(
                    f"{name} needs a {_WORDS[kind]} {letter}, but {shortfall}. {_WAY_OUT[kind]}"
                    f"{self.alternative if nearly else ''}"
                )

    def risks(self, network: Network, smoothness: float) -> Iterator[str]:
        """Warnings about these settings on this network, each with the number behind it."""
        del network, smoothness
        yield from ()


_WORDS = {
    Kind.DOUBLY: "doubly stochastic",
    Kind.SYMMETRIC: "symmetric doubly stochastic",
    Kind.ROW: "row-stochastic",
    Kind.COLUMN: "column-stochastic",
}
_UNDIRECTED = 'Use mixing="metropolis" on an undirected graph, or PushPull on a directed one.'
_WAY_OUT = {
    Kind.DOUBLY: _UNDIRECTED,
    Kind.SYMMETRIC: _UNDIRECTED,
    Kind.ROW: 'Use mixing="uniform_row", or leave mixing out.',
    Kind.COLUMN: 'Use mixing="uniform_column", or leave mixing out.',
}


@dataclass(frozen=True, kw_only=True)
class Stepping(Algorithm):
    """An algorithm with a stepsize schedule, called as λ^k = self.lam(agent).

    With stepsize="auto", `hg.run` chooses a stepsize for the problem and the network.
    """

    stepsize: Schedule | Auto = constant(0.02)

    # whether unequal constants lead to the minimum of Σ λ_i f_i, and not to that of Σ f_i
    weighs_by_stepsize: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_schedule(self.stepsize, type(self).__name__)

    def check(self, network: Network) -> None:
        super().check(network)
        if isinstance(self.stepsize, Schedule):
            self.stepsize.check_agents(network.n_agents, type(self).__name__)

    @cached_property
    def schedule(self) -> Schedule:
        """The stepsize with the class's default deviation filled in."""
        return _chosen(self.stepsize, type(self).__name__)

    def lam(self, agent: Any) -> Array:
        return self.schedule(agent)


def _chosen(stepsize: Schedule | Auto, owner: str) -> Schedule:
    """The schedule, or an error if it is still to be chosen."""
    if isinstance(stepsize, Schedule):
        return stepsize
    raise StepsizeError(
        f'{owner} has stepsize="auto", which hg.run chooses when it knows the problem and the '
        "network, but the number is needed before. Use hg.run, or "
        "hg.theory.choose(algorithm, problem, network).schedule."
    )


def stepsize_risks(algorithm: Algorithm) -> Iterator[str]:
    """Warnings about stepsizes that differ from agent to agent, of any algorithm."""
    if not isinstance(algorithm, Stepping) or not algorithm.weighs_by_stepsize:
        return
    schedule = algorithm.schedule
    if isinstance(schedule, ConstantEach) and not schedule.is_equal:
        low, high = min(schedule.values), max(schedule.values)
        yield (
            f"{type(algorithm).__name__} with stepsizes from {low:.3g} to {high:.3g} minimises "
            "Σ λ_i f_i, which is not Σ f_i. Use one stepsize for all agents, or a method that "
            "stays exact with unequal ones: AugDGM, AsynDGM, DIGing, AB, PushPull, ADDOPT."
        )


class Masked(Algorithm):
    """An algorithm whose agents may add zero-sum masks to what they know."""

    masks_curvature: ClassVar[bool] = True  # whether a masked statistic has H_i, or q_i alone

    @property
    @abc.abstractmethod
    def masking(self) -> ZeroSum | None:
        """The masks that drivers add; None: no masks."""

    @property
    @abc.abstractmethod
    def least_unit(self) -> float:
        """The least unit of linear masks; a larger one covers the numbers of all agents."""

    @abc.abstractmethod
    def mask_sizes(self, dim: int, eta: float | None, scale: float | None = None) -> Sizes:
        """The sizes of the masks on a network with this η; None: η or the scale is unknown."""


class _Design(NamedTuple):
    """The parts that hide a step of the PDG family."""

    deviation: Deviation
    split: Split
    masks: ZeroSum | None


type Design = Literal["paper", "recommended"]

_DESIGNS = {
    "paper": _Design(harmonic(), fresh(), None),
    # benchmarks/simulator/designs.py shows the reasons for these values
    "recommended": _Design(geometric(0.5, drawn="once"), private_constant(own=0.45), zero_sum()),
}


@dataclass(frozen=True, kw_only=True)
class Private(Stepping, Masked):
    """A method of the PDG family: private deviations of λ, a private split B, masks.

    `design` fills in the parameters that the user leaves open. ``"paper"`` takes deviations ϱ/k²
    and fresh splits. ``"recommended"`` takes parts that do not keep fluctuating, zero-sum masks of
    the objective, and stages (hushgrad.agent.stages): one if all f_i are quadratic, else eight. A
    stage uses the Hessian at its start, or with curvature="fixed" a bound of all Hessians.
    """

    design: Design = "paper"
    split: Split | None = None  # None here, in masks or in stepsize.deviation: the design's
    masks: ZeroSum | None = None
    stages: int | None = None  # of masked quadratic models; 0: none; None: the design's
    curvature: Literal["newton", "fixed"] = "newton"  # of the models

    undirected = True
    cites = (PAPER,)

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if self.design not in _DESIGNS:
            raise AlgorithmError(
                f"{name} has the designs {' and '.join(map(repr, _DESIGNS))}, but "
                f"design = {self.design!r}."
            )
        if self.split is not None:
            check_split(self.split, name)
        check_masks(self.masks, name)
        self._check_stages()

    def _check_stages(self) -> None:
        name, stages = type(self).__name__, self.stages
        if self.curvature not in ("newton", "fixed"):
            raise AlgorithmError(
                f'{name} has the curvatures "newton" and "fixed", but curvature = '
                f"{self.curvature!r}."
            )
        is_count = isinstance(stages, int) and not isinstance(stages, bool) and stages >= 0
        if stages is not None and not is_count:
            raise AlgorithmError(
                f"{name} runs in a whole number of stages, but stages = {stages!r}. Leave it out: "
                "the design knows how many."
            )
        if stages == 0 and self.design == "recommended":
            raise AlgorithmError(
                'design="recommended" promises that messages tell nothing but a masked statistic, '
                f"which needs stages, but {name} has stages = 0. Leave stages out, or name the "
                "parts without the design: masks=hg.masks.zero_sum(), "
                "split=hg.splits.private_constant(own=0.45)."
            )

    @cached_property
    def schedule(self) -> Schedule:
        return super().schedule.deviating(_DESIGNS[self.design].deviation)

    @property
    def splitting(self) -> Split:
        """The split that steps use: the user's or the design's."""
        return _DESIGNS[self.design].split if self.split is None else self.split

    def B(self, agent: Any, over: Links = Links.GRAPH) -> Matrix:  # noqa: N802  # the paper's letter
        return self.splitting(agent, over)

    @property
    def masking(self) -> ZeroSum | None:
        return _DESIGNS[self.design].masks if self.masks is None else self.masks

    @property
    def least_unit(self) -> float:
        """1/λ: a mask of this size moves θ by about 1, so it costs few iterations."""
        return 1.0 / float(self.schedule.base(1.0))

    def mask_sizes(self, dim: int, eta: float | None, scale: float | None = None) -> Sizes:
        masks = self.masking or zero_sum(linear=0, quadratic=0)
        return masks.sizes(dim, lam=float(self.schedule.base(1.0)), eta=eta, scale=scale)

    @property
    def label(self) -> str:
        design = "" if self.design == "paper" else f", {self.design}"
        return self.title + design + (", B=I" if isinstance(self.split, IdentitySplit) else "")


class TrackerState(NamedTuple):
    x: Array  # (agents, d, trials)
    y: Array  # (agents, d, trials) tracks the mean gradient
    g: Array  # (agents, d, trials) gradient at x


@dataclass(frozen=True, kw_only=True)
class Tracker(Stepping):
    """Gradient tracking: y starts at the gradient, so Σ y = Σ g in every iteration.

    A limit has y_i = v_i ȳ with v > 0 and Σ_i π_i λ_i v_i ȳ = 0 with π ≥ 0, so ȳ = 0 and Σ g = 0:
    unequal stepsizes do not move it.
    """

    weighs_by_stepsize = False

    def init(self, agent: Any, x0: Array) -> TrackerState:
        g = agent.gradient(x0)
        return TrackerState(x=x0, y=g, g=g)
