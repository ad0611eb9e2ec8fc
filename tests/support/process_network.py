"""A network of agents that are processes of their own, from keys and files on disk. Tests of faults
and of the transport kill, stop and start them, and read the tape that recorded_agent.py writes.
"""

import multiprocessing
import os
import random
import shutil
import signal
import socket
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from hushgrad.masks import ZeroSum
from hushgrad.network.config.file import write_config
from hushgrad.network.keys.identity import mint
from hushgrad.network.ops.result import read_result
from hushgrad.network.state.journal import StateDirectory
from hushgrad.theory import WEAKNESSES
from support import recorded_agent
from support.agent_network import run_id

# processes are forked from one that has imported everything, so a start costs milliseconds
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process that forks must have no threads
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["hushgrad.network.ops.command"])

RING = ((0, 1), (1, 2), (2, 3), (3, 0))

# H_j (θ − c_j), with noise that never repeats itself if asked for; slow while the file `hold` is
# there, so that kills find the run in its middle
OBJECTIVE = """
import time
from pathlib import Path
import numpy as np
rng = np.random.default_rng([3, {number}])
A, c = rng.normal(size=({dim} + 2, {dim})), rng.normal(size={dim})
H = A.T @ A / (2 * {dim})
def gradient(theta):
    if Path({hold!r}).exists():
        time.sleep({pace})
    return H @ (theta - c) + {noise} * np.random.default_rng().normal(size={dim})
def hessian(theta):
    return H
"""


def name(j):
    return f"agent-{j}"


def ports(n):
    """Free ports below the range of outgoing connections, so that they stay free."""
    found = []
    while len(found) < n:
        port = random.SystemRandom().randrange(15_000, 32_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        if port not in found:
            found.append(port)
    return found


@dataclass
class Tape:
    """The messages and the iterates of one agent, over all its incarnations."""

    sent: dict[tuple[int, int], set[str]]  # (receiver, round) → digests
    iterates: dict[int, set[str]]  # k → bits of θ̂

    @classmethod
    def read(cls, path):
        sent, iterates = defaultdict(set), defaultdict(set)
        for line in path.read_text().splitlines():
            kind, *words = line.split()
            if kind == "S":
                sent[int(words[0]), int(words[1])].add(words[2])
            else:
                iterates[int(words[0])].add(words[1])
        return cls(dict(sent), dict(iterates))


@dataclass
class ProcessNetwork:
    """All agents of one run."""

    directory: Path
    n_agents: int
    processes: dict = field(default_factory=dict)  # the last of each agent
    id: str = ""

    def __post_init__(self):
        self.id = self.id or run_id(self.directory)

    def file(self, j):
        return self.directory / name(j) / "agent.toml"

    def state(self, j):
        return self.directory / name(j) / "state"

    @property
    def hold(self):
        return self.directory / "hold"

    def start(self, *who, **environment):
        for j in who or range(self.n_agents):
            home = self.directory / name(j)
            arguments = home / "tape", home / "log", ["agent", str(self.file(j))], environment
            self.processes[j] = FORKS.Process(
                target=recorded_agent.run, args=arguments, daemon=True
            )
            self.processes[j].start()

    def kill(self, j):
        self.processes[j].kill()
        self.processes[j].join()

    def send(self, j, number):
        os.kill(self.processes[j].pid, number)

    def is_running(self, j):
        return j in self.processes and self.processes[j].is_alive()

    def log(self, j):
        return (self.directory / name(j) / "log").read_text()

    def tape(self, j):
        return Tape.read(self.directory / name(j) / "tape")

    def tapes(self):
        return [self.tape(j) for j in range(self.n_agents)]

    def wait_for_tape(self, j, count):
        """Wait until an agent has written `count` more bytes to its tape."""
        tape = self.directory / name(j) / "tape"
        tape.touch()
        goal = tape.stat().st_size + count
        self.wait(lambda: tape.stat().st_size > goal)

    def iteration(self, j):
        path = self.directory / name(j) / "tape"
        return max(self.tape(j).iterates, default=0) if path.exists() else 0

    def result(self, j):
        return read_result(self.directory / name(j) / "result") or read_result(
            self.state(j) / "result"
        )

    def wait(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                for j in filter(self.is_running, range(self.n_agents)):
                    self.send(j, signal.SIGUSR1)  # the process writes its stack into its log
                time.sleep(0.5)
                logs = "\n".join(f"--- {j}\n{self.log(j)[-2000:]}" for j in self.processes)
                raise AssertionError(f"it does not come true within {seconds} s\n{logs}")
            time.sleep(0.005)

    def end(self, *who, seconds=60):
        """Wait for agents to end by themselves; returns their exit codes."""
        who = who or range(self.n_agents)
        self.wait(lambda: not any(self.is_running(j) for j in who), seconds)
        return [self.processes[j].exitcode for j in who]

    def close(self):
        for j in self.processes:
            if self.is_running(j):
                self.send(j, signal.SIGCONT)
                self.kill(j)


def write_network(
    directory,
    algorithm,
    *,
    edges=RING,
    dim=3,
    iterations=100,
    pace=0.0,
    noise=0.0,
    keys=None,
    **options,
):
    """Write the files of all agents; options of [run] and of [agent]."""
    n = 1 + max(max(edge) for edge in edges)
    network = ProcessNetwork(directory, n)
    keys = keys or directory / "keys"
    listen = ports(n)
    for j in range(n):
        if not (keys / f"{name(j)}.key").exists():
            mint(keys, name(j))
    of_run = {"seed", "tolerance", "diameter", "mixing", "n_links", "eta"}
    for j in range(n):
        home = network.file(j).parent
        home.mkdir(parents=True)
        text = OBJECTIVE.format(number=j, dim=dim, hold=str(network.hold), pace=pace, noise=noise)
        (home / "objective.py").write_text(text)
        tables = {
            "agent": {
                "name": name(j),
                "number": j,
                "key": str(keys / f"{name(j)}.key"),
                "certificate": str(keys / f"{name(j)}.crt"),
                "listen": f"127.0.0.1:{listen[j]}",
                "result": "result",
                "durability": "process",
                "heartbeat": 0.5,
                "max_wait": 30.0,
                "accept_exposure": list(WEAKNESSES),
            }
            | {key: value for key, value in options.items() if key not in of_run},
            "objective": {
                "function": "objective.py:gradient",
                "hessian": "objective.py:hessian",
                "quadratic": True,
            },
            "neighbour": [
                {
                    "name": name(i),
                    "number": i,
                    "certificate": str(keys / f"{name(i)}.crt"),
                    "address": f"127.0.0.1:{listen[i]}",
                }
                | ({"link": n_link} if "n_links" in options else {})
                for n_link, edge in enumerate(edges)
                if j in edge
                for i in set(edge) - {j}
            ],
            "partner": _partners(algorithm, j, n, keys),
            "run": {"id": network.id, "n_agents": n, "dim": dim, "iterations": iterations}
            | {key: value for key, value in options.items() if key in of_run},
            "algorithm": algorithm,
        }
        write_config(network.file(j), tables)
    return network


def _partners(algorithm, j, n, keys):
    """The mask partners of agent j; the recommended design has masks unless told otherwise."""
    is_paper = algorithm.get("design") == "paper" and "masks" not in algorithm
    if not algorithm["name"].startswith("PDG") or is_paper:
        return []
    return [
        {"name": name(i), "number": i, "certificate": str(keys / f"{name(i)}.crt")}
        for i in ZeroSum().partners(j, n)
    ]


def twin(network, directory):
    """The same network in another directory, with the same secrets; before the first start."""
    for j in range(network.n_agents):
        StateDirectory(network.state(j), run=network.id, agent=name(j)).close()
    shutil.copytree(network.directory, directory)
    other = ProcessNetwork(directory, network.n_agents, id=network.id)
    for j in range(network.n_agents):
        text = network.file(j).read_text()
        other.file(j).write_text(text.replace(str(network.directory), str(directory)))
        objective = other.file(j).with_name("objective.py")
        objective.write_text(objective.read_text().replace(str(network.directory), str(directory)))
    return other
