"""Two organisations with an agent each, as their files lie on disk."""

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hushgrad.network.config.file import write_config
from hushgrad.network.keys.identity import mint
from support.forked_agent import Forked
from support.waiting import free_port

POSITIONS = {"ann": [0.0, 4.0], "bob": [2.0, 0.0]}  # they meet at (1, 2)


@dataclass
class Process:
    """`hushgrad …` in a process of its own."""

    popen: subprocess.Popen

    def end(self, timeout=60):
        """(exit code, stdout, stderr)."""
        out, err = self.popen.communicate(timeout=timeout)
        return self.popen.returncode, out, err

    @property
    def is_running(self):
        return self.popen.returncode is None

    def signal(self, number):
        self.popen.send_signal(number)


@dataclass
class Pair:
    """Ann listens, Bob dials."""

    directory: Path
    files: dict[str, Path]
    metrics: int
    listen: int
    started: list[Process | Forked] = field(default_factory=list)

    def start(self, *arguments, code="from hushgrad.__main__ import main; main()"):
        """Start `hushgrad …` as a user does, and go on."""
        popen = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(Process(popen))
        return self.started[-1]

    def agent(self, name, *options):
        """Start an agent quickly, and go on."""
        self.started.append(Forked.start(self.directory, "agent", self.files[name], *options))
        return self.started[-1]

    def tables(self, name, **run):
        """The tables of one agent's file."""
        other = {"ann": "bob", "bob": "ann"}[name]
        neighbour = {"name": other, "number": int(other == "bob")}
        own = {"name": name, "number": int(name == "bob"), "durability": "process"}
        own |= {"max_wait": 30.0, "heartbeat": 1.0}
        own["accept_exposure"] = ["design", "degree"]  # EXTRA, and two agents: nothing is hidden
        if name == "ann":
            own |= {"listen": f"127.0.0.1:{self.listen}", "metrics": f"127.0.0.1:{self.metrics}"}
        else:
            neighbour["address"] = f"127.0.0.1:{self.listen}"
        return {
            "agent": own,
            "objective": {"kind": "rendezvous", "position": POSITIONS[name]},
            "neighbour": [neighbour],
            "run": {"id": "r1", "n_agents": 2, "dim": 2, "iterations": 60} | run,
            "algorithm": {"name": "EXTRA", "stepsize": {"kind": "constant", "value": 0.2}},
        }

    def write(self, name, tables):
        write_config(self.files[name], tables)


@pytest.fixture
def pair(tmp_path):
    """Keys, certificates exchanged, files written; what was started is ended."""
    files = {name: tmp_path / name / "agent.toml" for name in POSITIONS}
    made = Pair(tmp_path, files, free_port(), free_port())
    for name in POSITIONS:
        mint(tmp_path / name, name)
    for name, other in (("ann", "bob"), ("bob", "ann")):
        trusted = tmp_path / name / "trusted"
        trusted.mkdir()
        (trusted / f"{other}.crt").write_bytes((tmp_path / other / f"{other}.crt").read_bytes())
        made.write(name, made.tables(name))
    yield made
    for process in made.started:
        if process.is_running:
            process.signal(signal.SIGKILL)
            process.end()
