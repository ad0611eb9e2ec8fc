"""A deployment on one machine: every organisation is a directory, every agent a process.

The run.py of each deployment uses these functions. They do the work of all organisations: they make
keys, exchange certificates and start agents. Ports of the files become free ports of this machine.
"""

import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from hushgrad.network import mint, read_result

HERE = re.compile(r"127\.0\.0\.1:(\d+)")


def with_free_ports(texts):
    """The same texts, with each port of this machine replaced by a free port."""
    ports = {port for text in texts.values() for port in HERE.findall(text)}
    servers = {port: socket.create_server(("127.0.0.1", 0)) for port in ports}
    free = {port: server.getsockname()[1] for port, server in servers.items()}
    for server in servers.values():
        server.close()
    return {
        name: HERE.sub(lambda found: f"127.0.0.1:{free[found[1]]}", text)
        for name, text in texts.items()
    }


def settle(directory, files):
    """Give every agent a home with its file, its key and the certificates that the file names."""
    for name, text in with_free_ports(files).items():
        home = directory / name
        home.mkdir(parents=True, exist_ok=True)
        (home / "agent.toml").write_text(text, encoding="utf-8")
        mint(home, name)
    for name in files:
        tables = tomllib.loads((directory / name / "agent.toml").read_text(encoding="utf-8"))
        trusted = directory / name / "trusted"
        trusted.mkdir()
        for other in {t["name"] for t in [*tables["neighbour"], *tables.get("partner", [])]}:
            shutil.copy(directory / other / f"{other}.crt", trusted)


def run(directory, names, command=("-m", "hushgrad", "agent", "agent.toml", "--quiet")):
    """Start all agents, wait for them, and return the output of each."""
    agents = {
        name: subprocess.Popen(
            [sys.executable, *command], cwd=Path(directory) / name,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        )
        for name in names
    }  # fmt: skip
    until = time.monotonic() + 120
    while time.monotonic() < until and None in [agent.poll() for agent in agents.values()]:
        if any(agent.returncode for agent in agents.values()):  # the others would wait for it
            until = min(until, time.monotonic() + 3)
        time.sleep(0.05)
    for agent in agents.values():
        agent.terminate()
    ends = {name: agent.communicate() for name, agent in agents.items()}
    wrong = [
        f"{name} ended with {agents[name].returncode}: {printed}{errors}"
        for name, (printed, errors) in ends.items()
        if agents[name].returncode
    ]
    if wrong:  # all of them, since the others name the agent that ended the run
        sys.exit("\n".join(wrong))
    return {name: printed for name, (printed, _) in ends.items()}


def results(directory, names):
    """The result files of all agents."""
    return {name: read_result(Path(directory) / name / "state" / "result") for name in names}
