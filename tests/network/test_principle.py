"""The principle, on the wire: with one masked statistic, other data send the same bytes."""

import asyncio
import json
import logging
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.network.deployed import Agent
from hushgrad.network.local.setup import function_of
from hushgrad.network.objective.objectives import ObjectiveSpec
from hushgrad.network.objective.pytree_file import write_data
from hushgrad.network.ops.result import Status
from hushgrad.network.protocol.announcements import ENTRY
from hushgrad.network.protocol.frames import HEADER, FrameKind
from hushgrad.network.staging import Stages
from hushgrad.network.transport import in_memory
from hushgrad.theory import WEAKNESSES
from support import agent_network

NETWORK = hg.Network(hg.graphs.path(4))  # two leaves
ACTIVE = agent_network.name(2)
TIMES = ("clock", "life", "heartbeat")  # of a HELLO: they belong to the process
ROWS, STAGES = 80, 3

# 1/λ is the unit of masks: larger than what q_i of either world may become
ALGORITHM = hg.PDGNDS(stepsize=hg.stepsizes.constant(0.005), design="recommended", stages=STAGES)


def clinics(seed):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(ROWS, 2)) for _ in range(4)]
    X = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in X]
    return hg.problems.logistic(X, [rng.choice([-1.0, 1.0], ROWS) for _ in X], regularisation=20.0)


class Wire:
    """Every frame that an agent sends to a neighbour, by link and kind.

    If agent 2 is active, it adds to every message what it likes.
    """

    def __init__(self, monkeypatch, *, is_active):
        self._bytes = defaultdict(bytearray)
        write = in_memory._End.write

        def kept(end, data):
            data = self._perturbed(bytes(data)) if is_active and end.of == ACTIVE else data
            if not end.is_closing():
                self._bytes[end.of, end.to] += data
            write(end, data)

        monkeypatch.setattr(in_memory._End, "write", kept)

    def _perturbed(self, frame):
        _, _, kind, _, number, length, _ = HEADER.unpack_from(frame)
        if kind != FrameKind.DATA or len(frame) != HEADER.size + length:
            return frame
        message = np.frombuffer(frame[-2 * 8 :]) + 0.1 * np.sin([number, 2.0 * number])
        return frame[: -2 * 8] + message.tobytes()

    def taken(self):
        found = defaultdict(list)
        for link, stream in self._bytes.items():
            at = 0
            while at < len(stream):
                _, _, kind, _, number, length, flags = HEADER.unpack_from(stream, at)
                body = bytes(stream[at + HEADER.size : at + HEADER.size + length])
                at += HEADER.size + length
                if kind == FrameKind.HELLO:
                    told = json.loads(body)
                    body = json.dumps({k: v for k, v in told.items() if k not in TIMES})
                if kind not in (FrameKind.HEARTBEAT, FrameKind.FIN):
                    found[link, FrameKind(kind).name].append((number, flags, body))
        self._bytes.clear()
        return found


def without_times(frames):
    """The frames by link; announcements, which travel as they come, are one set.

    How often two agents connect depends on the time, so of HELLOs the different ones count.
    """
    told = {
        body[at : at + ENTRY]
        for (_, kind), every in frames.items()
        if kind == "ANNOUNCE"
        for _, _, body in every
        for at in range(0, len(body), ENTRY)
    }
    rest = {
        (link, kind): set(every) if kind == "HELLO" else every
        for (link, kind), every in frames.items()
        if kind != "ANNOUNCE"
    }
    return rest, told


def ends(directory, problem):
    directory.mkdir()
    made = agent_network.configs(
        directory, ALGORITHM, NETWORK, dim=2, iterations=140, seed=1, eta=NETWORK.eta,
        stages=STAGES, id="the-same", tls=False, max_jumps=None,
        accept_exposure=frozenset(WEAKNESSES),
    )  # fmt: skip
    given = {key: value for key, value in function_of(problem).items() if key != "data"}
    everyone, agents = {}, []
    for j, config in enumerate(made):
        write_data(directory / f"data-{j}.npz", problem.agent_data(j))
        spec = ObjectiveSpec(kind="function", n_agents=4, file=directory / f"data-{j}.npz", **given)
        one = replace(config, objective=spec)
        agents.append(Agent(one, transport=in_memory.InMemoryTransport(one.name, everyone)))
    results = asyncio.run(agent_network.ends(agents))
    assert [r.status for r in results] == [Status.DONE] * 4
    return [r.theta for r in results]


@pytest.mark.parametrize("is_active", [False, True])
def test_other_data_with_the_same_masked_statistics_send_the_same_bytes(
    tmp_path, monkeypatch, caplog, is_active
):
    caplog.set_level(logging.INFO, "hushgrad.agent")
    wire = Wire(monkeypatch, is_active=is_active)
    masked, kept = Stages._masked, {}

    def here(self, stage, start, own):
        kept[self.config.number, stage] = (start, masked(self, stage, start, own))
        return kept[self.config.number, stage][1]

    def there(self, stage, start, own):
        assert np.array_equal(start, kept[self.config.number, stage][0])
        mine = masked(self, stage, start, own)  # the data of this world are others indeed
        assert not np.array_equal(mine.q, kept[self.config.number, stage][1].q)
        return kept[self.config.number, stage][1]

    worlds = []
    for seed, way in enumerate((here, there, masked)):
        monkeypatch.setattr(Stages, "_masked", way)
        caplog.clear()
        theta = ends(tmp_path / f"{seed}", clinics(min(seed, 1)))
        of_run = [r for r in caplog.records if r.event in ("stage", "exposure", "stepsize", "jump")]
        said = sorted(r.getMessage() for r in of_run)  # connections depend on the time
        worlds.append((without_times(wire.taken()), said, np.concatenate(theta)))
    first, second, third = worlds
    frames, announced = first[0]
    assert {kind for _, kind in frames} == {"HELLO", "DATA", "STAGE"}
    assert len(announced) == 4
    assert first[0] == second[0]
    assert first[1] == second[1]
    assert np.array_equal(first[2], second[2])
    assert first[0] != third[0]  # without the same statistics, the bytes differ
