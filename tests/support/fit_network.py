"""Deployed agents that run a fit: their files of rows, their configurations, runs with kills."""

import asyncio
import csv
from dataclasses import dataclass, replace

from hushgrad.fitting.averages import (
    averaging,
    longest_vector,
    most_averages,
    rounds_of_average,
)
from hushgrad.fitting.sums import SIZE
from hushgrad.network.deployed import Agent
from hushgrad.network.objective.fit_rows import FitSpec
from hushgrad.network.transport.in_memory import InMemoryTransport
from support import agent_network


def write_rows(path, columns):
    """One site's columns as CSV; floats with all digits."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow([v if isinstance(v, str) else repr(float(v)) for v in row])


def configs(directory, model, sites, network, *, tls=False, **options):
    """One configuration for each site of a fit, with its file of rows."""
    m = network.n_agents
    eta = 0.0 if network.graph.n_links == m * (m - 1) // 2 else network.eta
    method = averaging(eta)
    each = rounds_of_average(method, m, eta)
    most = most_averages(model)
    made = agent_network.configs(
        directory, method, network, dim=longest_vector(model), iterations=most * each,
        eta=eta, scale=SIZE, stages=most, model=model, tls=tls, **options,
    )  # fmt: skip
    found = []
    for config, columns in zip(made, sites.values(), strict=True):
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / f"{config.name}.csv"
        write_rows(file, columns)
        spec = FitSpec(model=model, file=file, site=config.name)
        found.append(replace(config, objective=spec))
    return found


class KilledError(Exception):
    """Stands for kill -9: the agent ends here, and only its state directory is left."""


async def survive(setting, seconds=60):
    """Run agents in memory to their end; an agent that is killed begins again.

    Returns the agents at their ends, their results, and how often agents were killed.
    """
    everyone, deaths, last = {}, 0, {}

    async def live(config):
        nonlocal deaths
        while True:
            agent = Agent(config, transport=InMemoryTransport(config.name, everyone))
            try:
                result = await agent.run()
            except KilledError:
                deaths += 1
                continue
            last[config.number] = agent
            return result

    async with asyncio.timeout(seconds):
        results = await asyncio.gather(*map(live, setting))
    return [last[n] for n in sorted(last)], results, deaths


def run(setting, seconds=60):
    return asyncio.run(survive(setting, seconds))


def bits(result):
    """All numbers of a result of a fit, so that equal bits compare equal."""
    of_network = ("rounds", "masks", "mu")
    document = {k: v for k, v in result.to_json().items() if k not in of_network}
    return repr([(k, v.tobytes() if hasattr(v, "tobytes") else v) for k, v in document.items()])


@dataclass
class RunOnly:
    """The part of a run's configuration on which tokens depend."""

    id: str
    seed: int | None = None


@dataclass
class AgentNumber:
    """The part of an agent's configuration on which tokens depend."""

    number: int
    run: RunOnly
