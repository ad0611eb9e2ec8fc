"""The files of a network of processes: each agent has its own directory, as on its own machine.

processes.py writes them before it starts the agents.

    network.json       written last, when the directory is complete
    agent-0/           agent.toml, agent-0.key, agent-0.crt, data.npz, log
    agent-0/trusted/   the certificates of its neighbours and mask partners
    agent-0/state/     its journal, samples and result

No agent's directory holds the data or the key of another agent.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hushgrad.agent.links import link_numbers
from hushgrad.agent.weights import MIXING
from hushgrad.algorithms.base import Algorithm, Masked, Private
from hushgrad.errors import InputError, MixingError, ProblemError
from hushgrad.exchange import Links
from hushgrad.files.atomic import replace_file
from hushgrad.graphs import Graph
from hushgrad.mixing import Network
from hushgrad.network.config.file import write_config
from hushgrad.network.config.model import Address, AgentConfig
from hushgrad.network.config.tables import TRUSTED
from hushgrad.network.keys.identity import mint
from hushgrad.network.objective.pytree_file import write_data
from hushgrad.problems import Problem
from hushgrad.schema.references import reference_to
from hushgrad.simulate.request import RunRequest
from hushgrad.theory.exposure import WEAKNESSES

type Table = dict[str, Any]

RUN = "local"  # the id of every such run: each run has its own directory
MOST_AGENTS = 256  # each agent is a process of some 50 MB
_COMPLETE = "network.json"


def name_of(number: int) -> str:
    return f"agent-{number}"


def check_request(request: RunRequest) -> None:
    """Refuse a run that processes cannot do, and name the way out."""
    n_agents = request.network.n_agents
    if request.trials.tolist() != [0]:
        raise InputError(
            "a network of processes runs one trial, number 0, but trials = "
            f"{len(request.trials) if len(request.trials) > 1 else request.trials.tolist()}. Use "
            "--trials 1, or --engine stacked for many."
        )
    if request.recording is not None:
        raise InputError(
            "processes keep no transcript, but transcript = true. Leave it out, or use "
            "--engine agents, which sends the same messages."
        )
    if n_agents > MOST_AGENTS:
        raise InputError(
            f"every agent is a process of some 50 MB, at most {MOST_AGENTS}, but the network has "
            f"{n_agents}. Use --engine agents, or stacked."
        )
    for reserved in {"difference"} & set(request.metrics):
        raise InputError(
            f"processes have a metric '{reserved}' of their own. Choose another name in [run]."
        )
    mixing = mixing_rule(request.network)
    for letter in request.algorithm.needs:
        if letter not in MIXING[mixing]:
            able = [name for name, served in MIXING.items() if letter in served]
            raise MixingError(
                f"{type(request.algorithm).__name__} needs {letter}, which agents do not get from "
                f'mixing = "{mixing}". Use one of {", ".join(able)}.'
            )
    function_of(request.problem)


def mixing_rule(network: Network) -> str:
    """The rule by which agents compute their own weights."""
    rules = {"uniform_row, uniform_column": "uniform"} | {name: name for name in MIXING}
    if network.mixing not in rules:
        raise MixingError(
            "agents compute their weights by a rule, from their neighbours' degrees, but the "
            f"network has mixing {network.mixing}. Use one of {', '.join(MIXING)}, or "
            "--engine agents."
        )
    return rules[network.mixing]


def function_of(problem: Problem) -> Table:
    """The table [objective], the same for every agent."""
    function, needs_jax = problem.differentiated
    references = {
        key: _reference(problem, one)
        for key, one in {"function": function, **problem.curved}.items()
    }
    quadratic = problem.is_quadratic
    return references | {"data": "data.npz", "jax": needs_jax, "quadratic": quadratic}


def _reference(problem: Problem, function: Any) -> str:
    reference = reference_to(function)
    if reference is None:
        raise ProblemError(
            "an agent's process finds its loss, gradient and Hessian by the names of functions, "
            f"but {getattr(function, '__qualname__', function)} of the problem "
            f"'{problem.name}' is made inside a function. Define it at the top level of its file, "
            "with all that it needs in the data, or use --engine agents."
        )
    return reference


def make_network(directory: Path, request: RunRequest) -> None:
    """Write keys, certificates and data, unless they are there already."""
    if (directory / _COMPLETE).exists():
        return
    shutil.rmtree(
        directory, ignore_errors=True
    )  # an earlier program was killed before it was complete
    n_agents, problem = request.network.n_agents, request.problem
    for j in range(n_agents):
        mint(directory / name_of(j), name_of(j))
        trial = None if problem.n_trials is None else int(request.trials[0])
        write_data(directory / name_of(j) / "data.npz", problem.agent_data(j, trial))
    for j in range(n_agents):
        trusted = directory / name_of(j) / TRUSTED
        trusted.mkdir()
        for i in {*_links(request.algorithm, request.network.graph, j), *_partners(request, j)}:
            shutil.copy(directory / name_of(i) / f"{name_of(i)}.crt", trusted)
    replace_file(directory / _COMPLETE, lambda file: file.write(b"{}\n"))


def config_file(config: AgentConfig) -> Path:
    return config.state.parent / "agent.toml"


def log_file(config: AgentConfig) -> Path:
    return config.state.parent / "log"


def write_configs(
    directory: Path, request: RunRequest, algorithm: Mapping[str, Any], addresses: Sequence[Address]
) -> list[AgentConfig]:
    """Write the file of every agent; `algorithm` is the table [algorithm].

    Paths in the table start at the directory of an agent.
    """
    common = _run_table(request)
    configs: list[AgentConfig] = []
    for j in range(request.network.n_agents):
        path = directory / name_of(j) / "agent.toml"
        tables: Table = {
            "agent": {
                "name": name_of(j),
                "number": j,
                "listen": _address(addresses[j]),
                "durability": "process",
                "record_every": int(request.samples[1]),
                "x0": request.x0[0, j].tolist(),
                # no deployment: `hg.run` has judged the run, and the seed is the study's
                "accept_exposure": list(WEAKNESSES),
            },
            "objective": function_of(request.problem),
            "neighbour": [
                {"name": name_of(i), "number": i, "address": _address(addresses[i]), **link}
                for i, link in _links(request.algorithm, request.network.graph, j).items()
            ],
            "run": common,
            "algorithm": _explicit(algorithm, request.algorithm),
            "partner": [{"name": name_of(i), "number": i} for i in _partners(request, j)],
        }
        configs.append(write_config(path, tables))
    return configs


def _run_table(request: RunRequest) -> Table:
    graph, mixing = request.network.graph, mixing_rule(request.network)
    table: Table = {
        "id": RUN,
        "iterations": int(request.samples[-1]),
        "dim": request.problem.dim,
        "n_agents": request.network.n_agents,
        "mixing": mixing,
        "seed": request.seed,
        "n_links": graph.n_links,
    }
    if mixing == "max_degree":
        table["max_degree"] = int(graph.in_degree.max())
    if _masks(request.algorithm) is not None or getattr(request.algorithm, "eta", None) is not None:
        table["eta"] = request.network.eta
    return table


def _address(address: Address) -> str:
    host, port = address
    return f"{host}:{port}"


def _explicit(table: Mapping[str, Any], algorithm: Algorithm) -> Table:
    """The algorithm's table with its design: agents' files and studies have other defaults."""
    design = {"design": algorithm.design} if isinstance(algorithm, Private) else {}
    return design | {key: value for key, value in table.items() if key != "label"}


def _links(algorithm: Algorithm, graph: Graph, j: int) -> dict[int, Table]:
    """The neighbours of agent j, and for each the keys of the link in j's file."""
    into, out = (
        set(ends[others == j].tolist())
        for ends, others in ((graph.senders, graph.receivers), (graph.receivers, graph.senders))
    )
    numbers: dict[int, int] = {}
    if not graph.is_directed:
        mine = np.flatnonzero(graph.senders == j)
        every = link_numbers(graph)[mine].tolist()
        numbers = dict(zip(graph.receivers[mine].tolist(), every, strict=True))
    links: dict[int, Table] = {}
    for i in sorted(into | out):
        direction = "both" if i in into & out else "in" if i in into else "out"
        links[i] = {"direction": direction} | ({"link": numbers[i]} if i in numbers else {})
    if algorithm.links is Links.TWO_HOP:
        two_hop = graph.two_hop()
        far = set(two_hop.receivers[two_hop.senders == j].tolist()) - links.keys()
        links |= {i: {"two_hop": True} for i in sorted(far)}
    return links


def _masks(algorithm: Algorithm) -> Any:
    return algorithm.masking if isinstance(algorithm, Masked) else None


def _partners(request: RunRequest, j: int) -> tuple[int, ...]:
    masks = _masks(request.algorithm)
    return () if masks is None else masks.partners(j, request.network.n_agents)
