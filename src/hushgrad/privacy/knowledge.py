"""The knowledge of one adversary about one trial of a run, and nothing more.

A view holds public things (graph, weights, algorithm), the messages on the links that the adversary
hears, and its members' own knowledge. Everything else is not hidden in it but absent: no truth, no
run, no seed or key, no data of others. Only the game of membership gives its adversary more, all
data but one bit (`suspects`), and no other attack may look at that. Every attack takes a view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrad.algorithms.base import Algorithm
from hushgrad.errors import InputError, PrivacyError
from hushgrad.exchange import Links
from hushgrad.masks import Mask
from hushgrad.mixing import Network
from hushgrad.privacy.adversaries import Active, Adversary, Link
from hushgrad.privacy.replay import (
    gradients,
    masks,
    replays,
    shared_masks,
    stepsizes,
    trace_of,
    weights,
)
from hushgrad.privacy.rows import Suspicion, data_of, n_rows, total_rows
from hushgrad.simulate.result import Run
from hushgrad.simulate.transcript import Channel

type Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Own:
    """The knowledge of a curious agent about itself."""

    x: Floats  # (n + 1, d) its estimates
    gradients: Floats  # (n, d) of its f_i at them
    lam: Floats  # (n,) its stepsizes, NaN for an algorithm without a schedule
    columns: Mapping[int, Floats] | None  # {receiver: b^k (n,)}, None: no split by weights
    gradient: Callable[[ArrayLike], Floats]  # θ (d,) → ∇f_i(θ) (d,)
    mask: Mask | None  # that it added to its f_i
    shared: Mapping[int, Mask]  # {partner: the part of the partner's mask that the two share}
    n_rows: int | None = None  # of its data, if the data are rows


@dataclass(frozen=True, eq=False)
class _Heard:
    """The part of one channel that the adversary hears."""

    place: tuple[int, int]  # round, exchange
    iterations: NDArray[np.int64]  # (n,)
    row: Mapping[Link, int]
    values: Floats  # (n, rows, numbers)
    awake: Mapping[Link, NDArray[np.bool_]] | None  # (n,) each

    @staticmethod
    def of(channel: Channel, links: frozenset[Link], trial: int) -> _Heard:
        every = list(zip(channel.senders.tolist(), channel.receivers.tolist(), strict=True))
        kept = [n for n, link in enumerate(every) if link in links]
        if len(kept) == len(every) and len(channel.values) == 1:
            rows, values = channel.row, channel.values[0]
        else:  # a copy: a NumPy view would lead to what others sent
            needed, rows = np.unique(channel.row[kept], return_inverse=True)
            values = np.ascontiguousarray(channel.values[trial][:, needed])
        awake = None
        if channel.awake is not None:
            awake = {every[n]: channel.awake[trial, :, n].copy() for n in kept}
        return _Heard(
            (channel.round, channel.exchange),
            channel.iterations,
            {every[n]: int(row) for n, row in zip(kept, rows, strict=True)},
            values,
            awake,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Knowledge:
    """The messages heard, by link, round and exchange; and what members know of themselves."""

    algorithm: Algorithm  # its equation and the distributions of λ, B and masks are public
    network: Network
    dim: int
    iterations: int  # n
    stage_lengths: tuple[int, ...]  # they add up to n
    problem: str  # the kind of objective that all minimise: public
    members: frozenset[int]
    heard: frozenset[Link]  # (sender, receiver)
    links: frozenset[Link]  # all that the algorithm uses, two-hop ones included: public
    active: Active | None = None  # how members perturbed what they sent, if they did
    _channels: tuple[_Heard, ...] = field(repr=False)
    _own: Mapping[int, Own] = field(repr=False)
    n_rows: int | None = None  # Σ_i n_i, as a result publishes it
    mask_scale: float | None = None  # the unit of linear masks on which agents agreed
    start: Floats | None = None  # (d,) θ_s of a stage, which agent 0 tells all; None: not told
    suspects: Mapping[int, Suspicion] = field(default_factory=dict[int, Suspicion], repr=False)

    @staticmethod
    def of(
        run: Run, adversary: Adversary, *, trial: int = 0, known: dict[int, Own] | None = None
    ) -> Knowledge:
        """The view of an adversary on a run with a transcript; `trial` counts the run's trials.

        `known` is what other views of this trial have computed of agents, and is added to.
        """
        trace = trace_of(run, trial)
        m = run.network.n_agents
        for i in sorted(adversary.members):
            if not 0 <= i < m:
                raise InputError(
                    f"curious agents are numbered from 0 to {m - 1}, but one of them is {i}."
                )
        links = _wire_links(run.algorithm, run.network)
        heard = adversary.hears(links)
        return Knowledge(
            algorithm=run.algorithm,
            network=run.network,
            dim=trace.shape[2],
            iterations=trace.shape[0] - 1,
            stage_lengths=tuple(run.config.get("stages") or [trace.shape[0] - 1]),
            problem=run.problem.name,
            members=adversary.members,
            heard=heard,
            links=links,
            active=adversary.within(run.config.get("begin", 0), trace.shape[0] - 1)
            if isinstance(adversary, Active)
            else None,
            _channels=tuple(_Heard.of(c, heard, trial) for c in run.transcript.channels),  # type: ignore[union-attr]  # trace_of has checked it
            _own=_own(run, trial, trace, adversary.members, {} if known is None else known),
            n_rows=total_rows(*data_of(run, trial)),
            mask_scale=None if run.mask_scale is None else float(run.mask_scale[trial]),
            start=trace[0, 0].copy() if "whole" in run.config else None,
        )

    @property
    def n_agents(self) -> int:
        return self.network.n_agents

    @property
    def stages(self) -> tuple[range, ...]:
        """The iterations of each stage; one range for a run without stages."""
        return tuple(range(a, b) for a, b in pairwise([0, *accumulate(self.stage_lengths)]))

    def out_links(self, i: int) -> tuple[int, ...]:
        """The receivers of i, ascending."""
        return tuple(sorted(r for s, r in self.links if s == i))

    def in_links(self, i: int) -> tuple[int, ...]:
        """The senders to i, ascending."""
        return tuple(sorted(s for s, r in self.links if r == i))

    def hears(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self.heard

    def sent(self, sender: int, receiver: int, *, round: int = 0, exchange: int = 0) -> Floats:  # noqa: A002  # the transcript's word
        """(n, numbers): row k is the message of iteration k, NaN where there was none."""
        link = (sender, receiver)
        if link not in self.heard:
            known = "is not heard" if link in self.links else "does not exist"
            raise InputError(
                f"a view gives the messages of links that its adversary hears, but the link from "
                f"{sender} to {receiver} {known}. view.heard lists them."
            )
        parts = [c for c in self._channels if c.place == (round, exchange)]
        if not parts:
            raise InputError(
                f"{self.algorithm.title} has no exchange {exchange} in round {round}: "
                f"there are {sorted({c.place for c in self._channels})}."
            )
        found = np.full((self.iterations, parts[0].values.shape[2]), np.nan)
        for part in parts:
            if link in part.row:
                values = part.values[:, part.row[link]]
                if part.awake is not None:
                    values = np.where(part.awake[link][:, None], values, np.nan)
                found[part.iterations] = values
        return found

    def own(self, i: int) -> Own:
        """The knowledge of member i about itself."""
        if i not in self._own:
            who = f"agents {sorted(self.members)}" if self.members else "no agent"
            raise PrivacyError(
                f"only a member's own secrets are known to an adversary, but agent {i} is none: "
                f"this one consists of {who}."
            )
        return self._own[i]


def _trial(run: Run, row: int) -> int | None:
    """The trial's number, where every trial has data of its own."""
    return None if run.problem.n_trials is None else int(run.trials[row])


def _wire_links(algorithm: Algorithm, network: Network) -> frozenset[Link]:
    graph = network.graph.two_hop() if algorithm.links is Links.TWO_HOP else network.graph
    return frozenset(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))


def _own(
    run: Run, row: int, trace: Floats, members: frozenset[int], known: dict[int, Own]
) -> dict[int, Own]:
    new = members - set(known)
    every = masks(run, row) if new else None
    trial: Any = _trial(run, row)
    problem, of_data = data_of(run, row)
    for i, agent in replays(run, row, new).items() if new else ():
        known[i] = Own(
            x=trace[:, i].copy(),
            gradients=gradients(run, row, i, trace[:-1, i]),
            lam=stepsizes(agent, run.algorithm),
            columns=weights(agent, run.algorithm),
            gradient=run.problem.local_gradient(i, trial),
            mask=None if every is None else deepcopy(every[i]),
            shared=shared_masks(run, row, i),
            n_rows=n_rows(problem, i, of_data),
        )
    return {i: known[i] for i in members}
