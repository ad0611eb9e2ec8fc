"""A network of agents in one thread, without I/O but their journals. Tests of the protocol and of
the journal choose any order of events and any crash.
"""

import random
from dataclasses import replace

import numpy as np

import hushgrad as hg
from hushgrad.agent.local import local_agents
from hushgrad.agent.weights import Ends
from hushgrad.draws import SeededDraws, trial_keys
from hushgrad.exchange import Links
from hushgrad.network.config.model import RunConfig
from hushgrad.network.journaled import JournaledMachine
from hushgrad.network.ops.counters import Stats
from hushgrad.network.protocol.frames import FrameKind, Parser, limits
from hushgrad.network.protocol.hello import public_parts
from hushgrad.network.protocol.session import Peer, SelfDescription, Session
from hushgrad.network.protocol.stopping import Stopping
from hushgrad.network.rounds import Rounds
from hushgrad.network.state.journal import StateDirectory
from hushgrad.network.suspicion import JumpPolicy


class Node:
    """One agent; only its directory survives a crash."""

    def __init__(
        self, local, run, x0, directory, near, *, noisy=None, seed=None, durability="process"
    ):
        self.number, self.near = local.number, near
        exact = local.gradient

        def gradient(x):
            """The gradient; if noisy, no two calls give the same bits."""
            return exact(x) * (1 + (0 if noisy is None else 1e-15 * noisy.choice((-1, 0, 1))))

        draws = local.draws if seed is None else SeededDraws(trial_keys(seed, [0]), local.number)
        self.state = StateDirectory(
            directory / str(local.number), run=run.id, agent=str(local.number),
            durability=durability,
        )  # fmt: skip
        local = replace(local, gradient=gradient, draws=draws)
        steps = JournaledMachine(run.algorithm, lambda _: local, x0)
        stats = Stats()
        suspicion = JumpPolicy(
            {i: str(i) for i in near}, stats, state=self.state.path, max_jumps=0
        )  # so that a false alarm ends the test
        self.rounds = Rounds(run, steps, Stopping(None), self.state, near, stats, suspicion)
        peers = {i: Peer(i, str(i), "both", False) for i in near}
        me = SelfDescription(public_parts(run), self.number, self.state.incarnation, Ends(1, 1))
        self.session = Session(me, peers, 0, n_agents=run.n_agents, most_rounds=8 * run.iterations)
        self.dim = run.dim
        self.kept = {}

    def begin(self):
        self.rounds.begin()
        assert len(self.rounds.frames) <= 2  # no neighbour can ask for older ones
        self.session.restore(
            self.rounds.frames, self.rounds.consumed, self.rounds.machine.outbox.sizes
        )
        if self.rounds.status is not None:
            self.session.finish()

    def advance(self):
        """Consume the present round; returns the frames of the next, if there is one."""
        if self.rounds.advance(self.session.take()):
            self.kept[self.rounds.machine.k] = self.rounds.machine.x.copy()
        if self.rounds.status is not None:
            self.session.finish()
            return {}
        frames = self.rounds.frames[self.rounds.round]
        assert not self.session.commit(self.rounds.round, frames, self.rounds.machine.outbox.sizes)
        return frames

    def hear(self, sender, data):
        for frame in Parser(limits(self.dim, 0)).feed(data):
            if frame.kind is FrameKind.DATA:
                self.session.accept(self.session.peers[sender], frame)


class MessageNetwork:
    """Nodes and links that deliver in order; a random number generator picks each next event."""

    def __init__(self, directory, algorithm, problem, network, x0, *, iterations, seed, **node):
        self.rng = random.Random(seed)
        self.directory, self.x0, self.node = directory, np.asarray(x0), node
        self.run = RunConfig(
            id="messages", algorithm=algorithm, iterations=iterations, dim=problem.dim,
            n_agents=network.n_agents,
        )  # fmt: skip
        self.locals = local_agents(algorithm, problem, network, seed=5, trial=0)
        graph = network.graph
        reach = graph.two_hop() if algorithm.links is Links.TWO_HOP else graph
        arcs = set(zip(reach.senders.tolist(), reach.receivers.tolist(), strict=True))
        links = arcs | {(i, j) for j, i in arcs}
        self.near = [sorted(i for a, i in links if a == j) for j in range(network.n_agents)]
        self.wires = {link: [] for link in links}  # frames on their way
        self.kept = [{} for _ in self.near]
        self.crashes = self.resent = 0
        self.nodes = [None] * network.n_agents
        for j in range(network.n_agents):
            self.start(j)

    def start(self, j, **node):
        """Start an agent, or start it again, and connect it: HELLO both ways."""
        self.nodes[j] = Node(
            self.locals[j], self.run, self.x0[j], self.directory, self.near[j],
            **{**self.node, **node},
        )  # fmt: skip
        self.nodes[j].begin()
        for i in self.near[j]:
            self.connect(i, j)

    def connect(self, i, j):
        a, b = self.nodes[i], self.nodes[j]
        self.wires[i, j], self.wires[j, i] = [], []
        if a is None or b is None:
            return
        said = {
            (i, j): a.session.hello(a.session.peers[j]), (j, i): b.session.hello(b.session.peers[i])
        }  # fmt: skip
        self.wires[i, j] = a.session.greet(a.session.peers[j], said[j, i])
        self.wires[j, i] = b.session.greet(b.session.peers[i], said[i, j])
        self.resent += len(self.wires[i, j]) + len(self.wires[j, i])

    def crash(self, j):
        """Crash an agent: everything that it has not written is lost."""
        node = self.nodes[j]
        self.kept[j] |= node.kept
        node.state.close()
        self.crashes += 1
        self.start(j)

    def step(self, crash_rate):
        """One event: an agent advances, a frame arrives, or an agent crashes."""
        j = self.rng.randrange(len(self.nodes))
        node = self.nodes[j]
        if self.rng.random() < crash_rate:
            self.crash(j)
        elif node.session.is_complete and node.rounds.status is None and self.rng.random() < 0.5:
            frames = node.advance()
            how_far = len(frames)
            is_hit = self.rng.random() < 10 * crash_rate
            if is_hit:  # between writing and sending, or between two links
                how_far = self.rng.randrange(len(frames) + 1)
            for i in sorted(frames)[:how_far]:
                self.wires[j, i].append(frames[i])
            if is_hit:
                self.crash(j)
        else:
            i = self.rng.choice(self.near[j])
            if self.wires[i, j]:
                node.hear(i, self.wires[i, j].pop(0))

    def live(self, *, crash_rate=0.0, until=10**6):
        """Run to the end; returns x^1 … x^K (K, agents, d)."""
        for _ in range(until):
            if all(node.rounds.status is not None for node in self.nodes):
                break
            self.step(crash_rate)
        else:
            raise AssertionError("the run does not end")
        for j, node in enumerate(self.nodes):
            self.kept[j] |= node.kept
            node.state.close()
        return np.array([[own[k] for own in self.kept] for k in range(1, self.run.iterations + 1)])


def reference(algorithm, problem, network, x0, iterations):
    """The same run without links, journals and crashes."""
    kept = []
    hg.run(
        algorithm, problem, network, iterations=iterations, record_every=1, x0=x0, seed=5,
        engine="agents", metrics={"keep": lambda x, _: kept.append(x[0].copy()) or 0.0},
    )  # fmt: skip
    return np.array(kept[1:])
