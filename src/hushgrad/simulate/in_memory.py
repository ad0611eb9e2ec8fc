"""Agents alone, each with its own step machine, joined in one process.

`hg.run` with `engine="agents"` uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrad.agent.local import local_agents
from hushgrad.agent.machine import StepMachine
from hushgrad.agent.rounds import Payload
from hushgrad.algorithms.base import Algorithm
from hushgrad.exchange import Links, Pull, Push
from hushgrad.graphs import Graph
from hushgrad.mixing import Network
from hushgrad.problems import Problem
from hushgrad.simulate.recording import AWAKE, TRACE, Recording
from hushgrad.simulate.request import (
    Outcome,
    RunRequest,
    Tamper,
    apply_metric,
    is_lost,
    measure,
)
from hushgrad.simulate.result import Traffic
from hushgrad.simulate.transcript import Channel, recorded_channel


class InMemoryNetwork:
    """The agents of a network, which exchange their messages round by round."""

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        network: Network,
        x0: NDArray[np.float64],  # (agents, d)
        *,
        seed: int,
        trial: int,
        stage: int = 0,
        tamper: Tamper | None = None,
    ):
        self.tamper = tamper
        self.gradients = 0  # that agent 0 has evaluated
        self.locals = local_agents(algorithm, problem, network, seed=seed, trial=trial, stage=stage)
        self.locals[0] = replace(self.locals[0], gradient=self._counted(self.locals[0].gradient))
        self.agents = [StepMachine(algorithm, a, x0[a.number]) for a in self.locals]
        for agent in self.agents:
            agent.begin()

    def _counted(self, gradient: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(x: Any) -> Any:
            self.gradients += 1
            return gradient(x)

        return counted

    @property
    def x(self) -> NDArray[np.float64]:
        """(agents, d)."""
        return np.array([agent.x for agent in self.agents])

    def iterate(self) -> Iterator[dict[tuple[int, int], Payload]]:
        """One iteration; gives {(sender, receiver): payload} of each of its rounds."""
        has_ended = False
        while not has_ended:
            sent = [self._sent(j) for j in range(len(self.agents))]
            yield {(j, i): payload for j, out in enumerate(sent) for i, payload in out.items()}
            inboxes: list[dict[int, Payload]] = [{} for _ in self.agents]
            for j, out in enumerate(sent):
                for i, payload in out.items():
                    inboxes[i][j] = payload
            for agent, inbox in zip(self.agents, inboxes, strict=True):
                has_ended = agent.advance(agent.receive(inbox))  # for all: they run the same step
        for agent in self.agents:
            agent.go_on()

    def _sent(self, j: int) -> Mapping[int, Payload]:
        """{receiver: payload} of this round, tampered with where an agent does that."""
        agent = self.agents[j]
        out, tamper = agent.outbox.payloads, self.tamper
        if tamper is None:
            return out
        return {i: tamper(agent.k, j, i, payload) for i, payload in out.items()}


class SentMessages:
    """The messages of one trial: counted over the iterations from `counts_from` on, and kept in the
    recording if there is one.
    """

    def __init__(self, *, counts_from: int, row: int, linked: Graph, recording: Recording | None):
        self.counts_from, self.row, self.recording = counts_from, row, recording
        self.rounds = self.vectors = self.numbers = self.gradients = 0
        arcs = zip(linked.senders.tolist(), linked.receivers.tolist(), strict=True)
        self._arc = {link: n for n, link in enumerate(arcs)}

    def note(
        self,
        k: int,
        turn: int,
        asked: tuple[Push | Pull, ...],
        mail: dict[tuple[int, int], Payload],
    ) -> None:
        """The mail {(sender, receiver): payloads} of round `turn` of iteration k."""
        counted = k >= self.counts_from
        self.rounds += counted
        for link, payload in mail.items():
            for e, vector in enumerate(payload):
                if vector is None:
                    continue
                if counted:
                    self.vectors += not getattr(asked[e], "scalar", False)
                    self.numbers += len(vector)
                if self.recording is not None:
                    kind = "push" if isinstance(asked[e], Push) else "pull"
                    self._keep((turn, e, kind), k, link, vector)

    def _keep(self, name: tuple[int, int, str], k: int, link: tuple[int, int], vector: Any) -> None:
        assert self.recording is not None
        place = self.row, k, self._arc[link]
        self.recording.array(name, (len(self._arc), len(vector)))[place] = vector
        self.recording.array((*name, AWAKE), (len(self._arc),), bool)[place] = True

    def traffic(self, iterations: int, links: int, graph_links: int) -> Traffic:
        """The mean traffic of an iteration; `links` counts two-hop links too, `graph_links` not."""
        iterations -= self.counts_from
        return Traffic(
            rounds_per_iteration=round(self.rounds / iterations),
            links=links,
            extra_links=max(0, links - graph_links),
            messages_per_link=self.vectors / links / iterations if links else 0.0,
            numbers_per_link=self.numbers / links / iterations if links else 0.0,
            bytes_per_iteration=8.0 * self.numbers / iterations,
            gradients_per_iteration=self.gradients / iterations,
        )


def _channels(linked: Graph, recording: Recording) -> tuple[Channel, ...]:
    names = sorted(recording.exchanges())
    return tuple(recorded_channel(recording, name, name, linked) for name in names)


def simulate(request: RunRequest) -> Outcome:
    """All trials of a request, one after the other, agent by agent."""
    m, d = request.x0.shape[1:]
    samples = len(request.samples)
    error, consensus = (np.full((len(request.trials), samples), np.nan) for _ in range(2))
    metrics = {name: np.full((len(request.trials), samples), np.nan) for name in request.metrics}
    x = np.empty((len(request.trials), m, d))
    diverged = np.full(len(request.trials), -1)
    every_solution = np.atleast_2d(request.problem.solution())
    has_own = request.problem.n_trials is not None
    own_problems = request.problem.places(request.trials) if has_own else None
    mails: list[SentMessages] = []
    iterations = int(request.samples[-1])
    graph = request.network.graph
    linked = graph.two_hop() if request.algorithm.links is Links.TWO_HOP else graph
    recording = request.recording
    for t, trial in enumerate(request.trials.tolist()):
        solution = every_solution[0 if own_problems is None else own_problems[t]]
        # a first iteration that differs is not what later ones cost, unless it is the only one
        counts_from = int(request.algorithm.first_differs and iterations > 1)
        mail = SentMessages(counts_from=counts_from, row=t, linked=linked, recording=recording)
        mails.append(mail)
        joined = InMemoryNetwork(
            request.algorithm,
            request.problem,
            request.network,
            request.x0[t],
            seed=request.seed,
            trial=trial,
            tamper=request.tamper,
            stage=request.stage,
        )
        sample = 0
        for k in range(iterations + 1):
            x[t] = joined.x
            if recording is not None:
                recording.array(TRACE, (m, d))[t, k] = x[t]
                recording.ended[t] = k
            off, apart = measure(x[t][None], solution)
            if k == request.samples[sample]:
                error[t, sample], consensus[t, sample] = off[0], apart[0]
                for name, metric in request.metrics.items():
                    value = apply_metric(name, metric, x[t][None], request.problem)
                    metrics[name][t, sample] = value[0]
                sample += 1
            if is_lost(off)[0]:
                diverged[t] = k
                break
            if k < iterations:
                before = joined.gradients
                for turn, sent in enumerate(joined.iterate()):
                    mail.note(k, turn, joined.agents[0].asked, sent)
                mail.gradients += (k >= counts_from) * (joined.gradients - before)
                request.tick(1)
    done = iterations
    if (diverged >= 0).all():  # nothing follows
        done = max(1, int(diverged.max()))
        ended = int(np.searchsorted(request.samples, done)) + 1
        error, consensus = error[:, :ended], consensus[:, :ended]
        metrics = {name: values[:, :ended] for name, values in metrics.items()}
    first = iterations if diverged[0] < 0 else max(mails[0].counts_from + 1, int(diverged[0]))
    links = linked.n_arcs if mails[0].numbers else 0
    return Outcome(
        error=error,
        consensus=consensus,
        x=x,
        metrics=metrics,
        diverged=diverged,
        traffic=mails[0].traffic(first, links, graph.n_arcs),
        channels=() if recording is None else _channels(linked, recording),
        trace=None if recording is None else recording.read(TRACE, beyond=1),
    )
